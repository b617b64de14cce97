/* publish_wait.h - "tombolo publish --wait SITE[:held|active],...": waits until these sites hold a
 * version, or use it, and shows how far each is. */
#ifndef TB_GATEWAY_CLI_PUBLISH_WAIT_H
#define TB_GATEWAY_CLI_PUBLISH_WAIT_H

#include "base/ident.h"
#include "gateway/cli/gateway_session.h"
#include "gateway/cli/output.h"

#define TB_WAITED_SITES_MAX 64u

struct tb_waited_site {
    struct tb_name site;
    bool active; /* every reader group there uses it; else: the site holds all of it */
    bool done;
    double took_s; /* of one that is done */
    uint64_t held_bytes;
};

struct tb_publish_wait {
    const struct tb_cli_call *call;
    uint32_t count;     /* 0: nothing is waited for */
    struct tb_name own; /* the gateway's site; empty: it was not asked */
    struct tb_waited_site sites[TB_WAITED_SITES_MAX];
};

/* Reads --wait, and asks the gateway's control socket, if that is open to us, whether there are
 * such sites: one that is none would be waited for without end. While a peer is silent, a name that
 * was not heard of may be that of a site behind it: a note says so. */
enum tb_cli_exit tb_publish_wait_read(const struct tb_cli_call *call, struct tb_publish_wait *out);

struct tb_publish_waited {
    struct tb_session *session;
    const char *model;
    struct tb_uid uid;
    struct tb_deadline *deadline;
};
/* Under --json each step is a line of its own: {"waiting": [{"site", "for", "done", "held_bytes"}],
 * "bytes"}. */
enum tb_cli_exit tb_publish_wait(struct tb_publish_wait *w, const struct tb_publish_waited *version);

#endif
