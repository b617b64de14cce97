/* found_streams.c - how many streams a search found for each peer, over restarts: a gateway that
 * begins again does not search again while a version waits. */
#include "gateway/daemon/daemon.h"

#include "base/assert.h"
#include "base/log.h"
#include "gateway/daemon/links/found_streams.h"
#include "gateway/daemon/persist.h"
#include "gateway/daemon/persist_links.h"
#include "gateway/store/store_load.h"
#include "wan/link/links_stats.h"

static void found(void *user, const struct tb_store_path *row)
{
    struct tb_daemon *d = user;
    for (uint32_t i = 0; i < d->config->peer_count; i++)
        if (tb_name_equal(&d->config->peers[i].site, &row->site)) d->found[i] = *row;
}

enum tb_status tb_found_open(struct tb_daemon *d)
{
    if (tb_store_load_paths(d->store, found, d) != TB_OK)
        tb_log(TB_LOG_WARN, "link.paths_forgotten", "why=store action=search_again");
    return TB_OK;
}

void tb_found_seen(struct tb_daemon *d, uint32_t peer, const struct tb_links_stats *stats)
{
    TB_ASSERT(peer < d->config->peer_count);
    struct tb_store_path *f = &d->found[peer];
    if (stats->streams_found == 0 || d->persist == NULL) return;
    if (f->streams == stats->streams_found && f->bytes_per_s == stats->found_bytes_per_s) return;
    *f = (struct tb_store_path){.site = d->config->peers[peer].site,
                                .streams = stats->streams_found,
                                .bytes_per_s = stats->found_bytes_per_s};
    tb_persist_path(d, f);
}
