/* far_place.h - a place whose tensors stand where no core may look, as on a device: where its
 * chunks are said to be stands something else. Its owner, which is a test, has the memory itself.
 * Its blobs stand in memory of the host. */
#ifndef TB_TESTS_INTRA_FAR_PLACE_H
#define TB_TESTS_INTRA_FAR_PLACE_H

#include <stdatomic.h>

#include "island.h"

#define FAR_PLACE_OFFSET 8192u /* of its bytes in the memory */

struct far_place {
    struct tb_place_far far;
    struct tb_place_owner owner;
    uint8_t *said;   /* where they are not: nobody writes there, and what is read there is not the version */
    uint8_t *memory; /* of whole pages */
    /* Chunks that its owner brought there, and that it found there. */
    atomic_uint brought, found;
};

/* The hold's place is far until close, which puts what arrived into the hold's bytes. */
void far_place_open(struct far_place *f, struct hold *h);
void far_place_close(struct far_place *f, struct hold *h);

#endif
