/* publish_trial.c - see publish_trial.h.
 *
 * Files are read, not loaded from their mapping: one that is cut short meanwhile ends the command
 * with a sentence. The bytes that cross are an estimate: chunks that differ, by the savings and
 * rates that the gateway measured on each link. */
#include "gateway/cli/versions/publish_trial.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/layout/manifest.h"
#include "gateway/cli/operator/control_fields.h"
#include "gateway/cli/options.h"

#define READ_BYTES ((size_t)1 << 20)

struct trial {
    const struct tb_cli_call *call;
    const char *model;
    uint64_t number;
    const struct tb_bundle *bundle;
    json_t *status, *lag, *held; /* the gateway's answers */
    void *layout_memory, *manifest_memory;
    struct tb_manifest manifest;
    const struct tb_tensor_desc **from; /* of each tensor of the layout */
    uint8_t *piece;
    const struct tb_bundle_file *open; /* NULL: none */
    int fd;
    struct tb_progress progress;
    uint64_t changed_bytes, changed_chunks;
    bool compared;
    const char *why_not; /* compared: static */
};

static enum tb_cli_exit no_memory(const struct trial *t)
{
    return tb_say_failure(t->call, TB_SITE_NOMEM, "no memory to compare the files");
}

/* ---- the gateway ---- */

static enum tb_cli_exit ask(const struct trial *t, const char *cmd, json_t **reply_out)
{
    return tb_cli_ask(t->call, json_pack("{s:s, s:s}", "cmd", cmd, "model", t->model), reply_out);
}

static const json_t *row_of(const json_t *rows, const char *key, const char *name)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const char *text = json_string_value(json_object_get(json_array_get(rows, i), key));
        if (text != NULL && strcmp(text, name) == 0) return json_array_get(rows, i);
    }
    return NULL;
}

/* With a run of its own the number may be any. */
static enum tb_cli_exit number_check(const struct trial *t, const json_t *model)
{
    uint64_t run = 0, number = 0;
    const char *head = json_string_value(json_object_get(model, "head"));
    if (tb_cli_given(t->call, "new-run") || tb_cli_given(t->call, "run") || head == NULL) return TB_CLI_DONE;
    if (!tb_cli_version_of(head, &run, &number) || t->number >= number) return TB_CLI_DONE;
    return tb_say_failure(t->call, TB_BAD_STATE,
                          "version %" PRIu64 " is not above %" PRIu64 ", the newest of run %" PRIu64,
                          t->number, number, run);
}

static enum tb_cli_exit may_publish(const struct trial *t)
{
    const json_t *model = row_of(json_object_get(t->status, "models"), "model", t->model);
    const struct tb_field home = tb_text_of(model, "home"), site = tb_text_of(t->status, "site");
    if (model == NULL)
        return tb_say_failure(t->call, TB_NOT_FOUND, "no model \"%s\" is known at this gateway", t->model);
    if (strcmp(home.text, site.text) != 0)
        return tb_say_failure(t->call, TB_NOT_HOME, "the home of %s is %s, and this gateway is of %s",
                              t->model, home.text, site.text);
    return number_check(t, model);
}

/* ---- the files' chunks ---- */

static enum tb_status tensors_of(const struct tb_bundle *b, struct tb_tensor *tensors)
{
    for (uint32_t i = 0; i < b->tensor_count; i++) {
        const struct tb_tensor_desc *d = &b->tensors[i];
        struct tb_tensor *t = &tensors[i];
        t->name = d->name;
        if (!tb_tensor_set_dtype(t, d->dtype) || d->rank > TB_RANK_MAX) return TB_BAD_FILE;
        t->rank = (uint8_t)d->rank;
        for (uint32_t k = 0; k < d->rank; k++)
            t->full[k] = t->box_count[k] = d->shape[k];
    }
    return TB_OK;
}

static enum tb_status layout_build(struct trial *t, const struct tb_tensor *tensors, struct tb_layout *layout)
{
    const struct tb_bundle *b = t->bundle;
    const size_t bytes = tb_layout_bytes_for(tensors, b->tensor_count);
    t->layout_memory = tb_malloc(bytes);
    t->from = tb_calloc((size_t)b->tensor_count + 1, sizeof *t->from);
    if (t->layout_memory == NULL || t->from == NULL) return TB_SITE_NOMEM;
    const enum tb_status status = tb_layout_build(tensors, b->tensor_count, t->layout_memory, bytes, layout);
    for (uint32_t i = 0; status == TB_OK && i < b->tensor_count; i++)
        t->from[tb_layout_find(layout, b->tensors[i].name) - layout->tensors] = &b->tensors[i];
    return status;
}

