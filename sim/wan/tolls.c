/* tolls.c - what the emulator is judged by: counters of each direction, how late packets were,
 * whether the run is void. */
#include <ifaddrs.h>
#include <inttypes.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/system_calls.h"
#include "sim/wan/emulator.h"

#define LATE_US    2000 /* a packet that much later than due is late, ... */
#define LATE_SHARE 100  /* ... and one late packet in so many voids the run */
#define DEVICE_SHARE                                                                                         \
    1000 /* one packet in so many that a device dropped unread, or did not take, voids it as well */

/* Packets of the site that its device dropped because the emulator did not read them. */
static uint64_t device_dropped(const struct site *s)
{
    struct ifaddrs *all = NULL;
    uint64_t count = 0;
    if (setns(s->netns, CLONE_NEWNET) != 0) return 0;
    if (getifaddrs(&all) == 0)
        for (const struct ifaddrs *a = all; a != NULL; a = a->ifa_next)
            if (a->ifa_data != NULL && a->ifa_addr != NULL && a->ifa_addr->sa_family == AF_PACKET &&
                strcmp(a->ifa_name, DEVICE) == 0)
                count = ((const struct rtnl_link_stats *)a->ifa_data)->tx_dropped;
    freeifaddrs(all);
    if (setns(s->world->home_netns, CLONE_NEWNET) != 0)
        (void)emulator_complain("cannot come back from", DEVICE);
    return count;
}

/* Below how many us a share of 1 / `one_in` of the packets is not. */
static uint64_t late_below(const struct site *s, uint64_t one_in)
{
    const uint64_t all = atomic_load(&s->delivered);
    uint64_t above = 0;
    for (uint32_t i = LATE_BUCKETS; i-- > 0;) {
        above += atomic_load(&s->late[i]);
        if (above * one_in > all) return UINT64_C(1) << i;
    }
    return 1;
}

static uint64_t late_count(const struct site *s)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < LATE_BUCKETS; i++)
        if (UINT64_C(1) << i > LATE_US * 2) count += atomic_load(&s->late[i]);
    return count;
}

static struct toll toll_of(const struct site *s)
{
    return (struct toll){.delivered = atomic_load(&s->delivered),
                         .late = late_count(s),
                         .dropped = device_dropped(s),
                         .no_slot = atomic_load(&s->no_slot),
                         .write_failed = atomic_load(&s->write_failed)};
}

static struct toll toll_since(const struct toll *now, const struct toll *then)
{
    return (struct toll){.delivered = now->delivered - then->delivered,
                         .late = now->late - then->late,
                         .dropped = now->dropped - then->dropped,
                         .no_slot = now->no_slot - then->no_slot,
                         .write_failed = now->write_failed - then->write_failed};
}

/* NULL, or why what a site saw was not the scenario. */
static const char *behind(const struct toll *t)
{
    if (t->no_slot > 0) return "no room for packets under way";
    if (t->late * LATE_SHARE > t->delivered && t->delivered > LATE_SHARE)
        return "packets were delivered late";
    if (t->dropped * DEVICE_SHARE > t->delivered + t->dropped && t->dropped > 0)
        return "the device dropped packets that were not read in time";
    if (t->write_failed * DEVICE_SHARE > t->delivered) return "a device did not take packets";
    return NULL;
}

static void print_path(const struct world *w, uint32_t i, FILE *to)
{
    const struct tb_scenario_path *p = &w->scenario.paths[i];
    const struct tb_path_counters *c = &w->paths[i].counters;
    (void)fprintf(to,
                  "%s{\"from\":\"%s\",\"to\":\"%s\",\"packets\":%" PRIu64 ",\"bytes\":%" PRIu64
                  ",\"lost_cut\":%" PRIu64 ",\"lost_mtu\":%" PRIu64 ",\"lost_queue\":%" PRIu64
                  ",\"lost_wire\":%" PRIu64 ",\"bursts\":%" PRIu64 ",\"duplicated\":%" PRIu64
                  ",\"reordered\":%" PRIu64 ",\"corrupted\":%" PRIu64 ",\"queue_bytes_max\":%" PRIu64
                  ",\"decisions\":\"%016" PRIx64 "\"}",
                  i > 0 ? "," : "", w->scenario.sites[p->from].name, w->scenario.sites[p->to].name,
                  c->packets, c->bytes, c->lost_cut, c->lost_mtu, c->lost_queue, c->lost_wire, c->bursts,
                  c->duplicated, c->reordered, c->corrupted, c->queue_bytes_max, c->decisions_hash);
}

static void print_site(const struct site *s, const struct toll *t, FILE *to)
{
    (void)fprintf(to,
                  "%s{\"name\":\"%s\",\"delivered\":%" PRIu64 ",\"late\":%" PRIu64 ",\"late_us_p50\":%" PRIu64
                  ",\"late_us_p99\":%" PRIu64 ",\"late_us_max\":%llu,\"device_dropped\":%" PRIu64
                  ",\"no_slot\":%" PRIu64 ",\"strange\":%llu,\"write_failed\":%" PRIu64
                  ",\"flips_refused\":%llu}",
                  s->index > 0 ? "," : "", s->world->scenario.sites[s->index].name, t->delivered, t->late,
                  late_below(s, 2), late_below(s, 100), atomic_load(&s->late_us_max), t->dropped, t->no_slot,
                  atomic_load(&s->strange), t->write_failed, atomic_load(&s->flips_refused));
}

static void print_verdict(const char *why, FILE *to)
{
    (void)fprintf(to, "\"void\":%s,\"why\":\"%s\"", why != NULL ? "true" : "false", why != NULL ? why : "");
}

/* The sites, and whether the run is void: all of it, and what came since the
 * counters were written last. */
static void print_sites(struct world *w, FILE *to)
{
    const char *why = NULL, *why_since = NULL;
    (void)fputs("],\"sites\":[", to);
    for (struct site *s = w->sites; s < w->sites + w->scenario.site_count; s++) {
        const struct toll now = toll_of(s), since = toll_since(&now, &s->last_toll);
        print_site(s, &now, to);
        if (behind(&now) != NULL) why = behind(&now);
        if (behind(&since) != NULL) why_since = behind(&since);
        s->last_toll = now;
    }
    (void)fputs("],\"since\":{", to);
    print_verdict(why_since, to);
    (void)fputs("},", to);
    print_verdict(why, to);
    (void)fputs("}\n", to);
}

bool emulator_write_counters(struct world *w)
{
    char part[4096];
    (void)snprintf(part, sizeof part, "%s.part", w->counters);
    FILE *to = fopen(part, "we");
    if (to == NULL) return emulator_complain("cannot write", part);
    (void)fprintf(to, "{\"seed\":%" PRIu64 ",\"elapsed_s\":%.3f,\"priority\":%s,\"paths\":[", w->seed,
                  (double)(emulator_clock() - w->began) / 1e9, w->priority ? "true" : "false");
    for (uint32_t i = 0; i < w->scenario.path_count; i++) {
        pthread_mutex_t *lock = &w->locks[w->scenario.paths[i].queue];
        (void)pthread_mutex_lock(lock);
        print_path(w, i, to);
        (void)pthread_mutex_unlock(lock);
    }
    print_sites(w, to);
    const bool failed = ferror(to) != 0;
    if (fclose(to) != 0 || failed || tb_sys_rename(part, w->counters) != 0)
        return emulator_complain("cannot write", w->counters);
    return true;
}
