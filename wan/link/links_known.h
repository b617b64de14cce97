/* links_known.h - what is known of links, their streams and the versions on them. No call changes
 * anything.
 *
 * Threads: the main loop's. Peers are named by their index in the options of tb_links_new. */
#ifndef TB_WAN_LINKS_KNOWN_H
#define TB_WAN_LINKS_KNOWN_H

#include "base/layout/version_key.h"
#include "base/net/resolve.h"
#include "base/net/tls.h"
#include "base/site_state.h"
#include "base/time.h"
#include "wan/link/links_limits.h"
#include "wan/send/codec_choice.h"
#include "wan/send/codec_pace.h"
#include "wan/send/sent_counters.h"
#include "wan/stream/bottleneck.h"

struct tb_links;

/* The address listened on; false when none. For tests: they give port 0, and the kernel chooses. */
bool tb_links_address(const struct tb_links *links, struct tb_address *address_out);
/* The index of the peer with that label; UINT32_MAX if none. */
uint32_t tb_links_peer_find(const struct tb_links *links, const char *label);

struct tb_links_progress {
    uint32_t chunks;      /* of all shards */
    uint32_t held_chunks; /* that the peer said it holds */
    bool whole;
    bool crossing;        /* under way now, */
    tb_time_ns begun_for; /* since then */
};
/* Of a version offered here, at that peer. TB_NOT_FOUND: not offered. */
TB_MUST_USE enum tb_status tb_links_peer_progress(const struct tb_links *links, uint32_t peer,
                                                  const struct tb_id *uid,
                                                  struct tb_links_progress *progress_out);

/* Is this version, offered here, the base of a crossing under way, to or from here? It goes last,
 * and only for room: chunks that would be deltas to it go whole then. */
bool tb_links_base_used(const struct tb_links *links, const struct tb_id *uid);

/* One version that the peer announced in its session and did not take back. The cursor begins at
 * 0. False: that was the last. */
bool tb_links_announced_at(const struct tb_links *links, uint32_t peer, uint32_t *cursor,
                           struct tb_version_key *key_out, uint64_t *bytes_out);
/* That peer announced it in this session, and did not take it back. */
bool tb_links_announces(const struct tb_links *links, uint32_t peer, const struct tb_id *uid);

/* Of a version, as peers announced it in their sessions: the most that one said; 0: nobody did. */
uint64_t tb_links_announced_bytes(const struct tb_links *links, const struct tb_id *uid);

/* Bytes of chunk frames that came for this version, from all peers since its landings began,
 * with what came in vain: the rest of a chunk that a cut took, duplicates, refused chunks. 0
 * after tb_links_land_stop. */
uint64_t tb_links_landed_bytes(const struct tb_links *ls, const struct tb_id *uid);

/* The bytes and chunks of an offered version that were put on streams to all peers. TB_NOT_FOUND:
 * the version is not offered. */
TB_MUST_USE enum tb_status tb_links_sent(const struct tb_links *links, const struct tb_id *uid,
                                         struct tb_sent_sum *sent_out);

/* The peer said in this session that this site may not read the model. False while the link is
 * down. */
bool tb_links_denied(const struct tb_links *links, uint32_t peer, const struct tb_name *model);
/* The models of which it said so in this session, and those that we refused it; NULL behind the
 * last. */
const struct tb_name *tb_links_denied_at(const struct tb_links *links, uint32_t peer, uint32_t at);
const struct tb_name *tb_links_refused_at(const struct tb_links *links, uint32_t peer, uint32_t at);
/* The models that it may read and asked for; while it is down, did. Borrowed until a call that
 * changes them. */
const struct tb_name *tb_links_granted_at(const struct tb_links *links, uint32_t peer, uint32_t at);

/* In which form chunks go to that peer, and what that is reckoned from. */
void tb_links_choice(const struct tb_links *links, uint32_t peer, struct tb_choice *choice_out);
/* In how many classes the deltas of the next version of that model had best be encoded for the
 * peers that draw it, reckoned from how the last ones came. 0: in none, as none of them takes
 * sparse deltas. A peer that went away counts for the next 16 versions: deltas that are kept are
 * how it gets on from where it stood. */
unsigned tb_links_classes(const struct tb_links *links, const struct tb_name *model,
                          const struct tb_choice_pace *pace);

/* Landings from that peer that are under way; TB_LINKS_LANDINGS_MAX at most. */
uint32_t tb_links_landings(const struct tb_links *links, uint32_t peer);
/* The landing of that version waits, as so many of the peer are under way. */
bool tb_links_landing_waits(const struct tb_links *links, uint32_t peer, const struct tb_id *uid);

#endif
