/* plans_scene.h - workers that read one version, for the tests of plans. */
#ifndef TB_TESTS_UNIT_CATALOG_PLANS_SCENE_H
#define TB_TESTS_UNIT_CATALOG_PLANS_SCENE_H

#include "site.h"

/* v5 is in the gateway, in part; a, b and c are groups of one on three hosts. */
void spread(struct site *s);
uint64_t plan_of(struct site *s, const char *worker);                       /* 0: it has none */
enum tb_status hop_lost(struct site *s, const char *worker, uint64_t plan); /* of v5 */
bool slow(struct site *s, const char *worker);

#endif
