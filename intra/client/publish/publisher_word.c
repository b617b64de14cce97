/* publisher_word.c - the signature is made once, with the shard, and goes along with each SEAL. */
#include "intra/client/publish/publisher_word.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/net/signed.h"
#include "base/proof/version_proof.h"
#include "intra/client/publish/publication.h"
#include "intra/client/session/last_error.h"
#include "intra/client/session/session.h"

int tb_publisher_open(struct tb_session *s, const struct tb_session_options *o)
{
    char error[256];
    if (o->sign_cert == NULL && o->sign_key == NULL) return TB_OK;
    if (o->sign_cert == NULL || o->sign_key == NULL)
        return tb_fail(TB_BAD_ARGUMENT, "sign_cert and sign_key go together");
    const struct tb_tls_files files = {.cert = o->sign_cert, .key = o->sign_key};
    const enum tb_status status = tb_tls_new_ca(&files, &s->publisher, error);
    if (status != TB_OK) return tb_fail(status, "%s", error);
    if (tb_tls_identity(s->publisher)->kind == TB_IDENTITY_PUBLISHER) return TB_OK;
    return tb_fail(TB_SITE_CONFIG, "%s: is not the certificate of a publisher, tombolo://SITE/publisher/NAME",
                   o->sign_cert);
}

void tb_publisher_close(struct tb_session *s)
{
    tb_tls_free(s->publisher);
    s->publisher = NULL;
}

int tb_publisher_sign(struct tb_session *s, struct tb_publication *p)
{
    if (s->publisher == NULL) return TB_OK;
    TB_ASSERT(p->head != NULL && p->said == NULL && tb_manifest_all_proven(&p->manifest));
    const struct tb_statement what = {.kind = TB_STATEMENT_SHARD,
                                      .model = p->model,
                                      .uid = p->uid,
                                      .run = p->run,
                                      .run_order = p->run_order,
                                      .number = p->number,
                                      .root = tb_proof_shard(&p->manifest, p->head, p->head_bytes),
                                      .wall_ms = tb_clock_wall_ms(),
                                      .shard_count = p->shard_count,
                                      .digest = p->manifest.root,
                                      .shard = p->shard};
    uint8_t *bytes = tb_malloc(TB_SIGNED_BYTES_MAX);
    if (bytes == NULL) return tb_fail(TB_SITE_NOMEM, "no memory for the signature");
    struct tb_writer w;
    tb_writer_init(&w, bytes, TB_SIGNED_BYTES_MAX);
    const enum tb_status status = tb_signed_write(s->publisher, &what, &w);
    if (status == TB_OK) p->said = tb_malloc(w.used);
    if (p->said != NULL) {
        memcpy(p->said, bytes, w.used);
        p->said_bytes = w.used;
    }
    tb_free(bytes);
    if (p->said != NULL) return TB_OK;
    return tb_fail(status == TB_OK ? TB_SITE_NOMEM : status, "version %llu shard %u cannot be signed",
                   (unsigned long long)p->number, p->shard);
}
