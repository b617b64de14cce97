/* commands.c - the table of commands: all that `tombolo` can do, in the order in
 * which help shows it. */
#include "gateway/cli/commands.h"

#include <limits.h>
#include <stddef.h>

#include "gateway/cli/backup/backup_rows.h"
#include "gateway/cli/config_commands.h"
#include "gateway/cli/doctor/doctor_command.h"
#include "gateway/cli/operator/noun_commands.h"
#include "gateway/cli/operator/operator_commands.h"
#include "gateway/cli/pki_commands.h"
#include "gateway/cli/pki_options.h"

#define COMMON_OPTIONS                                                                                       \
    {"json", TB_CLI_FLAG, NULL, "one JSON object a result on standard output, also for a failure"},          \
    {                                                                                                        \
        "quiet", TB_CLI_FLAG, NULL, "nothing but errors"                                                     \
    }

#define GATEWAY_OPTIONS                                                                                      \
    {"gateway", TB_CLI_TEXT, "ADDRESS", "unix:PATH or HOST:PORT; default unix:/run/tombolo/session.sock"},   \
        {"ca", TB_CLI_FILE, "FILE", "for HOST:PORT: the CA of the gateway's certificate (PEM)"},             \
        {"cert", TB_CLI_FILE, "FILE", "for HOST:PORT: our certificate (PEM)"},                               \
        {"key", TB_CLI_FILE, "FILE", "for HOST:PORT: its key (PEM)"},                                        \
        {"fabric-address", TB_CLI_TEXT, "ADDRESS",                                                           \
         "HOST:PORT where others read from here (port 0: any); for a container with a network of its own"},  \
    {                                                                                                        \
        "timeout", TB_CLI_SECONDS, "TIME", "give up after so long (30s, 5m, 2h); default: never"             \
    }

#define CONTROL_OPTIONS                                                                                      \
    {"control", TB_CLI_FILE, "PATH", "the gateway's control socket; default /run/tombolo/control.sock"},     \
    {                                                                                                        \
        "timeout", TB_CLI_SECONDS, "TIME", "give up after so long; default 10s"                              \
    }

#define TABLE_OPTIONS                                                                                        \
    {"output", TB_CLI_CHOICE, "wide|json|tsv",                                                               \
     "-o: wide has all columns; tsv has tabs, and values in the units of its first line; json: --json"},     \
        {"no-headers", TB_CLI_FLAG, NULL, "no line with the columns' names"},                                \
        {"sort", TB_CLI_TEXT, "COLUMN", "order by a column; -COLUMN: the greatest first"},                   \
    {                                                                                                        \
        "watch", TB_CLI_FLAG, NULL, "again every two seconds, until interrupted"                             \
    }

#define ACT_OPTIONS                                                                                          \
    {"dry-run", TB_CLI_FLAG, NULL, "show what would change, and change nothing"},                            \
    {                                                                                                        \
        "reason", TB_CLI_TEXT, "TEXT", "for the audit record"                                                \
    }

#define END                                                                                                  \
    {                                                                                                        \
        NULL, TB_CLI_FLAG, NULL, NULL                                                                        \
    }

static const struct tb_cli_option publish_options[] = {
    {"version", TB_CLI_COUNT, "N", "the number of the version: the trainer's step (needed)"},
    {"run", TB_CLI_TEXT, "KEY", "join the run with this key; default: the model's newest run"},
    {"new-run", TB_CLI_FLAG, NULL,
     "start a run, with the key of --run or a made one, and shut out the run before"},
    {"shard", TB_CLI_TEXT, "I/N", "this process gives shard I (from 0) of N; needs --run"},
    {"codec", TB_CLI_TEXT, "NAME", "how chunks go to the gateway: raw (default) or zstd"},
    {"sign-cert", TB_CLI_FILE, "FILE", "a publisher's certificate (tombolo pki issue --publisher)"},
    {"sign-key", TB_CLI_FILE, "FILE", "its key: the version is signed, as models.NAME.publishers demands"},
    {"exclude", TB_CLI_TEXT, "GLOB", "leave out files of a folder whose name matches"},
    {"follow-links", TB_CLI_FILE, "ROOT", "links in a folder may also lead into ROOT; others are refused"},
    {"wait", TB_CLI_TEXT, "SITE[:held|active],...",
     "then wait until these sites hold the version, or use it; shows how far each is"},
    {"hold", TB_CLI_FLAG, NULL, "stay and serve after the version is kept, until interrupted"},
    {"dry-run", TB_CLI_FLAG, NULL,
     "publish nothing: say its size, what differs from the newest version held, and seconds to each site"},
    {"control", TB_CLI_FILE, "PATH", "for progress, --wait and --dry-run: the gateway's control socket"},
    GATEWAY_OPTIONS,
    COMMON_OPTIONS,
    END,
};

