/* worker.c - a trainer rank or a rollout rank for system tests: commands as JSON lines on stdin,
 * answers as JSON lines on stdout. A real process over the installed API: it may be killed,
 * stopped, and made to break its promises. */
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tombolo/tombolo.h"

#define HANDLES_MAX 8

/* Tensors registered once, standing in memory of this process. */
struct memory {
    struct tb_registration *registration;
    struct tb_tensor_desc *tensors;
    uint64_t *counts; /* bytes of each */
    uint32_t count;
    uint8_t *bytes;
    uint64_t total;
    bool shared; /* tb_buffer_new */
};

static struct tb_session *session;
static struct memory memories[HANDLES_MAX];
static struct tb_subscription *subscriptions[HANDLES_MAX];

static const char *text_of(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static uint64_t number_of(const json_t *o, const char *key, uint64_t otherwise)
{
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) ? (uint64_t)json_integer_value(v) : otherwise;
}

/* How long a call may take: what the order says, else as long as its test is patient
 * (TB_PATIENCE_S). Less by a tenth, so that the call's own words come before the test gives up. */
static uint32_t timeout_of(const json_t *o, const char *key)
{
    const char *patience = getenv("TB_PATIENCE_S");
    const uint64_t seconds = patience != NULL ? strtoul(patience, NULL, 10) : 60;
    return (uint32_t)number_of(o, key, seconds * 900);
}

static uint32_t handle_of(const json_t *o, const char *key)
{
    const uint64_t h = number_of(o, key, 0);
    return h < HANDLES_MAX ? (uint32_t)h : 0;
}

static void uid_format(const struct tb_uid *uid, char out[33])
{
    for (int i = 0; i < 16; i++)
        snprintf(out + 2 * i, 3, "%02x", uid->bytes[i]);
}

static struct tb_uid uid_of(const json_t *o, const char *key)
{
    struct tb_uid uid = {{0}};
    const char *t = text_of(o, key);
    for (int i = 0; t != NULL && strlen(t) == 32 && i < 16; i++) {
        unsigned v = 0;
        if (sscanf(t + 2 * i, "%2x", &v) == 1) uid.bytes[i] = (uint8_t)v;
    }
    return uid;
}

/* "tensors": [{"name","dtype","shape","offset","bytes"}]; `file` (may be null):
 * their first content. */
static void *file_map(const char *path, uint64_t *bytes_out)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) return NULL;
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    *bytes_out = (uint64_t)st.st_size;
    return map == MAP_FAILED ? NULL : map;
}

static int do_open(const json_t *in, json_t *out)
{
    (void)out;
    const struct tb_session_options options = {
        .struct_bytes = sizeof options,
        .gateway = text_of(in, "gateway"),
        .name = text_of(in, "name"),
        .host = text_of(in, "host"),
        .rack = text_of(in, "rack"),
        .ca = text_of(in, "ca"),
        .cert = text_of(in, "cert"),
        .key = text_of(in, "key"),
        .threads = (uint32_t)number_of(in, "threads", 1),
        .pace_bytes_per_s = number_of(in, "pace", 0),
        .spot = (uint32_t)number_of(in, "spot", 0),
        .open_timeout_ms = timeout_of(in, "timeout_ms"),
        .protect = (uint32_t)number_of(in, "protect", 0),
        .sign_cert = text_of(in, "sign_cert"),
        .sign_key = text_of(in, "sign_key"),
    };
    return tb_session_open(&options, &session);
}

static int memory_fill(struct memory *m, const json_t *in)
{
    const char *path = text_of(in, "file");
    if (path == NULL) return TB_OK;
    uint64_t file_bytes = 0;
    uint8_t *map = file_map(path, &file_bytes);
    if (map == NULL) return TB_BAD_FILE;
    for (uint32_t i = 0; i < m->count; i++) {
        const json_t *t = json_array_get(json_object_get(in, "tensors"), i);
        memcpy(m->tensors[i].memory, map + number_of(t, "offset", 0), m->counts[i]);
    }
    munmap(map, file_bytes);
    return TB_OK;
}

