/* transport_shm.c - `shm`: a copy from the source's memory on the same host, under a lease.
 *
 * The unix connection to the door is the lease: while it stands the owner leaves its memory alone.
 * Buffers are attached when the hop opens: by a descriptor, if it is sealed against shrinking; else
 * by process_vm_readv, if a probe shows that we may and that it is the right process. An attached
 * buffer stays attached until close, whatever the peer says.
 *
 * Where the kernel forbids us to read the source, as in a gateway's sandbox, the source puts chunks
 * into memory that we lend it (shm_lent.h). Buffers that can be had none of these ways are read
 * over the connection as `tcp` would. The hop says as its why which of these ways it goes.
 *
 * Of a descriptor only bitmaps are read through its mapping, as their words have to be loaded at
 * once. Chunks are read by pread: each hop has a mapping of its own, and a page fault for every few
 * pages of it at first touch costs more than the copy.
 *
 * Where the source's bytes stand on a GPU, and this process has one in use that reaches it, chunks
 * come from there by a tray (shm_tray.h), and the hop is told as `cuda`. The tray is closed before
 * the connection is: its end is our word for that. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/bitmap.h"
#include "base/net/chan_facts.h"
#include "base/system_calls.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/fabric/shared_memory.h"
#include "intra/transport/pipe.h"
#include "intra/transport/shm_lent.h"
#include "intra/transport/shm_tray.h"
#include "intra/transport/transport_words.h"

/* attached; a source in more pieces than that is read over the connection in part */
#define BUFFERS_MAX 4096u
#define PIECES_MAX  64u /* of one process_vm_readv */
#define FILES_MAX   64u /* descriptors that a hop keeps; further buffers are copied from mappings */

struct attached {
    uint32_t buffer;
    enum tb_hop_buffer_kind kind;
    uint64_t count;
    uint64_t address;           /* ADDRESS */
    struct tb_shared_view view; /* MEMFD; of it: */
    int fd;                     /* -1: not kept */
    uint64_t offset;            /* in the file */
};

struct shm_upstream {
    struct tb_upstream base;
    struct tb_pipe stream;
    pid_t pid;
    bool readable;  /* process_vm_readv works on the source */
    bool cut;       /* it has more buffers than are attached */
    uint32_t count; /* of buffers, ascending */
    uint32_t asked, answered;
    uint32_t files;
    struct attached *buffers;
    bool takes_lent; /* the source says so of memory that we may not read */
    struct tb_shm_lent lent;
    struct tb_shm_tray tray;
    bool has_device; /* the source says so */
};

/* ---- which buffers ---- */

static int by_buffer(const void *a, const void *b)
{
    const uint32_t x = ((const struct attached *)a)->buffer, y = ((const struct attached *)b)->buffer;
    return x < y ? -1 : x > y;
}

static enum tb_status list_buffers(struct shm_upstream *u, const struct tb_upstream_options *options)
{
    uint32_t *list = NULL;
    const enum tb_status status =
        tb_source_buffers(options->sources, options->source_count, &list, &u->count);
    if (status != TB_OK) return status;
    u->cut = u->count > BUFFERS_MAX;
    if (u->cut) u->count = BUFFERS_MAX;
    u->buffers = tb_calloc(u->count, sizeof *u->buffers);
    for (uint32_t i = 0; u->buffers != NULL && i < u->count; i++)
        u->buffers[i] = (struct attached){.buffer = list[i], .kind = TB_HOP_BUFFER_STREAM, .fd = -1};
    tb_free(list);
    return u->buffers != NULL ? TB_OK : TB_SITE_NOMEM;
}

/* ---- attaching ---- */

static const struct attached *find(const struct shm_upstream *u, uint32_t buffer)
{
    const struct attached key = {.buffer = buffer};
    return bsearch(&key, u->buffers, u->count, sizeof *u->buffers, by_buffer);
}

static bool read_process(pid_t pid, uint64_t address, void *to, size_t bytes)
{
    const struct iovec here = {.iov_base = to, .iov_len = bytes};
    const struct iovec there = {.iov_base = (void *)(uintptr_t)address, .iov_len = bytes};
    return process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)bytes;
}

/* The peer's number comes from the kernel, the nonce shows that it means the process that speaks to
 * us. */
static void probe(struct shm_upstream *u, const struct tb_hop_answer *welcome)
{
    uint8_t seen[sizeof welcome->id.bytes] = {0};
    u->pid = tb_chan_peer(u->stream.chan)->pid;
    u->readable = u->pid > 0 && read_process(u->pid, welcome->a, seen, sizeof seen) &&
                  memcmp(seen, welcome->id.bytes, sizeof seen) == 0;
}

