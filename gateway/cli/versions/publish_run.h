/* publish_run.h - the run into which a command publishes: a person starts a new one on purpose
 * only.
 *
 * A new run shuts the trainer's out, and every site goes to it. So a command joins the newest run,
 * and starts one where the model has none yet, or with --new-run. Without --run the key of a run
 * that is started is made from the number and the files: the same command, run again, joins the
 * run that it started.
 *
 * Threads: one. */
#ifndef TB_GATEWAY_CLI_PUBLISH_RUN_H
#define TB_GATEWAY_CLI_PUBLISH_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/cli/cli.h"
#include "gateway/cli/versions/bundle.h"
#include "tombolo/tombolo.h"

struct tb_publish_run {
    const struct tb_cli_call *call;
    struct tb_session *session;
    const struct tb_bundle *bundle;
    uint64_t number;
    struct tb_run_info info; /* filled in */
};

/* Anything but TB_CLI_DONE has been said. */
enum tb_cli_exit tb_publish_run_open(struct tb_publish_run *r);
/* The number is that of the run's newest version: this command, or another one,
 * published it before. */
bool tb_publish_run_again(const struct tb_publish_run *r);
/* Again, and the bytes are not those that are there: what the library said, and the way out. */
enum tb_cli_exit tb_publish_run_failed(const struct tb_publish_run *r, int status);
/* This command started the run, and shut another one out. */
bool tb_publish_run_shut_out(const struct tb_publish_run *r);

#endif
