/* look.h - what stands in the certificates of files, and which one signed which. Nothing is
 * trusted by it. Threads: one. */
#ifndef TB_BASE_PKI_LOOK_H
#define TB_BASE_PKI_LOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ident.h"
#include "base/message.h"
#include "base/net/spiffe.h"
#include "tombolo/status.h"

#define TB_PKI_TEXT_BYTES   128
#define TB_PKI_SERIAL_BYTES 48

enum tb_pki_kind { TB_PKI_ROOT, TB_PKI_ISSUING, TB_PKI_LEAF, TB_PKI_STRANGE };

struct tb_pki_seen {
    const char *path; /* borrowed */
    uint32_t index;   /* in its file, from 0 */
    enum tb_pki_kind kind;
    struct tb_identity identity;                                /* LEAF; kind NONE for others */
    char spiffe[TB_SPIFFE_BYTES_MAX];                           /* the URI of a platform; "": it has none */
    bool unlisted;                                              /* no line of the list is for that URI */
    char subject[TB_PKI_TEXT_BYTES], issuer[TB_PKI_TEXT_BYTES]; /* common names, as they stand there */
    char serial[TB_PKI_SERIAL_BYTES];                           /* hex */
    char key[32];                                               /* "EC 256" */
    struct tb_fingerprint fingerprint;
    int64_t from_wall_s, until_wall_s;
    int32_t signer; /* index of the certificate, among all of the look, that signed it; -1: none */
};

struct tb_pki_look;                        /* certificates of files */
struct tb_pki_look *tb_pki_look_new(void); /* NULL: no memory */
void tb_pki_look_free(struct tb_pki_look *look);
/* SPIFFE URIs have the identities of this list, as at the gateway that reads it. Borrowed until the
 * look is freed; NULL: no URI is listed. */
void tb_pki_look_spiffe(struct tb_pki_look *look, const struct tb_spiffe *list);
/* `path` outlives the look. TB_BAD_FILE, TB_SITE_IO; TB_TOO_LARGE: more than 4096 certificates. */
TB_MUST_USE enum tb_status tb_pki_look_add(struct tb_pki_look *look, const char *path, char error_out[256]);
uint32_t tb_pki_look_count(const struct tb_pki_look *look);
void tb_pki_look_at(const struct tb_pki_look *look, uint32_t index, struct tb_pki_seen *seen_out);
/* Whether the certificate is on a list of revoked ones. */
struct tb_revoked;
bool tb_pki_look_revoked(const struct tb_pki_look *look, uint32_t index, const struct tb_revoked *revoked);

#endif
