/* quickstart.c - tombolo-quickstart: starts the trainer's ranks and the workers, has every file
 * published at east and followed at west, measures, and has every worker compare its bytes with the
 * file. The gateways run already; deploy/quickstart starts them.
 *
 * Exit codes: those of `tombolo` (docs: gateway/cli/cli.h); 8 when a byte differs. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "gateway/cli/operator/control_client.h"
#include "gateway/cli/output.h"
#include "gateway/cli/versions/bundle.h"

#define RANKS         2u
#define WORKERS       4u
#define GROUP_MEMBERS 2u /* two reader groups of two workers, each group on a host of its own */
#define PEOPLE        (RANKS + WORKERS)
#define STEP_S        120u
#define LINE_BYTES    1024u

/* A process of ours. */
struct person {
    char name[32];
    pid_t pid;
    int to;
    int from;
    char line[LINE_BYTES];
    size_t used;
    bool answered;
};

struct row {
    uint64_t number;
    uint64_t bytes;
    uint64_t wire_bytes;
    double hold_s;
    double gateway_s;
    double workers_s;
    double stall_s;
    uint32_t equal; /* workers */
};

struct quickstart {
    const char *east; /* session address */
    const char *west;
    const char *west_control;
    const char *rank_program;
    const char *model;
    char run_key[48];
    char *const *files;
    uint32_t file_count;
    uint32_t ranks;    /* 2, or 1 for a file of one tensor */
    uint64_t link_bit; /* a second, from east to west; 0: not known, and no share of it is printed */
    bool spoil;
    bool terminal;
    struct person people[PEOPLE];
    uint32_t person_count;
    tb_time_ns began; /* the publish call of the version in hand */
};

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

static struct person *rank_of(struct quickstart *q, uint32_t i)
{
    return &q->people[i];
}

static struct person *worker_of(struct quickstart *q, uint32_t i)
{
    return &q->people[q->ranks + i];
}

/* ---- processes ---- */

static bool start(struct quickstart *q, char *const *arguments, const char *name)
{
    int down[2];
    int up[2];
    struct person *p = &q->people[q->person_count];
    if (pipe2(down, O_CLOEXEC) != 0) return false;
    if (pipe2(up, O_CLOEXEC) != 0) {
        (void)close(down[0]);
        (void)close(down[1]);
        return false;
    }
    const pid_t pid = fork();
    if (pid == 0) {
        if (dup2(down[0], STDIN_FILENO) < 0 || dup2(up[1], STDOUT_FILENO) < 0) _exit(127);
        (void)execv(q->rank_program, arguments);
        _exit(127);
    }
    (void)close(down[0]);
    (void)close(up[1]);
    *p = (struct person){.pid = pid, .to = down[1], .from = up[0]};
    (void)snprintf(p->name, sizeof p->name, "%s", name);
    q->person_count++;
    return pid > 0;
}

static bool start_rank(struct quickstart *q, uint32_t index)
{
    char name[32];
    char i[16];
    char n[16];
    (void)snprintf(name, sizeof name, "rank-%u", index);
    (void)snprintf(i, sizeof i, "%u", index);
    (void)snprintf(n, sizeof n, "%u", q->ranks);
    const char *const arguments[] = {q->rank_program, "--gateway", q->east,   "--name",  name,
                                     "--host",        "trainer",   "--model", q->model,  "--run",
                                     q->run_key,      "--index",   i,         "--count", n,
                                     q->files[0],     NULL};
    return start(q, (char *const *)(uintptr_t)arguments, name);
}

static bool start_worker(struct quickstart *q, uint32_t index)
{
    char name[32];
    char host[32];
    char group[32];
    char i[16];
    char n[16];
    (void)snprintf(name, sizeof name, "worker-%u", index);
    (void)snprintf(host, sizeof host, "rollout-host-%u", index / GROUP_MEMBERS);
    (void)snprintf(group, sizeof group, "engine-%u", index / GROUP_MEMBERS);
    (void)snprintf(i, sizeof i, "%u", index % GROUP_MEMBERS);
    (void)snprintf(n, sizeof n, "%u", GROUP_MEMBERS);
    const char *const arguments[] = {q->rank_program, "--gateway", q->west,   "--name",  name,
                                     "--host",        host,        "--model", q->model,  "--group",
                                     group,           "--index",   i,         "--count", n,
                                     q->files[0],     NULL};
    return start(q, (char *const *)(uintptr_t)arguments, name);
}

