/* doctor_site_checks.c - checks of the configuration and of what it names: the looks of a start
 * (gateway/config/start_checks.h), certificates, disks, the arena, and the gateway that runs. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/pki/look.h"
#include "gateway/cli/doctor/doctor_checks.h"
#include "gateway/cli/doctor/doctor_facts.h"
#include "gateway/cli/operator/control_fields.h"
#include "gateway/config/start_checks.h"

#define STORE_BYTES ((uint64_t)16 << 20) /* of the store, its log and the audit record */

/* ---- the file ---- */

static void tell_complaints(const struct tb_doctor *d, enum tb_mark mark)
{
    for (size_t i = 0; i < json_array_size(d->complaints); i++) {
        const char *line = json_string_value(json_array_get(d->complaints, i));
        struct tb_finding f = tb_find(mark, "%.600s", line != NULL ? line : "?");
        if (mark == TB_MARK_WRONG) tb_advise(&f, "%.300s: that line", d->file);
        tb_doctor_tell(d, "file", f);
    }
}

void tb_check_file(const struct tb_doctor *d)
{
    const struct tb_config *c = d->config;
    if (d->no_files != NULL) {
        tb_doctor_tell(d, "file", tb_find(TB_MARK_SKIPPED, "%.600s", d->no_files));
        return;
    }
    tell_complaints(d, c == NULL ? TB_MARK_WRONG : TB_MARK_WARNING);
    if (c == NULL) return;
    tb_doctor_tell(d, "file",
                   tb_find(TB_MARK_FINE, "%.300s: tombolo://%s/%s, %u peers, %u models", d->file,
                           c->site.text, c->gateway.text, c->peer_count, c->model_count));
}

/* ---- what a start looks at ---- */

struct looked {
    const struct tb_doctor *d;
    const char *name;            /* of the check */
    const char *const *prefixes; /* of keys; NULL: of those that no other check takes */
    uint32_t found;
};

static const char *const of_tls[] = {"tls.", "peers.", NULL};
static const char *const of_disks[] = {"store.", "anchor.", "audit.", "disk.", NULL};
static const char *const of_arena[] = {"arena.", NULL};

static bool begins(const char *key, const char *const *prefixes)
{
    const size_t bytes = strlen(key);
    for (uint32_t i = 0; prefixes[i] != NULL; i++)
        if (strncmp(key, prefixes[i], strlen(prefixes[i])) == 0) return true;
    TB_ASSERT(bytes > 0);
    return false;
}

static bool is_ours(const struct looked *l, const char *key)
{
    const bool is_ca =
        strncmp(key, "peers.", 6) == 0 && strlen(key) > 9 && strcmp(key + strlen(key) - 3, ".ca") == 0;
    const bool is_tls = strncmp(key, "tls.", 4) == 0 || is_ca;
    if (l->prefixes == of_tls) return is_tls;
    if (l->prefixes != NULL) return begins(key, l->prefixes);
    return !is_tls && !begins(key, of_disks) && !begins(key, of_arena);
}

/* A file or port that another process holds is the gateway that runs: no warning. */
static void on_finding(void *user, const struct tb_start_finding *finding)
{
    struct looked *l = user;
    if (!is_ours(l, finding->key)) return;
    if (!finding->refuses && l->d->status != NULL) return;
    struct tb_finding f =
        tb_find(finding->refuses ? TB_MARK_WRONG : TB_MARK_WARNING, "%.600s", finding->text);
    tb_advise(&f, "%s: tombolo config explain %s", finding->key, finding->key);
    tb_doctor_tell(l->d, l->name, f);
    l->found++;
}

static void start_look(const struct tb_doctor *d, const char *name, const char *const *prefixes,
                       const char *fine)
{
    struct looked l = {d, name, prefixes, 0};
    tb_start_check(d->config, on_finding, &l);
    if (l.found == 0) tb_doctor_tell(d, name, tb_find(TB_MARK_FINE, "%s", fine));
}

void tb_check_start(const struct tb_doctor *d)
{
    start_look(d, "start", NULL,
               "sockets, addresses, limits and congestion controls are as a start needs them");
}

/* ---- the gateway that runs ---- */

static void check_sandbox(const struct tb_doctor *d)
{
    const json_t *sandbox = json_object_get(d->status, "sandbox");
    const struct tb_field lacks = tb_text_of(sandbox, "lacks");
    if (!json_is_string(json_object_get(sandbox, "lacks"))) {
        tb_doctor_tell(d, "sandbox", tb_find(TB_MARK_UNKNOWN, "the gateway does not say it"));
        return;
    }
    if (strcmp(lacks.text, "-") == 0) {
        tb_doctor_tell(d, "sandbox",
                       tb_find(TB_MARK_FINE, "the gateway gave up all rights that it does not need"));
        return;
    }
    struct tb_finding f = tb_find(TB_MARK_WARNING, "a layer of the sandbox is not on: %s", lacks.text);
    tb_advise(&f, "sandbox: true, on a kernel with Landlock and seccomp");
    tb_doctor_tell(d, "sandbox", f);
}

static struct tb_finding of_bool(const json_t *value, const char *fine, const char *wrong, const char *advice)
{
    if (!json_is_boolean(value)) return tb_find(TB_MARK_UNKNOWN, "the gateway does not say it");
    struct tb_finding f =
        tb_find(json_is_true(value) ? TB_MARK_FINE : TB_MARK_WRONG, "%s", json_is_true(value) ? fine : wrong);
    if (!json_is_true(value)) tb_advise(&f, "%s", advice);
    return f;
}

