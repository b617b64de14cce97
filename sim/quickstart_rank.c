/* quickstart_rank.c - tombolo-quickstart-rank: a trainer rank or a rollout worker of the
 * quickstart, a process of its own over the worker library. It does what the lines on its standard
 * input say and answers each with a line; the end of the input ends it.
 *
 *   line              a rank or a worker does                        and answers
 *   "load PATH"       rank: puts the file's bytes into its memory    "loaded BYTES"
 *   "publish NUMBER"  rank: seals its shard                          "published HOLD_NS BYTES"
 *   "unpublish"       rank: ends its reference to the version before "unpublished"
 *   "follow NUMBER"   worker: waits for the version, stages it,      "active STALL_NS"
 *                     and activates it with its group
 *   "compare PATH"    worker: compares every byte that it would      "equal BYTES" or
 *                     compute from with the published file           "differs TENSOR"
 *   "spoil"           worker: flips a byte, so that a comparison     "spoiled"
 *                     that can fail is seen to fail
 *   any failure                                                      "failed TEXT" */
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/layout/dtype.h"
#include "gateway/cli/versions/bundle.h"
#include "tombolo/tombolo.h"

#define WAIT_MS 60000u

struct rank {
    const char *gateway;
    const char *name;
    const char *host;
    const char *model;
    const char *group; /* NULL: a trainer rank */
    const char *run_key;
    uint32_t index; /* shard, or member */
    uint32_t count;
    struct tb_bundle first; /* names and shapes of all files are those of the first */
    struct tb_tensor_desc *mine;
    uint32_t *mine_index; /* in the bundle */
    uint32_t mine_count;
    struct tb_blob_desc header; /* rank 0 sends the file's header along */
    struct tb_session *session;
    struct tb_registration *registration;
    struct tb_subscription *subscription;
    struct tb_uid run;
    struct tb_uid before;
    struct tb_uid now;
    bool any_before;
    bool any_now;
};