/* The end of its input ends a process; one that does not go is ended by its pid. */
static void stop_all(struct quickstart *q)
{
    for (uint32_t i = 0; i < q->person_count; i++)
        (void)close(q->people[i].to);
    for (uint32_t i = 0; i < q->person_count; i++) {
        const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(interrupted ? 0 : 5));
        pid_t gone = waitpid(q->people[i].pid, NULL, WNOHANG);
        while (gone == 0 && tb_clock_now() < until) {
            (void)poll(NULL, 0, 10);
            gone = waitpid(q->people[i].pid, NULL, WNOHANG);
        }
        if (gone == 0 && kill(q->people[i].pid, SIGKILL) == 0) (void)waitpid(q->people[i].pid, NULL, 0);
        (void)close(q->people[i].from);
    }
}

/* ---- talking to them ---- */

static int complain(const struct person *p, const char *what)
{
    char clean[LINE_BYTES];
    tb_show_clean(what, clean, sizeof clean);
    (void)fprintf(stderr, "%squickstart: %s: %s\n", isatty(STDERR_FILENO) ? "\r\x1b[K" : "", p->name, clean);
    return TB_CLI_SITE;
}

static int tell(struct person *p, const char *verb, const char *text)
{
    char line[4200];
    const int count = snprintf(line, sizeof line, "%s%s%s\n", verb, text[0] == '\0' ? "" : " ", text);
    p->answered = false;
    p->used = 0;
    if (count >= (int)sizeof line) return complain(p, "a path is too long");
    return write(p->to, line, (size_t)count) == count ? TB_CLI_DONE : complain(p, "is gone");
}

/* Reads what there is; a whole line sets `answered`. */
static int take(struct person *p)
{
    const ssize_t got = read(p->from, p->line + p->used, sizeof p->line - 1 - p->used);
    if (got < 0 && errno == EINTR) return TB_CLI_DONE;
    if (got <= 0) return complain(p, p->used > 0 ? p->line : "ended");
    p->used += (size_t)got;
    p->line[p->used] = '\0';
    char *end = strchr(p->line, '\n');
    if (end == NULL) return p->used + 1 < sizeof p->line ? TB_CLI_DONE : complain(p, "talks too much");
    *end = '\0';
    p->answered = true;
    return strncmp(p->line, "failed ", 7) == 0 ? complain(p, p->line + 7) : TB_CLI_DONE;
}

/* Waits at most `ms` for lines of people [first, first + count) that have not answered;
 * *left_out: how many have not. */
static int listen_to(struct quickstart *q, uint32_t first, uint32_t count, int ms, uint32_t *left_out)
{
    struct pollfd fds[PEOPLE];
    nfds_t waiting = 0;
    uint32_t who[PEOPLE];
    for (uint32_t i = first; i < first + count; i++) {
        if (q->people[i].answered) continue;
        who[waiting] = i;
        fds[waiting++] = (struct pollfd){.fd = q->people[i].from, .events = POLLIN};
    }
    if (waiting > 0 && poll(fds, waiting, ms) < 0 && errno != EINTR) return TB_CLI_SITE;
    *left_out = 0;
    for (nfds_t i = 0; i < waiting; i++) {
        const int code = fds[i].revents != 0 ? take(&q->people[who[i]]) : TB_CLI_DONE;
        if (code != TB_CLI_DONE) return code;
        *left_out += !q->people[who[i]].answered;
    }
    return interrupted ? TB_CLI_INTERRUPTED : TB_CLI_DONE;
}

