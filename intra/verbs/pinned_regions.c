#include "intra/verbs/pinned_regions.h"

#include <errno.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"

struct tb_pinned_memory {
    LIST_ENTRY(tb_pinned_memory) link;
    const void *bytes;
    uint64_t count;
};

void tb_pinned_init(struct tb_pinned *p)
{
    *p = (struct tb_pinned){.made = 0};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    LIST_INIT(&p->memories);
    LIST_INIT(&p->regions);
    LIST_INIT(&p->domains);
}

/* ---- dropping ---- */

typedef bool chosen_fn(const struct tb_pinned_region *r, const struct tb_pinned_region *arg);

static bool of_domain(const struct tb_pinned *p, const struct ibv_pd *pd)
{
    const struct tb_pinned_region *r;
    LIST_FOREACH(r, &p->regions, link)
    if (r->of.domain == pd) return true;
    return false;
}

/* Of those that no export has, those in which nothing is kept any more. Under the lock, let go
 * meanwhile, as is drop. */
static void drop_domains(struct tb_pinned *p)
{
    struct tb_pinned_domain *d = LIST_FIRST(&p->domains);
    while (d != NULL) {
        if (of_domain(p, d->pd)) {
            d = LIST_NEXT(d, link);
            continue;
        }
        LIST_REMOVE(d, link);
        pthread_mutex_unlock(&p->lock);
        tb_region_domain_free(d->pd);
        tb_free(d);
        pthread_mutex_lock(&p->lock);
        d = LIST_FIRST(&p->domains);
    }
}

/* Frees those that are chosen and nobody uses; how many. One that is being freed stays in sight, so
 * that who gives up the memory waits for it, and its domain is not freed before it. */
static uint32_t drop(struct tb_pinned *p, chosen_fn *chosen, const struct tb_pinned_region *arg)
{
    uint32_t count = 0;
    struct tb_pinned_region *r = LIST_FIRST(&p->regions);
    while (r != NULL) {
        if (r->state != TB_PINNED_MADE || r->users > 0 || !chosen(r, arg)) {
            r = LIST_NEXT(r, link);
            continue;
        }
        TB_ASSERT(r->shared && r->region.mr != NULL);
        r->state = TB_PINNED_FREEING;
        pthread_mutex_unlock(&p->lock);
        tb_region_free(&r->region);
        pthread_mutex_lock(&p->lock);
        LIST_REMOVE(r, link);
        tb_free(r);
        pthread_cond_broadcast(&p->changed);
        count++;
        r = LIST_FIRST(&p->regions); /* what came next may be gone */
    }
    drop_domains(p);
    return count;
}

static bool any(const struct tb_pinned_region *r, const struct tb_pinned_region *arg)
{
    (void)r, (void)arg;
    return true;
}

static bool spent(const struct tb_pinned_region *r, const struct tb_pinned_region *arg)
{
    (void)arg;
    return !r->stays;
}

static bool meets(const struct tb_pinned_region *r, const void *bytes, uint64_t count)
{
    const uintptr_t ours = (uintptr_t)r->of.bytes, theirs = (uintptr_t)bytes;
    return ours < theirs + count && theirs < ours + r->of.count;
}

/* Pins the same bytes for the same NIC and kind: an arena cuts its memory anew for each version. */
static bool in_the_way(const struct tb_pinned_region *r, const struct tb_pinned_region *newest)
{
    if (r == newest) return false;
    if (!r->stays) return true;
    return r->of.target == newest->of.target && r->of.domain->context == newest->of.domain->context &&
           meets(r, newest->of.bytes, newest->of.count);
}

/* ---- invariants ---- */

static bool is_kept(const struct tb_pinned_region *r)
{
    return r->state == TB_PINNED_MADE && r->users == 0 && r->stays;
}

/* P7: by regions that nobody uses, a byte is pinned at most once for each NIC and kind. */
static void check_kept(const struct tb_pinned *p, const struct tb_pinned_region *kept)
{
    const struct tb_pinned_region *r;
    LIST_FOREACH(r, &p->regions, link)
    if (r != kept && is_kept(r)) TB_ASSERT(!in_the_way(r, kept));
}

/* Under the lock, behind each change; only where turns are checked (TB_CHECK_TURNS). */
static void check(const struct tb_pinned *p)
{
    const struct tb_pinned_region *r;
    if (!TB_CHECK_TURNS) return;
    LIST_FOREACH(r, &p->regions, link)
    {
        TB_ASSERT(r->shared && r->of.domain != NULL);
        if (r->state == TB_PINNED_MAKING) TB_ASSERT(r->users > 0);
        if (r->state == TB_PINNED_MADE) TB_ASSERT(r->region.mr != NULL);
        if (r->state == TB_PINNED_FREEING) TB_ASSERT(r->users == 0);
        if (is_kept(r)) check_kept(p, r);
    }
}

void tb_pinned_fini(struct tb_pinned *p)
{
    pthread_mutex_lock(&p->lock);
    (void)drop(p, any, NULL);
    TB_ASSERT(LIST_EMPTY(&p->regions) && LIST_EMPTY(&p->domains));
    while (!LIST_EMPTY(&p->memories)) {
        struct tb_pinned_memory *m = LIST_FIRST(&p->memories);
        LIST_REMOVE(m, link);
        tb_free(m);
    }
    pthread_mutex_unlock(&p->lock);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
}