static void on_tray_settled(void *owner)
{
    struct shm_upstream *u = owner;
    if (u->tray.state == TB_SHM_TRAY_OPEN) u->base.transport = TB_TRANSPORT_CUDA;
    u->base.why = u->tray.why;
    u->stream.events->on_open(u->stream.events_user);
}

/* The slowest of the ways by which its bytes come: a view of a hop asks whether all of
 * its memory is reached. */
static enum tb_transport_why way_of(const struct shm_upstream *u)
{
    bool by_process = false, by_socket = u->cut;
    for (uint32_t i = 0; i < u->count; i++) {
        by_process |= u->buffers[i].kind == TB_HOP_BUFFER_ADDRESS;
        by_socket |= u->buffers[i].kind == TB_HOP_BUFFER_STREAM;
    }
    if (by_socket && u->lent.state == TB_SHM_LENT_OPEN) return TB_WHY_SAME_HOST_LENT;
    if (by_socket) return TB_WHY_SAME_HOST_SOCKET;
    return by_process ? TB_WHY_SAME_HOST_READV : TB_WHY_SAME_HOST;
}

/* No process opens a handle of its own. */
static bool may_have_tray(const struct shm_upstream *u)
{
    return u->has_device && u->tray.bytes > 0 && u->pid != getpid();
}

static void on_lent_settled(void *owner)
{
    struct shm_upstream *u = owner;
    u->base.why = way_of(u);
    if (may_have_tray(u))
        tb_shm_tray_ask(&u->tray);
    else
        u->stream.events->on_open(u->stream.events_user);
}

static void ask_buffers(struct shm_upstream *u)
{
    TB_ASSERT(u->answered <= u->asked && u->asked <= u->count);
    while (u->asked < u->count && tb_pipe_attach(&u->stream, u->buffers[u->asked].buffer))
        u->asked++;
    if (u->answered < u->count) return;
    if (u->takes_lent)
        tb_shm_lent_begin(&u->lent);
    else
        on_lent_settled(u);
}

static void on_welcome(void *user, const struct tb_hop_answer *answer)
{
    struct shm_upstream *u = user;
    probe(u, answer);
    u->has_device = answer->kind == 1;
    ask_buffers(u);
}

/* True: the descriptor is kept. */
static bool attach(struct shm_upstream *u, struct attached *a, const struct tb_hop_answer *answer, int fd)
{
    a->count = answer->a;
    a->address = answer->b;
    if (fd >= 0) {
        if (tb_shared_view_open(fd, answer->b, answer->a, &a->view) != TB_OK) return false;
        a->kind = TB_HOP_BUFFER_MEMFD;
        a->offset = answer->b;
        if (u->files == FILES_MAX) return false;
        u->files++;
        a->fd = fd;
        return true;
    }
    if (answer->kind != TB_HOP_BUFFER_ADDRESS) return false;
    if (u->readable)
        a->kind = TB_HOP_BUFFER_ADDRESS;
    else
        u->takes_lent |= answer->bytes == TB_HOP_TAKES_LENT;
    return false;
}

static void on_buffer(void *user, const struct tb_hop_answer *answer, int fd)
{
    struct shm_upstream *u = user;
    struct attached *next = &u->buffers[u->answered]; /* answers come in order */
    bool kept = false;
    if (u->answered < u->asked && answer->buffer == next->buffer) {
        kept = attach(u, next, answer, fd);
        u->answered++;
        ask_buffers(u);
    } else {
        tb_pipe_lose(&u->stream, TB_PEER_GARBLED);
    }
    if (fd >= 0 && !kept) close(fd);
}

static bool on_tray(void *user, const struct tb_hop_answer *answer)
{
    return tb_shm_tray_answer(&((struct shm_upstream *)user)->tray, answer);
}

static bool on_lent(void *user, const struct tb_hop_answer *answer)
{
    return tb_shm_lent_answer(&((struct shm_upstream *)user)->lent, answer);
}

/* ---- copying ---- */

static bool inside(const struct attached *a, const struct tb_source_run *run)
{
    return run->offset <= a->count && run->bytes <= a->count - run->offset;
}