static void answer(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void answer(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vprintf(format, arguments);
    va_end(arguments);
    (void)putchar('\n');
    (void)fflush(stdout);
}

static void failed(const char *doing, int status)
{
    answer("failed %s: %s (%s)", doing, tb_last_error(), tb_status_name(status));
}

static uint64_t tensor_bytes(const struct tb_tensor_desc *t)
{
    uint64_t bytes = tb_dtype_element_bytes(tb_dtype_parse(t->dtype));
    for (uint32_t i = 0; i < t->rank; i++)
        bytes *= t->shape[i];
    return bytes;
}

/* Which shard has a tensor: each goes to the one that has the least so far, so the
 * shards are about equal. */
static void choose(struct rank *r)
{
    uint64_t filled[64] = {0};
    for (uint32_t i = 0; i < r->first.tensor_count; i++) {
        uint32_t least = 0;
        for (uint32_t s = 1; s < r->count; s++)
            if (filled[s] < filled[least]) least = s;
        filled[least] += tensor_bytes(&r->first.tensors[i]);
        if (r->group != NULL || least == r->index) r->mine_index[r->mine_count++] = i;
    }
}

/* Memory of the rank's own for each of its tensors. Trainer ranks take it from the library, so that
 * readers on the same host map it. */
static bool make_memory(struct rank *r)
{
    uint64_t total = 0;
    void *memory = NULL;
    for (uint32_t i = 0; i < r->mine_count; i++)
        total += (tensor_bytes(&r->first.tensors[r->mine_index[i]]) + 63) / 64 * 64;
    if (r->group == NULL) {
        if (tb_buffer_new(r->session, total + 64, &memory) != TB_OK) return false;
    } else {
        memory =
            mmap(NULL, total + 64, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (memory == MAP_FAILED) return false;
    }
    uint8_t *at = memory;
    for (uint32_t i = 0; i < r->mine_count; i++) {
        r->mine[i] = r->first.tensors[r->mine_index[i]];
        r->mine[i].memory = at;
        at += (tensor_bytes(&r->mine[i]) + 63) / 64 * 64;
    }
    return true;
}

static bool open_bundle(const char *path, struct tb_bundle *b)
{
    struct tb_bundle_error error;
    char *const paths[] = {(char *)(uintptr_t)path};
    if (tb_bundle_open(&(struct tb_bundle_paths){.paths = paths, .count = 1}, b, &error) != TB_OK) {
        answer("failed %s", error.text);
        return false;
    }
    return true;
}

static bool same_tensors(const struct rank *r, const struct tb_bundle *b)
{
    if (b->tensor_count != r->first.tensor_count) return false;
    for (uint32_t i = 0; i < b->tensor_count; i++) {
        const struct tb_tensor_desc *x = &b->tensors[i];
        const struct tb_tensor_desc *y = &r->first.tensors[i];
        if (strcmp(x->name, y->name) != 0 || strcmp(x->dtype, y->dtype) != 0 || x->rank != y->rank)
            return false;
        if (memcmp(x->shape, y->shape, x->rank * sizeof x->shape[0]) != 0) return false;
    }
    return true;
}

/* Opens another of the published files; its tensors must stand in the same order as the first's. */
static bool open_next(struct rank *r, const char *path, struct tb_bundle *b)
{
    if (!open_bundle(path, b)) return false;
    if (same_tensors(r, b)) return true;
    answer("failed %s: other tensors than in the first file; the quickstart publishes versions of one model",
           path);
    tb_bundle_close(b);
    return false;
}

/* ---- a trainer rank ---- */

static void do_load(struct rank *r, const char *path)
{
    struct tb_bundle b;
    uint64_t bytes = 0;
    if (!open_next(r, path, &b)) return;
    for (uint32_t i = 0; i < r->mine_count; i++) {
        const uint64_t count = tensor_bytes(&r->mine[i]);
        memcpy(r->mine[i].memory, b.tensors[r->mine_index[i]].memory, count);
        bytes += count;
    }
    if (r->index == 0) {
        free((void *)(uintptr_t)r->header.bytes);
        free((void *)(uintptr_t)r->header.name);
        void *header = malloc(b.blobs[0].count);
        r->header = (struct tb_blob_desc){
            .name = strdup(b.blobs[0].name), .bytes = header, .count = header == NULL ? 0 : b.blobs[0].count};
        if (header != NULL) memcpy(header, b.blobs[0].bytes, b.blobs[0].count);
    }
    tb_bundle_close(&b);
    answer("loaded %" PRIu64, bytes);
}

static void do_publish(struct rank *r, const char *text)
{
    const struct tb_publish_options options = {
        .struct_bytes = sizeof options,
        .mode = TB_PUBLISH_SHADOW,
        .model = r->model,
        .run = &r->run,
        .number = strtoull(text, NULL, 10),
        .shard_index = r->index,
        .shard_count = r->count,
        .registration = r->registration,
        .blobs = &r->header,
        .blob_count = r->index == 0,
    };
    struct tb_publish_info info = {.struct_bytes = sizeof info};
    const int s = tb_publish(r->session, &options, &info);
    if (s != TB_OK) {
        failed("publishing", s);
        return;
    }
    r->before = r->now;
    r->any_before = r->any_now;
    r->now = info.uid;
    r->any_now = true;
    answer("published %" PRIu64 " %" PRIu64, info.hold_ns, info.bytes);
}

static void do_unpublish(struct rank *r)
{
    const int s = r->any_before ? tb_unpublish(r->session, &r->before, 10000) : TB_OK;
    r->any_before = false;
    if (s != TB_OK)
        failed("ending a reference", s);
    else
        answer("unpublished");
}

/* ---- a worker ---- */

/* The version before goes once this one is active, and not sooner: what is staged is the base that
 * the next one is decoded on. */
static bool release_before(struct rank *r)
{
    if (!r->any_before) return true;
    const int s = tb_release(r->subscription, &r->before);
    r->any_before = false;
    if (s != TB_OK) failed("releasing", s);
    return s == TB_OK;
}

static int activate(struct rank *r, struct tb_activate_info *info)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    int s = TB_AGAIN;
    for (unsigned tries = 0; s == TB_AGAIN && tries < WAIT_MS; tries++) {
        info->struct_bytes = sizeof *info;
        s = tb_activate(r->subscription, &r->now, info);
        /* Until the other members of the group have staged it too. */
        if (s == TB_AGAIN) (void)nanosleep(&pause, NULL);
    }
    return s;
}

static void do_follow(struct rank *r, const char *text)
{
    const struct tb_wait_options options = {
        .struct_bytes = sizeof options,
        .kind = TB_WAIT_EXACT,
        .model = r->model,
        .number = strtoull(text, NULL, 10),
        .timeout_ms = WAIT_MS,
    };
    struct tb_version_info v = {.struct_bytes = sizeof v};
    struct tb_activate_info info = {0};
    int s = tb_wait(r->session, &options, &v);
    if (s != TB_OK) {
        failed("waiting for a version", s);
        return;
    }
    r->before = r->now;
    r->any_before = r->any_now;
    r->now = v.uid;
    r->any_now = true;
    s = tb_stage(r->subscription, &v.uid, WAIT_MS);
    if (s != TB_OK) {
        failed("staging", s);
        return;
    }
    s = activate(r, &info);
    if (s != TB_OK)
        failed("activating", s);
    else if (release_before(r))
        answer("active %" PRIu64, info.stall_ns);
}

static void do_compare(struct rank *r, const char *path)
{
    struct tb_bundle b;
    uint64_t bytes = 0;
    const char *differs = NULL;
    if (!open_next(r, path, &b)) return;
    for (uint32_t i = 0; i < r->mine_count; i++) {
        const uint64_t count = tensor_bytes(&r->mine[i]);
        if (memcmp(r->mine[i].memory, b.tensors[r->mine_index[i]].memory, count) != 0)
            differs = r->mine[i].name;
        bytes += count;
    }
    tb_bundle_close(&b);
    if (differs != NULL)
        answer("differs %s", differs);
    else
        answer("equal %" PRIu64, bytes);
}

static void do_spoil(struct rank *r)
{
    *(uint8_t *)r->mine[r->mine_count / 2].memory ^= 1;
    answer("spoiled");
}

/* ---- the way through ---- */

static bool begin(struct rank *r)
{
    const struct tb_session_options options = {.struct_bytes = sizeof options,
                                               .gateway = r->gateway,
                                               .name = r->name,
                                               .host = r->host,
                                               .threads = 1};
    const char *doing = "opening a session";
    int s = tb_session_open(&options, &r->session);
    if (s == TB_OK) {
        doing = "making memory";
        s = make_memory(r) ? TB_OK : TB_SITE_NOMEM;
    }
    if (s == TB_OK) {
        doing = "registering";
        s = tb_register(r->session, r->mine, r->mine_count, &r->registration);
    }
    if (s == TB_OK && r->group == NULL) {
        struct tb_run_info run = {.struct_bytes = sizeof run};
        doing = "opening the run";
        s = tb_run_open(r->session, r->model, r->run_key, &run);
        r->run = run.run;
    } else if (s == TB_OK) {
        const struct tb_subscribe_options subscribe = {.struct_bytes = sizeof subscribe,
                                                       .member_count = r->count,
                                                       .member_index = r->index,
                                                       .model = r->model,
                                                       .group = r->group,
                                                       .registration = r->registration};
        doing = "subscribing";
        s = tb_subscribe(r->session, &subscribe, &r->subscription);
    }
    if (s != TB_OK) failed(doing, s);
    return s == TB_OK;
}

static void serve(struct rank *r)
{
    char line[4200];
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *text = strchr(line, ' ');
        if (text != NULL) *text++ = '\0';
        if (strcmp(line, "load") == 0 && text != NULL)
            do_load(r, text);
        else if (strcmp(line, "publish") == 0 && text != NULL)
            do_publish(r, text);
        else if (strcmp(line, "unpublish") == 0)
            do_unpublish(r);
        else if (strcmp(line, "follow") == 0 && text != NULL)
            do_follow(r, text);
        else if (strcmp(line, "compare") == 0 && text != NULL)
            do_compare(r, text);
        else if (strcmp(line, "spoil") == 0)
            do_spoil(r);
        else
            answer("failed what is \"%s\"?", line);
    }
}

