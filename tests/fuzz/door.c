/* Requests of a reader of this host that the door has let in, as they stand on the wire: LEND with
 * its descriptor and PUTs are among them. Here the target is the socket, the pool and the fabric's
 * queue. The first byte of an input says how the memory is made (MADE_*), the next three say in
 * which order jobs run between requests. The rest are requests, after HELLO.
 *
 * Only memory that is as it should be is taken. A PUT that is told as done stands there, and no
 * byte outside of the PUTs is written (P1, P7). The door answers no more than was asked, and
 * nothing behind END. When the reader has gone nothing is left: no job, no descriptor, no byte of
 * its share.
 *
 * Covers: intra/fabric/door_requests.c intra/fabric/door_lent.c intra/fabric/lent_memory.c
 * Covers: intra/fabric/door_answers.c intra/fabric/door_ends.c */
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/log.h"
#include "base/net/chan_bytes.h"
#include "base/net/chan_facts.h"
#include "intra/fabric/door_inside.h"
#include "intra/fabric/fabric_queue.h"
#include "tests/fuzz/fuzz.h"

#define LARGE_BYTES ((size_t)64 << 10)
#define SMALL_BYTES ((size_t)4 << 10)
#define LENT_MAX    ((uint64_t)68 << 10) /* what says more is smaller than it says */
#define PUTS_MAX    600u
#define JOBS_MAX    16u

enum {
    MADE_SMALLER = 1,
    MADE_MAY_SHRINK = 2,
    MADE_MAY_GROW = 4,
    MADE_READ_ONLY = 8,
    MADE_NO_FILE = 16, /* of tmpfs */
    MADE_NOT = 32,     /* a byte without a descriptor comes */
    SAID_AT_ONCE = 64, /* what follows LEND does not wait for its answer */
    MADE_WRONG = MADE_SMALLER | MADE_MAY_SHRINK | MADE_MAY_GROW | MADE_READ_ONLY | MADE_NO_FILE
};

/* ---- one run ---- */

static struct run {
    const uint8_t *bytes; /* requests that are not said yet */
    size_t count;
    uint32_t budget; /* bytes that may come before the next turn */
    uint64_t random;
    uint8_t made;
    bool closed; /* the chan is: on_closed is due */
    bool wants_write;

    struct tb_hop_request puts[PUTS_MAX]; /* said, in their order */
    uint32_t put_count, put_told;
    uint64_t asked, pings, attaches; /* bytes of READs; others */
    uint8_t said[TB_HOP_REQUEST_BYTES];
    uint32_t said_used;

    uint8_t head[TB_HOP_ANSWER_BYTES];
    uint32_t head_used;
    uint64_t data_left;
    bool lent, ended;

    uint64_t lent_bytes; /* that LEND says */
    uint8_t *memory;     /* the reader's mapping; NULL: it lent none */
    uint64_t memory_bytes;
    int fd; /* as the door got it; -1: it did not */

    struct tb_pool_job *jobs[JOBS_MAX];
    uint32_t job_count;
    struct tb_fabric_job *posts[JOBS_MAX];
    uint32_t post_count;
} run;

static _Alignas(8) uint8_t large[LARGE_BYTES], small[SMALL_BYTES];

static uint32_t pick(uint32_t below)
{
    run.random = run.random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(run.random >> 33) % below;
}

/* ---- the reader speaks ---- */

static void request_said(void)
{
    struct tb_hop_request r;
    struct tb_reader reader;
    tb_reader_init(&reader, run.said, sizeof run.said);
    run.said_used = 0;
    FUZZ_REQUIRE(tb_hop_request_decode(&reader, &r) == TB_OK);
    if (r.type == TB_HOP_REQUEST_READ) run.asked += r.bytes;
    if (r.type == TB_HOP_REQUEST_PING) run.pings++;
    if (r.type == TB_HOP_REQUEST_ATTACH) run.attaches++;
    if (r.type == TB_HOP_REQUEST_LEND && run.lent_bytes == 0) run.lent_bytes = r.a;
    if (r.type == TB_HOP_REQUEST_PUT && run.put_count < PUTS_MAX) run.puts[run.put_count++] = r;
}

