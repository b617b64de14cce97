/* cut_short.c - calls of the library over memory that maps a file, which somebody cuts short: each
 * says so, and the process lives. P10
 *
 * Covers: intra/client/memory/file_guard.c, intra/client/memory/registration.c,
 * intra/client/publish/publish.c, intra/client/publish/publication_watch.c */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "intra/client/memory/registration.h"
#include "intra/client/session/session_lock.h"
#include "unit/client/fake_gateway.h"

#define BYTES 6000000u /* of the tensor: several chunks */

struct world {
    struct fake f;
    struct tb_session *s;
    int fd;
    uint8_t *bytes; /* of the file */
    struct tb_registration *r;
    struct tb_run_info run;
};

static void map_file(struct world *w, uint64_t bytes)
{
    char path[] = "/tmp/tombolo-cut-XXXXXX";
    w->fd = mkstemp(path);
    assert_true(w->fd >= 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ftruncate(w->fd, (off_t)bytes), 0);
    w->bytes = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, w->fd, 0);
    assert_ptr_not_equal(w->bytes, MAP_FAILED);
    memset(w->bytes, 7, bytes);
}

static void world_open(struct world *w)
{
    memset(w, 0, sizeof *w);
    map_file(w, BYTES);
    fake_open(&w->f);
    w->s = fake_session_open(&w->f, "rank0", "host-a");
    const uint64_t shape[] = {BYTES};
    const struct tb_tensor_desc tensor = {
        .name = "t0", .dtype = "U8", .rank = 1, .shape = shape, .memory = w->bytes};
    CHECK_OK(tb_register(w->s, &tensor, 1, &w->r));
    w->run.struct_bytes = sizeof w->run;
    CHECK_OK(tb_run_open(w->s, "policy", "key", &w->run));
}

static void world_close(struct world *w)
{
    tb_session_close(w->s);
    munmap(w->bytes, BYTES);
    close(w->fd);
    fake_close(&w->f);
}

static void cut(struct world *w)
{
    assert_int_equal(ftruncate(w->fd, BYTES / 2), 0);
}

static int publish(struct world *w, uint64_t number, uint32_t mode, const struct tb_blob_desc *blob)
{
    const struct tb_publish_options o = {.struct_bytes = sizeof o,
                                         .mode = mode,
                                         .model = "policy",
                                         .run = &w->run.run,
                                         .number = number,
                                         .shard_count = 1,
                                         .registration = blob == NULL ? w->r : NULL,
                                         .blobs = blob,
                                         .blob_count = blob != NULL,
                                         .timeout_ms = 20000};
    return tb_publish(w->s, &o, NULL);
}

static void says(const char *what)
{
    if (strstr(tb_last_error(), what) == NULL) fail_msg("\"%s\" does not say \"%s\"", tb_last_error(), what);
}

static void a_publish_names_the_tensor(void)
{
    for (uint32_t mode = TB_PUBLISH_SHADOW; mode <= TB_PUBLISH_IN_PLACE; mode++) {
        struct world w;
        world_open(&w);
        CHECK_OK(publish(&w, 1, TB_PUBLISH_SHADOW, NULL));
        cut(&w);
        CHECK_STATUS(publish(&w, 2, mode, NULL), TB_SITE_IO);
        says("tensor \"t0\" maps a file that was cut short");
        assert_int_equal(fake_seen(&w.f, TB_MSG_SEAL), 1);    /* zeros are not sealed */
        CHECK_STATUS(publish(&w, 3, mode, NULL), TB_SITE_IO); /* nor later */
        CHECK_STATUS(publish(&w, 1, TB_PUBLISH_SHADOW, NULL), TB_SITE_IO);
        world_close(&w);
    }
}

/* The session thread looks at the last byte of the mapping's last page, which may be behind the
 * tensor. */
static void a_look_names_the_tensor(void)
{
    struct world w;
    world_open(&w);
    cut(&w);
    const time_t until = time(NULL) + 20;
    for (bool found = false; !found; sched_yield()) {
        tb_session_lock(w.s);
        found = tb_guard_missing(w.r->guard) != NULL;
        tb_session_unlock(w.s);
        assert_true(time(NULL) < until);
    }
    CHECK_STATUS(publish(&w, 1, TB_PUBLISH_SHADOW, NULL), TB_SITE_IO);
    says("tensor \"t0\" maps a file that was cut short");
    world_close(&w);
}