int main(int argc, char **argv)
{
    static const struct option known[] = {{"gateway", required_argument, NULL, 'g'},
                                          {"name", required_argument, NULL, 'n'},
                                          {"host", required_argument, NULL, 'h'},
                                          {"model", required_argument, NULL, 'm'},
                                          {"group", required_argument, NULL, 'r'},
                                          {"run", required_argument, NULL, 'k'},
                                          {"index", required_argument, NULL, 'i'},
                                          {"count", required_argument, NULL, 'c'},
                                          {NULL, 0, NULL, 0}};
    static struct rank r;
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (c) {
        case 'g':
            r.gateway = optarg;
            break;
        case 'n':
            r.name = optarg;
            break;
        case 'h':
            r.host = optarg;
            break;
        case 'm':
            r.model = optarg;
            break;
        case 'r':
            r.group = optarg;
            break;
        case 'k':
            r.run_key = optarg;
            break;
        case 'i':
            r.index = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'c':
            r.count = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        default:
            return 2;
        }
    }
    if (optind + 1 != argc || r.gateway == NULL || r.model == NULL || r.count < 1 || r.count > 64 ||
        (r.group == NULL && r.run_key == NULL)) {
        (void)fputs("usage: tombolo-quickstart-rank --gateway ADDRESS --model MODEL --index I --count N "
                    "(--run KEY | --group NAME) FIRST.safetensors\n",
                    stderr);
        return 2;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* what the quickstart starts ends with it, however that ends */
    if (!open_bundle(argv[optind], &r.first)) return 1;
    r.mine = calloc(r.first.tensor_count + 1, sizeof *r.mine);
    r.mine_index = calloc(r.first.tensor_count + 1, sizeof *r.mine_index);
    if (r.mine == NULL || r.mine_index == NULL) return 1;
    choose(&r);
    if (!begin(&r)) return 1;
    answer("ready %" PRIu32, r.mine_count);
    serve(&r);
    tb_session_close(r.session);
    return 0;
}
