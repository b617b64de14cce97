/* buffers.h - memory of ours that readers of this host map. */
#ifndef TB_INTRA_CLIENT_BUFFERS_H
#define TB_INTRA_CLIENT_BUFFERS_H

#include "intra/fabric/shared_memory.h"

struct tb_session;

struct tb_buffer {
    struct tb_buffer *next;
    struct tb_shared_memory memory;
};

/* Memory that readers map and NICs register once, of which no page is made yet. */
TB_MUST_USE enum tb_status tb_buffer_memory_open(struct tb_session *s, const char *name, uint64_t bytes,
                                                 struct tb_shared_memory *memory_out);
/* The same with its pages, made on all threads of the crew. Without the lock: pages take a while to
 * come and to go. */
enum tb_status tb_buffer_memory_new(struct tb_session *s, const char *name, uint64_t bytes,
                                    struct tb_shared_memory *memory_out);
/* a zeroed one is fine */
void tb_buffer_memory_free(struct tb_session *s, struct tb_shared_memory *memory);
/* The buffer that has all of [at, at + bytes), or NULL. */
const struct tb_buffer *tb_buffer_find(const struct tb_session *s, const void *at, uint64_t bytes);
void tb_buffers_free(struct tb_session *s);

#endif