/* The bytes come back elsewhere, and the registration is as good as new. */
static void a_resume_with_other_memory_mends_it(void)
{
    struct world w;
    world_open(&w);
    cut(&w);
    CHECK_STATUS(publish(&w, 1, TB_PUBLISH_SHADOW, NULL), TB_SITE_IO);
    CHECK_OK(tb_suspend(w.r));
    void *other = calloc(1, BYTES);
    CHECK_OK(tb_resume(w.r, &other, 1));
    CHECK_OK(publish(&w, 2, TB_PUBLISH_SHADOW, NULL));
    CHECK_OK(tb_unregister(w.r));
    free(other);
    world_close(&w);
}

/* A gateway of this host reads by system calls: no load of ours finds it, and a look does. Nobody
 * is served zeros as if they were the version: the reference ends. */
static void a_version_in_place_gives_its_reference_up(void)
{
    struct world w;
    world_open(&w);
    CHECK_OK(publish(&w, 1, TB_PUBLISH_IN_PLACE, NULL));
    assert_int_equal(fake_seen(&w.f, TB_MSG_UNPUBLISH), 0);
    cut(&w);
    fake_wait_seen(&w.f, TB_MSG_UNPUBLISH, 1);
    const struct tb_uid uid = fake_uid(fake_version(&w.f, 1));
    CHECK_OK(tb_unpublish(w.s, &uid, 1000));
    world_close(&w);
}

/* Resumed over other memory with the same bytes, it is sealed again, and a gateway that comes anew
 * hears of it like of any other. */
static void a_version_that_comes_back_is_announced(void)
{
    struct world w;
    world_open(&w);
    CHECK_OK(publish(&w, 1, TB_PUBLISH_IN_PLACE, NULL));
    cut(&w);
    fake_wait_seen(&w.f, TB_MSG_UNPUBLISH, 1);
    CHECK_OK(tb_suspend(w.r));
    void *other = malloc(BYTES);
    memset(other, 7, BYTES);
    CHECK_OK(tb_resume(w.r, &other, 1));
    assert_int_equal(fake_seen(&w.f, TB_MSG_SEAL), 2);
    fake_go_away(&w.f, w.s);
    fake_come_back(&w.f, w.s);
    fake_wait_seen(&w.f, TB_MSG_SEAL, 3);
    CHECK_OK(tb_unregister(w.r));
    free(other);
    world_close(&w);
}

static void a_blob_is_named(void)
{
    struct world w;
    world_open(&w);
    const struct tb_blob_desc blob = {"tokenizer.json", w.bytes, BYTES};
    CHECK_OK(publish(&w, 1, TB_PUBLISH_SHADOW, &blob));
    cut(&w);
    CHECK_STATUS(publish(&w, 2, TB_PUBLISH_SHADOW, &blob), TB_SITE_IO);
    says("blob \"tokenizer.json\" maps a file that was cut short");
    CHECK_STATUS(publish(&w, 1, TB_PUBLISH_SHADOW, &blob), TB_SITE_IO);
    world_close(&w);
}

/* And what is written there is no version. */
static void an_activation_says_so(void)
{
    struct world w;
    world_open(&w);
    const struct fake_version *v = fake_make(&w.f, 1, 1, 1, BYTES);
    const struct tb_uid uid = fake_uid(v);
    struct tb_subscription *sub;
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o,
                                           .member_count = 1,
                                           .model = "policy",
                                           .group = "engine",
                                           .registration = w.r};
    CHECK_OK(tb_subscribe(w.s, &o, &sub));
    CHECK_OK(tb_stage(sub, &uid, 20000));
    fake_go(&w.f, 1);
    cut(&w);
    CHECK_STATUS(tb_activate(sub, &uid, NULL), TB_SITE_IO);
    says("tensor \"t0\"");
    CHECK_OK(tb_unsubscribe(sub));
    world_close(&w);
}

/* One test: cmocka has handlers of its own in each, and the library's is installed once. */
static void P10_no_file_ends_the_process(void **state)
{
    (void)state;
    a_publish_names_the_tensor();
    a_look_names_the_tensor();
    a_resume_with_other_memory_mends_it();
    a_version_in_place_gives_its_reference_up();
    a_version_that_comes_back_is_announced();
    a_blob_is_named();
    an_activation_says_so();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(P10_no_file_ends_the_process)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
