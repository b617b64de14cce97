/* chan_bytes.h - bytes and descriptors over one channel. On the thread of its loop. */
#ifndef TB_BASE_NET_CHAN_BYTES_H
#define TB_BASE_NET_CHAN_BYTES_H

#include "base/net/chan.h"

/* True at first; false pushes back through TCP's window. */
void tb_chan_want_read(struct tb_chan *c, bool wanted);
void tb_chan_want_write(struct tb_chan *c, bool wanted); /* false at first */

/* Reads what is there, at most cap: TB_OK with 1..cap bytes, TB_AGAIN, TB_STREAM_CLOSED (orderly
 * end), TB_STREAM_IO, TB_STREAM_TLS, TB_PEER_DENIED. A status that is neither TB_OK nor TB_AGAIN
 * has closed the chan, here and in the calls below: on_closed will come with it. On a closed chan
 * they say why it closed. */
TB_MUST_USE enum tb_status tb_chan_read(struct tb_chan *c, void *out, size_t cap, size_t *count_out);
/* Writes what fits now: TB_OK with 1..count bytes taken, TB_AGAIN (then want_write). A write that
 * got TB_AGAIN is repeated later with the same bytes first, and not fewer; the buffer may have
 * moved. The same holds for the rest that a write did not take. */
TB_MUST_USE enum tb_status tb_chan_write(struct tb_chan *c, const void *bytes, size_t count,
                                         size_t *count_out);

/* Unix only, plain only: one message byte with 1 to 16 descriptors. Send keeps the caller's fds;
 * receive gives them to the caller, CLOEXEC. A tb_chan_read that meets the message drops the
 * descriptors: both ends know from what was said before when descriptors come. TB_PEER_GARBLED:
 * other bytes, no descriptors or more than cap (those that came are closed). */
TB_MUST_USE enum tb_status tb_chan_send_fds(struct tb_chan *c, const int *fds, uint32_t count);
/* As tb_chan_read, of a plain unix chan, with the descriptors that came beside the bytes: at most
 * TB_CHAN_FDS_MAX, as the kernel sends them. The caller's, CLOEXEC, whatever the status is. */
#define TB_CHAN_FDS_MAX 253u
TB_MUST_USE enum tb_status tb_chan_read_fds(struct tb_chan *c, void *out, size_t cap, size_t *count_out,
                                            int fds_out[TB_CHAN_FDS_MAX], uint32_t *fd_count_out);
TB_MUST_USE enum tb_status tb_chan_recv_fds(struct tb_chan *c, int *fds_out, uint32_t cap,
                                            uint32_t *count_out);

#endif