static const struct tb_cli_option verify_options[] = {
    {"live", TB_CLI_FLAG, NULL, "the memory that workers compute from (needed)"},
    {"control", TB_CLI_FILE, "PATH", "the gateway's control socket; default /run/tombolo/control.sock"},
    {"timeout", TB_CLI_SECONDS, "TIME", "so long workers may take, at most 10m; default 60s"},
    COMMON_OPTIONS,
    END,
};

static const struct tb_cli_option subscribe_options[] = {
    {"into", TB_CLI_FILE, "DIR", "where versions are written, each in a folder (needed)"},
    {"version", TB_CLI_TEXT, "N|R:N", "this version; R:N names one of run R"},
    {"latest", TB_CLI_FLAG, NULL,
     "the newest version that is whole at this site, once there is one (default)"},
    {"follow", TB_CLI_FLAG, NULL, "the newest version, then each newer one, until interrupted"},
    {"keep", TB_CLI_COUNT, "N", "with --follow: only the newest N versions stay in DIR; default: all"},
    {"on-version", TB_CLI_TEXT, "CMD", "with --follow: run by /bin/sh for each version; see above"},
    {"group", TB_CLI_TEXT, "NAME", "name of the reader group of one; default: a made name"},
    {"home-ca", TB_CLI_FILE, "FILE",
     "the CA of the model's home: only versions that it signed are taken, and no gateway is believed"},
    {"prove", TB_CLI_FLAG, NULL,
     "with --follow: the newest version stays in memory, and is compared with what was sealed"},
    GATEWAY_OPTIONS,
    COMMON_OPTIONS,
    END,
};

static const struct tb_cli_option act_options[] = {ACT_OPTIONS, CONTROL_OPTIONS, COMMON_OPTIONS, END};

static const struct tb_cli_option drain_options[] = {
    {"wait", TB_CLI_SECONDS, "TIME", "until the gateway has ended, for so long at most"},
    ACT_OPTIONS,
    CONTROL_OPTIONS,
    COMMON_OPTIONS,
    END,
};

static const struct tb_cli_option control_options[] = {CONTROL_OPTIONS, COMMON_OPTIONS, END};

static const struct tb_cli_option table_options[] = {TABLE_OPTIONS, CONTROL_OPTIONS, COMMON_OPTIONS, END};

static const struct tb_cli_option describe_options[] = {
    {"output", TB_CLI_CHOICE, "wide|json", "-o: wide has all columns; json: --json"},
    {"watch", TB_CLI_FLAG, NULL, "again every two seconds, until interrupted"},
    CONTROL_OPTIONS,
    COMMON_OPTIONS,
    END,
};

static const struct tb_cli_option lag_options[] = {
    TABLE_OPTIONS,
    CONTROL_OPTIONS,
    {"why", TB_CLI_FLAG, NULL, "also the reason in words, its evidence and the next command, for each row"},
    {"check", TB_CLI_FLAG, NULL, "one line for a monitoring system, and its exit codes 0, 1, 2 and 3"},
    {"warn", TB_CLI_SECONDS, "TIME", "with --check: behind for so long is a warning; default 30s"},
    {"crit", TB_CLI_SECONDS, "TIME", "with --check: behind for so long is critical; default 2m"},
    COMMON_OPTIONS,
    END,
};

static const struct tb_cli_option adopt_options[] = {
    {"follow-links", TB_CLI_FILE, "ROOT", "links below DIR may also lead into ROOT; others are refused"},
    {"control", TB_CLI_FILE, "PATH", "the gateway's control socket; default /run/tombolo/control.sock"},
    {"timeout", TB_CLI_SECONDS, "TIME", "give up after so long (30s, 5m, 2h); default: never"},
    COMMON_OPTIONS,
    END,
};

static const struct tb_cli_option limit_options[] = {
    {"rate", TB_CLI_TEXT, "RATE", "the most that is sent to PEER: 200Mbit, 1500Kbit, 10Gbit, or none"},
    {"schedule", TB_CLI_TEXT, "HOURS",
     "hours of the day (UTC) with a rate of their own, with commas between; none: no hours"},
    {"day-bytes", TB_CLI_TEXT, "SIZE",
     "the most that is sent to PEER in a day (UTC): 500GiB, 2TiB; 0: no limit"},
    ACT_OPTIONS,
    CONTROL_OPTIONS,
    COMMON_OPTIONS,
    END,
};

