/* emulator.c - tombolo-wan-emulator: the user-space hops between the sites of a scenario.
 *
 * Each site's namespace has one TUN device, and each site one thread (under_way.c).
 * sim/wan/wanlab.py makes the namespaces and starts this; it ends when its standard input does,
 * so it cannot outlive the process that started it, and its devices end with it. Changes while
 * it runs come on standard input, a line each. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/fault.h"
#include "base/system_calls.h"
#include "sim/wan/emulator.h"

#define TICK_SHARE    64 /* a tick is this part of the shortest delay from the site, ... */
#define TICK_NS_MIN   100000
#define TICK_NS_MAX   600000 /* ... within these */
#define SLOTS_MIN     8192
#define SLOTS_TOUCHED 2048
#define SLOTS_MAX     262144

static struct world the_world;

int64_t emulator_clock(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- set-up ---- */

bool emulator_complain(const char *what, const char *which)
{
    (void)fprintf(stderr, "tombolo-wan-emulator: %s %s: %s\n", what, which, strerror(errno));
    return false;
}

/* A device in the namespace that this thread is in for the moment. */
static bool open_device(struct site *s, const char *netns)
{
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_NAPI | IFF_VNET_HDR};
    memcpy(request.ifr_name, DEVICE, sizeof DEVICE);
    char path[128];
    (void)snprintf(path, sizeof path, "/run/netns/%s", netns);
    s->netns = tb_sys_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (s->netns < 0) return emulator_complain("no namespace", path);
    if (setns(s->netns, CLONE_NEWNET) != 0) return emulator_complain("cannot enter", path);
    s->tun = tb_sys_open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC, 0);
    const bool made = s->tun >= 0 && ioctl(s->tun, TUNSETIFF, &request) == 0 &&
                      ioctl(s->tun, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) == 0;
    if (!made) (void)emulator_complain("cannot make a TUN device in", netns);
    if (setns(s->world->home_netns, CLONE_NEWNET) != 0)
        return emulator_complain("cannot come back from", path);
    return made;
}

static uint64_t largest(const struct tb_scenario_path *p, enum tb_path_key key)
{
    uint64_t most = p->settings.value[key];
    for (uint32_t i = 0; i < p->change_count; i++)
        if (p->changes[i].mask & 1u << key && p->changes[i].to.value[key] > most)
            most = p->changes[i].to.value[key];
    return most;
}

/* Bytes that can be under way or queued from this site; 0: no bound. */
static double bytes_needed(const struct site *s)
{
    const struct tb_scenario *scenario = &s->world->scenario;
    double bytes = 0;
    for (const struct tb_scenario_path *p = scenario->paths; p < scenario->paths + scenario->path_count;
         p++) {
        if (p->from != s->index) continue;
        const double rate = (double)largest(p, TB_PATH_RATE);
        if (rate == 0) return 0;
        bytes += rate / 8e9 * (double)(largest(p, TB_PATH_DELAY) + largest(p, TB_PATH_JITTER)) +
                 (double)largest(p, TB_PATH_QUEUE);
    }
    return bytes;
}

/* Slots are enough for packets of 256 bytes on average, but most stay address space: the last
 * one used is used again first. As many as packets of an MTU need are touched now, so that no
 * packet waits for a page. */
static bool make_room(struct site *s)
{
    const double bytes = bytes_needed(s);
    const double wanted = bytes > 0 ? SLOTS_MIN + bytes / 256 : SLOTS_MAX;
    s->slot_count = wanted < SLOTS_MAX ? (uint32_t)wanted : SLOTS_MAX;
    s->slot_bytes = (sizeof(struct slot_head) + s->world->scenario.mtu + 63) / 64 * 64;
    s->unused = tb_calloc(s->slot_count, sizeof *s->unused);
    s->heap = tb_calloc(s->slot_count, sizeof *s->heap);
    s->slots = tb_sys_mmap(NULL, s->slot_bytes * s->slot_count, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s->unused == NULL || s->heap == NULL || s->slots == MAP_FAILED)
        return emulator_complain("no memory for the packets of", s->world->scenario.sites[s->index].name);
    (void)madvise(s->slots, s->slot_bytes * s->slot_count, MADV_HUGEPAGE); /* packets pass through it cold */
    const double touched = SLOTS_TOUCHED + bytes * 1.25 / s->world->scenario.mtu;
    const size_t count = touched < s->slot_count ? (size_t)touched : s->slot_count;
    (void)madvise(s->slots, s->slot_bytes * count,
                  MADV_POPULATE_WRITE); /* a kernel before 5.14 is only slower */
    for (uint32_t i = 0; i < s->slot_count; i++)
        s->unused[s->unused_count++] = s->slot_count - 1 - i;
    for (uint32_t i = 0; i < TB_SCENARIO_SITES_MAX; i++)
        s->lanes[i] = (struct lane){NO_SLOT, NO_SLOT};
    return true;
}

