/* doctor_peer.h - what facts of the way to one peer mean. Pure: facts of doctor_dial.h, and rows of
 * the gateway's answer to "status" (docs/control.md), which a stranger may have written: a field
 * that is missing or of another type is not known. */
#ifndef TB_GATEWAY_CLI_DOCTOR_PEER_H
#define TB_GATEWAY_CLI_DOCTOR_PEER_H

#include <jansson.h>

#include "gateway/cli/doctor/doctor_dial.h"
#include "gateway/cli/doctor/doctor_finding.h"
#include "gateway/config/config.h"

/* Of the peer, for sentences. */
struct tb_peer_words {
    const struct tb_config *config;
    const struct tb_config_peer *peer;
    char uri[TB_URI_BYTES_MAX], own_uri[TB_URI_BYTES_MAX];
};
struct tb_peer_words tb_doctor_peer_words_of(const struct tb_config *config,
                                             const struct tb_config_peer *peer);

struct tb_finding tb_judge_name(const struct tb_peer_words *w, const struct tb_endpoint *endpoint,
                                const struct tb_name_facts *n);
/* Of connections to all of its addresses. */
struct tb_finding tb_judge_tcp(const struct tb_peer_words *w, const struct tb_dial_facts *dials,
                               uint32_t count);
/* Of the one of them that came furthest. */
const struct tb_dial_facts *tb_dial_furthest(const struct tb_dial_facts *dials, uint32_t count);
struct tb_finding tb_judge_tls(const struct tb_peer_words *w, const struct tb_dial_facts *d, int64_t now_s);
struct tb_finding tb_judge_identity(const struct tb_peer_words *w, const struct tb_dial_facts *d);
/* full: a connection whose first message fills packets. smaller: the same with smaller segments,
 * the largest first, where it was not answered. */
struct tb_finding tb_judge_mtu(const struct tb_peer_words *w, const struct tb_dial_facts *full,
                               const struct tb_dial_facts *smaller, uint32_t count);

/* ---- of a row of links[] ---- */

struct tb_finding tb_judge_link(const struct tb_peer_words *w, const json_t *row);
struct tb_finding tb_judge_peer_clock(const struct tb_peer_words *w, const json_t *row);
struct tb_finding tb_judge_throughput(const json_t *row);
/* row NULL: no gateway runs, and only what this side grants is known. */
struct tb_finding tb_judge_rights(const struct tb_peer_words *w, const json_t *row);

#endif
