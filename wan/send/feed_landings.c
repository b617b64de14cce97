/* feed_landings.c - the numbers of crossings that land here, and the places of each. */
#include "base/assert.h"
#include "wan/send/feed_inside.h"

uint32_t tb_feed_expect(struct tb_feed *f)
{
    uint32_t crossing = 0;
    uv_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < TB_FEED_EXPECTED_MAX && crossing == 0; i++)
        if (f->expected[i] == 0) f->expected[i] = crossing = ++f->issued;
    TB_ASSERT(crossing <= f->issued);
    uv_mutex_unlock(&f->lock);
    return crossing;
}

static void unexpect_locked(struct tb_feed *f, uint32_t crossing)
{
    for (uint32_t i = 0; i < TB_FEED_EXPECTED_MAX; i++)
        if (crossing == 0 || f->expected[i] == crossing) f->expected[i] = 0;
}

void tb_feed_unexpect(struct tb_feed *f, uint32_t crossing)
{
    uv_mutex_lock(&f->lock);
    unexpect_locked(f, crossing);
    uv_mutex_unlock(&f->lock);
}

uint32_t tb_feed_landing_add(struct tb_feed *f, uint32_t expected, const struct tb_feed_landing *landing)
{
    TB_ASSERT(landing->share != NULL && landing->share != landing->base);
    uint32_t crossing = 0;
    uv_mutex_lock(&f->lock);
    TB_ASSERT(expected <= f->issued); /* a number that EXPECT gave out */
    for (uint32_t i = 0; i < TB_FEED_LANDINGS_MAX && crossing == 0; i++) {
        if (f->landings[i].crossing != 0) continue;
        crossing = expected != 0 ? expected : ++f->issued;
        f->landings[i] = (struct tb_feed_landing){.crossing = crossing,
                                                  .on_base = landing->base != NULL,
                                                  .foreign = landing->foreign,
                                                  .share = landing->share,
                                                  .base = landing->base};
    }
    if (expected != 0) unexpect_locked(f, expected); /* it lands, or never does */
    uv_mutex_unlock(&f->lock);
    return crossing;
}

void tb_feed_landing_remove(struct tb_feed *f, uint32_t crossing)
{
    TB_ASSERT(crossing != 0);
    uv_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < TB_FEED_LANDINGS_MAX; i++)
        if (f->landings[i].crossing == crossing) f->landings[i].crossing = 0;
    uv_mutex_unlock(&f->lock);
}

bool tb_feed_landing(struct tb_feed *f, uint32_t crossing, struct tb_feed_landing *out)
{
    *out = (struct tb_feed_landing){0};
    uv_mutex_lock(&f->lock);
    const bool known = crossing != 0 && crossing <= f->issued;
    for (uint32_t i = 0; i < TB_FEED_LANDINGS_MAX; i++)
        if (crossing != 0 && f->landings[i].crossing == crossing) *out = f->landings[i];
    for (uint32_t i = 0; i < TB_FEED_EXPECTED_MAX; i++)
        out->expected |= crossing != 0 && f->expected[i] == crossing;
    if (out->share != NULL) tb_shared_places_ref(out->share);
    if (out->base != NULL) tb_shared_places_ref(out->base);
    uv_mutex_unlock(&f->lock);
    return known;
}

bool tb_feed_landing_issued(struct tb_feed *f, uint32_t crossing)
{
    uv_mutex_lock(&f->lock);
    const bool issued = crossing != 0 && crossing <= f->issued;
    uv_mutex_unlock(&f->lock);
    return issued;
}

void tb_feed_landings_base_gone_locked(struct tb_feed *f, const struct tb_shared_places *base)
{
    for (uint32_t i = 0; i < TB_FEED_LANDINGS_MAX; i++)
        if (f->landings[i].base == base) f->landings[i].base = NULL;
}

static uint32_t users_of(const struct tb_feed *f, uint32_t crossing)
{
    uint32_t users = 0;
    for (uint32_t i = 0; i < TB_FEED_LANDINGS_MAX; i++)
        users += f->landings[i].crossing == crossing;
    for (uint32_t i = 0; i < TB_FEED_EXPECTED_MAX; i++)
        users += f->expected[i] == crossing;
    return users;
}

/* A number was given out, and stands for one landing, or for one that is expected. */
void tb_feed_landings_check_locked(const struct tb_feed *f)
{
    for (uint32_t i = 0; i < TB_FEED_LANDINGS_MAX; i++) {
        const struct tb_feed_landing *l = &f->landings[i];
        if (l->crossing == 0) continue;
        TB_ASSERT(l->share != NULL && (l->on_base || l->base == NULL) && !l->expected);
        TB_ASSERT(l->crossing <= f->issued && users_of(f, l->crossing) == 1);
    }
    for (uint32_t i = 0; i < TB_FEED_EXPECTED_MAX; i++)
        if (f->expected[i] != 0) TB_ASSERT(f->expected[i] <= f->issued && users_of(f, f->expected[i]) == 1);
}
