/* home_word.c - a subscription that demands the home's signature checks it by itself: chain and
 * date, the version that it names, and the root over the manifests and proofs that came (P1, P2).
 * Bytes are read for it as from a stranger: each chunk has to fit its proof. */
#include "intra/client/follow/home_word.h"

#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/fault.h"
#include "base/net/signed.h"
#include "base/proof/version_proof.h"
#include "intra/client/follow/staged_use.h"
#include "intra/client/follow/staging.h"
#include "intra/client/follow/staging_table.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/session/last_error.h"
#include "intra/client/session/session.h"

int tb_home_word_trust_open(const char *ca_path, struct tb_tls **trust_out)
{
    char error[256];
    const enum tb_status status = tb_tls_new_trust(ca_path, trust_out, error);
    return status == TB_OK ? TB_OK : tb_fail(status, "home_ca: %s", error);
}

static bool fills(const struct tb_subscription *sub, const struct tb_registration *r)
{
    return r != NULL && (sub->registration == r || sub->second == r);
}

int tb_home_word_may_subscribe(const struct tb_session *s, const struct tb_subscribe_options *o)
{
    TB_ASSERT_LOCKED(s);
    for (const struct tb_subscription *sub = s->subscriptions; sub != NULL; sub = sub->next) {
        if (!fills(sub, o->registration) && !fills(sub, o->second)) continue;
        if ((sub->home_trust != NULL) != (o->home_ca != NULL))
            return tb_fail(TB_BAD_STATE,
                           "another subscription fills the same registration %s home_ca: what one of them "
                           "believed would stand there for the other: register other memory for each",
                           sub->home_trust != NULL ? "with" : "without");
    }
    return TB_OK;
}

enum tb_status tb_home_word_keep(struct tb_home_word *word, const struct tb_span *said)
{
    if (said->count > TB_SIGNED_BYTES_MAX) return TB_PEER_GARBLED;
    if (said->count == 0) return TB_OK;
    uint8_t *bytes = tb_malloc(said->count);
    if (bytes == NULL) return TB_SITE_NOMEM;
    memcpy(bytes, said->bytes, said->count);
    tb_home_word_drop(word);
    *word = (struct tb_home_word){.bytes = bytes, .count = said->count};
    return TB_OK;
}

void tb_home_word_drop(struct tb_home_word *word)
{
    tb_free(word->bytes);
    *word = (struct tb_home_word){.bytes = NULL};
}

static void refuse(struct tb_subscription *sub, struct tb_staged_use *use, enum tb_status status,
                   const char *why)
{
    TB_ASSERT(status != TB_OK);
    use->refused = status;
    snprintf(use->refused_why, sizeof use->refused_why, "%s", why);
    tb_session_changed(sub->session, true);
}

static enum tb_status check_word(const struct tb_subscription *sub, const struct tb_staging *st,
                                 struct tb_blake3 *root_out, char why[256])
{
    struct tb_statement what;
    struct tb_signer signer;
    if (st->word.bytes == NULL) {
        snprintf(why, 256, "no signature of the model's home came with it");
        return TB_PEER_IDENTITY;
    }
    const enum tb_status status =
        tb_signed_check(sub->home_trust, st->word.bytes, st->word.count, &what, &signer, why);
    if (status == TB_PEER_GARBLED) return TB_PEER_IDENTITY; /* `why` says that it is no statement */
    if (status != TB_OK) return status;
    *root_out = what.root;
    if (signer.identity.kind != TB_IDENTITY_GATEWAY)
        snprintf(why, 256, "a gateway of the model's home has to sign it");
    else if (what.kind != TB_STATEMENT_VERSION || !tb_name_equal(&st->key.model, &sub->model) ||
             !tb_statement_fits(&what, &st->key))
        snprintf(why, 256, "the home's signature is of another version");
    else
        return TB_OK;
    return TB_PEER_IDENTITY;
}

