/* publication_export.h - how a sealed shard is exported. */
#ifndef TB_INTRA_CLIENT_PUBLICATION_EXPORT_H
#define TB_INTRA_CLIENT_PUBLICATION_EXPORT_H

#include "tombolo/status.h"

struct tb_publication;
struct tb_session;

/* Opens the export and makes the source descriptor; without the lock. */
enum tb_status tb_publication_export(struct tb_session *s, struct tb_publication *p);

#endif