static int memory_tables(struct memory *m, const json_t *list)
{
    m->count = (uint32_t)json_array_size(list);
    m->tensors = calloc(m->count + 1, sizeof *m->tensors);
    m->counts = calloc(m->count + 1, sizeof *m->counts);
    m->total = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        const json_t *t = json_array_get(list, i);
        const json_t *shape = json_object_get(t, "shape");
        uint64_t *dims = calloc(8, sizeof *dims);
        for (size_t d = 0; d < json_array_size(shape) && d < 8; d++) {
            dims[d] = (uint64_t)json_integer_value(json_array_get(shape, d));
        }
        m->tensors[i] = (struct tb_tensor_desc){.name = strdup(text_of(t, "name")),
                                                .dtype = strdup(text_of(t, "dtype")),
                                                .rank = (uint32_t)json_array_size(shape),
                                                .shape = dims};
        m->counts[i] = number_of(t, "bytes", 0);
        m->total += (m->counts[i] + 63u) / 64u * 64u;
    }
    return TB_OK;
}

static int do_register(const json_t *in, json_t *out)
{
    struct memory *m = &memories[handle_of(in, "memory")];
    (void)memory_tables(m, json_object_get(in, "tensors"));
    m->shared = number_of(in, "shared", 0) != 0;
    void *bytes = NULL;
    if (m->shared) {
        const int s = tb_buffer_new(session, m->total, &bytes);
        if (s != TB_OK) return s;
    } else if (posix_memalign(&bytes, 4096, m->total + 4096) != 0) {
        return TB_SITE_NOMEM;
    }
    m->bytes = bytes;
    if (!m->shared) memset(bytes, 0, m->total);
    uint64_t at = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        m->tensors[i].memory = m->bytes + at;
        at += (m->counts[i] + 63u) / 64u * 64u;
    }
    const int s = memory_fill(m, in);
    if (s != TB_OK) return s;
    json_object_set_new(out, "bytes", json_integer((json_int_t)m->total));
    return tb_register(session, m->tensors, m->count, &m->registration);
}

static int do_fill(const json_t *in, json_t *out)
{
    (void)out;
    return memory_fill(&memories[handle_of(in, "memory")], in);
}

/* By the kernel's hand, as a stray device would: while others read these bytes that is a data
 * race, and it is meant. */
static int do_scribble(const json_t *in, json_t *out)
{
    (void)out;
    const struct memory *m = &memories[handle_of(in, "memory")];
    const off_t at = (off_t)(uintptr_t)(m->bytes + number_of(in, "at", 0) % m->total);
    const int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    uint8_t byte = 0;
    bool done = fd >= 0 && pread(fd, &byte, 1, at) == 1;
    byte ^= 0xff;
    done = done && pwrite(fd, &byte, 1, at) == 1;
    if (fd >= 0) close(fd);
    return done ? TB_OK : TB_SITE_IO;
}

/* As a trainer that has forgotten what it sealed does. */
static int do_overwrite(const json_t *in, json_t *out)
{
    (void)out;
    const struct memory *m = &memories[handle_of(in, "memory")];
    volatile uint8_t *at = m->bytes + number_of(in, "at", 0) % m->total;
    *at = (uint8_t)(*at + number_of(in, "by", 1));
    return TB_OK;
}

static int do_unregister(const json_t *in, json_t *out)
{
    (void)out;
    struct memory *m = &memories[handle_of(in, "memory")];
    const int s = tb_unregister(m->registration);
    if (s == TB_OK) m->registration = NULL;
    return s;
}

static int do_suspend(const json_t *in, json_t *out)
{
    (void)out;
    return tb_suspend(memories[handle_of(in, "memory")].registration);
}

/* "move": the tensors stand in other memory now, and the old is not theirs any more. */
static int do_resume(const json_t *in, json_t *out)
{
    (void)out;
    struct memory *m = &memories[handle_of(in, "memory")];
    if (number_of(in, "move", 0) == 0) return tb_resume(m->registration, NULL, 0);
    void *moved = NULL;
    void **addresses = calloc(m->count + 1, sizeof *addresses);
    if (m->shared || addresses == NULL || posix_memalign(&moved, 4096, m->total + 4096) != 0) {
        free(addresses);
        return TB_SITE_NOMEM;
    }
    memcpy(moved, m->bytes, m->total);
    for (uint32_t i = 0; i < m->count; i++) {
        const ptrdiff_t at = (uint8_t *)m->tensors[i].memory - m->bytes;
        addresses[i] = m->tensors[i].memory = (uint8_t *)moved + at;
    }
    memset(m->bytes, 0xa5, m->total);
    free(m->bytes);
    m->bytes = moved;
    const int s = tb_resume(m->registration, addresses, m->count);
    free(addresses);
    return s;
}

