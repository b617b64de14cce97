/* event_commands.c - what the operator's socket answers to "events" (docs/control.md).
 *
 * An id is the gateway's incarnation, and behind it nine digits of the event's number in the ring:
 * so ids grow over restarts, too. */
#include "gateway/daemon/control/event_commands.h"

#include <stdio.h>

#include "base/assert.h"
#include "gateway/daemon/control/event_ring.h"
#include "gateway/daemon/daemon.h"

#define A_LIFE    1000000000u
#define LIVES_MAX 9000000u /* ids stay below 2^53 */
#define PAGE      256u

static uint64_t life_of(const struct tb_daemon *d)
{
    return d->incarnation % LIVES_MAX * A_LIFE;
}

/* The place in the ring behind which an id of the client stands: 0 where it is of a life before. */
static uint64_t place_of(const struct tb_daemon *d, uint64_t id)
{
    const uint64_t life = life_of(d);
    return id <= life ? 0 : id - life;
}

/* For clients: ids go on behind those of the life before. */
static json_int_t id_at(const struct tb_daemon *d, uint64_t place)
{
    const uint64_t id = life_of(d) + place;
    return (json_int_t)id;
}

static json_t *event_json(const struct tb_daemon *d, const struct tb_event *e)
{
    json_t *text = json_string(e->text); /* NULL for what is not UTF-8 */
    return json_pack("{s:I, s:I, s:s, s:s, s:o}", "id", id_at(d, e->id % A_LIFE), "time_ms",
                     (json_int_t)e->wall_ms, "level", tb_log_level_name(e->level), "event", e->name, "text",
                     text != NULL ? text : json_string("?"));
}

static bool number_of(const json_t *request, const char *key, uint64_t most, uint64_t *out)
{
    const json_t *value = json_object_get(request, key);
    if (value == NULL) return true;
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *out = (uint64_t)json_integer_value(value);
    return *out <= most;
}

enum tb_status tb_events_command(void *user, const json_t *request, json_t *reply, char *error)
{
    static struct tb_event page[PAGE]; /* the main loop's alone */
    const struct tb_daemon *d = user;
    uint64_t limit = PAGE, after = UINT64_MAX;
    const bool good =
        number_of(request, "limit", PAGE, &limit) && number_of(request, "after", INT64_MAX, &after);
    if (!good || limit == 0) {
        (void)snprintf(error, 256, "\"limit\" is 1 to %u, and \"after\" an id", PAGE);
        return TB_BAD_ARGUMENT;
    }
    const uint64_t last = tb_events_last(), newest = last > limit ? last - limit : 0;
    const uint64_t place = after == UINT64_MAX ? newest : place_of(d, after);
    const uint32_t count = tb_events_after(place, page, (uint32_t)limit);
    json_t *list = json_array();
    bool all = list != NULL;
    for (uint32_t i = 0; i < count && all; i++)
        all = json_array_append_new(list, event_json(d, &page[i])) == 0;
    const uint64_t first = tb_events_first();
    all &= json_object_set_new(reply, "events", list) == 0;
    all &= json_object_set_new(reply, "first", json_integer(id_at(d, first))) == 0;
    all &= json_object_set_new(reply, "last", json_integer(id_at(d, last))) == 0;
    return all ? TB_OK : TB_SITE_NOMEM;
}