/* ---- the memory's owner ---- */

void tb_pinned_stays(struct tb_pinned *p, const void *bytes, uint64_t count)
{
    TB_ASSERT(bytes != NULL && count > 0);
    struct tb_pinned_memory *m = tb_calloc(1, sizeof *m);
    if (m == NULL) return;
    m->bytes = bytes;
    m->count = count;
    pthread_mutex_lock(&p->lock);
    LIST_INSERT_HEAD(&p->memories, m, link);
    pthread_mutex_unlock(&p->lock);
}

/* A device's memory is not known by an address of ours. */
static bool in_memory_that_stays(const struct tb_pinned *p, const struct tb_region_options *o)
{
    const struct tb_pinned_memory *m;
    if (o->dmabuf >= 0) return false;
    const uintptr_t first = (uintptr_t)o->bytes;
    LIST_FOREACH(m, &p->memories, link)
    {
        const uintptr_t base = (uintptr_t)m->bytes;
        if (first >= base && o->count <= m->count && first - base <= m->count - o->count) return true;
    }
    return false;
}

/* True: none of them is on its way, in or out. */
static bool forsake_memory(struct tb_pinned *p, const struct tb_pinned_memory *m)
{
    bool settled = true;
    struct tb_pinned_region *r;
    LIST_FOREACH(r, &p->regions, link)
    {
        if (!meets(r, m->bytes, m->count)) continue;
        r->stays = false;
        if (r->state != TB_PINNED_MADE) settled = false;
    }
    return settled;
}

void tb_pinned_goes(struct tb_pinned *p, const void *bytes)
{
    struct tb_pinned_memory *m;
    pthread_mutex_lock(&p->lock);
    LIST_FOREACH(m, &p->memories, link)
    if (m->bytes == bytes) break;
    if (m != NULL) {
        LIST_REMOVE(m, link);
        while (!forsake_memory(p, m))
            pthread_cond_wait(&p->changed, &p->lock);
        (void)drop(p, spent, NULL);
    }
    check(p);
    pthread_mutex_unlock(&p->lock);
    tb_free(m);
}

/* ---- who needs regions ---- */

static struct tb_pinned_region *region_of(struct tb_pinned *p, const struct tb_region_options *o)
{
    struct tb_pinned_region *r;
    LIST_FOREACH(r, &p->regions, link)
    if (r->state != TB_PINNED_FREEING && r->of.domain == o->domain && r->of.bytes == o->bytes &&
        r->of.count == o->count && r->of.target == o->target)
        return r;
    return NULL;
}

struct tb_pinned_region *tb_pinned_find(struct tb_pinned *p, const struct tb_region_options *options)
{
    pthread_mutex_lock(&p->lock);
    struct tb_pinned_region *r = options->dmabuf < 0 ? region_of(p, options) : NULL;
    if (r != NULL && r->state != TB_PINNED_MADE) r = NULL;
    TB_ASSERT(r == NULL || r->region.mr != NULL);
    if (r != NULL) r->users++;
    pthread_mutex_unlock(&p->lock);
    return r;
}

/* Where the limit of pinned memory is near, what is kept for later must not cost what is needed
 * now. */
static enum tb_status make(struct tb_pinned *p, const struct tb_region_options *options,
                           struct tb_region *region_out)
{
    const tb_time_ns from = tb_clock_now();
    enum tb_status status = tb_region_register(options, region_out);
    int error = errno;
    if (status == TB_SITE_IO && options->bytes != NULL) { /* a device's pages are under no such limit */
        pthread_mutex_lock(&p->lock);
        const uint32_t dropped = drop(p, any, NULL);
        pthread_mutex_unlock(&p->lock);
        if (dropped > 0) {
            status = tb_region_register(options, region_out);
            error = errno;
        }
    }
    pthread_mutex_lock(&p->lock);
    p->made += status == TB_OK;
    p->making += tb_time_since(from, tb_clock_now());
    pthread_mutex_unlock(&p->lock);
    errno = error;
    return status;
}

static enum tb_status take_new(struct tb_pinned *p, const struct tb_region_options *options,
                               struct tb_pinned_region *r)
{
    const enum tb_status status = make(p, options, &r->region);
    const int error = errno;
    if (r->shared) {
        pthread_mutex_lock(&p->lock);
        r->state = TB_PINNED_MADE;
        TB_ASSERT(r->users > 0 && (status == TB_OK) == (r->region.mr != NULL));
        if (status != TB_OK) LIST_REMOVE(r, link);
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->lock);
    }
    if (status != TB_OK) tb_free(r);
    errno = error;
    return status;
}

/* It is in sight while it is made: a user that wants the same waits for it. Under the lock, let go
 * meanwhile. */
