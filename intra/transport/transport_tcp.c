/* transport_tcp.c - `tcp`: a stream over TCP, with TLS unless the source says that the
 * site's network is trusted. */
#include "base/allocate.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/transport/pipe.h"
#include "intra/transport/transport_words.h"

struct tcp_upstream {
    struct tb_upstream base;
    struct tb_pipe stream;
};

static void on_welcome(void *user, const struct tb_hop_answer *answer)
{
    (void)answer;
    struct tcp_upstream *u = user;
    u->stream.events->on_open(u->stream.events_user);
}

static void on_buffer(void *user, const struct tb_hop_answer *answer, int fd)
{
    (void)user, (void)answer, (void)fd; /* never asked for, so the stream refuses it */
}

static void on_finished(void *user)
{
    tb_free(user);
}

static const struct tb_pipe_ops stream_ops = {
    .on_welcome = on_welcome, .on_buffer = on_buffer, .on_finished = on_finished};

enum tb_status tb_pipe_tcp_address(const char *text, struct tb_address *address_out)
{
    struct tb_endpoint endpoint;
    const enum tb_status status = tb_endpoint_parse(text, &endpoint);
    if (status != TB_OK || endpoint.is_unix) return TB_BAD_ARGUMENT;
    return tb_endpoint_address(&endpoint, address_out);
}

static enum tb_status tcp_open(const struct tb_upstream_options *options, struct tb_upstream **upstream_out)
{
    const struct tb_fabric_endpoint *from = &options->hop->from;
    struct tb_address to;
    if (tb_pipe_tcp_address(from->tcp, &to) != TB_OK) return TB_BAD_ARGUMENT;
    struct tcp_upstream *u = tb_calloc(1, sizeof *u);
    if (u == NULL) return TB_SITE_NOMEM;
    u->base = (struct tb_upstream){&tb_transport_tcp, TB_TRANSPORT_TCP, TB_WHY_NO_RDMA_HERE};
    const struct tb_pipe_options stream = {.upstream = options,
                                           .ops = &stream_ops,
                                           .user = u,
                                           .to = to,
                                           .tls = from->tls ? options->fabric->tls : NULL,
                                           .paced = true};
    const enum tb_status status = tb_pipe_open(&u->stream, &stream);
    if (status != TB_OK) {
        tb_free(u);
        return status;
    }
    *upstream_out = &u->base;
    return TB_OK;
}

static void tcp_read(struct tb_upstream *upstream, struct tb_read *read)
{
    tb_pipe_read(&((struct tcp_upstream *)upstream)->stream, read);
}

static void tcp_confirm(struct tb_upstream *upstream)
{
    tb_pipe_confirm(&((struct tcp_upstream *)upstream)->stream);
}

static tb_time_ns tcp_poll(struct tb_upstream *upstream, tb_time_ns now)
{
    return tb_pipe_poll(&((struct tcp_upstream *)upstream)->stream, now);
}

static void tcp_close(struct tb_upstream *upstream)
{
    tb_pipe_close(&((struct tcp_upstream *)upstream)->stream);
}

const struct tb_transport_ops tb_transport_tcp = {.transport = TB_TRANSPORT_TCP,
                                                  .open = tcp_open,
                                                  .read = tcp_read,
                                                  .reaches = tb_pipe_reaches,
                                                  .copy = tb_pipe_copy,
                                                  .confirm = tcp_confirm,
                                                  .poll = tcp_poll,
                                                  .close = tcp_close};
