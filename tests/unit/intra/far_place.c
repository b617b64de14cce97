#include "far_place.h"

#include <stdlib.h>
#include <string.h>

#define SAID 0x3c

/* On a thread of the pool. */
static void look(void *user, struct tb_place_look *look)
{
    struct far_place *f = user;
    const uint8_t *from = look->came.beside;
    const struct tb_chunk *c = &look->place->manifest->chunks[look->chunk];
    uint8_t *at = f->memory + FAR_PLACE_OFFSET + c->offset;
    if (from != NULL) memcpy(at, from, c->bytes);
    atomic_fetch_add(from != NULL ? &f->brought : &f->found, 1);
    const struct tb_digest digest = tb_digest_of(at, c->bytes);
    if (look->came.foreign) look->proof = tb_blake3_of(at, c->bytes);
    tb_place_looked(look, TB_OK, &digest);
}

void far_place_open(struct far_place *f, struct hold *h)
{
    const struct tb_manifest *m = h->place.manifest;
    memset(f, 0, sizeof *f);
    f->memory = aligned_alloc(4096, (FAR_PLACE_OFFSET + m->layout.bytes + 4095) / 4096 * 4096);
    f->said = malloc(m->layout.bytes);
    memset(f->said, SAID, m->layout.bytes);
    f->far = (struct tb_place_far){
        .bytes = m->layout.bytes, .rest = malloc(m->bytes - m->layout.bytes + 1), .dmabuf = -1};
    h->place.bytes = f->said;
    f->owner = (struct tb_place_owner){.look = look, .user = f};
    h->place.far = &f->far;
    h->place.owner = &f->owner;
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
    h->place.owner = NULL;
    free(f->said);
    free(f->memory);
    free(f->far.rest);
}