static void check_answer(const struct tb_doctor *d)
{
    const json_t *version = json_object_get(d->status, "version"), *pid = json_object_get(d->status, "pid");
    const json_t *uptime = json_object_get(d->status, "uptime_s");
    if (!json_is_string(version) || !json_is_integer(pid) || !json_is_number(uptime))
        tb_doctor_tell(
            d, "answer",
            tb_find(TB_MARK_UNKNOWN, "a gateway answers, and does not say version, pid and uptime"));
    else
        tb_doctor_tell(d, "answer",
                       tb_find(TB_MARK_FINE, "tombolod %s runs as process %llu, for %s",
                               tb_text_of(d->status, "version").text,
                               (unsigned long long)tb_count_of(d->status, "pid"),
                               tb_show_seconds(tb_number_of(d->status, "uptime_s")).text));
}

void tb_check_gateway(const struct tb_doctor *d)
{
    if (d->status == NULL && d->before_start) {
        tb_doctor_tell(d, "answer", tb_find(TB_MARK_SKIPPED, "--pre: no gateway is asked"));
        return;
    }
    if (d->status == NULL && d->gateway_denied) {
        tb_doctor_tell(d, "answer", tb_find(TB_MARK_SKIPPED, "%.600s", d->no_gateway));
        return;
    }
    if (d->status == NULL) {
        struct tb_finding f = tb_find(TB_MARK_WRONG, "%.600s", d->no_gateway);
        tb_advise(&f, "systemctl start tombolod@%s; before a start: tombolo doctor --pre",
                  d->config != NULL ? d->config->site.text : "SITE");
        tb_doctor_tell(d, "answer", f);
        return;
    }
    check_answer(d);
    tb_doctor_tell(d, "store",
                   of_bool(json_object_get(d->status, "store_ok"), "the store can be written",
                           "the store cannot be written, and publishing is refused",
                           "store.path: its disk is full, read-only, or does not answer"));
    tb_doctor_tell(d, "audit",
                   of_bool(json_object_get(json_object_get(d->status, "audit"), "ok"),
                           "each row of the audit record is kept", "rows of the audit record are lost",
                           "store.path: make room on its disk"));
    check_sandbox(d);
}

/* ---- certificates ---- */

static void name_of(const struct tb_pki_seen *seen, char out[160])
{
    if (seen->identity.kind != TB_IDENTITY_NONE) {
        tb_identity_format(&seen->identity, out);
        return;
    }
    (void)snprintf(out, 160, "%s \"%.120s\"", seen->kind == TB_PKI_ROOT ? "the authority" : "the certificate",
                   seen->subject);
}

static void check_certificate_file(const struct tb_doctor *d, const char *key, const char *path)
{
    struct tb_pki_look *look = tb_pki_look_new();
    char error[256] = "no memory";
    if (look == NULL || tb_pki_look_add(look, path, error) != TB_OK) {
        struct tb_finding f = tb_find(TB_MARK_WRONG, "%.300s", error);
        tb_advise(&f, "%s: a PEM file that the gateway's user can read", key);
        tb_doctor_tell(d, "files", f);
    }
    for (uint32_t i = 0; look != NULL && i < tb_pki_look_count(look); i++) {
        struct tb_pki_seen seen;
        tb_pki_look_at(look, i, &seen);
        struct tb_certificate_facts facts = {.key = key,
                                             .path = path,
                                             .from_s = seen.from_wall_s,
                                             .until_s = seen.until_wall_s,
                                             .now_s = (int64_t)(tb_clock_wall_ms() / 1000)};
        name_of(&seen, facts.who);
        tb_doctor_tell(d, "files", tb_judge_certificate(&facts));
    }
    tb_pki_look_free(look);
}

void tb_check_certificates(const struct tb_doctor *d)
{
    const struct tb_config *c = d->config;
    char key[160];
    if (c->tls_cert == NULL) {
        tb_doctor_tell(d, "files", tb_find(TB_MARK_SKIPPED, "tls.cert is not set: this site has no peers"));
        return;
    }
    check_certificate_file(d, "tls.cert", c->tls_cert);
    check_certificate_file(d, "tls.ca", c->tls_ca);
    for (uint32_t i = 0; i < c->peer_count; i++) {
        (void)snprintf(key, sizeof key, "peers.%s.ca", c->peers[i].site.text);
        if (c->peers[i].ca != NULL) check_certificate_file(d, key, c->peers[i].ca);
    }
    start_look(d, "tls", of_tls, "certificate, key and authorities fit each other");
}

/* ---- disks ---- */

static void check_disk(const struct tb_doctor *d, const char *key, const char *path, bool is_folder,
                       uint64_t needs)
{
    struct tb_disk_facts facts = {.key = key, .needs_bytes = needs};
    if (path == NULL) return;
    tb_doctor_disk_facts_read(path, is_folder, &facts);
    tb_doctor_tell(d, "room", tb_judge_disk(&facts));
}

void tb_check_disks(const struct tb_doctor *d)
{
    const struct tb_config *c = d->config;
    check_disk(d, "store.path", c->store_path, false, STORE_BYTES);
    check_disk(d, "audit.file", c->audit_file, false, STORE_BYTES);
    check_disk(d, "anchor.dir", c->anchor_dir, true, STORE_BYTES);
    start_look(d, "files", of_disks, "the store and what stands beside it can be opened");
}

/* ---- arena ---- */

void tb_check_arena(const struct tb_doctor *d)
{
    struct tb_owner_facts facts;
    /* As the gateway's user: doctor_run.c became that. */
    tb_doctor_owner_facts_read(d->config->arena_path, (uint32_t)geteuid(), &facts);
    tb_doctor_tell(d, "owner", tb_judge_arena_owner(&facts));
    start_look(d, "room", of_arena, "the arena is in memory, and has room there");
}
