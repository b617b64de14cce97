/* subscribe_run.h - one run of `tombolo subscribe`, and a version on its way into its folder: what
 * files of that command share. */
#ifndef TB_GATEWAY_CLI_SUBSCRIBE_RUN_H
#define TB_GATEWAY_CLI_SUBSCRIBE_RUN_H

#include "base/ident.h"
#include "base/time.h"
#include "gateway/cli/gateway_session.h"
#include "gateway/cli/output.h"
#include "gateway/cli/versions/version_folder.h"

#define TB_WITHDRAWN_WHY "an operator withdrew the version at the model's home"

struct tb_following {
    const struct tb_cli_call *call;
    const char *model;
    bool follows;
    struct tb_folders folders;
    struct tb_session *session;
    struct tb_subscription *subscription;
    struct tb_deadline deadline;
    struct tb_uid done; /* the version handled last */
    struct tb_uid kept; /* --prove: the version that stays staged */
    bool any_kept;
    bool any_done;
    struct tb_version_info newest; /* of those that were put in place here */
    bool any_newest;
    struct tb_folder_entry *entries; /* what stands in DIR, the newest first */
    uint32_t entry_count;
    uint32_t entry_at; /* the one that is asked about next */
    bool full_told;    /* that the disk is full */
    struct tb_progress progress;
    tb_time_ns crossing_at;                 /* the gateway was asked what crosses; 0: never */
    uint64_t crossing_bytes, crossed_bytes; /* 0: nothing that is known of */
    uint64_t written;                       /* bytes of the version in hand */
    uint64_t to_write;
    char what[64]; /* for the progress line */
};

/* The end of a version that was next. */
enum tb_taken {
    TB_TAKEN,        /* it stands in its folder */
    TB_TAKE_SKIPPED, /* it ended, or a newer one came meanwhile */
    TB_TAKE_LATER,   /* the gateway is away: it is next again */
    TB_TAKE_FAILED
};

/* A version on its way into its folder. */
struct tb_taking {
    const struct tb_version_info *v;
    char name[TB_FOLDER_NAME_BYTES];
    char path[TB_FOLDER_PATH_BYTES + TB_FOLDER_NAME_BYTES];
    char uid[TB_HEX_CHARS];
    bool was_there;
    tb_time_ns began;
    enum tb_cli_exit code; /* TB_TAKE_FAILED: which */
};

/* ---- subscribe_run.c: what is told ---- */

/* The result, for a person or a script. */
enum tb_cli_exit tb_follow_say_there(const struct tb_following *f, const struct tb_taking *t);
/* Of the worker library: tb_last_error says what. */
enum tb_cli_exit tb_follow_failed(const struct tb_following *f, int status, const char *doing);
/* Of version_folder.c and unbundle.c. */
enum tb_cli_exit tb_follow_folder_failed(const struct tb_following *f, int status);
void tb_follow_uid_text(const struct tb_uid *uid, char out[TB_HEX_CHARS]);

/* The disk is full: told once, until tb_follow_tell_room. */
void tb_follow_tell_full(struct tb_following *f);
/* The follow goes on, where a full disk had stopped it. */
void tb_follow_tell_room(struct tb_following *f);

/* ---- version_arrival.c: one version ---- */

/* Stages the version, writes it into its folder and activates it; what stands there already
 * stays. */
enum tb_taken tb_follow_take(struct tb_following *f, struct tb_taking *t);

/* TB_OK: it may be tried again. TB_SUPERSEDED: there is a newer one, which is worth the room
 * more. */
int tb_follow_wait_room(struct tb_following *f, const struct tb_version_info *v);

/* ---- withdrawn_folders.c: versions that were withdrawn after they came ---- */

/* Asks the gateway; what it does not know or cannot say is no withdrawal. */
bool tb_withdrawn_folders_has(const struct tb_following *f, const struct tb_uid *uid);
/* Reads anew which versions stand in DIR. */
void tb_withdrawn_folders_list(struct tb_following *f);
/* One folder at a time, so that a DIR with many of them costs the gateway a question a slice. */
void tb_withdrawn_folders_ask_next(struct tb_following *f);
/* Reads DIR anew, and asks about each. */
void tb_withdrawn_folders_ask_all(struct tb_following *f);

#endif
