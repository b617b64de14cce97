/* publish_trial.h - `tombolo publish --dry-run`: what files would come to, and nothing is
 * published. */
#ifndef TB_GATEWAY_CLI_PUBLISH_TRIAL_H
#define TB_GATEWAY_CLI_PUBLISH_TRIAL_H

#include "gateway/cli/cli.h"
#include "gateway/cli/versions/bundle.h"

/* Digests the files as a publish would, compares them with the newest version that the gateway
 * holds whole, and reckons with the rates of its links. Refused where a publish would be: the
 * gateway is not the model's home, or the number is not above the newest one. */
enum tb_cli_exit tb_publish_trial(const struct tb_cli_call *call, uint64_t number,
                                  const struct tb_bundle *bundle);

#endif
