/* runs.c - tb_run_open: starting or joining a trainer's life. */
#include "intra/client/session/runs.h"

#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "intra/client/session/request.h"
#include "intra/client/session/session.h"

#define RUN_OPEN_MS 45000u /* a home whose store is new waits up to 30 s for its peers' word */

/* The newest key of each model is what a restarted gateway has to hear again. */
static struct tb_run_opened *remembered(const struct tb_session *s, const struct tb_name *model)
{
    struct tb_run_opened *opened = s->runs;
    while (opened != NULL && !tb_name_equal(&opened->model, model))
        opened = opened->next;
    return opened;
}

static void remember(struct tb_session *s, const struct tb_msg_run_open *asked, const struct tb_msg_run *run)
{
    struct tb_run_opened *opened = remembered(s, &asked->model);
    if (opened == NULL) {
        opened = tb_calloc(1, sizeof *opened);
        /* then only a restarted gateway asks the trainer to open its run again */
        if (opened == NULL) return;
        opened->next = s->runs;
        s->runs = opened;
    }
    opened->model = asked->model;
    opened->key = asked->key;
    opened->run = run->run;
    opened->order = run->run_order;
}

/* The order of the run that this session opened with that key; 0: it did not. */
static uint64_t order_before(struct tb_session *s, const struct tb_msg_run_open *asked)
{
    tb_session_lock(s);
    const struct tb_run_opened *opened = remembered(s, &asked->model);
    const bool same = opened != NULL && strcmp(opened->key.text, asked->key.text) == 0;
    const uint64_t order = same ? opened->order : 0;
    tb_session_unlock(s);
    return order;
}

static void fill_info(struct tb_run_info *info, const struct tb_msg_run *m)
{
    info->joined = m->joined;
    memcpy(info->run.bytes, m->run.bytes, sizeof info->run.bytes);
    info->run_order = m->run_order;
    info->last_number = m->last_number;
    info->has_last = m->has_last;
    info->resumed_run_order = m->resumed_run_order;
    info->resumed_number = m->resumed_number;
    info->shut_out_run_order = m->shut_out_order;
    info->shut_out_has_last = m->shut_out_has_last;
    info->shut_out_number = m->shut_out_number;
}

static int open_run(struct tb_session *s, const struct tb_msg_run_open *asked, struct tb_run_info *info_out)
{
    struct tb_request *request = tb_request_new(s, TB_MSG_RUN_OPEN, TB_MSG_RUN, 0);
    if (request != NULL) tb_msg_run_open_encode(asked, &request->payload);
    const struct tb_call call = tb_call_begin(s, RUN_OPEN_MS);
    const int status = tb_request_call(s, request, &call, "tb_run_open");
    if (status == TB_OK) {
        struct tb_msg_run m;
        TB_ANSWER_DECODE(request, tb_msg_run, &m);
        fill_info(info_out, &m);
        tb_session_lock(s);
        remember(s, asked, &m);
        tb_session_unlock(s);
    }
    tb_request_free(request);
    return status;
}

static int open_or_join(struct tb_session *session, const char *model, const char *key, bool joins,
                        struct tb_run_info *info_out)
{
    int status = tb_session_enter(session);
    if (status != TB_OK) return status;
    struct tb_msg_run_open asked = {.joins = joins};
    if (info_out == NULL || info_out->struct_bytes < sizeof *info_out)
        status = tb_fail(TB_BAD_ARGUMENT, "info.struct_bytes must be sizeof(struct tb_run_info), %zu",
                         sizeof *info_out);
    else if (model == NULL || tb_name_set(&asked.model, model) != TB_OK)
        status = tb_fail(TB_BAD_ARGUMENT, "model \"%.80s\": 1 to 64 of A-Z a-z 0-9 . _ -",
                         model == NULL ? "" : model);
    else if (key == NULL || strlen(key) > TB_TEXT_BYTES_MAX)
        status = tb_fail(TB_BAD_ARGUMENT, "a run key has at most %d bytes", TB_TEXT_BYTES_MAX);
    if (status == TB_OK) {
        snprintf(asked.key.text, sizeof asked.key.text, "%s", key);
        asked.was_order = order_before(session, &asked);
        status = open_run(session, &asked, info_out);
    }
    tb_session_leave(session);
    return status;
}

int tb_run_open(struct tb_session *session, const char *model, const char *key, struct tb_run_info *info_out)
{
    return open_or_join(session, model, key, false, info_out);
}

int tb_run_join(struct tb_session *session, const char *model, const char *key, struct tb_run_info *info_out)
{
    return open_or_join(session, model, key, true, info_out);
}