/* The root is over all proofs, and a gateway may learn them long after the manifests. */
static bool is_proven(const struct tb_staging *st)
{
    if (!tb_staging_has_manifests(st)) return false;
    for (uint32_t i = 0; i < st->key.shard_count; i++)
        if (!tb_manifest_all_proven(&st->shards[i].manifest)) return false;
    return true;
}

static enum tb_status check_root(const struct tb_staging *st, const struct tb_blake3 *root, char why[256])
{
    const uint32_t shards = st->key.shard_count;
    TB_ASSERT(is_proven(st));
    const struct tb_manifest **each = tb_calloc(shards, sizeof *each);
    for (uint32_t i = 0; each != NULL && i < shards; i++)
        each[i] = &st->shards[i].manifest;
    const size_t bytes = each == NULL ? 0 : tb_proof_scratch_bytes(each, shards);
    void *scratch = bytes == 0 ? NULL : tb_malloc(bytes);
    struct tb_blake3 made = {{0}};
    if (scratch != NULL) made = tb_proof_root(each, shards, scratch, bytes);
    const bool fits = scratch != NULL && tb_blake3_equal(&made, root);
    const enum tb_status status = scratch == NULL ? TB_SITE_NOMEM : TB_PEER_IDENTITY;
    tb_free(scratch);
    tb_free(each);
    if (fits) return TB_OK;
    snprintf(why, 256, "%s",
             status == TB_SITE_NOMEM ? "no memory to look at its signature"
                                     : "its manifests and proofs are not those that the model's home signed");
    return status;
}

void tb_home_word_judge(struct tb_subscription *sub, struct tb_staged_use *use)
{
    TB_ASSERT_LOCKED(sub->session);
    const struct tb_staging *st = use->staging;
    struct tb_blake3 root;
    char why[256] = "";
    if (sub->home_trust == NULL || use->proven || use->refused != TB_OK) return;
    enum tb_status status = check_word(sub, st, &root, why);
    if (status == TB_OK && !is_proven(st)) return; /* the last proof brings the rest of the verdict */
    if (status == TB_OK) status = check_root(st, &root, why);
    if (status != TB_OK) {
        refuse(sub, use, status, why);
        return;
    }
    use->proven = true;
    tb_session_changed(sub->session, true);
}

void tb_home_word_judge_all(struct tb_staging *st)
{
    TB_ASSERT_LOCKED(st->session);
    if (!is_proven(st)) return;
    for (struct tb_subscription *sub = st->session->subscriptions; sub != NULL; sub = sub->next) {
        struct tb_staged_use *use = sub->uses;
        while (use != NULL && use->staging != st)
            use = use->next;
        /* One that has not asked is judged with the answer to its own STAGE. */
        if (use != NULL && use->answer == TB_OK) tb_home_word_judge(sub, use);
    }
}

bool tb_home_word_waits(const struct tb_subscription *sub, const struct tb_staged_use *use)
{
    return sub->home_trust != NULL && !use->proven && use->refused == TB_OK && use->answer >= TB_OK;
}

bool tb_home_word_is_demanded(const struct tb_staging *st)
{
    TB_ASSERT_LOCKED(st->session);
    for (const struct tb_subscription *sub = st->session->subscriptions; sub != NULL; sub = sub->next)
        for (const struct tb_staged_use *use = sub->uses; use != NULL; use = use->next)
            if (use->staging == st && sub->home_trust != NULL) return true;
    return false;
}

int tb_home_word_verdict(const struct tb_subscription *sub, const struct tb_staged_use *use, bool whole)
{
    const unsigned long long number = use->staging->key.number;
    if (sub->home_trust == NULL) return TB_OK;
    if (use->refused != TB_OK)
        return tb_fail(use->refused, "version %llu cannot be staged: %s", number, use->refused_why);
    if (!whole || use->proven) return TB_OK;
    if (tb_home_word_waits(sub, use))
        return tb_fail(TB_AGAIN, "version %llu is whole here, and not all that its home signed has come",
                       number);
    return tb_fail(TB_PEER_IDENTITY, "version %llu: the gateway has not shown the signature of its home",
                   number);
}