static int listen_all(struct quickstart *q, uint32_t first, uint32_t count, const char *what)
{
    uint32_t left = 1;
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(STEP_S));
    while (left > 0) {
        const int code = listen_to(q, first, count, 100, &left);
        if (code != TB_CLI_DONE) return code;
        if (left > 0 && tb_clock_now() > until) {
            (void)fprintf(stderr, "quickstart: %s took more than %u s\n", what, STEP_S);
            return TB_CLI_TIMEOUT;
        }
    }
    return TB_CLI_DONE;
}

static int tell_all(struct quickstart *q, uint32_t first, uint32_t count, const char *verb, const char *text)
{
    int code = TB_CLI_DONE;
    for (uint32_t i = first; i < first + count && code == TB_CLI_DONE; i++)
        code = tell(&q->people[i], verb, text);
    return code;
}

static int ask_all(struct quickstart *q, uint32_t first, uint32_t count, const char *verb, const char *text)
{
    const int code = tell_all(q, first, count, verb, text);
    return code == TB_CLI_DONE ? listen_all(q, first, count, verb) : code;
}

/* ---- one version ---- */

/* Takes `request`; NULL when west's gateway does not answer. */
static json_t *ask_west(const struct quickstart *q, json_t *request)
{
    char error[512];
    json_t *reply = NULL;
    const enum tb_status s = tb_control_client_ask(q->west_control, request, 5000, &reply, error);
    json_decref(request);
    return s == TB_OK ? reply : NULL;
}

