/* segments.h - batches of TCP segments cut into the packets that a wire would carry, and packets
 * that follow one another joined again.
 *
 * A device with offloads hands over up to 64 KiB of one TCP stream at once, and takes as much.
 * Faults act on packets, so what is read is cut at the segment size; what is due together is
 * joined as a network card does. Saves most of the cost of a packet on both sides. Pure: no
 * socket, file, clock, thread or heap. Works on IPv4 packets whose TCP checksum is still to be
 * made ("partial"). */
#ifndef TB_SIM_WAN_SEGMENTS_H
#define TB_SIM_WAN_SEGMENTS_H

#include <stdbool.h>
#include <stdint.h>

#define TB_SEGMENTS_HEADER_MAX 120 /* of IP and TCP with options */
#define TB_SEGMENTS_BYTES_MAX  65535

/* Bytes of the IP and TCP headers; 0 when this is no whole IPv4 packet with TCP in it. */
uint32_t tb_segments_header(const uint8_t *packet, uint32_t bytes);

/* Segment `index` of a batch, at most header + segment_bytes long, into `out`; its length,
 * or 0 behind the last one. `header` is tb_segments_header of the batch, not 0;
 * segment_bytes is at least 1. */
uint32_t tb_segments_cut(const uint8_t *batch, uint32_t bytes, uint32_t header, uint32_t segment_bytes,
                         uint32_t index, uint8_t *out);

/* Packets being joined. */
struct tb_segments_run {
    uint8_t header[TB_SEGMENTS_HEADER_MAX]; /* of the joined packet, good after tb_segments_close */
    uint32_t header_bytes, segment_bytes, payload_bytes, count;
    bool closed; /* nothing may follow */
};

/* The packet becomes the first of the run. False: it can be joined with none. */
bool tb_segments_open(struct tb_segments_run *run, const uint8_t *packet, uint32_t bytes);
/* Whether the packet is of the run's TCP stream and direction, joined or not. */
bool tb_segments_same_stream(const struct tb_segments_run *run, const uint8_t *packet, uint32_t bytes);
/* Whether the packet follows the run; then its payload, behind a header as long as the first
 * one's, is part of it. */
bool tb_segments_join(struct tb_segments_run *run, const uint8_t *packet, uint32_t bytes);
/* Makes the header that goes before all payloads. */
void tb_segments_close(struct tb_segments_run *run);

/* The TCP or UDP checksum that was left to be made, at `start` + `offset`: the sum over all from
 * `start`. False: out of the packet. */
bool tb_segments_checksum(uint8_t *packet, uint32_t bytes, uint32_t start, uint32_t offset);

#endif
