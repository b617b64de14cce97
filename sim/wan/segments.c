#include "sim/wan/segments.h"
#include "base/assert.h"

#include <string.h>

enum {
    IP_TOS = 1,
    IP_BYTES = 2,
    IP_ID = 4,
    IP_FRAGMENT = 6,
    IP_TTL = 8,
    IP_PROTOCOL = 9,
    IP_CHECKSUM = 10,
    IP_SOURCE = 12
};
enum {
    TCP_SEQ = 4,
    TCP_ACK = 8,
    TCP_OFFSET = 12,
    TCP_FLAGS = 13,
    TCP_WINDOW = 14,
    TCP_CHECKSUM = 16,
    TCP_OPTIONS = 20
};
enum { FLAG_FIN = 1, FLAG_PSH = 8, FLAG_ACK = 16, FLAG_CWR = 128, PROTOCOL_TCP = 6 };

static uint32_t get16(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

static uint32_t get32(const uint8_t *at)
{
    return get16(at) << 16 | get16(at + 2);
}

static void put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static void put32(uint8_t *at, uint32_t value)
{
    put16(at, value >> 16);
    put16(at + 2, value & 0xffff);
}

static uint32_t sum(const uint8_t *at, uint32_t bytes)
{
    uint64_t all = 0;
    for (; bytes >= 2; at += 2, bytes -= 2)
        all += get16(at);
    if (bytes == 1) all += (uint32_t)at[0] << 8;
    while (all >> 16 != 0)
        all = (all & 0xffff) + (all >> 16);
    return (uint32_t)all;
}

static uint32_t ip_header(const uint8_t *packet)
{
    return (packet[0] & 15u) * 4;
}

/* Length and checksum of the IP header, and what a partial TCP checksum begins with: the sum of
 * addresses, protocol and length. */
static void seal(uint8_t *packet, uint32_t bytes)
{
    const uint32_t ip = ip_header(packet);
    TB_ASSERT(ip >= 20 && bytes > ip && bytes <= TB_SEGMENTS_BYTES_MAX);
    put16(packet + IP_BYTES, bytes);
    put16(packet + IP_CHECKSUM, 0);
    put16(packet + IP_CHECKSUM, ~sum(packet, ip) & 0xffff);
    uint32_t pseudo = sum(packet + IP_SOURCE, 8) + PROTOCOL_TCP + (bytes - ip);
    while (pseudo >> 16 != 0)
        pseudo = (pseudo & 0xffff) + (pseudo >> 16);
    put16(packet + ip + TCP_CHECKSUM, pseudo);
}

uint32_t tb_segments_header(const uint8_t *packet, uint32_t bytes)
{
    if (bytes < 40 || packet[0] >> 4 != 4 || packet[IP_PROTOCOL] != PROTOCOL_TCP) return 0;
    const uint32_t ip = ip_header(packet);
    if (ip < 20 || bytes < ip + 20 || (get16(packet + IP_FRAGMENT) & 0x3fff) != 0) return 0;
    const uint32_t tcp = (packet[ip + TCP_OFFSET] >> 4) * 4u;
    return tcp >= 20 && bytes >= ip + tcp ? ip + tcp : 0;
}

uint32_t tb_segments_cut(const uint8_t *batch, uint32_t bytes, uint32_t header, uint32_t segment_bytes,
                         uint32_t index, uint8_t *out)
{
    TB_ASSERT(segment_bytes > 0 && header <= bytes);
    const uint64_t from = (uint64_t)index * segment_bytes;
    if (from >= bytes - header) return 0;
    const uint32_t rest = bytes - header - (uint32_t)from, part = rest < segment_bytes ? rest : segment_bytes;
    memcpy(out, batch, header);
    memcpy(out + header, batch + header + from, part);
    uint8_t *tcp = out + ip_header(out);
    put16(out + IP_ID, get16(batch + IP_ID) + index);
    put32(tcp + TCP_SEQ, get32(tcp + TCP_SEQ) + (uint32_t)from);
    if (part < rest) tcp[TCP_FLAGS] &= (uint8_t) ~(FLAG_FIN | FLAG_PSH);
    if (index > 0) tcp[TCP_FLAGS] &= (uint8_t)~FLAG_CWR;
    seal(out, header + part);
    return header + part;
}

bool tb_segments_open(struct tb_segments_run *run, const uint8_t *packet, uint32_t bytes)
{
    const uint32_t header = tb_segments_header(packet, bytes);
    if (header == 0 || bytes == header || get16(packet + IP_BYTES) != bytes) return false;
    run->header_bytes = header;
    memcpy(run->header, packet, header);
    const uint8_t flags = packet[ip_header(packet) + TCP_FLAGS];
    if ((flags & ~(FLAG_PSH | FLAG_ACK)) != 0) return false;
    run->segment_bytes = run->payload_bytes = bytes - header;
    run->count = 1;
    run->closed = (flags & FLAG_PSH) != 0;
    return true;
}

bool tb_segments_same_stream(const struct tb_segments_run *run, const uint8_t *packet, uint32_t bytes)
{
    return tb_segments_header(packet, bytes) != 0 &&
           memcmp(packet + IP_SOURCE, run->header + IP_SOURCE, 8) == 0 &&
           memcmp(packet + ip_header(packet), run->header + ip_header(run->header), 4) == 0;
}

/* Whether two headers differ only in what differs between one segment and the next. */
static bool alike(const uint8_t *a, const uint8_t *b, uint32_t header)
{
    const uint32_t ip = ip_header(a);
    const uint8_t *x = a + ip, *y = b + ip;
    return a[0] == b[0] && a[IP_TOS] == b[IP_TOS] && a[IP_TTL] == b[IP_TTL] &&
           memcmp(a + IP_FRAGMENT, b + IP_FRAGMENT, 2) == 0 &&
           memcmp(a + IP_SOURCE, b + IP_SOURCE, ip - IP_SOURCE) == 0 && memcmp(x, y, 4) == 0 &&
           memcmp(x + TCP_ACK, y + TCP_ACK, 5) == 0 && memcmp(x + TCP_WINDOW, y + TCP_WINDOW, 2) == 0 &&
           memcmp(x + TCP_OPTIONS, y + TCP_OPTIONS, header - ip - TCP_OPTIONS) == 0;
}

bool tb_segments_join(struct tb_segments_run *run, const uint8_t *packet, uint32_t bytes)
{
    const uint32_t header = tb_segments_header(packet, bytes);
    if (run->closed || header != run->header_bytes || bytes == header || get16(packet + IP_BYTES) != bytes)
        return false;
    const uint32_t part = bytes - header;
    if (part > run->segment_bytes || header + run->payload_bytes + part > TB_SEGMENTS_BYTES_MAX) return false;
    const uint8_t *tcp = packet + ip_header(packet);
    uint8_t *first = run->header + ip_header(run->header);
    if (!alike(run->header, packet, header) ||
        get32(tcp + TCP_SEQ) != get32(first + TCP_SEQ) + run->payload_bytes)
        return false;
    if ((tcp[TCP_FLAGS] & ~FLAG_PSH) != (first[TCP_FLAGS] & ~FLAG_PSH)) return false;
    first[TCP_FLAGS] = tcp[TCP_FLAGS];
    run->payload_bytes += part;
    run->count++;
    TB_ASSERT(run->payload_bytes <= (uint64_t)run->count * run->segment_bytes);
    run->closed = part < run->segment_bytes || (tcp[TCP_FLAGS] & FLAG_PSH) != 0;
    return true;
}

void tb_segments_close(struct tb_segments_run *run)
{
    TB_ASSERT(run->count > 0);
    seal(run->header, run->header_bytes + run->payload_bytes);
}

bool tb_segments_checksum(uint8_t *packet, uint32_t bytes, uint32_t start, uint32_t offset)
{
    if (start >= bytes || offset > bytes - start || bytes - start - offset < 2) return false;
    /* The field holds the pseudo header's sum and is part of what is summed. */
    const uint32_t all = ~sum(packet + start, bytes - start) & 0xffff;
    put16(packet + start + offset, all == 0 ? 0xffff : all);
    return true;
}