static const struct tb_cli_option audit_options[] = {
    {"since", TB_CLI_SECONDS, "TIME", "rows of the last 90s, 15m, 2h or 7d; default: all"},
    {"action", TB_CLI_TEXT, "TEXT", "rows whose action has TEXT in it"},
    {"identity", TB_CLI_TEXT, "TEXT", "rows whose identity has TEXT in it"},
    {"limit", TB_CLI_COUNT, "N", "the newest N rows; default 1000, at most 100000"},
    CONTROL_OPTIONS,
    COMMON_OPTIONS,
    END,
};

static const struct tb_cli_option events_options[] = {
    {"from", TB_CLI_COUNT, "ID", "from this event on"},
    {"limit", TB_CLI_COUNT, "N",
     "the newest N (of those that --level and --event name), where --from is not given; default 100, at most "
     "4096"},
    {"follow", TB_CLI_FLAG, NULL, "then each as it comes, until interrupted"},
    {"level", TB_CLI_CHOICE, "error|warn|info", "those of this level, and worse ones"},
    {"event", TB_CLI_TEXT, "TEXT", "those whose name has TEXT in it"},
    CONTROL_OPTIONS,
    COMMON_OPTIONS,
    END,
};

static const struct tb_cli_option bugreport_options[] = {
    {"into", TB_CLI_FILE, "DIR", "where the folder is made; default: here"},
    {"no-addresses", TB_CLI_FLAG, NULL, "leave out numeric addresses, and those of the configuration"},
    CONTROL_OPTIONS,
    COMMON_OPTIONS,
    END,
};

static const struct tb_cli_option demo_options[] = {
    {"versions", TB_CLI_TEXT, "N", "end after so many; default: go on until interrupted"},
    {"every", TB_CLI_TEXT, "SECONDS", "from one version to the next; default 5"},
    {"bytes", TB_CLI_TEXT, "SIZE", "of a version, such as 16M; default 4M"},
    END,
};

static const struct tb_cli_option init_options[] = {
    {"peer", TB_CLI_TEXT, "SITE[=ADDRESS]",
     "the other site (needed); with its address this side dials, else it listens"},
    {"model", TB_CLI_TEXT, "NAME", "the model that crosses; default policy"},
    {"home", TB_CLI_TEXT, "SITE", "where it is published; default: this site"},
    {"listen", TB_CLI_TEXT, "ADDRESS", "where this side listens; default 0.0.0.0:7400"},
    {"request", TB_CLI_FLAG, NULL,
     "an authority elsewhere signs: a key and a certificate request, in place of an authority of its own"},
    {"arena", TB_CLI_TEXT, "SIZE",
     "memory for versions, such as 64GiB; default: a quarter of this machine's"},
    {"dir", TB_CLI_FILE, "DIR",
     "everything goes there, sockets and memory too; default: the places of the package"},
    COMMON_OPTIONS,
    END,
};

static const struct tb_cli_option check_options[] = {
    {"bounds", TB_CLI_FLAG, NULL,
     "also how many rows each of the gateway's tables may have; --json always says it"},
    COMMON_OPTIONS,
    END,
};

static const struct tb_cli_option show_options[] = {
    {"effective", TB_CLI_FLAG, NULL, "also what FILE does not say, and where each value came from"},
    {"model", TB_CLI_TEXT, "NAME", "only what counts for that model, and which row of models it is"},
    CONTROL_OPTIONS,
    COMMON_OPTIONS,
    END,
};

static const struct tb_cli_option reload_options[] = {
    ACT_OPTIONS,
    CONTROL_OPTIONS,
    COMMON_OPTIONS,
    END,
};

static const struct tb_cli_option explain_options[] = {
    {"markdown", TB_CLI_FLAG, NULL, "as a table for docs/config.md"},
    {"man", TB_CLI_FLAG, NULL, "as the manual page tombolo.yaml(5)"},
    COMMON_OPTIONS,
    END,
};

static const struct tb_cli_option help_options[] = {
    {"man", TB_CLI_FLAG, NULL, "the manual page, as roff"},
    {"man-pages", TB_CLI_FILE, "DIR", "a manual page for each command, written into this folder"},
    {"completion", TB_CLI_FLAG, NULL, "completion for bash: source it"},
    {"completion-zsh", TB_CLI_FLAG, NULL, "completion for zsh: source it, or _tombolo in a folder of fpath"},
    {"completion-fish", TB_CLI_FLAG, NULL, "completion for fish: pipe it into source"},
    {"candidates", TB_CLI_FLAG, NULL, "for these scripts: words that may come next"},
    END,
};

