#include "far_place.h"

#include <stdlib.h>
#include <string.h>

#define SAID 0x3c

/* On a thread of the pool. */
static enum tb_status finish(void *owner, const struct tb_place *p, uint32_t k, const uint8_t *from)
{
    struct far_place *f = owner;
    const struct tb_chunk *c = &p->manifest->chunks[k];
    uint8_t *at = f->memory + FAR_PLACE_OFFSET + c->offset;
    if (from != NULL) memcpy(at, from, c->bytes);
    atomic_fetch_add(from != NULL ? &f->brought : &f->found, 1);
    const struct tb_digest digest = tb_digest_of(at, c->bytes);
    return tb_digest_equal(&digest, &p->manifest->digests[k]) ? TB_OK : TB_CHUNK_DIGEST;
}

void far_place_open(struct far_place *f, struct hold *h)
{
    const struct tb_manifest *m = h->place.manifest;
    memset(f, 0, sizeof *f);
    f->memory = aligned_alloc(4096, (FAR_PLACE_OFFSET + m->layout.bytes + 4095) / 4096 * 4096);
    f->said = malloc(m->layout.bytes);
    memset(f->said, SAID, m->layout.bytes);
    f->far = (struct tb_place_far){.bytes = m->layout.bytes,
                                   .rest = malloc(m->bytes - m->layout.bytes + 1),
                                   .finish = finish,
                                   .owner = f,
                                   .dmabuf = -1};
    h->place.bytes = f->said;
    h->place.far = &f->far;
}

void far_place_close(struct far_place *f, struct hold *h)
{
    const struct tb_manifest *m = h->place.manifest;
    for (uint64_t i = 0; i < m->layout.bytes; i++)
        assert_int_equal(f->said[i], SAID);
    memcpy(h->bytes, f->memory + FAR_PLACE_OFFSET, m->layout.bytes);
    memcpy(h->bytes + m->layout.bytes, f->far.rest, m->bytes - m->layout.bytes);
    h->place.bytes = h->bytes;
    h->place.far = NULL;
    free(f->said);
    free(f->memory);
    free(f->far.rest);
}