static int do_run(const json_t *in, json_t *out)
{
    struct tb_run_info info = {.struct_bytes = sizeof info};
    const bool joins = strcmp(text_of(in, "cmd"), "run_join") == 0;
    const int s = joins ? tb_run_join(session, text_of(in, "model"), text_of(in, "key"), &info)
                        : tb_run_open(session, text_of(in, "model"), text_of(in, "key"), &info);
    if (s != TB_OK) return s;
    char run[33];
    uid_format(&info.run, run);
    json_object_set_new(out, "run", json_string(run));
    json_object_set_new(out, "run_order", json_integer((json_int_t)info.run_order));
    json_object_set_new(out, "joined", json_boolean(info.joined));
    json_object_set_new(out, "has_last", json_boolean(info.has_last));
    json_object_set_new(out, "last_number", json_integer((json_int_t)info.last_number));
    json_object_set_new(out, "resumed_number", json_integer((json_int_t)info.resumed_number));
    json_object_set_new(out, "shut_out_run_order", json_integer((json_int_t)info.shut_out_run_order));
    json_object_set_new(out, "shut_out_number", json_integer((json_int_t)info.shut_out_number));
    return s;
}

static int do_publish(const json_t *in, json_t *out)
{
    const bool published = strcmp(text_of(in, "cmd"), "publish") == 0;
    const struct tb_uid run = published ? uid_of(in, "run") : (struct tb_uid){{0}};
    const char *blob = text_of(in, "blob");
    const struct tb_blob_desc blobs[1] = {
        {.name = "blob.json", .bytes = blob, .count = blob ? strlen(blob) : 0}};
    const struct tb_publish_options options = {
        .struct_bytes = sizeof options,
        .mode = number_of(in, "in_place", 0) ? TB_PUBLISH_IN_PLACE : TB_PUBLISH_SHADOW,
        .model = text_of(in, "model"),
        .run = &run,
        .number = number_of(in, "number", 0),
        .shard_index = (uint32_t)number_of(in, "shard", 0),
        .shard_count = (uint32_t)number_of(in, "shards", 1),
        .registration = memories[handle_of(in, "memory")].registration,
        .blobs = blobs,
        .blob_count = blob != NULL,
        .codec = text_of(in, "codec"),
        .timeout_ms = timeout_of(in, "timeout_ms"),
    };
    if (!published) return tb_publish_prepare(session, &options);
    struct tb_publish_info info = {.struct_bytes = sizeof info};
    const int s = tb_publish(session, &options, &info);
    if (s != TB_OK) return s;
    char uid[33];
    uid_format(&info.uid, uid);
    json_object_set_new(out, "uid", json_string(uid));
    json_object_set_new(out, "hold_ns", json_integer((json_int_t)info.hold_ns));
    json_object_set_new(out, "chunks", json_integer(info.chunk_count));
    return s;
}

static int do_unpublish(const json_t *in, json_t *out)
{
    (void)out;
    const struct tb_uid uid = uid_of(in, "uid");
    return tb_unpublish(session, &uid, timeout_of(in, "drain_ms"));
}

static int do_subscribe(const json_t *in, json_t *out)
{
    (void)out;
    const bool bare = json_object_get(in, "memory") == NULL;
    const struct tb_subscribe_options options = {
        .struct_bytes = sizeof options,
        .member_count = (uint32_t)number_of(in, "count", 1),
        .member_index = (uint32_t)number_of(in, "index", 0),
        .model = text_of(in, "model"),
        .group = text_of(in, "group"),
        .registration = bare ? NULL : memories[handle_of(in, "memory")].registration,
        .update = (uint32_t)number_of(in, "update", TB_UPDATE_COPY),
        .second = json_object_get(in, "second") ? memories[handle_of(in, "second")].registration : NULL,
        .home_ca = text_of(in, "home_ca"),
        .prove = (uint32_t)number_of(in, "prove", TB_PROVE_ASKED),
    };
    return tb_subscribe(session, &options, &subscriptions[handle_of(in, "subscription")]);
}