static const struct tb_cli_command commands[] = {
    {"publish", "MODEL PATH...", "hand a version of a model to this site's gateway",
     "Publishes safetensors files, or folders as Hugging Face lays them out (with their index, if there "
     "is one), as one version of MODEL. Other regular files up to 100 MB travel beside the tensors, so "
     "subscribers write byte-identical files; names that begin with a dot are left out. The command ends "
     "when the gateway holds all of the version (it is kept), or with --hold when interrupted; with --wait "
     "when the sites named hold it, or all their reader groups use it (under --json each second has a line). "
     "N has to "
     "be above the newest version of the model's newest run. The same command may run again: with the "
     "same bytes it changes nothing. A new run begins with --new-run alone, or with the first version of "
     "a model. It shuts out the run before, whose trainer can publish nothing more.",
     "tombolo publish policy --version 12 ./checkpoint-12/", publish_options, 2, INT_MAX, tb_cli_publish},
    {"subscribe", "MODEL", "write versions of a model into a folder",
     "Writes a version into the folder DIR/RUN-NUMBER, such as DIR/000001-0000000000000000012, so that "
     "names sort. All files are written to a temporary folder and synced, the marker STABLE last; one "
     "rename puts the folder in place. So a folder holds one whole version or is not there. A folder "
     "with a marker is never written again, and its version is not fetched again. When the version is "
     "withdrawn, WITHDRAWN replaces STABLE and says why. A bare N is the newest run that has N. Tensors "
     "that were published without a file go to tensors-SHARD.safetensors. With --follow, the link "
     "DIR/latest names the newest version and is switched by one rename. --keep never removes the folder "
     "that `latest` names, nor a folder without a marker of this model. A full disk is reported once, "
     "and the follow goes on when there is room. CMD runs once `latest` names the version, with "
     "TOMBOLO_MODEL, TOMBOLO_RUN, TOMBOLO_NUMBER, TOMBOLO_UID and TOMBOLO_DIR (the version's folder) in "
     "its environment; also for a version that stands there at the start. Its output goes to standard "
     "error. The follow waits until CMD has ended, and then takes the newest version: those between are "
     "skipped. A CMD that fails is reported, and the follow goes on. A version on its way shows how much of "
     "it "
     "is here and how long still, on a terminal; with --json each second of that has a line with `progress`.",
     "tombolo subscribe policy --into /models/policy --follow", subscribe_options, 1, 1, tb_cli_subscribe},
    {"withdraw", "MODEL VERSION", "take a bad version back: at its home everywhere, elsewhere here",
     "No reader gets the version any more, and reader groups that use it go back to the newest other "
     "whole one at their next activate. At the model's home this holds for every site. At another site "
     "it holds for that site alone: its copy is dropped, the version is not fetched again, also after a "
     "restart, and other sites are not told. The audit record and `tombolo versions` name the operator. "
     "VERSION is N (the newest run that has it) or R:N.",
     "tombolo withdraw policy 1:12 --reason 'reward hacking'", act_options, 2, 2, tb_cli_withdraw},
    {"pin", "MODEL VERSION", "keep this site's readers at a version",
     "Readers of this site get VERSION, and no newer one, until `tombolo unpin` or another pin; also "
     "after a restart. Newer versions go on crossing to this site. The pinned version is never evicted. "
     "Other sites are not told, but `tombolo lag` gives the reason `pinned` everywhere. VERSION is N or "
     "R:N and must be whole here. Exits with 1 where it is not, and names the versions that are, or where "
     "readers here use a newer one: `tombolo rollback` takes those back. If the pinned version is lost or "
     "withdrawn the pin stays, and readers get no version until it is taken away.",
     "tombolo pin policy 1:12", act_options, 2, 2, tb_cli_pin},
    {"unpin", "MODEL", "let this site's readers have the newest version again",
     "Takes the pin of MODEL away. Readers get the newest version that is whole here. Where no version "
     "is pinned nothing happens.",
     "tombolo unpin policy", act_options, 1, 1, tb_cli_unpin},
    {"rollback", "MODEL VERSION", "take this site's readers back to an older version",
     "Pins VERSION, as `tombolo pin` does, although readers here use a newer one. Reader groups that "
     "wait for a newer version get this one, and each group switches together. A follow of `tombolo "
     "subscribe` sets its link `latest` back. A worker decides for itself when it asks for a version.",
     "tombolo rollback policy 1:11 --dry-run", act_options, 2, 2, tb_cli_rollback},
    {"pause", "model|peer NAME", "let nothing of a model, or of a peer, cross",
     "No chunk of the model crosses, to or from any peer; or none crosses to or from that peer. Crossings "
     "stop where they are, also with a peer of an older release, and what is held stays. It holds over a "
     "restart, until `tombolo resume`. `tombolo lag` gives the reason `paused`, at both ends, and `tombolo "
     "status` names the operator.",
     "tombolo pause peer west --reason 'work on the line'", act_options, 2, 2, tb_cli_pause},
    {"resume", "model|peer NAME", "let what was paused cross again",
     "Crossings go on where they stopped: no chunk that the other end holds is sent again. Where nothing is "
     "paused nothing happens.",
     "tombolo resume peer west", act_options, 2, 2, tb_cli_resume},
    {"verify", "MODEL", "whether workers compute from the bytes that were sealed",
     "With --live each worker of this site that follows MODEL digests the tensors that it computes from, "
     "and compares them with the version's manifest. A worker does so at a low rate, and goes on "
     "meanwhile. The table has a row for each: proven; proven by box, where its boxes of tensors cover "
     "no whole chunk and were compared with digests of the staged bytes; differs, with tensor, shard and "
     "chunk; not provable, with the reason; no answer within --timeout; away. A tensor that differs is "
     "also an alarm in the gateway's log, live.differs. Exits with 8 where bytes differ, else with 4 where "
     "a worker did not answer. Workers that are not provable leave the exit code 0: --json counts them.",
     "tombolo verify policy --live --timeout 5m", verify_options, 1, 1, tb_cli_verify},
    {"adopt", "MODEL DIR", "take a version's chunks from files here, instead of over the link",
     "For a site that begins, or comes back from a reboot, with a copy of the model on a disk. The "
     "gateway reads the safetensors files (and others) below DIR, digests them, and claims for its arena "
     "the chunks that match a version of another site. Only the rest of that version crosses the link, "
     "and newer versions cross as deltas against it. Nothing is believed: a chunk is held only if its "
     "digest is that of the manifest. This command opens the files with the rights of its user, at most "
     "512, and "
     "hands them to the gateway. A link that leads out of DIR is refused. Tensors need the names and dtypes "
     "that were published. DIR is the folder of one version, such as one that "
     "`tombolo subscribe` wrote. The command may be given before a link is up, and then waits for one; "
     "while it runs nothing else of MODEL crosses. Exits with 8 when no chunk matches.",
     "tombolo adopt policy /models/policy/latest", adopt_options, 2, 2, tb_cli_adopt},
    {"status", "", "the state of this site's gateway",
     "Shows arena, links, models and sessions of this site's gateway, and for each worker which version it "
     "serves and how long ago it was proven.",
     "tombolo status --json", control_options, 0, 0, tb_cli_status},
    {"sites", "", "every site that is known here, and how far it is behind",
     "Lists this site, each configured peer, and each site behind a relay: the link to it, how many models "
     "it follows, how many of them are behind, and the worst of them with its reason. Only a model's home "
     "knows how far other sites are behind: elsewhere that is \"?\".",
     "tombolo sites --sort -behind", table_options, 0, 0, tb_cli_list},
    {"peers", "", "the links to other gateways",
     "Lists the configured peers: state of the link, round trip, rate, what was sent and received, limits, "
     "and what ails it. -o wide adds the gateway, its certificate's days and the error as a sentence.",
     "tombolo peers -o wide", table_options, 0, 0, tb_cli_list},
    {"models", "", "the configured models",
     "Lists the models of this site's gateway: home, head, the newest version that is staged here, how far "
     "this site is behind, and at the model's home how many other sites are.",
     "tombolo models", table_options, 0, 0, tb_cli_list},
    {"versions", "[MODEL]", "list versions and where they are held",
     "Lists the versions that this site's gateway knows, with their state, how much of each is held here, "
     "and how many workers and other sites have it whole. -o wide adds the time in each stage here (queued, "
     "manifests, landing, activating), the bytes sent to other sites by their encoding, and how many of "
     "these were sent again.",
     "tombolo versions policy --sort -version", table_options, 0, 1, tb_cli_list},
    {"workers", "", "trainers and rollouts that are connected",
     "Lists the workers of this site: host, since when, which models each publishes and follows, which "
     "version it computes from, and when that was proven.",
     "tombolo workers --sort proof", table_options, 0, 0, tb_cli_list},
    {"groups", "", "reader groups, whose members switch together",
     "Lists the reader groups of this site: members, how many are here, the version that they switched to "
     "last, the one that they stage now, and how many members have it whole.",
     "tombolo groups", table_options, 0, 0, tb_cli_list},
    {"streams", "", "streams of the links: their speed and their limits",
     "For each stream: congestion control, round trip, rates, bytes sent again by TCP, bytes that wait "
     "unsent, and the limit of its sending: idle, cap (tombolo limit), sender (this gateway), network, "
     "send_buffer or peer_window. Where a sysctl limits the link, it is named. --json has the links, too: "
     "how many streams are used, parcels that wait, bytes that went twice because they were late (hedged), "
     "streams lost and replaced.",
     "tombolo streams --json | jq '.links[].streams[].limited_by'", table_options, 0, 0, tb_cli_list},
    {"chains", "[MODEL]", "which worker reads from which inside this site",
     "For each version that workers of this site have or fetch: the chain as it is. A worker stands "
     "indented under the one it reads from (the gateway first), with its host, how much of the version it "
     "holds, the transport of its hop and the reason for it, and its rate. `slow` is a worker that held up "
     "those behind it and is a leaf now, `spot` one that may go at any time. Workers tell their progress at "
     "most once a second.",
     "tombolo chains policy", table_options, 0, 1, tb_cli_list},
    {"describe", "NOUN NAME", "one site, peer, model, version, worker, group, stream or chain",
     "Shows all that is known of one thing, and the tables that belong to it. NAME is the first column of "
     "the list; of a version or chain it is MODEL/VERSION, of a group MODEL/GROUP, of a stream PEER/STREAM.",
     "tombolo describe version policy/1:12", describe_options, 2, 2, tb_cli_describe},
    {"lag", "[MODEL]", "how far sites are behind, why, and until when",
     "For each model followed or published here: the head, the newest version that is staged, the one "
     "that all workers activated, and how many versions, bytes and seconds this site is behind. At the "
     "model's home the same for each other known site, with the relay through "
     "which it is known. An unknown value is \"?\", with the age of the last word. Each row has one "
     "reason (up-to-date, unknown, source-publishing, queued-behind, manifests, crossing, stalled, "
     "waiting-base, window-limited, loss-limited, rate-limited, budget-spent, sender-cpu, receiver-cpu, "
     "receiver-memory, no-room, worker-not-activating, no-subscriber, link-down, dns-failed, "
     "refused-by-peer, tls-failed, identity-mismatch, twin-identity, right-denied, verify-failed, "
     "store-down, clock-skew, table-full, mtu, unsigned, pinned, share-spent, revoked, paused), "
     "and the expected time as a range. --why adds the reason in words, the facts behind it and the next "
     "command. The worst row is the first. With --check one line says how it stands, with numbers behind "
     "it, and the exit codes are those of monitoring plug-ins: 0 none is behind, 1 "
     "warning, 2 critical, 3 not known, or this command failed or was not understood.",
     "tombolo lag policy --check --warn 30s --crit 2m", lag_options, 0, 1, tb_cli_lag},
    {"limit", "PEER", "how much is sent to another site",
     "Shows, or changes at once, the limits of what this site's gateway sends to PEER: a rate, hours of "
     "the day with a rate of their own (the first that has the time counts), and a day's bytes. Limits "
     "that are not given stay as they are. A change holds until the gateway starts again; a lasting "
     "limit belongs into its configuration (peers.PEER.rate, .schedule, .day_bytes).",
     "tombolo limit west --rate 200Mbit --schedule '08:00-18:00 50Mbit, 22:00-06:00 none'", limit_options, 1,
     1, tb_cli_limit},
    {"gc", "", "let go of what the gateway keeps for nobody",
     "Evicts versions that nothing holds and that are not among the newest of models.NAME.keep, which else "
     "stay until another one needs their room, and drops rows of the audit record that are older than "
     "audit.days. Lists each version that has memory here, and why it stays or goes. A head, a version with "
     "readers or a pin, and the last known copy of one within `keep` never go.",
     "tombolo gc --dry-run", act_options, 0, 0, tb_cli_gc},
    {"drain", "", "end this site's gateway without cutting anybody off",
     "The gateway does as at a SIGTERM: it accepts no connection, lets readers finish, for `drain_ms` at "
     "most, writes what the store still has to write, says goodbye to its peers and exits with 0. Workers "
     "go on with what they have, and with the gateway that comes next. With --wait the command ends when "
     "the gateway has, and exits with 4 where that takes longer.",
     "tombolo drain --wait 30s --reason 'a new kernel'", drain_options, 0, 0, tb_cli_drain},
    {"audit", "", "who did what at this site, and who was denied",
     "Lists the gateway's audit record, oldest first: acts of operators (withdraw, pin, unpin, rollback, "
     "pause, resume, limit, gc, adopt), start, drain, configuration and certificates, versions that were "
     "published, activated "
     "or ended, each version that begins to leave the site and the peer that draws it, and every denial. "
     "Denials and activations are one row for each identity, object and minute, with a count. With --json "
     "each row is a line of its own.",
     "tombolo audit --since 2d --action withdraw", audit_options, 0, 0, tb_cli_audit},
    {"events", "", "what this site's gateway logged, by id",
     "Lists the newest lines of the gateway's log, at info and above, oldest first: id, time (UTC), level, "
     "event and its fields. The gateway keeps 4096. Ids grow, also over a restart: with --from a reader goes "
     "on where it stopped, and a gap is said on standard error. With --json each event is a line of its own.",
     "tombolo events --follow --level warn", events_options, 0, 0, tb_cli_events},
    {"doctor", "", TB_DOCTOR_SUMMARY, TB_DOCTOR_TEXT, TB_DOCTOR_EXAMPLE, tb_doctor_options, 0, 0,
     tb_cli_doctor},
    {"bugreport", "", "what somebody elsewhere needs to find a fault, without keys",
     "Makes a folder with what the gateway says of itself (status, lag, versions, streams, chains, events "
     "and its configuration), and what the kernel says of this machine. Keys, tokens and passphrases are "
     "left out wherever they stand; it has no weights. Where the gateway gives no answer, the file "
     "says why. Names of sites, models, hosts and identities stay: read it before you send it.",
     "tombolo bugreport --into /tmp --no-addresses", bugreport_options, 0, 0, tb_cli_bugreport},
    {"demo", "", "two sites and a trainer on this machine, to try it",
     "Starts two gateways on loopback, a trainer that publishes at one and a rollout that follows at the "
     "other, "
     "and says what to try. Needs no root and no configuration, and leaves nothing behind. It is a script of "
     "the "
     "package.",
     "tombolo demo --versions 3", demo_options, 0, 0, tb_cli_demo},
    {"init", "SITE", "make all that a gateway of this site needs, with one peer",
     "Writes the configuration DIR/SITE.yaml, and in DIR/SITE a certificate authority, the gateway's "
     "certificate, lines for a firewall where this side listens, and a drop-in of the unit where this "
     "machine "
     "has RDMA. With --request there is no authority, but a key and a request (gw.csr) that one elsewhere "
     "signs. DIR is /etc/tombolo. Nothing that is there is changed. Says what to do on the other machine.",
     "tombolo init west --peer east=gw.east.example --model policy --home east", init_options, 1, 1,
     tb_cli_init},
    {"pki init", "", "make a certificate authority for a site",
     "Writes DIR/ca.crt and DIR/ca.key (mode 0600), for people who have no authority of their own. Other "
     "sites need ca.crt alone.",
     "tombolo pki init --dir pki/east --site east", tb_cli_pki_init_options, 0, 0, tb_cli_pki_init},
    {"pki issue", "[IDENTITY]", "make a key and a certificate for a gateway, a worker or a publisher",
     "IDENTITY is tombolo://SITE/GATEWAY, tombolo://SITE/worker/NAME or tombolo://SITE/publisher/NAME, and "
     "the site must be the authority's. A publisher signs versions (tombolo publish --sign-key) and opens "
     "no connection. Writes STEM.crt and STEM.key (mode 0600).",
     "tombolo pki issue tombolo://east/gw1 --dir pki/east", tb_cli_pki_issue_options, 0, 1, tb_cli_pki_issue},
    {"pki show", "[PATH...]", "what certificates say: identity, signer, days left, rights",
     "Lists the certificates of PEM files, and of the .crt and .pem files of folders; without PATH those "
     "that --config names. KIND is root, issuing, gateway, worker, publisher or other. WARNING is renew "
     "(under 14 days are left), expired, not-valid-yet, revoked, or not-listed: tls.spiffe has no line for "
     "its SPIFFE URI. A signer that is among the files is found by its signature. Nothing is trusted by it.",
     "tombolo pki show /etc/tombolo/east --config /etc/tombolo/east.yaml", tb_cli_pki_show_options, 0, 64,
     tb_cli_pki_show},
    {"pki request", "IDENTITY", "make a key, and a request that an authority elsewhere signs",
     "Writes STEM.key (mode 0600) and STEM.csr. The key never leaves this machine; the request is no secret.",
     "tombolo pki request tombolo://west/gw --dir /etc/tombolo/west", tb_cli_pki_request_options, 1, 1,
     tb_cli_pki_request},
    {"pki sign", "REQUEST IDENTITY", "sign a request of another machine",
     "The authority decides: IDENTITY is what the certificate says. A request that asks for another one is "
     "refused, and so is one whose key is weak or not its own. Nothing else of the request counts.",
     "tombolo pki sign gw.csr tombolo://west/gw --dir pki/west", tb_cli_pki_sign_options, 2, 2,
     tb_cli_pki_sign},
    {"pki renew", "CERTIFICATE", "a new certificate and key in the place of the old ones",
     "Same identity, same length of time, a new key. The files are replaced one after the other so that they "
     "fit each other at each moment, and keep their owner and mode. A running gateway reads them within two "
     "seconds, and no link goes down.",
     "tombolo pki renew /etc/tombolo/east/gw.crt --dir /etc/tombolo/east", tb_cli_pki_renew_options, 1, 1,
     tb_cli_pki_renew},
    {"pki intermediate", "", "make an issuing authority under a root",
     "Writes DIR/ca.crt, DIR/ca.key and DIR/root.crt. Certificates that it issues have its own behind them. "
     "Others go on trusting the root alone, whose key may then be offline. It signs no authority below it.",
     "tombolo pki intermediate --root pki/east --dir pki/east-2027", tb_cli_pki_intermediate_options, 0, 0,
     tb_cli_pki_intermediate},
    {"pki rollover", "STEP", "replace a root by another, without cutting a link",
     "begin makes the second root, and DIR/ca.crt has both; the first one signs on. turn: the second one "
     "signs. end: DIR/ca.crt has the second one alone; it is refused while a certificate in DIR is of the "
     "first. After each step that changes ca.crt it is copied to all that trust it, and each step waits for "
     "that.",
     "tombolo pki rollover begin --dir /etc/tombolo/east", tb_cli_pki_rollover_options, 1, 1,
     tb_cli_pki_rollover},
    {"pki revoke", "CERTIFICATE", "let a certificate count no more",
     "Adds a line to the list of revoked certificates. CERTIFICATE is a PEM file (its fingerprint is "
     "listed), sha256:HEX, serial:HEX, or an identity tombolo://SITE/GATEWAY or "
     "tombolo://SITE/worker/NAME: then every certificate of that identity, also a new one. Gateways "
     "whose configuration names the list read it within seconds, end the sessions and links that use "
     "such a certificate, and take no signature of it. Each site has its own list.",
     "tombolo pki revoke pki/west/gw1.crt --list /etc/tombolo/revoked", tb_cli_pki_revoke_options, 1, 1,
     tb_cli_pki_revoke},
    {"config check", "FILE", "check a gateway's configuration",
     "Reads FILE as tombolod would and takes each look that a start takes, without making or changing "
     "anything. Errors would end a start: wrong keys and values, certificates, the store's and the "
     "arena's place and size, addresses that are not here. Warnings would not: a certificate that ends "
     "within a week, an arena on a disk, a file or port that another process holds now. Each has "
     "file:line:column. Exits with 1 when there is an error.",
     "tombolo config check /etc/tombolo/east.yaml", check_options, 1, 1, tb_cli_config_check},
    {"config show", "[FILE]", "a configuration: a file's, or the one that a gateway runs with",
     "Prints what FILE says; with --effective all that counts, each value with the line that it stands in, "
     "or "
     "`default`. Without FILE it is the configuration that this site's gateway runs with, after the last "
     "reload. The output is a file that says the same.",
     "tombolo config show --effective /etc/tombolo/east.yaml", show_options, 0, 1, tb_cli_config_show},
    {"config explain", "[KEY]", "every key of the configuration, or one, with its meaning",
     "Prints each key with type, default, range, unit and why, and whether a change of it counts by a "
     "reload. "
     "KEY is a key such as arena.bytes or peers.west.rate, or a section such as link.",
     "tombolo config explain peers.west.rate", explain_options, 0, 1, tb_cli_config_explain},
    {"config diff", "FILE [FILE]", "what differs between a file and a gateway, or between two files",
     "With one FILE: what would change if the gateway ran with it. With two: what the second changes. Each "
     "line says whether a reload is enough. Exits with 8 when something differs.",
     "tombolo config diff /etc/tombolo/east.yaml", control_options, 1, 2, tb_cli_config_diff},
    {"reload", "", "the gateway reads its configuration again",
     "The gateway reads and checks all of its file, as at a SIGHUP. On an error nothing changes. Else each "
     "change that needs no restart counts at once, with no stream closed, and the others are named: models, "
     "rights, keep, subscriptions, peers, their addresses and rates, limits and the log's level are live; "
     "`tombolo config explain KEY` says it of each key. --dry-run shows what would change. Exits with 0 when "
     "all of the file counts, 9 when some of it needs a restart, 1 when it is refused. The audit record has "
     "a "
     "row of each reload with its difference.",
     "tombolo reload --reason 'a new experiment'", reload_options, 0, 0, tb_cli_reload},
    TB_CLI_BACKUP_ROWS{"help", "[COMMAND...]", "this text, the manual page, or completion for shells",
                       "Shows the commands of `tombolo`, or one of them. Completion for bash, zsh and fish "
                       "knows commands and "
                       "options, and asks the gateway for models, peers, versions and the other names.",
                       "source <(tombolo help --completion)", help_options, 0, INT_MAX, tb_cli_manual},
    {NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL},
};

const struct tb_cli_command *tb_cli_commands(void)
{
    return commands;
}
