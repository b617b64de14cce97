/* doctor_machine.c - see doctor_machine.h. */
#include "gateway/cli/doctor/doctor_machine.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/cli/output.h"

#define RENEW_S          (14 * 24 * 3600)     /* as `tombolo pki show` */
#define WINDOW_LEAST     ((uint64_t)4 << 20)  /* a kernel's default, where it has memory */
#define WINDOW_GOOD      ((uint64_t)64 << 20) /* deploy/network/gateway-sysctl.conf */
#define FAR_MS           5.0                  /* from there on link.congestion: auto takes bbr */
#define SECRETS_BYTES    ((uint64_t)2 << 20)  /* of keys: docs/operations.md, secrets.not_locked */
#define DISK_TIGHT_BYTES ((uint64_t)256 << 20)

struct tb_finding tb_judge_clock(const struct tb_clock_facts *c)
{
    struct tb_finding f = tb_find(TB_MARK_FINE, "the kernel's clock is synchronised");
    if (c->known && c->synchronised) return f;
    f = c->known ? tb_find(TB_MARK_WARNING, "nothing keeps this machine's clock: the kernel calls it "
                                            "unsynchronised")
                 : tb_find(TB_MARK_UNKNOWN, "the kernel does not say whether its clock is synchronised");
    tb_advise(&f, "timedatectl set-ntp true; or run chronyd");
    return f;
}

/* ---- certificates ---- */

static int64_t days(int64_t seconds)
{
    return seconds / (24 * 3600);
}

struct tb_finding tb_judge_certificate(const struct tb_certificate_facts *c)
{
    const int64_t left = c->until_s - c->now_s;
    struct tb_finding f =
        tb_find(TB_MARK_FINE, "%.120s: %.150s, %lld days left", c->path, c->who, (long long)days(left));
    if (c->now_s < c->from_s) {
        f = tb_find(TB_MARK_WRONG, "%.120s: %.150s is not valid yet, for another %lld s", c->path, c->who,
                    (long long)(c->from_s - c->now_s));
        tb_advise(&f, "compare this machine's clock with another one: timedatectl status");
    } else if (left <= 0 || left < RENEW_S) {
        f = left <= 0 ? tb_find(TB_MARK_WRONG, "%.120s: %.150s has expired, %lld days ago", c->path, c->who,
                                (long long)days(-left))
                      : tb_find(TB_MARK_WARNING, "%.120s: %.150s ends in %lld days", c->path, c->who,
                                (long long)days(left));
        tb_advise(&f,
                  "%.60s: tombolo pki renew %.200s --dir DIR-OF-THE-AUTHORITY; or have your authority "
                  "sign a new one",
                  c->key, c->path);
    }
    return f;
}

/* ---- what the kernel allows to a link ---- */

struct tb_finding tb_judge_window(const struct tb_window_facts *w)
{
    const bool held = w->needs_bytes > w->bytes, small = w->bytes < WINDOW_LEAST;
    const uint64_t wanted = w->needs_bytes > WINDOW_GOOD ? w->needs_bytes : WINDOW_GOOD;
    struct tb_finding f;
    if (w->bytes == 0) return tb_find(TB_MARK_UNKNOWN, "%s cannot be read", w->sysctl);
    /* A window a round trip. */
    f = tb_find(held || small ? TB_MARK_WRONG : TB_MARK_FINE,
                "the third value of %s is %llu: a stream of 100 ms has %.0f Mbit/s at most%s", w->sysctl,
                (unsigned long long)w->bytes, (double)w->bytes * 8 / 0.1 / 1e6,
                held ? ", and a link is held by it now" : "");
    if (held || small)
        tb_advise(&f, "%s = 4096 %s %llu", w->sysctl, strstr(w->sysctl, "rmem") != NULL ? "131072" : "65536",
                  (unsigned long long)wanted);
    return f;
}