static int do_unsubscribe(const json_t *in, json_t *out)
{
    (void)out;
    return tb_unsubscribe(subscriptions[handle_of(in, "subscription")]);
}

static int do_wait(const json_t *in, json_t *out)
{
    static const char *kinds[] = {"minimum", "exact", "latest", "next"};
    uint32_t kind = 2;
    for (uint32_t i = 0; i < 4; i++) {
        if (text_of(in, "kind") != NULL && strcmp(text_of(in, "kind"), kinds[i]) == 0) kind = i;
    }
    const struct tb_uid after = uid_of(in, "after");
    const struct tb_wait_options options = {
        .struct_bytes = sizeof options,
        .kind = kind,
        .model = text_of(in, "model"),
        .run_order = number_of(in, "run_order", 0),
        .number = number_of(in, "number", 0),
        .after = text_of(in, "after") ? &after : NULL,
        .timeout_ms = timeout_of(in, "timeout_ms"),
    };
    struct tb_version_info info = {.struct_bytes = sizeof info};
    const int s = tb_wait(session, &options, &info);
    if (s != TB_OK) return s;
    char uid[33];
    uid_format(&info.uid, uid);
    json_object_set_new(out, "uid", json_string(uid));
    json_object_set_new(out, "number", json_integer((json_int_t)info.number));
    json_object_set_new(out, "run_order", json_integer((json_int_t)info.run_order));
    json_object_set_new(out, "bytes", json_integer((json_int_t)info.bytes));
    return s;
}

static int do_wait_site(const json_t *in, json_t *out)
{
    (void)out;
    const struct tb_uid uid = uid_of(in, "uid");
    return tb_wait_site(session, &uid, text_of(in, "site"), (uint32_t)number_of(in, "state", TB_SITE_HOLDS),
                        timeout_of(in, "timeout_ms"));
}

static int do_stage(const json_t *in, json_t *out)
{
    (void)out;
    const struct tb_uid uid = uid_of(in, "uid");
    return tb_stage(subscriptions[handle_of(in, "subscription")], &uid, timeout_of(in, "timeout_ms"));
}