static bool within_reach(const struct shm_upstream *u, const struct tb_source_run *run, bool words)
{
    const struct attached *a = find(u, run->buffer);
    if (a == NULL || a->kind == TB_HOP_BUFFER_STREAM || !inside(a, run)) return false;
    const uintptr_t at = a->kind == TB_HOP_BUFFER_MEMFD ? (uintptr_t)a->view.bytes : (uintptr_t)a->address;
    return !words || ((at + run->offset) % 8 == 0 && run->bytes % 8 == 0);
}

static bool reaches_copy(const struct shm_upstream *u, const struct tb_read *read)
{
    for (uint32_t done = 0; done < read->bytes;) {
        const struct tb_source_run run = tb_transport_read_run(read, done);
        if (!within_reach(u, &run, read->words)) return false;
        done += (uint32_t)run.bytes;
    }
    return true;
}

/* By a tray goes only what could be copied as well: then nothing depends on the GPU. */
static bool by_tray(const struct shm_upstream *u, const struct tb_read *read)
{
    return tb_shm_tray_takes(&u->tray, read) && reaches_copy(u, read);
}

static bool shm_reaches(const struct tb_upstream *upstream, const struct tb_read *read)
{
    const struct shm_upstream *u = (const struct shm_upstream *)upstream;
    return reaches_copy(u, read) && !tb_shm_tray_takes(&u->tray, read);
}

static void copy_mapped(const struct attached *a, const struct tb_source_run *run, bool words, uint8_t *to)
{
    const uint8_t *from = a->view.bytes + run->offset;
    if (words)
        tb_bitmap_copy((uint64_t *)(void *)to, (const uint64_t *)(const void *)from,
                       (uint32_t)run->bytes * 8);
    else
        memcpy(to, from, run->bytes);
}

