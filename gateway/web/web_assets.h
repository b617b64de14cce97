/* web_assets.h - the files of assets/, which are part of the program: style, script, icon. */
#ifndef TB_GATEWAY_WEB_ASSETS_H
#define TB_GATEWAY_WEB_ASSETS_H

#include <stddef.h>

struct tb_web_asset {
    const char *path, *type;
    const unsigned char *bytes;
    size_t count;
};

/* Of a path such as "/style.css". NULL: none. */
const struct tb_web_asset *tb_web_asset_find(const char *path);

#endif
