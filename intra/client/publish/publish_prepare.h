/* publish_prepare.h - what tb_publish and tb_publish_prepare have to agree on. */
#ifndef TB_INTRA_CLIENT_PUBLISH_PREPARE_H
#define TB_INTRA_CLIENT_PUBLISH_PREPARE_H

#include <stdint.h>

/* Of the packed copy of a GPU's memory that has so many bytes: blobs that grow a little fit too. */
uint64_t tb_publish_copy_bytes(uint64_t bytes);

#endif