static void share(struct tb_pinned *p, const struct tb_region_options *options, struct tb_pinned_region *r)
{
    TB_ASSERT(!r->shared && r->users == 0 && r->region.mr == NULL);
    r->shared = r->stays = true;
    r->of = *options;
    r->state = TB_PINNED_MAKING;
    r->users = 1;
    LIST_INSERT_HEAD(&p->regions, r, link);
    (void)drop(p, in_the_way, r);
}

enum tb_status tb_pinned_take(struct tb_pinned *p, const struct tb_region_options *options,
                              struct tb_pinned_region **region_out)
{
    TB_ASSERT(options->domain != NULL && (options->bytes != NULL || options->dmabuf >= 0));
    struct tb_pinned_region *r = NULL, *fresh = tb_calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        errno = ENOMEM;
        return TB_SITE_NOMEM;
    }
    pthread_mutex_lock(&p->lock);
    const bool stays = in_memory_that_stays(p, options);
    while (stays && (r = region_of(p, options)) != NULL && r->state == TB_PINNED_MAKING)
        pthread_cond_wait(&p->changed, &p->lock);
    if (r != NULL)
        r->users++;
    else if (stays)
        share(p, options, fresh);
    check(p);
    pthread_mutex_unlock(&p->lock);
    *region_out = r != NULL ? r : fresh;
    if (r == NULL) return take_new(p, options, fresh);
    tb_free(fresh);
    return TB_OK;
}

void tb_pinned_release(struct tb_pinned *p, struct tb_pinned_region *region)
{
    if (region == NULL) return;
    if (!region->shared) {
        tb_region_free(&region->region);
        tb_free(region);
        return;
    }
    pthread_mutex_lock(&p->lock);
    TB_ASSERT(region->state == TB_PINNED_MADE && region->users > 0);
    if (region->users == 1) (void)drop(p, in_the_way, region); /* while it is still ours: it would go, too */
    if (--region->users == 0 && !region->stays) (void)drop(p, spent, NULL);
    check(p);
    pthread_mutex_unlock(&p->lock);
}

/* ---- exports' domains ---- */

static bool has_buffer(const struct tb_export_buffer *buffers, uint32_t count,
                       const struct tb_region_options *of)
{
    for (uint32_t i = 0; i < count; i++)
        if (buffers[i].bytes == of->bytes && buffers[i].count == of->count && buffers[i].device == NULL)
            return true;
    return false;
}

/* How many bytes of the buffers are registered in it; 0 also if anything else is. */
static uint64_t kept_bytes(const struct tb_pinned *p, const struct ibv_pd *pd,
                           const struct tb_export_buffer *buffers, uint32_t count)
{
    uint64_t bytes = 0;
    const struct tb_pinned_region *r;
    LIST_FOREACH(r, &p->regions, link)
    {
        if (r->of.domain != pd) continue;
        if (r->state != TB_PINNED_MADE || !has_buffer(buffers, count, &r->of)) return 0;
        bytes += r->of.count;
    }
    return bytes;
}

static struct tb_pinned_domain *domain_new(struct ibv_context *device)
{
    struct tb_pinned_domain *d = tb_calloc(1, sizeof *d);
    if (d == NULL) return NULL;
    d->pd = tb_region_domain_new(device);
    if (d->pd != NULL) return d;
    tb_free(d);
    return NULL;
}

struct tb_pinned_domain *tb_pinned_domain_take(struct tb_pinned *p, struct ibv_context *device,
                                               const struct tb_export_buffer *buffers, uint32_t count)
{
    struct tb_pinned_domain *d, *best = NULL;
    uint64_t most = 0;
    pthread_mutex_lock(&p->lock);
    LIST_FOREACH(d, &p->domains, link)
    {
        const uint64_t bytes = d->pd->context == device ? kept_bytes(p, d->pd, buffers, count) : 0;
        if (bytes <= most) continue;
        most = bytes;
        best = d;
    }
    if (best != NULL) LIST_REMOVE(best, link);
    pthread_mutex_unlock(&p->lock);
    return best != NULL ? best : domain_new(device);
}

void tb_pinned_domain_leave(struct tb_pinned *p, struct tb_pinned_domain *domain)
{
    TB_ASSERT(domain->pd != NULL);
    pthread_mutex_lock(&p->lock);
    LIST_INSERT_HEAD(&p->domains, domain, link);
    drop_domains(p);
    pthread_mutex_unlock(&p->lock);
}

void tb_pinned_forsake(struct tb_pinned *p, const struct ibv_context *device)
{
    struct tb_pinned_region *r;
    pthread_mutex_lock(&p->lock);
    LIST_FOREACH(r, &p->regions, link)
    if (r->of.domain->context == device) r->stays = false;
    pthread_mutex_unlock(&p->lock);
}

void tb_pinned_counts(struct tb_pinned *p, struct tb_pinned_counts *counts_out)
{
    const struct tb_pinned_region *r;
    const struct tb_pinned_domain *d;
    pthread_mutex_lock(&p->lock);
    *counts_out = (struct tb_pinned_counts){.made = p->made, .making = p->making};
    LIST_FOREACH(r, &p->regions, link)
    counts_out->regions++;
    LIST_FOREACH(d, &p->domains, link)
    counts_out->domains++;
    pthread_mutex_unlock(&p->lock);
}
