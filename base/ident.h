/* ident.h - names and ids, and the identities in certificates. Pure. */
#ifndef TB_BASE_IDENT_H
#define TB_BASE_IDENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "tombolo/status.h"

#define TB_NAME_BYTES_MAX 64 /* of a model, site, gateway, worker, group, host; without the NUL */
#define TB_HEX_CHARS      33 /* a 128-bit id as text, with its NUL */
#define TB_URI_BYTES_MAX  160

/* 128 random bits: the uid of a version, a run id, a life, a session id, a token. */
struct tb_id {
    uint8_t bytes[16];
};

struct tb_name {
    char text[TB_NAME_BYTES_MAX + 1];
};

bool tb_id_equal(const struct tb_id *a, const struct tb_id *b);
bool tb_id_is_zero(const struct tb_id *id);
void tb_id_format(const struct tb_id *id, char hex_out[TB_HEX_CHARS]);
/* Exactly 32 hex digits and the end of the string. */
bool tb_id_parse(const char *hex, struct tb_id *id_out);
struct tb_id tb_read_id(struct tb_reader *r);
void tb_write_id(struct tb_writer *w, const struct tb_id *id);

/* [A-Za-z0-9._-], 1 to 64, and neither "." nor "..": names become file names. */
bool tb_name_valid(const char *text);
/* TB_BAD_ARGUMENT when not valid. */
TB_MUST_USE enum tb_status tb_name_set(struct tb_name *name_out, const char *text);
bool tb_name_equal(const struct tb_name *a, const struct tb_name *b);
/* Bad when the bytes are not a valid name. */
void tb_read_name(struct tb_reader *r, struct tb_name *name_out);
void tb_write_name(struct tb_writer *w, const struct tb_name *name);

/* The identity of a peer: the one URI in its certificate, or the credentials of a unix socket.
 *   tombolo://SITE/GATEWAY          a gateway
 *   tombolo://SITE/worker/NAME      a worker ("worker" is therefore no gateway's name)
 *   tombolo://SITE/publisher/NAME   a key that signs versions, and opens no connection (likewise)
 *   unix:UID                        a process on the gateway's host */
enum tb_identity_kind {
    TB_IDENTITY_NONE,
    TB_IDENTITY_GATEWAY,
    TB_IDENTITY_WORKER,
    TB_IDENTITY_UNIX,
    TB_IDENTITY_PUBLISHER
};

struct tb_identity {
    enum tb_identity_kind kind;
    struct tb_name site; /* all but UNIX */
    struct tb_name name; /* likewise */
    uint32_t uid;        /* UNIX */
};

/* TB_BAD_ARGUMENT for anything that is not exactly one of the forms above. */
TB_MUST_USE enum tb_status tb_identity_parse(const char *text, struct tb_identity *identity_out);
void tb_identity_format(const struct tb_identity *identity, char out[TB_URI_BYTES_MAX]);
bool tb_identity_equal(const struct tb_identity *a, const struct tb_identity *b);

#endif
