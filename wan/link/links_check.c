/* links_check.c - when the tables of the links are checked. */
#include "wan/link/links_check.h"

#include "base/assert.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"

#define CHECK_EVERY  TB_SECONDS(1)
#define SMALL_OFFERS 64u /* so few versions are checked at each turn, with their bitmaps */

static void check_all(struct tb_links *ls, bool small)
{
    tb_links_conns_check(ls);
    tb_links_offers_check(ls);
    if (small) tb_links_divisions_check(ls);
    for (uint32_t i = 0; i < ls->options.peer_count; i++)
        tb_link_traffic_check(&ls->links[i], small);
    if (ls->options.encoded_chunks != NULL &&
        (!small || tb_encoded_chunks_are_few(ls->options.encoded_chunks)))
        tb_encoded_chunks_check(ls->options.encoded_chunks);
}

void tb_links_check(struct tb_links *ls, tb_time_ns now)
{
    const bool small = TB_CHECK_TURNS && ls->offer_count <= SMALL_OFFERS;
    const bool due = tb_time_since(ls->checked_at, now) >= CHECK_EVERY;
    if (!small && !due) return;
    if (due) ls->checked_at = now;
    TB_CHECK(check_all(ls, small));
}
