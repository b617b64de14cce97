/* subscriber.h - a session that subscribes to the model of a fake gateway, which has version 1 of
 * it. */
#ifndef TB_TESTS_SUBSCRIBER_H
#define TB_TESTS_SUBSCRIBER_H

#include "unit/client/fake_gateway.h"

#define SUBSCRIBER_TENSOR_BYTES 100000u /* of each of two tensors a shard */

struct subscriber {
    struct fake f;
    struct tb_session *s;
    struct tb_subscription *sub;
    struct fake_version *v;
    struct tb_uid uid; /* of v */
};

/* remember: the gateway keeps the session when its wire breaks. */
void subscriber_open(struct subscriber *w, uint32_t shard_count, bool remember);
void subscriber_close(struct subscriber *w);

#endif
