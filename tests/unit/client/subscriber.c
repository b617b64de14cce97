/* subscriber.c - see subscriber.h. */
#include "unit/client/subscriber.h"

#include <string.h>

void subscriber_open(struct subscriber *w, uint32_t shard_count, bool remember)
{
    memset(w, 0, sizeof *w);
    fake_open(&w->f);
    FAKE_SET(&w->f, remember, remember);
    w->v = fake_make(&w->f, 1, shard_count, 2, SUBSCRIBER_TENSOR_BYTES);
    w->uid = fake_uid(w->v);
    w->s = fake_session_open(&w->f, "w", NULL);
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o, .member_count = 1, .model = "policy"};
    CHECK_OK(tb_subscribe(w->s, &o, &w->sub));
}

void subscriber_close(struct subscriber *w)
{
    tb_session_close(w->s);
    fake_close(&w->f);
}
