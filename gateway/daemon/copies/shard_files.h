/* shard_files.h - digests of the files of a version that is being sealed, as its ranks said them.
 *
 * Two ranks may give a file of one name. Equal bytes are one file. Other bytes are refused at the
 * seal, as subscribe can write one of them alone. A manifest has no digest of a blob, so a rank
 * says it beside its manifest (SEAL). The rows go when the version is ready. After a restart of the
 * gateway a rank says it again. The blobs of a rank that has left are read where the gateway holds
 * them. */
#ifndef TB_DAEMON_SHARD_FILES_H
#define TB_DAEMON_SHARD_FILES_H

#include "base/ident.h"
#include "base/layout/manifest.h"
#include "base/layout/place.h"

struct tb_shard_files {
    struct tb_digest root; /* of the manifest that they belong to */
    struct tb_name rank;
    bool known;                 /* the rank said the digests */
    struct tb_digest digests[]; /* of each blob, in the manifest's order */
};

/* `digests`: `blob_count` of the manifest, or NULL: not said. NULL: no memory. */
struct tb_shard_files *tb_shard_files_new(const struct tb_manifest *manifest, const struct tb_name *rank,
                                          const void *digests);
/* Digests of the blobs in a whole place, as far as `other` has a blob of the same name and length;
 * those of the others are zero. A pass over these bytes on the caller's thread: 100 MB take some
 * 10 ms. NULL: no memory. The caller frees it with tb_free. */
struct tb_shard_files *tb_shard_files_read(const struct tb_place *place, const struct tb_manifest *other);

/* Of a version; rows NULL: nobody has said anything. */
struct tb_shard_files_table {
    uint32_t shard_count;
    struct tb_shard_files **rows; /* of each shard; NULL: it has not said any */
};
/* Replaces the shard's earlier row. True: the row belongs to the table now. False: no memory. */
bool tb_shard_files_put(struct tb_shard_files_table *table, uint32_t shard_count, uint32_t shard,
                        struct tb_shard_files *row);
/* The row of that shard, if it is of that manifest; else NULL. */
const struct tb_shard_files *tb_shard_files_find(const struct tb_shard_files_table *table, uint32_t shard,
                                                 const struct tb_digest *root);
void tb_shard_files_free(struct tb_shard_files_table *table);

#endif
