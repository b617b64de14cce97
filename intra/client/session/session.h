/* session.h - a session and the roots of its tables. Its lock: session_lock.h. */
#ifndef TB_INTRA_CLIENT_SESSION_H
#define TB_INTRA_CLIENT_SESSION_H

#include <pthread.h>
#include <uv.h>

#include "base/damage_reports.h"
#include "base/layout/layouts.h"
#include "intra/client/live/prover.h"
#include "intra/client/memory/reserve.h"
#include "intra/client/memory/spare_memory.h"
#include "intra/client/memory/thread_crew.h"
#include "intra/client/session/last_error.h"
#include "intra/client/session/session_lock.h"
#include "intra/cuda_part.h"
#include "intra/fabric/fabric.h"
#include "intra/session_msg.h"
#include "tombolo/tombolo.h"

#define TB_WATCHES_MAX 16
/* what tb_wait with timeout 0 asked and the gateway answers later, for the eventfd */
struct tb_watch {
    bool used;
    struct tb_msg_wait asked;
};
struct tb_session {
    pid_t pid;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* CLOCK_MONOTONIC */
    uint32_t calls;         /* inside the library now */
    bool closing;
    uint64_t cancels;
    int eventfd;
    struct tb_crew *crew;
    bool looking;               /* a task of the crew looks at mapped files */
    struct tb_layouts *layouts; /* of what is published and staged */
    struct tb_connection *connection;
    /* its handle; NULL: it has no loop. Changes only while no other thread runs */
    uv_async_t *wake;
    /* NULL until a registration finds that this process has a driver; then it stays */
    struct tb_gpu *gpu;

    /* what the options said, and who we are */
    struct tb_name name, host, rack;
    bool spot;
    char gateway_text[256];
    char fabric_address[64]; /* "" : choose */
    uint64_t pace_bytes_per_s;
    bool no_verbs;
    bool protect;
    bool no_prepare;
    uint32_t threads;

    /* what the session thread found out */
    struct tb_fabric *fabric;
    bool fabric_trusted;
    bool up, was_up;
    enum tb_status down_why;
    /* "stream_tls: certificate has expired": down_why, and what else is known */
    char down_text[320];
    tb_time_ns down_since;
    bool refused; /* the first connection failed in a way that waiting does not heal */
    struct tb_id id;
    struct tb_msg_welcome welcome;
    uint64_t reconnections;

    uint64_t next_request, next_export, next_order;
    uint32_t next_subscription;
    struct tb_request *requests; /* in the order of asking */
    struct tb_buffer *buffers;
    struct tb_registration *registrations;
    struct tb_run_opened *runs;
    struct tb_shadow *shadows;
    struct tb_publication *publications;
    struct tb_tls *publisher; /* its key signs what is published; NULL: nothing is signed */
    struct tb_subscription *subscriptions;
    struct tb_staging *stagings;
    struct tb_spare spare;
    struct tb_reserve *reserves; /* memory that is prepared; those asked for last are first */
    struct tb_reserve_counts reserve_counts;
    struct tb_doubts doubts; /* of what this process serves */
    struct tb_prover prover;
    struct tb_watch watches[TB_WATCHES_MAX];
};

#endif