static uint64_t count_of(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

/* The chunks of the row's version that west's gateway holds, and the bytes that came over the
 * wire for them. */
static bool ask_held(const struct quickstart *q, struct row *row, uint64_t *held)
{
    json_t *reply = ask_west(q, json_pack("{s:s, s:s}", "cmd", "versions", "model", q->model));
    const json_t *versions = json_object_get(reply, "versions");
    bool found = false;
    for (size_t i = 0; i < json_array_size(versions); i++) {
        const json_t *v = json_array_get(versions, i);
        if (count_of(v, "number") != row->number) continue;
        *held = count_of(v, "held_bytes");
        row->bytes = count_of(v, "bytes");
        row->wire_bytes = count_of(v, "wire_bytes");
        found = true;
    }
    json_decref(reply);
    return found;
}

static void show(const struct quickstart *q, const struct row *row, uint64_t held, uint32_t left)
{
    if (!q->terminal) return;
    (void)fprintf(stderr, "\rversion %" PRIu64 ": west holds %s of %s, %u of %u workers have it\x1b[K",
                  row->number, tb_show_bytes(held).text, tb_show_bytes(row->bytes).text, WORKERS - left,
                  WORKERS);
    (void)fflush(stderr);
}

static double since(tb_time_ns then)
{
    return (double)tb_time_since(then, tb_clock_now()) / 1e9;
}

static int spread(struct quickstart *q, struct row *row)
{
    const tb_time_ns until = tb_time_add(q->began, TB_SECONDS(STEP_S));
    uint32_t left = WORKERS;
    while (left > 0 || row->gateway_s == 0) {
        uint64_t held = 0;
        if (left > 0) {
            const int code = listen_to(q, q->ranks, WORKERS, 20, &left);
            if (code != TB_CLI_DONE) return code;
            if (left == 0) row->workers_s = since(q->began);
        }
        if (ask_held(q, row, &held) && held > 0 && held == row->bytes && row->gateway_s == 0)
            row->gateway_s = since(q->began);
        show(q, row, held, left);
        if (tb_clock_now() > until) {
            (void)fprintf(stderr, "quickstart: version %" PRIu64 " did not reach all workers in %u s\n",
                          row->number, STEP_S);
            return TB_CLI_TIMEOUT;
        }
    }
    return TB_CLI_DONE;
}

/* The first number behind `word` in an answer, in seconds of nanoseconds; 0 when it is another
 * answer. */
static double seconds_of(const struct person *p, const char *word)
{
    const size_t count = strlen(word);
    return strncmp(p->line, word, count) == 0 ? (double)strtoull(p->line + count, NULL, 10) / 1e9 : 0;
}

static void read_answers(struct quickstart *q, struct row *row)
{
    for (uint32_t i = 0; i < q->ranks; i++) {
        const double hold_s = seconds_of(rank_of(q, i), "published ");
        if (hold_s > row->hold_s) row->hold_s = hold_s;
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        const double stall_s = seconds_of(worker_of(q, i), "active ");
        if (stall_s > row->stall_s) row->stall_s = stall_s;
    }
}

static int compare(struct quickstart *q, struct row *row, const char *file)
{
    int code = TB_CLI_DONE;
    if (q->spoil && row->number + 1 == q->file_count) code = ask_all(q, q->ranks, 1, "spoil", "");
    if (code == TB_CLI_DONE) code = ask_all(q, q->ranks, WORKERS, "compare", file);
    for (uint32_t i = 0; i < WORKERS && code == TB_CLI_DONE; i++) {
        const bool equal = strncmp(worker_of(q, i)->line, "equal ", 6) == 0;
        row->equal += equal;
        if (!equal) (void)complain(worker_of(q, i), worker_of(q, i)->line);
    }
    return code;
}

static int one_version(struct quickstart *q, const char *file, struct row *row)
{
    char number[32];
    (void)snprintf(number, sizeof number, "%" PRIu64, row->number);
    int code = ask_all(q, 0, q->ranks, "load", file);
    if (code == TB_CLI_DONE) code = tell_all(q, q->ranks, WORKERS, "follow", number);
    q->began = tb_clock_now();
    if (code == TB_CLI_DONE) code = ask_all(q, 0, q->ranks, "publish", number);
    if (code == TB_CLI_DONE) code = spread(q, row);
    if (code != TB_CLI_DONE) return code;
    read_answers(q, row);
    code = ask_all(q, 0, q->ranks, "unpublish", "");
    return code == TB_CLI_DONE ? compare(q, row, file) : code;
}

/* ---- the table ---- */

static void print_head(void)
{
    (void)printf("%7s  %10s  %10s  %9s  %14s  %14s  %9s  %s\n", "version", "logical", "wire", "hold",
                 "at the gateway", "at all workers", "stall", "bytes at workers");
}

static void print_row(const struct quickstart *q, const struct row *row)
{
    char hold[32];
    char stall[32];
    if (q->terminal) (void)fputs("\r\x1b[K", stderr);
    (void)snprintf(hold, sizeof hold, "%.1f ms", row->hold_s * 1e3);
    (void)snprintf(stall, sizeof stall, "%.1f ms", row->stall_s * 1e3);
    (void)printf("%7" PRIu64 "  %10s  %10s  %9s  %12.2f s  %12.2f s  %9s  %s\n", row->number,
                 tb_show_bytes(row->bytes).text, tb_show_bytes(row->wire_bytes).text, hold, row->gateway_s,
                 row->workers_s, stall, row->equal == WORKERS ? "equal" : "DIFFERENT");
    (void)fflush(stdout);
}

/* So many bytes in the time from the publish call, the trainer's hold included, until the gateway
 * held them all, as a share of the link's rate. */
static double link_share(const struct quickstart *q, const struct row *row, uint64_t bytes)
{
    if (q->link_bit == 0 || row->gateway_s <= 0) return 0;
    return (double)bytes * 8 / row->gateway_s / (double)q->link_bit;
}

/* Goodput is what the site got of the version, whatever that was on the wire. */
static void print_goodput(const struct quickstart *q, const struct row *first, double best)
{
    const double share = link_share(q, first, first->bytes);
    if (q->link_bit == 0) return;
    (void)printf("\nGoodput, from the publish call until west's gateway holds the version: %.0f Mbit/s for "
                 "the first, which is %.0f %% of the link's %.0f Mbit/s (%.0f %% with what was on the wire); "
                 "%.0f %% for the best.\n",
                 share * (double)q->link_bit / 1e6, share * 100, (double)q->link_bit / 1e6,
                 link_share(q, first, first->wire_bytes) * 100, best * 100);
}

static int run_versions(struct quickstart *q)
{
    uint32_t equal = 0;
    uint64_t bytes = 0;
    struct row first = {0};
    double best = 0;
    print_head();
    for (uint32_t i = 0; i < q->file_count; i++) {
        struct row row = {.number = i};
        const int code = one_version(q, q->files[i], &row);
        if (code != TB_CLI_DONE) return code;
        print_row(q, &row);
        const double share = link_share(q, &row, row.bytes);
        if (i == 0) first = row;
        if (share > best) best = share;
        equal += row.equal;
        bytes += row.bytes * WORKERS;
    }
    print_goodput(q, &first, best);
    const uint32_t all = q->file_count * WORKERS;
    if (equal == all)
        (void)printf(
            "\nGood: %u versions at %u workers, %s compared with the published files, every byte equal.\n",
            q->file_count, WORKERS, tb_show_bytes(bytes).text);
    else
        (void)printf("\nBAD: bytes differ from the published files in %u of %u comparisons.\n", all - equal,
                     all);
    return equal == all ? TB_CLI_DONE : TB_CLI_DIFFERS;
}

/* ---- the way through ---- */

/* A shard needs a tensor: a file of one tensor is published by one rank. */
static int count_ranks(struct quickstart *q)
{
    struct tb_bundle b;
    struct tb_bundle_error error;
    if (tb_bundle_open(&(struct tb_bundle_paths){.paths = q->files, .count = 1}, &b, &error) != TB_OK) {
        (void)fprintf(stderr, "quickstart: %s\n", error.text);
        return TB_CLI_REFUSED;
    }
    q->ranks = b.tensor_count < RANKS ? b.tensor_count : RANKS;
    tb_bundle_close(&b);
    if (q->ranks > 0) return TB_CLI_DONE;
    (void)fprintf(stderr, "quickstart: %s has no tensors (is it a safetensors file?)\n", q->files[0]);
    return TB_CLI_REFUSED;
}

static int run(struct quickstart *q)
{
    int code = count_ranks(q);
    bool good = code == TB_CLI_DONE;
    for (uint32_t i = 0; i < q->ranks && good; i++)
        good = start_rank(q, i);
    for (uint32_t i = 0; i < WORKERS && good; i++)
        good = start_worker(q, i);
    if (code == TB_CLI_DONE && !good) code = TB_CLI_SITE;
    if (code == TB_CLI_DONE) code = listen_all(q, 0, q->person_count, "starting");
    if (code == TB_CLI_DONE) code = run_versions(q);
    stop_all(q);
    return code;
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        {"east", required_argument, NULL, 'e'},    {"west", required_argument, NULL, 'w'},
        {"control", required_argument, NULL, 'c'}, {"rank-program", required_argument, NULL, 'r'},
        {"model", required_argument, NULL, 'm'},   {"link-bit", required_argument, NULL, 'l'},
        {"spoil", no_argument, NULL, 's'},         {NULL, 0, NULL, 0}};
    static struct quickstart q;
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (c) {
        case 'e':
            q.east = optarg;
            break;
        case 'w':
            q.west = optarg;
            break;
        case 'c':
            q.west_control = optarg;
            break;
        case 'r':
            q.rank_program = optarg;
            break;
        case 'm':
            q.model = optarg;
            break;
        case 'l':
            q.link_bit = strtoull(optarg, NULL, 10);
            break;
        case 's':
            q.spoil = true;
            break;
        default:
            return TB_CLI_USAGE;
        }
    }
    if (optind == argc || q.east == NULL || q.west == NULL || q.west_control == NULL ||
        q.rank_program == NULL || q.model == NULL) {
        (void)fputs("usage: tombolo-quickstart --east ADDRESS --west ADDRESS --control WEST_CONTROL "
                    "--rank-program FILE --model MODEL "
                    "[--link-bit BITS_A_SECOND] [--spoil] FILE.safetensors...\n",
                    stderr);
        return TB_CLI_USAGE;
    }
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART; /* poll ends all the same, and no waitpid leaves a process behind */
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    q.files = argv + optind;
    q.file_count = (uint32_t)(argc - optind);
    q.terminal = isatty(STDERR_FILENO);
    (void)snprintf(q.run_key, sizeof q.run_key, "quickstart-%d", (int)getpid());
    return run(&q);
}