static bool lists(const char *list, const char *word)
{
    const size_t bytes = strlen(word);
    for (const char *at = list; *at != '\0';) {
        const size_t length = strcspn(at, " ");
        if (length == bytes && strncmp(at, word, bytes) == 0) return true;
        at += length + strspn(at + length, " ");
    }
    return false;
}

struct tb_finding tb_judge_congestion(const struct tb_congestion_facts *c)
{
    const bool is_auto = strcmp(c->wish, "auto") == 0;
    const char *name = is_auto ? "bbr" : c->wish;
    struct tb_finding f;
    if (strcmp(c->wish, "system") == 0)
        return tb_find(TB_MARK_FINE, "link.congestion is system: the kernel's default is taken");
    if (c->available[0] == '\0' || (!c->may_all && c->allowed[0] == '\0'))
        return tb_find(TB_MARK_UNKNOWN, "the kernel does not say which congestion controls it offers");
    const bool there = lists(c->available, name),
               allowed = (c->may_all && !c->other_user) || lists(c->allowed, name);
    if (there && allowed) return tb_find(TB_MARK_FINE, "%s is offered", name);
    if (there && c->other_user)
        return tb_find(TB_MARK_UNKNOWN, "%s is offered; whether the gateway's user may take it is not known",
                       name);
    f = tb_find(!is_auto || c->rtt_ms >= FAR_MS ? TB_MARK_WRONG : TB_MARK_WARNING, "%s is not %s%s (%s)",
                name, there ? "allowed to the gateway's user" : "offered by the kernel",
                is_auto ? ": links to peers 5 ms away or more take cubic" : "",
                there ? c->allowed : c->available);
    tb_advise(&f, "%s%s%snet.ipv4.tcp_allowed_congestion_control = reno cubic %s",
              there ? "" : "modprobe tcp_", there ? "" : name, there ? "" : "; ", name);
    return f;
}

/* ---- memory ---- */

static struct tb_finding huge_tried(const struct tb_huge_facts *h)
{
    struct tb_finding f;
    if (!h->tried) return tb_find(TB_MARK_UNKNOWN, "the kernel could not be asked for a huge page");
    if (h->given_bytes >= h->asked_bytes && h->asked_bytes > 0)
        return tb_find(TB_MARK_FINE, "the kernel gives huge pages to files in memory");
    f = tb_find(TB_MARK_WARNING,
                "no huge pages: of %llu bytes in memory the kernel put %llu into them; copies "
                "out of the arena take about twice as long",
                (unsigned long long)h->asked_bytes, (unsigned long long)h->given_bytes);
    if (strstr(h->shmem, "[deny]") != NULL)
        tb_advise(&f, "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled");
    else
        tb_advise(&f, "Linux 6.1 or newer; or vm.nr_hugepages = N (2 MiB each) and arena.path on hugetlbfs");
    return f;
}

struct tb_finding tb_judge_huge_pages(const struct tb_huge_facts *h)
{
    if (!h->in_memory) return tb_find(TB_MARK_SKIPPED, "the arena is on no file system in memory");
    if (h->is_hugetlbfs) return tb_find(TB_MARK_FINE, "the arena is on hugetlbfs");
    if (h->arena_bytes == 0 || h->huge_bytes == 0) return huge_tried(h);
    if (h->huge_bytes >= h->arena_bytes - h->arena_bytes / 10)
        return tb_find(TB_MARK_FINE, "the arena stands in huge pages (%s of %s)",
                       tb_show_bytes(h->huge_bytes).text, tb_show_bytes(h->arena_bytes).text);
    struct tb_finding f = tb_find(TB_MARK_WARNING, "of the arena %s of %s stand in huge pages",
                                  tb_show_bytes(h->huge_bytes).text, tb_show_bytes(h->arena_bytes).text);
    tb_advise(&f,
              "make the arena anew after a reboot, when free memory is in one piece; or put arena.path on "
              "hugetlbfs");
    return f;
}

