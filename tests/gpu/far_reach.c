#include "gpu/far_reach.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/real_device.h"

struct order {
    uint64_t at, bytes; /* bytes 0: the end */
    uint32_t wanted;
};

static void give(int fd, const void *bytes, size_t count)
{
    for (size_t done = 0; done < count;) {
        const ssize_t n = write(fd, (const char *)bytes + done, count - done);
        if (n <= 0) _exit(1);
        done += (size_t)n;
    }
}

static void take(int fd, void *bytes, size_t count)
{
    for (size_t done = 0; done < count;) {
        const ssize_t n = read(fd, (char *)bytes + done, count - done);
        if (n <= 0) _exit(1);
        done += (size_t)n;
    }
}

/* ---- the other process: orders come by standard input, answers go to descriptor 3 ---- */

#define ANSWERS 3

static void follow_orders(struct tb_gpu *gpu, struct tb_gpu_reach *reach, const struct tb_gpu_offer *offer)
{
    struct tb_shared_memory to;
    struct order o;
    if (tb_shared_memory_new("far-reach", offer->bytes, &to) != TB_OK) _exit(1);
    tb_gpu_pin(gpu, &to);
    for (take(STDIN_FILENO, &o, sizeof o); o.bytes > 0; take(STDIN_FILENO, &o, sizeof o)) {
        const enum tb_status status = tb_gpu_reach_copy(reach, 0, o.at, to.bytes, o.bytes);
        give(ANSWERS, &status, sizeof status);
        if (o.wanted && status == TB_OK) give(ANSWERS, to.bytes, o.bytes);
    }
    tb_shared_memory_free(&to);
}

int far_reach_main(void)
{
    struct real_device d;
    struct tb_gpu_offer offer;
    struct tb_gpu_reach *reach = NULL;
    const char *why = real_device_open(&d);
    if (why != NULL) fprintf(stderr, "far_reach: %s\n", why);
    take(STDIN_FILENO, &offer, sizeof offer);
    const enum tb_status status = why == NULL ? tb_gpu_reach_open(d.gpu, &offer, &reach) : TB_NOT_FOUND;
    give(ANSWERS, &status, sizeof status);
    if (status != TB_OK) return 1;
    follow_orders(d.gpu, reach, &offer);
    tb_gpu_reach_close(reach);
    real_device_close(&d);
    return 0;
}

/* ---- this one ---- */

enum tb_status far_reach_open(struct far_reach *r, const struct tb_gpu_offer *offer)
{
    int orders[2], answers[2];
    enum tb_status status;
    if (pipe(orders) != 0 || pipe(answers) != 0) abort();
    r->pid = fork();
    if (r->pid == 0) {
        if (dup2(orders[0], STDIN_FILENO) < 0 || dup2(answers[1], ANSWERS) < 0) _exit(1);
        for (int fd = ANSWERS + 1; fd < 16; fd++)
            close(fd);
        execl("/proc/self/exe", "far_reach", FAR_REACH_ARGUMENT, (char *)NULL);
        _exit(1);
    }
    close(orders[0]);
    close(answers[1]);
    r->to = orders[1];
    r->from = answers[0];
    give(r->to, offer, sizeof *offer);
    take(r->from, &status, sizeof status);
    return status;
}

static void ask(struct far_reach *r, uint64_t at, uint64_t bytes, bool wanted)
{
    const struct order o = {.at = at, .bytes = bytes, .wanted = wanted};
    give(r->to, &o, sizeof o);
}

void far_reach_ask(struct far_reach *r, uint64_t at, uint64_t bytes)
{
    ask(r, at, bytes, false);
}

enum tb_status far_reach_answer(struct far_reach *r)
{
    enum tb_status status;
    take(r->from, &status, sizeof status);
    return status;
}

enum tb_status far_reach_copy(struct far_reach *r, uint64_t at, uint64_t bytes, void *to)
{
    ask(r, at, bytes, to != NULL);
    const enum tb_status status = far_reach_answer(r);
    if (status == TB_OK && to != NULL) take(r->from, to, bytes);
    return status;
}

void far_reach_close(struct far_reach *r)
{
    const struct order end = {.bytes = 0};
    give(r->to, &end, sizeof end);
    (void)waitpid(r->pid, NULL, 0);
    close(r->to);
    close(r->from);
}
