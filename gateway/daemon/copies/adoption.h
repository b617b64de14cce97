/* adoption.h - versions that stand in files of this machine, taken from there. */
#ifndef TB_DAEMON_ADOPTION_H
#define TB_DAEMON_ADOPTION_H

#include <jansson.h>

#include "base/ident.h"
#include "base/layout/manifest.h"
#include "base/time.h"

struct tb_daemon;

enum tb_status tb_adopt_command(void *daemon, const json_t *request, json_t *reply, char *error);
/* Of that model nothing but the adopted version crosses meanwhile. A version that its home has lost
 * crosses to its home as ever. */
bool tb_adopt_holds(const struct tb_daemon *d, const struct tb_version_key *key);
void tb_adopt_announced(struct tb_daemon *d, const struct tb_name *model);
void tb_adopt_manifests(struct tb_daemon *d, const struct tb_version_key *key,
                        const struct tb_manifest *manifests);
void tb_adopt_failed(struct tb_daemon *d, const struct tb_id *uid); /* its manifests do not come */
void tb_adopt_tick(struct tb_daemon *d, tb_time_ns now);
void tb_adopt_stop(struct tb_daemon *d); /* as tb_anchors_stop */
void tb_adopt_close(struct tb_daemon *d);

#endif
