/* revoked.h - certificates that count no more before they end: a list in a file, an entry a line.
 *
 *   sha256:HEX                 one certificate, by the SHA-256 of its DER
 *   serial:HEX                 certificates with that serial number, of whatever CA
 *   tombolo://SITE/GATEWAY     every certificate of that identity, also one that is issued later
 *   tombolo://SITE/worker/NAME
 *
 * HEX may have a colon between bytes, as openssl prints it. The text behind an entry is for people,
 * and so is a line that begins with '#'. A line that is none of these refuses the whole file: a
 * list that is read in part would let in a certificate that the operator wrote down.
 *
 * Read-only after it is made; any thread. */
#ifndef TB_BASE_NET_REVOKED_H
#define TB_BASE_NET_REVOKED_H

#include <stdbool.h>
#include <stddef.h>

#include "base/digest.h"
#include "base/ident.h"
#include "base/message.h"
#include "tombolo/status.h"

#define TB_REVOKED_MAX        4096u      /* entries */
#define TB_REVOKED_BYTES_MAX  (1u << 20) /* of the file */
#define TB_SERIAL_BYTES_MAX   20u        /* RFC 5280 */
#define TB_REVOKED_TEXT_BYTES (TB_URI_BYTES_MAX + 8u)

enum tb_revoked_kind { TB_REVOKED_FINGERPRINT = 1, TB_REVOKED_SERIAL, TB_REVOKED_IDENTITY };

struct tb_revoked_entry {
    enum tb_revoked_kind kind;
    struct tb_fingerprint fingerprint;
    uint8_t serial[TB_SERIAL_BYTES_MAX]; /* without leading zeros */
    uint8_t serial_bytes;
    struct tb_identity identity; /* of a gateway or a worker */
};

/* A certificate that a list is asked about. identity.kind NONE: it has none, as a CA. */
struct tb_revoked_certificate {
    struct tb_fingerprint fingerprint;
    const uint8_t *serial; /* borrowed */
    size_t serial_bytes;
    struct tb_identity identity;
};

/* One entry, without the text behind it. TB_BAD_ARGUMENT. */
TB_MUST_USE enum tb_status tb_revoked_entry_parse(const char *text, size_t bytes,
                                                  struct tb_revoked_entry *entry_out);
void tb_revoked_entry_format(const struct tb_revoked_entry *entry, char out[TB_REVOKED_TEXT_BYTES]);
bool tb_revoked_entry_equal(const struct tb_revoked_entry *a, const struct tb_revoked_entry *b);

struct tb_revoked;
/* TB_BAD_FILE: *line_out is no entry; TB_TOO_LARGE: more than TB_REVOKED_MAX; TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_revoked_parse(const char *text, size_t bytes, struct tb_revoked **revoked_out,
                                            uint32_t *line_out);
/* From a file. `error_out` gets a sentence with its name. TB_SITE_CONFIG, TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_revoked_read(const char *path, struct tb_revoked **revoked_out,
                                           char error_out[256]);
void tb_revoked_free(struct tb_revoked *revoked);
/* One entry more, with a note for people (one line), in a file that is made where there is none. It
 * is on disk when this returns. TB_DONE_BEFORE: it has that one; TB_SITE_CONFIG: the file cannot be
 * read or written, or makes no sense; TB_SITE_NOMEM. */
#define TB_REVOKED_NOTE_BYTES 192u
TB_MUST_USE enum tb_status tb_revoked_add(const char *path, const struct tb_revoked_entry *entry,
                                          const char *note, char error_out[256]);
/* The fingerprint of the first certificate in a PEM file, and its identity. `error_out` gets a
 * sentence. TB_BAD_FILE, TB_SITE_IO, TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_revoked_of_file(const char *path, struct tb_revoked_entry *entry_out,
                                              char identity_out[TB_URI_BYTES_MAX], char error_out[256]);

bool tb_revoked_has(const struct tb_revoked *revoked, const struct tb_revoked_certificate *certificate);
bool tb_revoked_has_entry(const struct tb_revoked *revoked, const struct tb_revoked_entry *entry);
uint32_t tb_revoked_count(const struct tb_revoked *revoked);
/* Equal lists have equal ones. */
struct tb_digest tb_revoked_digest(const struct tb_revoked *revoked);

#endif