/* Of a link at work: short beside the shortest way from here. */
static int64_t tick_ns(const struct site *s)
{
    const struct tb_scenario *scenario = &s->world->scenario;
    int64_t tick = TICK_NS_MAX;
    for (const struct tb_scenario_path *p = scenario->paths; p < scenario->paths + scenario->path_count;
         p++) {
        const int64_t part = (int64_t)(p->settings.value[TB_PATH_DELAY] / TICK_SHARE);
        if (p->from == s->index && part < tick) tick = part;
    }
    return tick < TICK_NS_MIN ? TICK_NS_MIN : tick;
}

static void make_paths(struct world *w)
{
    memset(w->path_of, -1, sizeof w->path_of);
    for (uint32_t i = 0; i < w->scenario.path_count; i++) {
        const struct tb_scenario_path *p = &w->scenario.paths[i];
        tb_path_init(&w->paths[i], &p->settings, &w->queues[p->queue], w->seed, i);
        for (uint32_t c = 0; c < p->change_count; c++)
            TB_ASSERT(tb_path_schedule(&w->paths[i], &p->changes[c]));
        w->path_of[p->from][p->to] = (int)i;
    }
    for (uint32_t i = 0; i < w->scenario.queue_count; i++)
        (void)pthread_mutex_init(&w->locks[i], NULL);
}

/* Before others where that is allowed: what is due waits for no sender and for no receiver, not
 * even the kernel's (wanlab.py gives those threads priority 1). */
static bool start_site(struct site *s)
{
    const struct sched_param first = {.sched_priority = 2};
    if (pthread_create(&s->thread, NULL, emulator_site_main, s) != 0)
        return emulator_complain("no thread for", s->world->scenario.sites[s->index].name);
    s->running = true;
    s->world->priority = pthread_setschedparam(s->thread, SCHED_FIFO, &first) == 0;
    return true;
}

static void stop_sites(struct world *w)
{
    atomic_store(&w->stop, true);
    (void)!write(w->stop_fd, &(uint64_t){1}, sizeof(uint64_t));
    for (struct site *s = w->sites; s < w->sites + w->scenario.site_count; s++)
        if (s->running) (void)pthread_join(s->thread, NULL);
}

/* ---- the program ---- */

static const char USAGE[] =
    "usage: tombolo-wan-emulator --plan FILE\n"
    "       tombolo-wan-emulator --counters FILE [--seed N] FILE NETNS...\n"
    "  --plan FILE      check the scenario and print it as JSON\n"
    "  --counters FILE  where the counters go at the end and on SIGUSR1\n"
    "  --seed N         of all decisions (default 1)\n"
    "  FILE NETNS...    a scenario, and a namespace for each of its sites in turn; \"ready\" is said when "
    "they have their device\n"
    "Ends on SIGTERM, or when its standard input does. A line there changes paths at once, and is answered "
    "\"turned\":\n"
    "  {between: [east, west], cut: yes}\n"
    "Usually started by sim/wan/run.\n"
    "Example: tombolo-wan-emulator --plan sim/wan/scenarios/ocean.yaml\n";

static bool load(const char *path, struct tb_scenario *out)
{
    static char text[TB_SCENARIO_BYTES_MAX + 1];
    char complaint[512];
    FILE *from = fopen(path, "re");
    if (from == NULL) return emulator_complain("cannot read", path);
    const size_t bytes = fread(text, 1, sizeof text, from);
    const bool failed = ferror(from) != 0;
    (void)fclose(from);
    if (failed) return emulator_complain("cannot read", path);
    if (tb_scenario_parse(path, text, bytes, out, complaint, sizeof complaint) == TB_OK) return true;
    (void)fprintf(stderr, "%s\n", complaint);
    return false;
}

static void turn_one(struct world *w, uint32_t from, uint32_t to)
{
    const int path = w->path_of[from][to];
    pthread_mutex_t *lock = &w->locks[w->scenario.paths[path].queue];
    (void)pthread_mutex_lock(lock);
    tb_path_turn(&w->paths[path], emulator_clock() - w->began, w->scenario.turn.mask,
                 &w->scenario.turn.settings);
    (void)pthread_mutex_unlock(lock);
}

