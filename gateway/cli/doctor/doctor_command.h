/* doctor_command.h - tombolo doctor: its row of the table of commands. */
#ifndef TB_GATEWAY_CLI_DOCTOR_COMMAND_H
#define TB_GATEWAY_CLI_DOCTOR_COMMAND_H

#include "gateway/cli/cli.h"

extern const struct tb_cli_option tb_doctor_options[];
enum tb_cli_exit tb_cli_doctor(const struct tb_cli_call *call);

#define TB_DOCTOR_SUMMARY "what is wrong with this site's gateway, its machine and the way to its peers"
#define TB_DOCTOR_TEXT                                                                                       \
    "Looks at the configuration, the clock, certificates, the way to each peer (name, TCP, TLS, identity, "  \
    "packets), the kernel's settings, memory, disks, devices and the arena, and asks the gateway that "      \
    "runs. "                                                                                                 \
    "A tick is fine, a cross is wrong; `!` could be better, `?` is not known, `-` was not looked at. Each "  \
    "cross and each `!` has the line to change below it. Each check ends in seconds: one that hangs is a "   \
    "cross. Nothing is changed, and no root is needed; the gateway's user, or root, sees all. --pre is for " \
    "the time before the first start: no gateway is asked. The file is the one that the gateway runs with, " \
    "or the only one in /etc/tombolo, unless --config names it. A peer that is looked at sees a gateway "    \
    "connect, show its certificate and leave. How fast a link is comes from what was sent over it: there "   \
    "is "                                                                                                    \
    "no probe. Exits with 1 when there is a cross."
#define TB_DOCTOR_EXAMPLE "tombolo doctor --pre --config /etc/tombolo/east.yaml --peer west"

#endif
