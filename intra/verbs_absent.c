/* verbs_absent.c - stands in for intra/verbs where rdma-core's headers were not found. */
#include "base/assert.h"
#include "intra/transport/transport_words.h"
#include "intra/verbs_part.h"

const char *tb_verbs_open(struct tb_fabric *f, struct tb_verbs **verbs_out)
{
    (void)f;
    *verbs_out = NULL;
    return "built without rdma-core";
}

void tb_verbs_close(struct tb_verbs *v)
{
    TB_ASSERT(v == NULL);
}

void tb_verbs_free(struct tb_verbs *v)
{
    TB_ASSERT(v == NULL);
}

void tb_verbs_memory_stays(struct tb_verbs *v, const void *bytes, uint64_t count)
{
    (void)bytes, (void)count;
    TB_ASSERT(v == NULL);
}

void tb_verbs_memory_goes(struct tb_verbs *v, const void *bytes)
{
    (void)bytes;
    TB_ASSERT(v == NULL);
}

tb_time_ns tb_verbs_registering(struct tb_verbs *v)
{
    TB_ASSERT(v == NULL);
    return 0;
}

enum tb_status tb_verbs_guest_open(struct tb_verbs *v, struct tb_export *export,
                                   const struct tb_verbs_guest_events *events, void *user,
                                   struct tb_verbs_guest **guest_out)
{
    (void)v, (void)export, (void)events, (void)user, (void)guest_out;
    return TB_SITE_IO;
}

const struct tb_id *tb_verbs_guest_secret(const struct tb_verbs_guest *g)
{
    (void)g;
    return NULL;
}

uint32_t tb_verbs_rails(struct tb_verbs *v, const struct tb_export *export, struct tb_rail *rails_out,
                        uint16_t *port_out)
{
    (void)v, (void)export, (void)rails_out;
    *port_out = 0;
    return 0;
}

enum tb_status tb_verbs_guest_window(struct tb_verbs_guest *g, uint32_t buffer,
                                     struct tb_verbs_window *window_out)
{
    (void)g, (void)buffer, (void)window_out;
    return TB_BAD_STATE;
}

void tb_verbs_guest_end(struct tb_verbs_guest *g)
{
    TB_ASSERT(g == NULL);
}

void tb_verbs_export_drop(struct tb_verbs_export *e)
{
    TB_ASSERT(e == NULL);
}

static enum tb_status absent_open(const struct tb_upstream_options *options,
                                  struct tb_upstream **upstream_out)
{
    (void)options, (void)upstream_out;
    return TB_PEER_UNREACHABLE;
}

const struct tb_transport_ops tb_transport_verbs = {.transport = TB_TRANSPORT_VERBS, .open = absent_open};