/* One line of standard input; the answer is one of standard output. */
static void turn(struct world *w, const char *line, size_t bytes)
{
    char complaint[512] = "no memory";
    if (tb_scenario_turn(&w->scenario, line, bytes, complaint, sizeof complaint) != TB_OK) {
        (void)puts(complaint);
    } else {
        const struct tb_scenario_turn *t = &w->scenario.turn;
        turn_one(w, t->from, t->to);
        if (t->both) turn_one(w, t->to, t->from);
        (void)puts("turned");
    }
    (void)fflush(stdout);
}

/* False: it ended. A line that does not fit is refused in pieces. */
static bool heed(struct world *w)
{
    static char text[1024];
    static size_t used;
    const ssize_t got = read(STDIN_FILENO, text + used, sizeof text - used);
    if (got <= 0) return false;
    used += (size_t)got;
    for (char *end; (end = memchr(text, '\n', used)) != NULL || used == sizeof text;) {
        const size_t line = end != NULL ? (size_t)(end - text) + 1 : used;
        turn(w, text, line);
        used -= line;
        memmove(text, text + line, used);
    }
    return true;
}

/* Until SIGTERM, SIGINT or the end of standard input. */
static void serve(struct world *w, const sigset_t *signals)
{
    const int signal_fd = signalfd(-1, signals, SFD_CLOEXEC);
    struct pollfd fds[2] = {{.fd = signal_fd, .events = POLLIN}, {.fd = STDIN_FILENO, .events = POLLIN}};
    for (;;) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR) break;
        struct signalfd_siginfo what = {0};
        if (fds[0].revents != 0 &&
            (read(signal_fd, &what, sizeof what) != sizeof what || what.ssi_signo != SIGUSR1))
            break;
        if (what.ssi_signo == SIGUSR1) (void)emulator_write_counters(w);
        if (fds[1].revents != 0 && !heed(w)) break;
    }
    (void)close(signal_fd);
}

/* While this is open no core sleeps deeper than to be up at once: a packet of an idle link would
 * wait for it. Best effort: the file is not everywhere. It is closed with the process. */
static void keep_cores_awake(void)
{
    const int fd = tb_sys_open("/dev/cpu_dma_latency", O_WRONLY | O_CLOEXEC, 0);
    if (fd < 0) return;
    const int32_t wake_us = 0;
    if (write(fd, &wake_us, sizeof wake_us) != (ssize_t)sizeof wake_us) (void)close(fd);
}

static int run(struct world *w, char **netns)
{
    keep_cores_awake();
    sigset_t signals;
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGUSR1);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
    w->home_netns = tb_sys_open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC, 0);
    w->stop_fd = eventfd(0, EFD_CLOEXEC);
    make_paths(w);
    bool good = w->home_netns >= 0 && w->stop_fd >= 0;
    for (uint32_t i = 0; good && i < w->scenario.site_count; i++) {
        w->sites[i].world = w;
        w->sites[i].index = i;
        w->sites[i].tick_ns = tick_ns(&w->sites[i]);
        good = open_device(&w->sites[i], netns[i]) && make_room(&w->sites[i]);
    }
    w->began = emulator_clock();
    for (uint32_t i = 0; good && i < w->scenario.site_count; i++)
        good = start_site(&w->sites[i]);
    if (good) {
        (void)puts("ready");
        (void)fflush(stdout);
        serve(w, &signals);
    }
    stop_sites(w);
    return good && emulator_write_counters(w) ? 0 : 1;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"plan", required_argument, NULL, 'p'},
                                            {"counters", required_argument, NULL, 'c'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    struct world *w = &the_world;
    const char *plan = NULL;
    w->seed = 1;
    for (int option; (option = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        if (option == 'p')
            plan = optarg;
        else if (option == 'c')
            w->counters = optarg;
        else if (option == 's')
            w->seed = strtoull(optarg, NULL, 10);
        else
            return (void)fputs(USAGE, option == 'h' ? stdout : stderr), option == 'h' ? 0 : 2;
    }
    tb_fault_from_env();
    if (plan != NULL && argc == optind) {
        if (!load(plan, &w->scenario)) return 1;
        tb_scenario_print(&w->scenario, stdout);
        return 0;
    }
    if (w->counters == NULL || argc <= optind) return (void)fputs(USAGE, stderr), 2;
    if (!load(argv[optind], &w->scenario)) return 1;
    if ((uint32_t)(argc - optind - 1) != w->scenario.site_count) {
        (void)fprintf(stderr, "tombolo-wan-emulator: %u sites need as many namespaces\n",
                      w->scenario.site_count);
        return 2;
    }
    return run(w, argv + optind + 1);
}