static enum tb_status manifest_build(struct trial *t, const struct tb_layout *layout)
{
    const struct tb_bundle *b = t->bundle;
    struct tb_blob *blobs = tb_calloc((size_t)b->blob_count + 1, sizeof *blobs);
    if (blobs == NULL) return TB_SITE_NOMEM;
    for (uint32_t i = 0; i < b->blob_count; i++)
        blobs[i] = (struct tb_blob){.name = b->blobs[i].name, .bytes = b->blobs[i].count};
    const size_t bytes = tb_manifest_bytes_for(layout, blobs, b->blob_count);
    t->manifest_memory = bytes > 0 ? tb_malloc(bytes) : NULL;
    const enum tb_status status =
        t->manifest_memory == NULL
            ? TB_SITE_NOMEM
            : tb_manifest_build(layout, blobs, b->blob_count, t->manifest_memory, bytes, &t->manifest);
    tb_free(blobs);
    return status;
}

static enum tb_status cut(struct trial *t)
{
    struct tb_layout layout;
    struct tb_tensor *tensors = tb_calloc((size_t)t->bundle->tensor_count + 1, sizeof *tensors);
    if (tensors == NULL) return TB_SITE_NOMEM;
    enum tb_status status = tensors_of(t->bundle, tensors);
    if (status == TB_OK) status = layout_build(t, tensors, &layout);
    if (status == TB_OK) status = manifest_build(t, &layout);
    tb_free(tensors);
    return status;
}

/* The file that has these mapped bytes; NULL: they stand in memory of ours. */
static const struct tb_bundle_file *file_of(const struct trial *t, const uint8_t *at)
{
    for (uint32_t i = 0; i < t->bundle->file_count; i++) {
        const struct tb_bundle_file *f = &t->bundle->files[i];
        if (f->bytes != NULL && at >= f->bytes && at < f->bytes + f->count) return f;
    }
    return NULL;
}

static bool file_open(struct trial *t, const struct tb_bundle_file *f)
{
    if (t->open == f) return true;
    if (t->open != NULL) (void)close(t->fd);
    t->open = NULL;
    t->fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (t->fd < 0) return false;
    t->open = f;
    return true;
}

