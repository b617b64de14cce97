/* links_limits.h - bounds of what links keep and do (P7). */
#ifndef TB_WAN_LINKS_LIMITS_H
#define TB_WAN_LINKS_LIMITS_H

#include <stdint.h>

#define TB_LINKS_HEDGE_NONE    UINT32_MAX
#define TB_LINKS_PEERS_MAX     64
#define TB_LINKS_PEERS_SPARE   8  /* that may be added while the links are open */
#define TB_LINKS_STREAMS_MAX   64 /* per link */
#define TB_LINKS_THREADS_MAX   64
#define TB_LINKS_MODELS_MAX    640   /* that one peer is asked for */
#define TB_LINKS_REFUSED_MAX   256   /* that one peer asked for, and may not read */
#define TB_LINKS_GRANTED_MAX   16384 /* that one peer asks for in one session: models come and go in it */
#define TB_LINKS_OFFERS_MAX    4096  /* versions */
#define TB_LINKS_ASKS_MAX      256   /* versions whose manifests are asked for, or wait for that, per peer */
#define TB_LINKS_ASKS_SENT_MAX 16    /* of them, on their way */
#define TB_LINKS_LANDINGS_MAX  16u   /* from one peer at once; others wait for their turn */
#define TB_LINKS_CROSSINGS_MAX 16    /* versions that one peer may draw from us at once */
#define TB_LINKS_WITHDRAWN_MAX 256   /* newest withdrawals, told again to each peer that comes up */
#define TB_LINKS_PAUSED_MAX    64u   /* models, by an operator here */
#define TB_LINKS_REFUSALS_MAX  3     /* wrong digests of one chunk from one peer before its landing fails */

#endif
