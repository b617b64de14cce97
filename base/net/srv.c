/* srv.c - one walk over an answer. A compressed name may only point backwards, so
 * that every name ends. */
#include "base/net/srv.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"

#define HEADER_BYTES  12u
#define TYPE_SRV      33u
#define CLASS_IN      1u
#define HOST_CHARS    253u
#define POINTER       0xc0u
#define RECORDS_MAX   256u
#define TTL_NOT_A_TTL UINT32_C(0x80000000) /* RFC 2181: the highest bit set means 0 */

struct walk {
    const uint8_t *message;
    size_t bytes;
    size_t at;
    bool bad;
};

static uint32_t big(struct walk *w, uint32_t count)
{
    uint32_t v = 0;
    if (w->bad || w->bytes - w->at < count) {
        w->bad = true;
        return 0;
    }
    for (uint32_t i = 0; i < count; i++)
        v = v << 8 | w->message[w->at++];
    return v;
}

static bool host_char(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* A label of `count` bytes behind what `out` has; false: not one of a host's name, or too long. */
static bool append(const uint8_t *label, uint32_t count, char out[256], size_t *used)
{
    TB_ASSERT(*used <= HOST_CHARS);
    if (*used + count + 1 > HOST_CHARS) return false;
    if (*used > 0) out[(*used)++] = '.';
    for (uint32_t i = 0; i < count; i++) {
        if (!host_char(label[i])) return false;
        out[(*used)++] = (char)label[i];
    }
    return true;
}

/* The name at w->at, which moves behind it; "" is the root. With out NULL it is only passed
 * over. */
static void name(struct walk *w, char *out)
{
    size_t at = w->at, used = 0, limit = w->at;
    bool jumped = false;
    while (!w->bad) {
        if (at >= w->bytes) break;
        const uint32_t length = w->message[at];
        if (length == 0) {
            if (!jumped) w->at = at + 1;
            if (out != NULL) out[used] = '\0';
            return;
        }
        if ((length & POINTER) == POINTER) {
            if (at + 1 >= w->bytes) break;
            const size_t to = (size_t)(length & ~POINTER) << 8 | w->message[at + 1];
            if (!jumped) w->at = at + 2;
            jumped = true;
            if (to < HEADER_BYTES || to >= limit) break;
            at = limit = to;
            if (out == NULL) return;
        } else {
            if ((length & POINTER) != 0 || w->bytes - at - 1 < length) break;
            if (out != NULL && !append(w->message + at + 1, length, out, &used)) break;
            at += 1 + length;
        }
    }
    w->bad = true;
}

/* Among the others by its priority; of equals the one that came first stays first. */
static void insert(struct tb_srv_answer *a, const struct tb_srv_target *t)
{
    uint32_t at = a->count;
    TB_ASSERT(a->count <= TB_SRV_TARGETS_MAX);
    while (at > 0 && a->targets[at - 1].priority > t->priority)
        at--;
    if (at == TB_SRV_TARGETS_MAX) return;
    const uint32_t last = a->count < TB_SRV_TARGETS_MAX ? a->count++ : TB_SRV_TARGETS_MAX - 1;
    memmove(&a->targets[at + 1], &a->targets[at], (last - at) * sizeof *t);
    a->targets[at] = *t;
}

static void target(struct walk *w, struct tb_srv_answer *a)
{
    struct tb_srv_target t;
    t.priority = (uint16_t)big(w, 2);
    t.weight = (uint16_t)big(w, 2);
    t.port = (uint16_t)big(w, 2);
    name(w, t.host);
    if (!w->bad && t.host[0] != '\0') insert(a, &t);
}

static void record(struct walk *w, struct tb_srv_answer *a)
{
    TB_ASSERT(w->at <= w->bytes);
    name(w, NULL);
    const uint32_t type = big(w, 2);
    const uint32_t class = big(w, 2);
    uint32_t ttl = big(w, 4);
    const uint32_t bytes = big(w, 2);
    if (w->bad || w->bytes - w->at < bytes) {
        w->bad = true;
        return;
    }
    const size_t end = w->at + bytes;
    if (ttl >= TTL_NOT_A_TTL) ttl = 0;
    if (ttl < a->ttl_s) a->ttl_s = ttl;
    if (type == TYPE_SRV && class == CLASS_IN) {
        target(w, a);
        if (w->at != end) w->bad = true;
    }
    w->at = end;
}

enum tb_status tb_srv_read(const uint8_t *message, size_t bytes, struct tb_srv_answer *answer_out)
{
    struct walk w = {.message = message, .bytes = bytes, .at = 4};
    if (bytes < HEADER_BYTES) return TB_PEER_GARBLED;
    const uint32_t questions = big(&w, 2);
    const uint32_t records = big(&w, 2);
    w.at = HEADER_BYTES;
    answer_out->count = 0;
    answer_out->ttl_s = UINT32_MAX;
    if (questions > 1 || records > RECORDS_MAX) return TB_PEER_GARBLED;
    if (questions == 1) {
        name(&w, NULL);
        (void)big(&w, 4);
    }
    for (uint32_t i = 0; i < records && !w.bad; i++)
        record(&w, answer_out);
    if (w.bad) return TB_PEER_GARBLED;
    return answer_out->count > 0 ? TB_OK : TB_NOT_FOUND;
}

/* ---- order ---- */

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Puts one of [first, end) first: each as likely as its weight; of those without any, all alike,
 * behind the others as good as always. */
static void draw(struct tb_srv_answer *a, uint32_t first, uint32_t end, uint64_t *state)
{
    uint64_t sum = 0;
    TB_ASSERT(first <= end && end <= a->count);
    for (uint32_t i = first; i < end; i++)
        sum += a->targets[i].weight * UINT64_C(1024) + 1;
    if (sum == 0) return; /* nobody to draw */
    uint64_t at = next_random(state) % sum;
    uint32_t chosen = first;
    for (;; chosen++) {
        const uint64_t share = a->targets[chosen].weight * UINT64_C(1024) + 1;
        if (at < share) break;
        TB_ASSERT(chosen + 1 < end); /* the shares add up to the sum */
        at -= share;
    }
    const struct tb_srv_target t = a->targets[chosen];
    memmove(&a->targets[first + 1], &a->targets[first], (chosen - first) * sizeof t);
    a->targets[first] = t;
}

void tb_srv_order(struct tb_srv_answer *a, uint64_t random)
{
    TB_ASSERT(a->count <= TB_SRV_TARGETS_MAX);
    for (uint32_t first = 0, end = 0; first < a->count; first++) {
        while (end < a->count && a->targets[end].priority == a->targets[first].priority)
            end++;
        draw(a, first, end, &random);
    }
}