static bool waits_for_lent(void)
{
    return (run.made & SAID_AT_ONCE) == 0 && run.lent_bytes > 0 && !run.lent && !run.ended;
}

enum tb_status __wrap_tb_chan_read(struct tb_chan *c, void *out, size_t cap, size_t *count_out);
enum tb_status __wrap_tb_chan_read(struct tb_chan *c, void *out, size_t cap, size_t *count_out)
{
    (void)c;
    size_t n = cap < run.count ? cap : run.count;
    if (n > run.budget) n = run.budget;
    if (waits_for_lent()) n = 0;
    *count_out = n;
    if (n == 0) return TB_AGAIN;
    FUZZ_REQUIRE(n <= sizeof run.said - run.said_used);
    memcpy(out, run.bytes, n);
    memcpy(run.said + run.said_used, run.bytes, n);
    run.said_used += (uint32_t)n;
    run.bytes += n;
    run.count -= n;
    run.budget -= (uint32_t)n;
    if (run.said_used == sizeof run.said) request_said();
    return TB_OK;
}

/* Memory as the input wants it. */
static int memory_make(void)
{
    if ((run.made & MADE_NO_FILE) != 0) return open("/dev/null", O_RDWR | O_CLOEXEC);
    const int fd = memfd_create("fuzz-door", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    run.memory_bytes = run.lent_bytes < LENT_MAX ? run.lent_bytes : LENT_MAX;
    if ((run.made & MADE_SMALLER) != 0) run.memory_bytes /= 2;
    FUZZ_REQUIRE(fd >= 0 && ftruncate(fd, (off_t)run.memory_bytes) == 0);
    const int seals = ((run.made & MADE_MAY_SHRINK) != 0 ? 0 : F_SEAL_SHRINK) |
                      ((run.made & MADE_MAY_GROW) != 0 ? 0 : F_SEAL_GROW) |
                      ((run.made & MADE_READ_ONLY) != 0 ? F_SEAL_WRITE : 0);
    FUZZ_REQUIRE(seals == 0 || fcntl(fd, F_ADD_SEALS, seals) == 0);
    if (run.memory_bytes == 0 || (run.made & MADE_READ_ONLY) != 0) return fd;
    run.memory = mmap(NULL, run.memory_bytes, PROT_READ, MAP_SHARED, fd, 0);
    FUZZ_REQUIRE(run.memory != MAP_FAILED);
    return fd;
}

enum tb_status __wrap_tb_chan_recv_fds(struct tb_chan *c, int *fds_out, uint32_t cap, uint32_t *count_out);
enum tb_status __wrap_tb_chan_recv_fds(struct tb_chan *c, int *fds_out, uint32_t cap, uint32_t *count_out)
{
    (void)c;
    FUZZ_REQUIRE(cap == 1 && run.fd < 0 && run.lent_bytes > 0);
    if ((run.made & MADE_NOT) != 0) {
        run.closed = true;
        return TB_PEER_GARBLED;
    }
    run.fd = *fds_out = memory_make();
    *count_out = 1;
    return TB_OK;
}

/* ---- the door answers ---- */

static uint8_t source_byte(const struct tb_hop_request *r, uint64_t i)
{
    return (r->buffer == 0 ? large : small)[r->a + i];
}

static bool overlap(const struct tb_hop_request *a, const struct tb_hop_request *b)
{
    return a->b < b->b + b->bytes && b->b < a->b + a->bytes;
}

static void put_told(void)
{
    FUZZ_REQUIRE(run.put_told < run.put_count && run.memory != NULL);
    const struct tb_hop_request *r = &run.puts[run.put_told++];
    FUZZ_REQUIRE(r->b <= run.memory_bytes && r->bytes <= run.memory_bytes - r->b);
    FUZZ_REQUIRE(r->buffer < 2 && r->a + r->bytes <= (r->buffer == 0 ? LARGE_BYTES : SMALL_BYTES));
    for (uint32_t i = 0; i < run.put_count; i++) /* those may stand there instead */
        if (&run.puts[i] != r && overlap(&run.puts[i], r)) return;
    for (uint64_t i = 0; i < r->bytes; i++)
        FUZZ_REQUIRE(run.memory[r->b + i] == source_byte(r, i));
}

static void heard(const struct tb_hop_answer *a)
{
    FUZZ_REQUIRE(!run.ended);
    switch (a->type) {
    case TB_HOP_ANSWER_DATA:
        FUZZ_REQUIRE(a->bytes > 0 && a->bytes <= run.asked);
        run.asked -= a->bytes;
        run.data_left = a->bytes;
        break;
    case TB_HOP_ANSWER_PONG:
        FUZZ_REQUIRE(run.pings-- > 0);
        break;
    case TB_HOP_ANSWER_BUFFER:
        FUZZ_REQUIRE(run.attaches-- > 0);
        break;
    case TB_HOP_ANSWER_LENT:
        FUZZ_REQUIRE(run.lent_bytes > 0 && !run.lent);
        FUZZ_REQUIRE(a->kind != 0 || ((run.made & MADE_WRONG) == 0 && run.memory_bytes == run.lent_bytes));
        run.lent = true;
        break;
    case TB_HOP_ANSWER_PUT:
        FUZZ_REQUIRE(run.lent && a->bytes > 0);
        for (uint32_t i = 0; i < a->bytes; i++)
            put_told();
        break;
    default:
        FUZZ_REQUIRE(a->type == TB_HOP_ANSWER_END);
        run.ended = true;
    }
}

static void hear(const uint8_t *bytes, size_t count)
{
    while (count > 0) {
        size_t n = run.data_left < count ? (size_t)run.data_left : count;
        run.data_left -= n;
        bytes += n;
        count -= n;
        n = sizeof run.head - run.head_used < count ? sizeof run.head - run.head_used : count;
        memcpy(run.head + run.head_used, bytes, n);
        run.head_used += (uint32_t)n;
        bytes += n;
        count -= n;
        if (run.head_used < sizeof run.head) return;
        struct tb_hop_answer a;
        struct tb_reader r;
        tb_reader_init(&r, run.head, sizeof run.head);
        run.head_used = 0;
        FUZZ_REQUIRE(tb_hop_answer_decode(&r, &a) == TB_OK);
        heard(&a);
    }
}

enum tb_status __wrap_tb_chan_write(struct tb_chan *c, const void *bytes, size_t count, size_t *count_out);
enum tb_status __wrap_tb_chan_write(struct tb_chan *c, const void *bytes, size_t count, size_t *count_out)
{
    (void)c;
    *count_out = 1 + pick((uint32_t)count);
    hear(bytes, *count_out);
    return TB_OK;
}

void __wrap_tb_chan_want_write(struct tb_chan *c, bool wanted);
void __wrap_tb_chan_want_write(struct tb_chan *c, bool wanted)
{
    (void)c;
    run.wants_write = wanted;
}

void __wrap_tb_chan_close(struct tb_chan *c, enum tb_status why);
void __wrap_tb_chan_close(struct tb_chan *c, enum tb_status why)
{
    (void)c, (void)why;
    run.closed = true;
}

const struct tb_chan_peer *__wrap_tb_chan_peer(const struct tb_chan *c);
const struct tb_chan_peer *__wrap_tb_chan_peer(const struct tb_chan *c)
{
    static const struct tb_chan_peer peer = {.pid = 1, .address = "fuzz"};
    (void)c;
    return &peer;
}

/* ---- jobs ---- */

void __wrap_tb_pool_submit(struct tb_pool *pool, struct tb_pool_job *job);
void __wrap_tb_pool_submit(struct tb_pool *pool, struct tb_pool_job *job)
{
    (void)pool;
    FUZZ_REQUIRE(run.job_count < JOBS_MAX);
    run.jobs[run.job_count++] = job;
}

void __wrap_tb_fabric_post(struct tb_fabric *f, struct tb_fabric_job *job);
void __wrap_tb_fabric_post(struct tb_fabric *f, struct tb_fabric_job *job)
{
    (void)f;
    FUZZ_REQUIRE(run.post_count < JOBS_MAX);
    run.posts[run.post_count++] = job;
}

static void run_a_job(void)
{
    const uint32_t at = pick(run.job_count);
    struct tb_pool_job *job = run.jobs[at];
    run.jobs[at] = run.jobs[--run.job_count];
    job->run(job, 0);
}

static void run_a_post(void)
{
    struct tb_fabric_job *job = run.posts[0];
    memmove(run.posts, run.posts + 1, --run.post_count * sizeof run.posts[0]);
    job->run(job);
}

/* ---- a reader's life ---- */

static struct tb_fabric fabric = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static struct tb_export_buffer buffers[] = {{.bytes = large, .count = LARGE_BYTES, .memfd = -1},
                                            {.bytes = small, .count = SMALL_BYTES, .memfd = -1}};
static struct tb_export export = {.id = 7, .buffers = buffers, .buffer_count = 2};

static struct tb_door_peer *come_in(struct tb_door *door)
{
    struct tb_door_peer *p = tb_calloc(1, sizeof *p);
    FUZZ_REQUIRE(p != NULL);
    p->door = door;
    p->memfd_due = -1;
    p->state = TB_DOOR_SERVING;
    p->deadline = TB_TIME_NEVER;
    p->export = &export;
    export.readers = 1;
    door->peer_count = 1;
    LIST_INSERT_HEAD(&door->peers, p, link);
    return p;
}

static void turn(struct tb_door_peer *p)
{
    run.budget = 1 + pick(4 * TB_HOP_REQUEST_BYTES);
    tb_door_on_readable(NULL, p);
    for (uint32_t n = pick(3); n > 0 && run.job_count > 0; n--)
        run_a_job();
    for (uint32_t n = pick(3); n > 0 && run.post_count > 0; n--)
        run_a_post();
    if (run.wants_write && !run.closed && pick(3) > 0) tb_door_on_writable(NULL, p);
}

static bool is_put(uint64_t at)
{
    for (uint32_t i = 0; i < run.put_count; i++)
        if (at >= run.puts[i].b && at - run.puts[i].b < run.puts[i].bytes) return true;
    return false;
}

static void check_nothing_left(const struct tb_door *door)
{
    FUZZ_REQUIRE(LIST_EMPTY(&door->peers) && door->peer_count == 0 && export.readers == 0);
    FUZZ_REQUIRE(fabric.borrowed_bytes == 0 && (run.fd < 0 || fcntl(run.fd, F_GETFD) < 0));
    for (uint64_t at = 0; run.memory != NULL && at < run.memory_bytes; at++)
        FUZZ_REQUIRE(run.memory[at] == 0 || is_put(at));
    if (run.memory != NULL) munmap(run.memory, run.memory_bytes);
}

/* The export's bytes: none is 0, as those of lent memory are. */
static void fill(void)
{
    if (large[0] != 0) return;
    for (size_t i = 0; i < LARGE_BYTES; i++)
        large[i] = (uint8_t)(1 + i % 251);
    for (size_t i = 0; i < SMALL_BYTES; i++)
        small[i] = (uint8_t)(255 - i % 241);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct tb_door door = {.fabric = &fabric};
    if (count < 4) return 0;
    tb_log_set(TB_LOG_ERROR, STDERR_FILENO);
    fill();
    run = (struct run){.bytes = bytes + 4, .count = count - 4, .made = bytes[0], .fd = -1};
    run.random = (uint64_t)bytes[1] | (uint64_t)bytes[2] << 8 | (uint64_t)bytes[3] << 16;
    struct tb_door_peer *p = come_in(&door);
    while (run.count > 0 && !run.closed)
        turn(p);
    for (uint32_t i = 0; i < 8 && !run.closed; i++) /* what is under way may end, or not */
        turn(p);
    tb_door_on_closed(NULL, p, TB_STREAM_CLOSED);
    while (run.job_count + run.post_count > 0)
        if (run.post_count == 0 || (run.job_count > 0 && pick(2) == 0))
            run_a_job();
        else
            run_a_post();
    check_nothing_left(&door);
    return 0;
}