struct tb_finding tb_judge_memlock(const struct tb_memlock_facts *m)
{
    const char *whose = m->of_gateway ? "the gateway" : "this shell";
    const uint64_t needs = m->pins ? m->arena_bytes : SECRETS_BYTES;
    struct tb_finding f;
    if (!m->known) return tb_find(TB_MARK_UNKNOWN, "the limit of locked memory of %s cannot be read", whose);
    if (!m->of_gateway)
        return tb_find(TB_MARK_UNKNOWN, "no gateway runs, and LimitMEMLOCK of its unit decides: it needs %s",
                       tb_show_bytes(needs).text);
    if (m->unlimited) return tb_find(TB_MARK_FINE, "%s may lock as much memory as it asks for", whose);
    f = tb_find(m->bytes < needs ? TB_MARK_WRONG : TB_MARK_FINE, "%s may lock %llu bytes of memory%s%s%s",
                whose, (unsigned long long)m->bytes, m->bytes < needs ? ", and " : "",
                m->bytes < needs ? (m->pins ? "RDMA pins the arena of " : "keys need ") : "",
                m->bytes < needs ? tb_show_bytes(needs).text : "");
    if (m->bytes < needs)
        tb_advise(&f, m->pins ? "LimitMEMLOCK=infinity in the unit (ulimit -l unlimited)"
                              : "LimitMEMLOCK=64M in the unit (ulimit -l 65536)");
    return f;
}

/* ---- files ---- */

struct tb_finding tb_judge_disk(const struct tb_disk_facts *d)
{
    struct tb_finding f;
    if (d->error != 0) {
        f = tb_find(TB_MARK_WRONG, "%.300s: %s", d->path, strerror(d->error));
        tb_advise(&f, "%s: a folder that is there, and in which the gateway's user writes", d->key);
        return f;
    }
    const bool full = d->free_bytes < d->needs_bytes;
    const bool tight = d->free_bytes < DISK_TIGHT_BYTES || d->free_bytes < d->total_bytes / 20;
    f = tb_find(full || d->read_only ? TB_MARK_WRONG
                : tight              ? TB_MARK_WARNING
                                     : TB_MARK_FINE,
                "%.300s: %s of %s free%s", d->path, tb_show_bytes(d->free_bytes).text,
                tb_show_bytes(d->total_bytes).text, d->read_only ? ", and it is mounted read-only" : "");
    if (d->read_only)
        tb_advise(&f, "mount -o remount,rw, or another %s", d->key);
    else if (full || tight)
        tb_advise(&f, "%s: make room on its disk (%s), or name a folder on a larger one", d->key,
                  tb_show_bytes(d->needs_bytes).text);
    return f;
}

struct tb_finding tb_judge_arena_owner(const struct tb_owner_facts *o)
{
    struct tb_finding f;
    if (o->error == ENOENT)
        return tb_find(TB_MARK_FINE, "%.300s is not there yet: the start makes it", o->path);
    if (o->error != 0) return tb_find(TB_MARK_UNKNOWN, "%.300s: %s", o->path, strerror(o->error));
    if (o->owner == o->wanted && (o->mode & 077) == 0)
        return tb_find(TB_MARK_FINE, "%.300s belongs to %.64s alone", o->path, o->owner_name);
    if (o->owner == o->wanted) {
        f = tb_find(TB_MARK_WRONG, "%.300s: mode %04o lets others than %.64s use the weights in it", o->path,
                    (unsigned)o->mode, o->owner_name);
        tb_advise(&f, "chmod 600 %.300s", o->path);
        return f;
    }
    f = tb_find(TB_MARK_WRONG, "%.300s belongs to %.64s, and the gateway runs as %.64s", o->path,
                o->owner_name, o->wanted_name);
    tb_advise(&f, "chown %.64s %.300s; or remove it, and the gateway begins with an empty arena",
              o->wanted_name, o->path);
    return f;
}
