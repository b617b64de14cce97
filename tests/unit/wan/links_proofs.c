/* links_proofs.c - proofs cross behind the manifests, and a peer that is not believed about bytes
 * brings neither manifests nor chunks without them (P1).
 *
 * Covers: wan/link/traffic/link_manifest_pages.c wan/link/traffic/link_manifest.c */
#include "links_world.h"

#include "check.h"

struct two {
    struct links_world w;
    struct truth t;
    struct site *east, *west;
    struct copy *there; /* east's */
};

static void make(struct two *p, bool distrusts)
{
    links_world_init(&p->w);
    truth_make(&p->t, 3, 2, 4 << 20);
    p->east = site_new(&p->w, "east", true);
    p->west = site_new(&p->w, "west", false);
    site_peer(p->east, p->west, false, false);
    site_peer(p->west, p->east, true, true);
    p->west->distrusts = distrusts;
    site_start(p->east);
    site_start(p->west);
    p->there = site_publish(p->east, &p->t);
    WORLD_UNTIL(&p->w.net, p->west->versions == 1);
}

static void fini(struct two *p)
{
    links_world_fini(&p->w);
    truth_free(&p->t);
}

/* As home makes them: all but the last chunk, or all. */
static void prove(struct two *p, bool all)
{
    for (uint32_t s = 0; s < p->t.key.shard_count; s++) {
        struct tb_manifest *m = &p->there->manifests[s];
        for (uint32_t k = 0; k < m->chunk_count; k++) {
            const bool last = s + 1 == p->t.key.shard_count && k + 1 == m->chunk_count;
            const struct tb_blake3 proof =
                tb_blake3_of(p->t.bytes[s] + m->chunks[k].offset, m->chunks[k].bytes);
            if (all || !last) tb_manifest_set_proof(m, k, &proof);
        }
    }
}

static bool all_proven(const struct copy *c, const struct truth *t)
{
    for (uint32_t s = 0; s < t->key.shard_count; s++)
        if (!tb_manifest_all_proven(&c->manifests[s])) return false;
    return true;
}

/* They were asked for before all proofs were known. They come then, and not before. */
static void a_relays_manifests_come_with_all_proofs(void **state)
{
    (void)state;
    struct two p;
    make(&p, true);
    prove(&p, false);
    tb_links_proven(p.east->links, &p.t.key.uid); /* too early: nothing goes */
    assert_int_equal(p.west->manifests, 0);
    prove(&p, true);
    tb_links_proven(p.east->links, &p.t.key.uid);
    WORLD_UNTIL(&p.w.net, p.west->landed == 1);
    assert_int_equal(p.west->manifests, 1);
    assert_int_equal(p.west->proof_pages, 0);
    assert_true(all_proven(site_copy(p.west, &p.t), &p.t));
    check_equal(site_copy(p.west, &p.t), &p.t);
    fini(&p);
}

/* Home is believed: its version lands first, and the proofs follow. */
static void homes_proofs_follow_what_has_landed(void **state)
{
    (void)state;
    struct two p;
    make(&p, false);
    WORLD_UNTIL(&p.w.net, p.west->landed == 1);
    assert_int_equal(p.west->proof_pages, 0);
    prove(&p, true);
    tb_links_proven(p.east->links, &p.t.key.uid);
    WORLD_UNTIL(&p.w.net, p.west->proofs_said == p.t.chunks);
    tb_links_proven(p.east->links, &p.t.key.uid); /* they went */
    fini(&p);
}

/* The proof is of other bytes than those that come, which have the right digest. */
static void a_chunk_that_does_not_fit_its_proof_is_refused(void **state)
{
    (void)state;
    struct two p;
    make(&p, true);
    p.west->stop_on_failure = true;
    const struct tb_blake3 other = tb_blake3_of("other", 5);
    tb_manifest_set_proof(&p.there->manifests[0], 1, &other);
    prove(&p, true);
    tb_links_proven(p.east->links, &p.t.key.uid);
    WORLD_UNTIL(&p.w.net, p.west->bad_theirs > 0);
    assert_true(p.west->bad.shard == 0 && p.west->bad.chunk == 1 && !p.west->bad.ours);
    assert_false(tb_place_held(&site_copy(p.west, &p.t)->places[0], 1));
    assert_int_equal(p.west->landed, 0);
    fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_relays_manifests_come_with_all_proofs),
        cmocka_unit_test(homes_proofs_follow_what_has_landed),
        cmocka_unit_test(a_chunk_that_does_not_fit_its_proof_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
