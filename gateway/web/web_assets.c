/* web_assets.c - see web_assets.h. The lists of bytes are made from assets/ as the tree is
 * built. */
#include "gateway/web/web_assets.h"

#include <string.h>

static const unsigned char style[] = {
#include "style.css.inc"
};
static const unsigned char script[] = {
#include "page.js.inc"
};
static const unsigned char icon[] = {
#include "icon.svg.inc"
};

static const struct tb_web_asset assets[] = {
    {"/style.css", "text/css; charset=utf-8", style, sizeof style},
    {"/page.js", "text/javascript; charset=utf-8", script, sizeof script},
    {"/icon.svg", "image/svg+xml", icon, sizeof icon},
};

const struct tb_web_asset *tb_web_asset_find(const char *path)
{
    for (size_t i = 0; i < sizeof assets / sizeof assets[0]; i++)
        if (strcmp(assets[i].path, path) == 0) return &assets[i];
    return NULL;
}
