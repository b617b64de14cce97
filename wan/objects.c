/* objects.c - a few tables of pointers behind one lock. */
#include "wan/objects.h"

#include "base/assert.h"
#include "base/fault.h"

struct tb_object {
    uint32_t refs; /* the table's own is one */
    struct tb_codec_form form;
    uint32_t count;
    uint8_t bytes[];
};

/* Of one version on one base: a pointer a chunk, shard behind shard. */
struct pair {
    struct pair *next; /* older */
    struct tb_id uid, base;
    uint32_t shard_count;
    uint64_t chunk_count;
    struct tb_object **chunks;
    uint64_t firsts[]; /* of each shard in `chunks` */
};

struct tb_objects {
    uv_mutex_t lock;
    uint64_t budget, bytes, count, used;
    uint32_t pair_count;
    struct pair *pairs; /* the newest first */
};

enum tb_status tb_objects_new(uint64_t budget_bytes, struct tb_objects **objects_out)
{
    struct tb_objects *o = tb_calloc(1, sizeof *o);
    if (o == NULL) return TB_SITE_NOMEM;
    if (uv_mutex_init(&o->lock) != 0) {
        tb_free(o);
        return TB_SITE_NOMEM;
    }
    o->budget = budget_bytes;
    *objects_out = o;
    return TB_OK;
}

static uint64_t object_bytes(const struct tb_object *object)
{
    return sizeof *object + object->count;
}

static void unref_locked(struct tb_objects *o, struct tb_object *object)
{
    TB_ASSERT(object->refs > 0);
    if (--object->refs > 0) return;
    o->bytes -= object_bytes(object);
    o->count--;
    tb_free(object);
}

static uint64_t pair_bytes(const struct pair *p)
{
    return sizeof *p + p->shard_count * sizeof p->firsts[0] + p->chunk_count * sizeof(void *);
}

static void pair_free(struct tb_objects *o, struct pair **at)
{
    struct pair *p = *at;
    *at = p->next;
    for (uint64_t i = 0; i < p->chunk_count; i++)
        if (p->chunks[i] != NULL) unref_locked(o, p->chunks[i]);
    o->bytes -= pair_bytes(p);
    o->pair_count--;
    tb_free(p->chunks);
    tb_free(p);
}

void tb_objects_free(struct tb_objects *o)
{
    if (o == NULL) return;
    while (o->pairs != NULL)
        pair_free(o, &o->pairs);
    TB_ASSERT(o->count == 0);
    uv_mutex_destroy(&o->lock);
    tb_free(o);
}

static struct pair *pair_find(struct tb_objects *o, const struct tb_object_name *name)
{
    struct pair *p = o->pairs;
    while (p != NULL && !(tb_id_equal(&p->uid, &name->share->uid) && tb_id_equal(&p->base, &name->base->uid)))
        p = p->next;
    return p;
}

static struct tb_object **slot_of(const struct pair *p, const struct tb_object_name *name)
{
    return &p->chunks[p->firsts[name->shard] + name->chunk];
}

/* The oldest pair goes. */
static void make_room(struct tb_objects *o)
{
    struct pair **at = &o->pairs;
    while ((*at)->next != NULL)
        at = &(*at)->next;
    pair_free(o, at);
}

/* `least` pairs stay: what is being filled does not go for itself. */
static bool room_for(struct tb_objects *o, uint64_t bytes, uint32_t least)
{
    while (o->bytes + bytes > o->budget && o->pair_count > least)
        make_room(o);
    return o->bytes + bytes <= o->budget;
}

static struct pair *pair_new(struct tb_objects *o, const struct tb_object_name *name)
{
    struct pair shape = {.shard_count = name->share->shard_count};
    for (uint32_t s = 0; s < shape.shard_count; s++)
        shape.chunk_count += name->share->places[s].manifest->chunk_count;
    if (o->pair_count == TB_OBJECTS_PAIRS_MAX) make_room(o);
    if (!room_for(o, pair_bytes(&shape), 0)) return NULL;
    struct pair *p = tb_malloc(sizeof *p + shape.shard_count * sizeof p->firsts[0]);
    if (p == NULL) return NULL;
    *p = shape;
    p->uid = name->share->uid;
    p->base = name->base->uid;
    p->chunks = tb_calloc(shape.chunk_count, sizeof(struct tb_object *));
    if (p->chunks == NULL) {
        tb_free(p);
        return NULL;
    }
    uint64_t first = 0;
    for (uint32_t s = 0; s < p->shard_count; s++) {
        p->firsts[s] = first;
        first += name->share->places[s].manifest->chunk_count;
    }
    p->next = o->pairs;
    o->pairs = p;
    o->pair_count++;
    o->bytes += pair_bytes(p);
    return p;
}

static void put_locked(struct tb_objects *o, const struct tb_object_name *name,
                       const struct tb_codec_coded *coded)
{
    struct pair *p = pair_find(o, name);
    if (p == NULL) p = pair_new(o, name);
    if (p == NULL || *slot_of(p, name) != NULL) return;
    if (!room_for(o, sizeof(struct tb_object) + coded->count, 1)) return;
    p = pair_find(o, name); /* it may have been the oldest */
    if (p == NULL) return;
    struct tb_object *object = tb_malloc(sizeof *object + coded->count);
    if (object == NULL) return;
    *object = (struct tb_object){.refs = 1, .form = coded->form, .count = (uint32_t)coded->count};
    memcpy(object->bytes, coded->bytes, coded->count);
    *slot_of(p, name) = object;
    o->bytes += object_bytes(object);
    o->count++;
}

void tb_objects_put(struct tb_objects *o, const struct tb_object_name *name,
                    const struct tb_codec_coded *coded)
{
    uv_mutex_lock(&o->lock);
    put_locked(o, name, coded);
    uv_mutex_unlock(&o->lock);
}

struct tb_object *tb_objects_find(struct tb_objects *o, const struct tb_object_name *name)
{
    uv_mutex_lock(&o->lock);
    const struct pair *p = pair_find(o, name);
    struct tb_object *object = p != NULL ? *slot_of(p, name) : NULL;
    if (object != NULL) {
        object->refs++;
        o->used++;
    }
    uv_mutex_unlock(&o->lock);
    return object;
}

void tb_objects_drop(struct tb_objects *o, const struct tb_id *uid)
{
    uv_mutex_lock(&o->lock);
    struct pair **at = &o->pairs;
    while (*at != NULL) {
        if (tb_id_equal(&(*at)->uid, uid))
            pair_free(o, at);
        else
            at = &(*at)->next;
    }
    uv_mutex_unlock(&o->lock);
}

struct tb_codec_coded tb_object_coded(const struct tb_object *object)
{
    return (struct tb_codec_coded){object->form, object->bytes, object->count};
}

void tb_object_unref(struct tb_objects *o, struct tb_object *object)
{
    uv_mutex_lock(&o->lock);
    unref_locked(o, object);
    uv_mutex_unlock(&o->lock);
}

void tb_objects_stats(struct tb_objects *o, struct tb_objects_stats *stats_out)
{
    *stats_out = (struct tb_objects_stats){0};
    if (o == NULL) return;
    uv_mutex_lock(&o->lock);
    *stats_out = (struct tb_objects_stats){o->bytes, o->budget, o->count, o->pair_count, o->used};
    uv_mutex_unlock(&o->lock);
}
