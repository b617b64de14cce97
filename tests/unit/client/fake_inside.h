/* fake_inside.h - what the files of the fake gateway share. All of it is called under the fake's
 * lock, but for fake_run_job. */
#ifndef TB_TESTS_FAKE_INSIDE_H
#define TB_TESTS_FAKE_INSIDE_H

#include <stdio.h>
#include <time.h>

#include "unit/client/fake_gateway.h"

#define FAKE_BOUND_S 20 /* a test waits no longer */

/* ---- fake_gateway.c ---- */

/* On the loop; nothing is said where the session has no wire. */
#define FAKE_SEND(s, type, request, name, m, more)                                                           \
    do {                                                                                                     \
        struct tb_writer *w_ =                                                                               \
            (s)->wire == NULL ? NULL : tb_wire_begin((s)->wire, type, request, 4096 + (more));               \
        if (w_ != NULL) {                                                                                    \
            name##_encode(m, w_);                                                                            \
            tb_wire_end((s)->wire);                                                                          \
        }                                                                                                    \
    } while (0)
void fake_reply(struct fake_session *s, uint64_t request, enum tb_status status, const char *why);

/* The test's thread has something done on the loop and waits for it. */
void fake_run_job(struct fake *f, void (*job)(struct fake *f, void *user), void *user);
/* Waits for a change, and fails the test when none comes. */
void fake_wait_change(struct fake *f, time_t until);

/* ---- fake_answers.c ---- */

/* TB_PEER_GARBLED: it is nothing that a worker says. */
enum tb_status fake_answer(struct fake *f, uint32_t session, struct tb_wire_frame *frame);
void fake_grant_and_plan(struct fake *f, uint32_t reader, struct fake_version *v);
void fake_send_proofs(struct fake_session *s, struct fake_version *v);

/* ---- fake_versions.c ---- */

struct fake_version *fake_find(struct fake *f, const struct tb_id *uid); /* NULL: there is none */
struct fake_version *fake_find_number(struct fake *f, uint64_t number);  /* likewise */
struct fake_version *fake_new_version(struct fake *f, const char *model, const struct tb_id *run,
                                      uint64_t number, uint32_t shard_count);
void fake_become_ready(struct fake_version *v); /* once all shards are sealed */
uint8_t *fake_copy_of(const void *bytes, uint32_t count);

#endif
