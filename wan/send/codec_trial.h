/* codec_trial.h - how fast each way is on this machine, before a chunk has gone: about 50 ms
 * on one core. A shell.
 *
 * Half a megabyte of made bf16 weights and a step of them, 2 % further. Other kinds are
 * taken to be as fast. */
#ifndef TB_WAN_CHOICE_TRIAL_H
#define TB_WAN_CHOICE_TRIAL_H

#include "wan/send/codec_choice.h"

/* Speeds of 0: no memory, or the clock stands. */
void tb_choice_trial(struct tb_choice_speed speeds_out[TB_WAYS]);

#endif
