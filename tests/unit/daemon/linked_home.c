/* linked_home.c - see linked_home.h. */
#include "tests/unit/daemon/linked_home.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/check.h"

void linked_home_new(struct home *h, struct world *certificates, const char *models)
{
    char text[3072];
    world_issue(certificates, "east", "gw", "tombolo://east/gw");
    snprintf(text, sizeof text, "%s\ntls: {ca: %s, cert: %s, key: %s}\n", models,
             world_path(certificates, "east", "ca.crt"), world_path(certificates, "east", "gw.crt"),
             world_path(certificates, "east", "gw.key"));
    assert_true(strlen(text) + 1 < sizeof text);
    home_new_with(h, text, false);
}

void linked_home_begin(struct home *h, struct world *certificates, const char *models)
{
    world_init(certificates);
    linked_home_new(h, certificates, models);
    home_start(h);
}

void linked_home_end(struct home *h, struct world *certificates)
{
    home_end(h);
    home_free(h);
    world_fini(certificates);
}
