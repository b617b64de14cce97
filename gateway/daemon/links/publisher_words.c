/* publisher_words.c - a publisher signs the head and the proofs of each shard that it made, with
 * the version's key (P1, P2). A gateway that forges a version of a model with `publishers`, or
 * bytes of one, lacks that key. */
#include "gateway/daemon/links/publisher_words.h"

#include <stdio.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/fault.h"
#include "base/net/signed.h"
#include "base/proof/version_proof.h"
#include "gateway/config/model_rules.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/persist_links.h"
#include "gateway/daemon/rights.h"

bool tb_publishers_demanded(const struct tb_daemon *d, const struct tb_name *model)
{
    const struct tb_config_model *m = tb_config_model_for(d->config, model);
    return m != NULL && m->publishers_count > 0;
}

/* TB_SITE_NOMEM: not known. */
static enum tb_status compare(const struct tb_statement *what, const struct tb_manifest *manifest)
{
    const size_t bytes = tb_manifest_head_bytes(manifest);
    if (!tb_digest_equal(&what->digest, &manifest->root)) return TB_PEER_IDENTITY;
    if (!tb_manifest_all_proven(manifest)) return TB_PEER_IDENTITY;
    void *head = tb_malloc(bytes);
    if (head == NULL) return TB_SITE_NOMEM;
    const struct tb_blake3 root = tb_proof_shard(manifest, head, bytes);
    tb_free(head);
    return tb_blake3_equal(&root, &what->root) ? TB_OK : TB_PEER_IDENTITY;
}

enum tb_status tb_publisher_words_check(const struct tb_daemon *d, const struct tb_version_key *key,
                                        uint32_t shard, const struct tb_manifest *manifest,
                                        const struct tb_span *said, char error_out[256])
{
    struct tb_statement what;
    struct tb_signer signer;
    char why[256] = "";
    const char *model = key->model.text;
    if (!tb_publishers_demanded(d, &key->model) && said->count == 0) return TB_OK;
    if (d->tls == NULL) {
        snprintf(error_out, 256, "this gateway has no `tls`: it trusts no publisher's certificate");
        return TB_PEER_DENIED;
    }
    if (said->count == 0) {
        snprintf(error_out, 256,
                 "models.%.64s.publishers: a publisher has to sign the version: give the "
                 "session sign_cert and sign_key",
                 model);
        return TB_PEER_DENIED;
    }
    if (tb_signed_check(d->tls, said->bytes, said->count, &what, &signer, why) != TB_OK) {
        snprintf(error_out, 256, "the publisher's signature: %.200s", why);
        return TB_PEER_DENIED;
    }
    if (!tb_rights_publisher(d->config, &key->model, &signer.identity)) {
        char uri[TB_URI_BYTES_MAX];
        tb_identity_format(&signer.identity, uri);
        snprintf(error_out, 256, "models.%.64s.publishers does not list %.120s", model, uri);
        return TB_PEER_DENIED;
    }
    const bool of_it =
        what.kind == TB_STATEMENT_SHARD && what.shard == shard && tb_statement_fits(&what, key);
    const enum tb_status status = of_it ? compare(&what, manifest) : TB_PEER_IDENTITY;
    if (status == TB_OK) return TB_OK;
    snprintf(error_out, 256, "%s",
             status == TB_SITE_NOMEM ? "no memory to look at a publisher's signature"
                                     : "the publisher signed another shard, or other bytes");
    return status == TB_SITE_NOMEM ? status : TB_PEER_DENIED;
}

void tb_publisher_words_keep(struct tb_daemon *d, const struct tb_span *said)
{
    struct tb_statement what;
    struct tb_signer signer;
    char why[256];
    if (said->count == 0 || d->tls == NULL) return;
    if (tb_signed_check(d->tls, said->bytes, said->count, &what, &signer, why) != TB_OK) return;
    if (tb_said_put(&d->said, &what, &signer.identity, said->bytes, said->count) != NULL)
        tb_persist_signed(d, &what, said->bytes, said->count);
}

static const struct tb_said *word_of(const struct tb_daemon *d, const struct tb_version_key *key,
                                     uint32_t shard)
{
    const struct tb_id id = tb_statement_shard_id(&key->uid, shard);
    const struct tb_said *s = tb_said_find(&d->said, TB_STATEMENT_SHARD, &id);
    return s != NULL && s->what.shard == shard && tb_statement_fits(&s->what, key) ? s : NULL;
}

bool tb_publishers_said(const struct tb_daemon *d, const struct tb_version_key *key)
{
    if (!tb_publishers_demanded(d, &key->model)) return true;
    for (uint32_t s = 0; s < key->shard_count; s++)
        if (word_of(d, key, s) == NULL) return false;
    return true;
}

bool tb_publishers_fit(const struct tb_daemon *d, const struct tb_version_key *key,
                       const struct tb_manifest *const *manifests)
{
    if (!tb_publishers_demanded(d, &key->model)) return true;
    for (uint32_t s = 0; s < key->shard_count; s++) {
        const struct tb_said *said = word_of(d, key, s);
        if (said == NULL || compare(&said->what, manifests[s]) != TB_OK) return false;
    }
    return true;
}