static bool copy_from_file(const struct attached *a, const struct tb_source_run *run, uint8_t *to)
{
    TB_ASSERT(a->kind == TB_HOP_BUFFER_MEMFD);
    for (uint64_t done = 0; done < run->bytes;) {
        const ssize_t got =
            tb_sys_pread(a->fd, to + done, run->bytes - done, (off_t)(a->offset + run->offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        done += (uint64_t)got;
    }
    return true;
}

/* Runs of the other process's own memory, as many as follow one another, with one system call. How
 * many bytes; 0: failed. */
static uint32_t copy_from_process(const struct shm_upstream *u, const struct tb_read *read, uint32_t done)
{
    struct iovec there[PIECES_MAX];
    uint32_t pieces = 0, bytes = 0;
    while (pieces < PIECES_MAX && done + bytes < read->bytes) {
        const struct tb_source_run run = tb_transport_read_run(read, done + bytes);
        const struct attached *a = find(u, run.buffer);
        TB_ASSERT(a != NULL && inside(a, &run)); /* shm_reaches said so */
        if (a->kind != TB_HOP_BUFFER_ADDRESS) break;
        there[pieces++] =
            (struct iovec){.iov_base = (void *)(uintptr_t)(a->address + run.offset), .iov_len = run.bytes};
        bytes += (uint32_t)run.bytes;
    }
    const struct iovec here = {.iov_base = read->to + done, .iov_len = bytes};
    const ssize_t got = process_vm_readv(u->pid, &here, 1, there, pieces, 0);
    __sync_synchronize(); /* what is read next is not older than these words */
    return got == (ssize_t)bytes ? bytes : 0;
}

static enum tb_status shm_copy(struct tb_upstream *upstream, const struct tb_read *read)
{
    struct shm_upstream *u = (struct shm_upstream *)upstream;
    if (read->staged && !reaches_copy(u, read)) {
        tb_shm_lent_copy(&u->lent, read);
        return TB_OK;
    }
    if (read->staged && tb_shm_tray_copy(&u->tray, read)) return TB_OK;
    for (uint32_t done = 0; done < read->bytes;) {
        const struct tb_source_run run = tb_transport_read_run(read, done);
        const struct attached *a = find(u, run.buffer);
        TB_ASSERT(a != NULL && a->kind != TB_HOP_BUFFER_STREAM && inside(a, &run));
        uint32_t step = (uint32_t)run.bytes;
        if (a->kind == TB_HOP_BUFFER_ADDRESS)
            step = copy_from_process(u, read, done);
        else if (read->words || a->fd < 0)
            copy_mapped(a, &run, read->words, read->to + done);
        else if (!copy_from_file(a, &run, read->to + done))
            step = 0;
        if (step == 0) return TB_STREAM_IO;
        done += step;
    }
    return TB_OK;
}

/* ---- beginning and end ---- */

static void shm_free(struct shm_upstream *u)
{
    for (uint32_t i = 0; u->buffers != NULL && i < u->count; i++) {
        tb_shared_view_close(&u->buffers[i].view);
        if (u->buffers[i].fd >= 0) close(u->buffers[i].fd);
    }
    tb_free(u->buffers);
    tb_free(u);
}

static void on_finished(void *user)
{
    shm_free(user);
}

static void on_tray_closed(void *owner)
{
    tb_pipe_close(&((struct shm_upstream *)owner)->stream);
}

static void on_lent_closed(void *owner)
{
    struct shm_upstream *u = owner;
    if (u->tray.state >= TB_SHM_TRAY_OPENING)
        tb_shm_tray_close(&u->tray); /* then the connection */
    else
        tb_pipe_close(&u->stream);
}

static const struct tb_pipe_ops stream_ops = {.on_welcome = on_welcome,
                                              .on_buffer = on_buffer,
                                              .on_tray = on_tray,
                                              .on_lent = on_lent,
                                              .on_finished = on_finished};

static enum tb_status door_address(const char *door, struct tb_address *address_out)
{
    struct tb_endpoint endpoint = {.is_unix = true};
    const size_t bytes = strnlen(door, sizeof endpoint.host);
    if (bytes == 0 || bytes + 2 > sizeof address_out->local.sun_path) return TB_BAD_ARGUMENT;
    endpoint.host[0] = '@';
    memcpy(endpoint.host + 1, door, bytes + 1);
    return tb_endpoint_address(&endpoint, address_out);
}

static enum tb_status shm_open_upstream(const struct tb_upstream_options *options,
                                        struct tb_upstream **upstream_out)
{
    struct tb_address to;
    if (door_address(options->hop->from.shm_door, &to) != TB_OK) return TB_BAD_ARGUMENT;
    struct shm_upstream *u = tb_calloc(1, sizeof *u);
    if (u == NULL) return TB_SITE_NOMEM;
    u->base = (struct tb_upstream){&tb_transport_shm, TB_TRANSPORT_SHM, TB_WHY_UNKNOWN};
    enum tb_status status = list_buffers(u, options);
    if (status != TB_OK) goto undo;
    const struct tb_pipe_options stream = {.upstream = options, .ops = &stream_ops, .user = u, .to = to};
    const struct tb_shm_lent_options lent = {.upstream = options,
                                             .stream = &u->stream,
                                             .on_settled = on_lent_settled,
                                             .on_closed = on_lent_closed,
                                             .owner = u};
    const struct tb_shm_tray_options tray = {.upstream = options,
                                             .stream = &u->stream,
                                             .on_settled = on_tray_settled,
                                             .on_closed = on_tray_closed,
                                             .owner = u};
    tb_shm_lent_init(&u->lent, &lent);
    tb_shm_tray_init(&u->tray, &tray);
    status = tb_pipe_open(&u->stream, &stream);
    if (status != TB_OK) goto undo;
    *upstream_out = &u->base;
    return TB_OK;

undo:
    shm_free(u);
    return status;
}

static void shm_read(struct tb_upstream *upstream, struct tb_read *read)
{
    struct shm_upstream *u = (struct shm_upstream *)upstream;
    if (by_tray(u, read))
        tb_shm_tray_read(&u->tray, read);
    else if (!reaches_copy(u, read) && tb_shm_lent_takes(&u->lent, read))
        tb_shm_lent_read(&u->lent, read);
    else
        tb_pipe_read(&u->stream, read);
}

static void shm_confirm(struct tb_upstream *upstream)
{
    tb_pipe_confirm(&((struct shm_upstream *)upstream)->stream);
}

static tb_time_ns shm_poll(struct tb_upstream *upstream, tb_time_ns now)
{
    struct shm_upstream *u = (struct shm_upstream *)upstream;
    const tb_time_ns tray = tb_shm_tray_poll(&u->tray, now);
    return tb_time_min(tray, tb_pipe_poll(&u->stream, now));
}

static void shm_close(struct tb_upstream *upstream)
{
    tb_shm_lent_close(&((struct shm_upstream *)upstream)->lent); /* then the tray, then the connection */
}

const struct tb_transport_ops tb_transport_shm = {.transport = TB_TRANSPORT_SHM,
                                                  .open = shm_open_upstream,
                                                  .read = shm_read,
                                                  .reaches = shm_reaches,
                                                  .copy = shm_copy,
                                                  .confirm = shm_confirm,
                                                  .poll = shm_poll,
                                                  .close = shm_close};