static enum tb_status file_digest(struct trial *t, const struct tb_bundle_file *f, uint64_t offset,
                                  uint64_t count, struct tb_digest_state *digest)
{
    if (!file_open(t, f)) return TB_SITE_IO;
    while (count > 0) {
        const size_t most = count < READ_BYTES ? (size_t)count : READ_BYTES;
        const ssize_t got = pread(t->fd, t->piece, most, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got == 0 ? TB_BAD_FILE : TB_SITE_IO;
        tb_digest_update(digest, t->piece, (size_t)got);
        offset += (uint64_t)got;
        count -= (uint64_t)got;
    }
    return TB_OK;
}

static enum tb_status span_digest(struct trial *t, const uint8_t *at, uint64_t count,
                                  struct tb_digest_state *digest)
{
    const struct tb_bundle_file *f = file_of(t, at);
    if (f != NULL) return file_digest(t, f, (uint64_t)(at - f->bytes), count, digest);
    tb_digest_update(digest, at, (size_t)count);
    return TB_OK;
}

/* Of what begins at `first` in packed bytes, the part inside [*at, end). */
static enum tb_status part_digest(struct trial *t, const struct tb_chunk *k, uint64_t *at, uint64_t first,
                                  const uint8_t *bytes, uint64_t count, struct tb_digest_state *digest)
{
    const uint64_t end = k->offset + k->bytes;
    if (*at < first || *at >= first + count || *at >= end) return TB_OK;
    const uint64_t to = first + count < end ? first + count : end;
    const uint64_t from = *at - first, part = to - *at;
    *at = to;
    return span_digest(t, bytes + from, part, digest);
}

static enum tb_status chunk_digest(struct trial *t, const struct tb_chunk *k, struct tb_digest *digest_out)
{
    const struct tb_manifest *m = &t->manifest;
    struct tb_digest_state digest;
    uint64_t at = k->offset;
    enum tb_status status = TB_OK;
    tb_digest_begin(&digest);
    for (uint32_t i = tb_layout_tensor_at(&m->layout, at); status == TB_OK && i < m->layout.tensor_count;
         i++) {
        const struct tb_tensor *tensor = &m->layout.tensors[i];
        if (tensor->offset >= k->offset + k->bytes) break;
        status = part_digest(t, k, &at, tensor->offset, t->from[i]->memory, tensor->bytes, &digest);
    }
    for (uint32_t i = 0; status == TB_OK && i < m->blob_count; i++)
        status =
            part_digest(t, k, &at, m->blobs[i].offset, t->bundle->blobs[i].bytes, m->blobs[i].bytes, &digest);
    TB_ASSERT(status != TB_OK || at == k->offset + k->bytes);
    *digest_out = tb_digest_end(&digest);
    return status;
}

/* ---- compared ---- */

static bool same(const json_t *digests, uint32_t k, const struct tb_digest *digest)
{
    char hex[2 * TB_DIGEST_BYTES + 1];
    const char *theirs = json_string_value(json_array_get(digests, k));
    for (size_t i = 0; i < TB_DIGEST_BYTES; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", digest->bytes[i]);
    return theirs != NULL && strcmp(theirs, hex) == 0;
}

/* The shard of the version that is held, if it is cut as these files are; NULL: why_not says. */
static const json_t *base_of(struct trial *t)
{
    char hex[2 * TB_DIGEST_BYTES + 1];
    const json_t *shards = json_object_get(t->held, "shards"), *shard = json_array_get(shards, 0);
    const json_t *digests = json_object_get(shard, "digests");
    for (size_t i = 0; i < TB_DIGEST_BYTES; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", t->manifest.layout.id.bytes[i]);
    if (!json_is_string(json_object_get(t->held, "version")))
        t->why_not = "no version is held here";
    else if (!json_is_array(shards))
        t->why_not = "the version that is held has too many chunks to compare";
    else if (tb_cli_given(t->call, "shard") || json_array_size(shards) != 1)
        t->why_not = "several shards are not compared";
    else if (strcmp(tb_text_of(shard, "layout").text, hex) != 0 ||
             json_array_size(digests) != t->manifest.chunk_count)
        t->why_not = "the version that is held has other tensors or files";
    else
        return digests;
    return NULL;
}

static enum tb_cli_exit compare(struct trial *t)
{
    const json_t *digests = base_of(t);
    uint64_t done = 0;
    t->compared = digests != NULL;
    for (uint32_t k = 0; t->compared && k < t->manifest.chunk_count; k++) {
        const struct tb_chunk *chunk = &t->manifest.chunks[k];
        struct tb_digest digest;
        const enum tb_status status = chunk_digest(t, chunk, &digest);
        if (status != TB_OK)
            return tb_say_failure(t->call, status, "%s: %s", t->open != NULL ? t->open->path : "a file",
                                  status == TB_BAD_FILE ? "it became shorter" : strerror(errno));
        done += chunk->bytes;
        tb_progress_show(&t->progress, "digesting", done, t->manifest.bytes);
        if (same(digests, k, &digest)) continue;
        t->changed_bytes += chunk->bytes;
        t->changed_chunks++;
    }
    tb_progress_end(&t->progress);
    return TB_CLI_DONE;
}

/* ---- to each site ---- */

static double saving_of(const json_t *codec, const char *which)
{
    const double saving = json_number_value(json_object_get(json_object_get(codec, which), "saving"));
    return saving > 0 ? saving : 1;
}

/* The rate of the link: as it was measured, or less by an operator's limit. 0: not known. */
static double rate_of(const json_t *link)
{
    const double measured =
        json_number_value(json_object_get(json_object_get(link, "codec"), "link_bytes_per_s"));
    const double limit = (double)tb_count_of(json_object_get(link, "limit"), "bit_per_s") / 8;
    return limit > 0 && (measured <= 0 || limit < measured) ? limit : measured;
}

/* A site that has the version which the files were compared with gets what differs. */
static uint64_t wire_bytes(const struct trial *t, const json_t *row, const json_t *link)
{
    const json_t *codec = json_object_get(link, "codec");
    const char *base = json_string_value(json_object_get(t->held, "version"));
    const char *latest = json_string_value(json_object_get(row, "latest"));
    const bool has_base = t->compared && base != NULL && latest != NULL && strcmp(base, latest) == 0;
    const double bytes = has_base ? (double)t->changed_bytes / saving_of(codec, "delta")
                                  : (double)t->manifest.bytes / saving_of(codec, "full");
    return (uint64_t)bytes;
}

static json_t *site_json(const struct trial *t, const json_t *row)
{
    const json_t *link = row_of(json_object_get(t->status, "links"), "site", tb_text_of(row, "via").text);
    const double rate = rate_of(link);
    const uint64_t bytes = wire_bytes(t, row, link);
    return json_pack("{s:s, s:s, s:I, s:o, s:o}", "site", tb_text_of(row, "site").text, "via",
                     tb_text_of(row, "via").text, "wire_bytes", (json_int_t)bytes, "bytes_per_s",
                     rate > 0 ? json_integer((json_int_t)rate) : json_null(), "seconds",
                     rate > 0 ? json_real((double)bytes / rate) : json_null());
}

static json_t *sites_json(const struct trial *t)
{
    json_t *list = json_array();
    const json_t *rows = json_object_get(t->lag, "lag");
    const struct tb_field own = tb_text_of(t->status, "site");
    for (size_t i = 0; i < json_array_size(rows) && list != NULL; i++) {
        const json_t *row = json_array_get(rows, i);
        if (strcmp(tb_text_of(row, "site").text, own.text) == 0) continue;
        if (json_array_append_new(list, site_json(t, row)) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

static void print_sites(const json_t *sites)
{
    for (size_t i = 0; i < json_array_size(sites); i++) {
        const json_t *s = json_array_get(sites, i);
        const bool known = json_is_number(json_object_get(s, "seconds"));
        (void)printf("  %s: about %s", tb_text_of(s, "site").text, tb_bytes_of(s, "wire_bytes").text);
        if (known)
            (void)printf(", %s at %s/s\n", tb_show_seconds(tb_number_of(s, "seconds")).text,
                         tb_bytes_of(s, "bytes_per_s").text);
        else
            (void)printf(", and nothing crossed yet that would say how fast\n");
    }
}

static enum tb_cli_exit say(const struct trial *t)
{
    const struct tb_manifest *m = &t->manifest;
    const double share = m->bytes > 0 ? (double)t->changed_bytes / (double)m->bytes : 0;
    json_t *sites = sites_json(t);
    if (tb_cli_given(t->call, "json")) {
        json_t *base = t->compared ? json_incref(json_object_get(t->held, "version")) : json_null();
        return tb_say_object(json_pack(
            "{s:i, s:b, s:b, s:s, s:I, s:I, s:i, s:i, s:o, s:s, s:o, s:o, s:o}", "schema", 1, "ok", 1,
            "dry_run", 1, "model", t->model, "number", (json_int_t)t->number, "bytes", (json_int_t)m->bytes,
            "files", (int)t->bundle->file_count, "tensors", (int)t->bundle->tensor_count, "base", base,
            "not_compared", t->compared ? "" : t->why_not, "changed_bytes",
            t->compared ? json_integer((json_int_t)t->changed_bytes) : json_null(), "changed_share",
            t->compared ? json_real(share) : json_null(), "sites", sites));
    }
    if (!tb_cli_given(t->call, "quiet")) {
        (void)printf("dry run, nothing published: %s %" PRIu64 ", %s in %u files; ", t->model, t->number,
                     tb_show_bytes(m->bytes).text, t->bundle->file_count);
        if (t->compared)
            (void)printf("%.1f %% of it stands in chunks that differ from %s\n", share * 100,
                         tb_text_of(t->held, "version").text);
        else
            (void)printf("not compared: %s\n", t->why_not);
        print_sites(sites);
    }
    json_decref(sites);
    return TB_CLI_DONE;
}

static enum tb_cli_exit try_it(struct trial *t)
{
    enum tb_cli_exit code = ask(t, "status", &t->status);
    if (code == TB_CLI_DONE) code = may_publish(t);
    if (code == TB_CLI_DONE) code = ask(t, "lag", &t->lag);
    if (code == TB_CLI_DONE) code = ask(t, "digests", &t->held);
    if (code != TB_CLI_DONE) return code;
    const enum tb_status status = cut(t);
    if (status == TB_SITE_NOMEM) return no_memory(t);
    if (status != TB_OK)
        return tb_say_failure(t->call, status,
                              "the tensors and files make no version: two of one name, or too "
                              "large");
    code = compare(t);
    return code == TB_CLI_DONE ? say(t) : code;
}

enum tb_cli_exit tb_publish_trial(const struct tb_cli_call *call, uint64_t number,
                                  const struct tb_bundle *bundle)
{
    TB_ASSERT(call->argument_count >= 2); /* the table of commands says so */
    struct trial t = {.call = call, .model = call->arguments[0], .number = number, .bundle = bundle};
    t.piece = tb_malloc(READ_BYTES);
    tb_progress_start(&t.progress, call);
    const enum tb_cli_exit code = t.piece != NULL ? try_it(&t) : no_memory(&t);
    if (t.open != NULL) (void)close(t.fd);
    json_decref(t.status);
    json_decref(t.lag);
    json_decref(t.held);
    tb_free(t.from);
    tb_free(t.piece);
    tb_free(t.manifest_memory);
    tb_free(t.layout_memory);
    return code;
}