/* Asks until the group may go, for at most timeout_ms. */
static int do_activate(const json_t *in, json_t *out)
{
    const struct tb_uid uid = uid_of(in, "uid");
    struct tb_activate_info info = {.struct_bytes = sizeof info};
    const uint64_t timeout_ms = timeout_of(in, "timeout_ms");
    int s = TB_AGAIN;
    for (uint64_t waited = 0; s == TB_AGAIN && waited <= timeout_ms; waited += 2) {
        s = tb_activate(subscriptions[handle_of(in, "subscription")], &uid, &info);
        if (s == TB_AGAIN) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    json_object_set_new(out, "stall_ns", json_integer((json_int_t)info.stall_ns));
    json_object_set_new(out, "copied", json_integer((json_int_t)info.copied_bytes));
    json_object_set_new(out, "patched", json_integer((json_int_t)info.patched_bytes));
    json_object_set_new(out, "staged", json_integer((json_int_t)info.staged_bytes));
    json_object_set_new(out, "fetched", json_integer(info.fetched_chunks));
    json_object_set_new(out, "buffer", json_integer(info.buffer));
    return s;
}

static int do_release(const json_t *in, json_t *out)
{
    (void)out;
    const struct tb_uid uid = uid_of(in, "uid");
    return tb_release(subscriptions[handle_of(in, "subscription")], &uid);
}

/* Bytes of the registered memory against a file: "differ" counts bytes, "first" names a tensor. */
static int do_compare(const json_t *in, json_t *out)
{
    const struct memory *m = &memories[handle_of(in, "memory")];
    uint64_t file_bytes = 0, differ = 0;
    uint8_t *map = file_map(text_of(in, "file"), &file_bytes);
    if (map == NULL) return TB_BAD_FILE;
    for (uint32_t i = 0; i < m->count; i++) {
        const json_t *t = json_array_get(json_object_get(in, "tensors"), i);
        const uint8_t *a = m->tensors[i].memory, *b = map + number_of(t, "offset", 0);
        if (memcmp(a, b, m->counts[i]) == 0) continue;
        if (differ == 0) json_object_set_new(out, "first", json_string(m->tensors[i].name));
        for (uint64_t k = 0; k < m->counts[i]; k++)
            differ += a[k] != b[k];
    }
    munmap(map, file_bytes);
    json_object_set_new(out, "differ", json_integer((json_int_t)differ));
    return TB_OK;
}

/* Staged items against a file by name, for subscribers without registered memory. */
static int do_compare_staged(const json_t *in, json_t *out)
{
    const struct tb_uid uid = uid_of(in, "uid");
    uint64_t file_bytes = 0, differ = 0, items = 0;
    uint8_t *map = file_map(text_of(in, "file"), &file_bytes);
    if (map == NULL) return TB_BAD_FILE;
    struct tb_item item = {.struct_bytes = sizeof item};
    const json_t *list = json_object_get(in, "tensors");
    int s = TB_OK;
    for (uint32_t i = 0;; i++) {
        s = tb_staged_item(subscriptions[handle_of(in, "subscription")], &uid, i, &item);
        if (s != TB_OK) break;
        for (size_t k = 0; k < json_array_size(list) && !item.is_blob; k++) {
            const json_t *t = json_array_get(list, k);
            if (strcmp(text_of(t, "name"), item.name) != 0) continue;
            items++;
            differ += memcmp(item.bytes, map + number_of(t, "offset", 0), item.count) != 0;
        }
    }
    munmap(map, file_bytes);
    json_object_set_new(out, "differ", json_integer((json_int_t)differ));
    json_object_set_new(out, "items", json_integer((json_int_t)items));
    return s == TB_END ? TB_OK : s;
}

static int do_status(const json_t *in, json_t *out)
{
    static char text[1 << 20];
    uint64_t needed = 0;
    const int s = tb_status(session, text_of(in, "what"), text, sizeof text, &needed);
    if (s == TB_OK) json_object_set_new(out, "json", json_loads(text, 0, NULL));
    return s;
}

static int do_close(const json_t *in, json_t *out)
{
    (void)in, (void)out;
    tb_session_close(session);
    session = NULL;
    return TB_OK;
}

static const struct {
    const char *name;
    int (*fn)(const json_t *in, json_t *out);
} commands[] = {
    {"open", do_open},
    {"register", do_register},
    {"fill", do_fill},
    {"scribble", do_scribble},
    {"overwrite", do_overwrite},
    {"unregister", do_unregister},
    {"suspend", do_suspend},
    {"resume", do_resume},
    {"run", do_run},
    {"run_join", do_run},
    {"prepare", do_publish},
    {"publish", do_publish},
    {"unpublish", do_unpublish},
    {"subscribe", do_subscribe},
    {"unsubscribe", do_unsubscribe},
    {"wait", do_wait},
    {"wait_site", do_wait_site},
    {"stage", do_stage},
    {"activate", do_activate},
    {"release", do_release},
    {"compare", do_compare},
    {"compare_staged", do_compare_staged},
    {"status", do_status},
    {"close", do_close},
};

static int run_command(const json_t *in, json_t *out)
{
    const char *cmd = text_of(in, "cmd");
    for (size_t i = 0; cmd != NULL && i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(cmd, commands[i].name) == 0) return commands[i].fn(in, out);
    }
    return TB_BAD_ARGUMENT;
}

int main(void)
{
    static char line[1 << 24]; /* a table of 100,000 tensors */
    while (fgets(line, sizeof line, stdin) != NULL) {
        json_t *in = json_loads(line, 0, NULL), *out = json_object();
        const int s = run_command(in, out);
        json_object_set_new(out, "status", json_string(tb_status_name(s)));
        if (s < 0 || s == TB_AGAIN) json_object_set_new(out, "error", json_string(tb_last_error()));
        char *text = json_dumps(out, JSON_COMPACT);
        puts(text);
        fflush(stdout);
        free(text);
        json_decref(in);
        json_decref(out);
    }
    tb_session_close(session);
    return 0;
}
