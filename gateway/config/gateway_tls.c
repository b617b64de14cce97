/* gateway_tls.c - a context of all the files as they are now, or why not. */
#include "gateway/config/gateway_tls.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/net/revoked.h"

static enum tb_status not_ours(const struct tb_config *c, const struct tb_identity *it, char error_out[512])
{
    char text[TB_URI_BYTES_MAX];
    tb_identity_format(it, text);
    snprintf(error_out, 512, "the certificate is for %.80s, the config says site %.60s, gateway %.60s", text,
             c->site.text, c->gateway.text);
    return TB_SITE_CONFIG;
}

/* Each for its own site alone: the CA of one cannot make a gateway of another (P8). */
static enum tb_status add_cas(const struct tb_config *c, struct tb_tls *tls, char error_out[512])
{
    enum tb_status status = tb_tls_add_site_ca(tls, &c->site, c->tls_ca, error_out);
    for (uint32_t i = 0; status == TB_OK && i < c->peer_count; i++) {
        const struct tb_config_peer *peer = &c->peers[i];
        if (peer->gone) continue;
        TB_ASSERT(peer->of.text[0] != '\0'); /* else the CA would be bound to no site */
        status = tb_tls_add_site_ca(tls, &peer->of, peer->ca != NULL ? peer->ca : c->tls_ca, error_out);
    }
    for (uint32_t i = 0; status == TB_OK && i < c->model_count; i++)
        if (c->models[i].home_ca != NULL)
            status = tb_tls_add_site_ca(tls, &c->models[i].home, c->models[i].home_ca, error_out);
    return status;
}

/* P8: a list that cannot be read is no empty list. */
static enum tb_status add_revoked(const struct tb_config *c, struct tb_tls *tls, char error_out[512])
{
    struct tb_revoked *revoked = NULL;
    if (c->tls_revoked == NULL) return TB_OK;
    const enum tb_status status = tb_revoked_read(c->tls_revoked, &revoked, error_out);
    if (status == TB_OK) tb_tls_set_revoked(tls, revoked);
    return status;
}

enum tb_status tb_gateway_tls(const struct tb_config *c, struct tb_tls **tls_out, char error_out[512])
{
    const struct tb_tls_files files = {.cert = c->tls_cert, .key = c->tls_key, .spiffe = c->tls_spiffe};
    struct tb_tls *tls = NULL;
    TB_ASSERT(c->tls_cert != NULL && c->tls_key != NULL && c->tls_ca != NULL);
    enum tb_status status = tb_tls_new_ca(&files, &tls, error_out);
    if (status != TB_OK) return status;
    status = add_cas(c, tls, error_out);
    if (status != TB_OK) goto undo_tls;
    status = add_revoked(c, tls, error_out);
    if (status != TB_OK) goto undo_tls;
    const struct tb_identity *it = tb_tls_identity(tls);
    if (it->kind != TB_IDENTITY_GATEWAY || !tb_name_equal(&it->site, &c->site) ||
        !tb_name_equal(&it->name, &c->gateway)) {
        status = not_ours(c, it, error_out);
        goto undo_tls;
    }
    tb_tls_set_own_records(tls, c->link_own_records);
    *tls_out = tls;
    return TB_OK;

undo_tls:
    tb_tls_free(tls);
    return status;
}
