/* event_ring.c - see event_ring.h. */
#include "gateway/daemon/control/event_ring.h"

#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log_form.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tb_event *ring; /* NULL: it is not open */
static uint64_t last;         /* its newest event's id */

/* ---- one form ---- */

static void field_as_text(struct tb_log_line *l, const char *key, const json_t *value)
{
    char number[32];
    if (json_is_string(value))
        tb_log_form_text(l, key, json_string_value(value));
    else if (json_is_boolean(value))
        tb_log_form_text(l, key, json_is_true(value) ? "true" : "false");
    else if (json_is_real(value)) {
        (void)snprintf(number, sizeof number, "%.15g", json_real_value(value));
        tb_log_form_text(l, key, number);
    } else
        tb_log_form_number(l, key, (uint64_t)json_integer_value(value));
}

/* Fields of a line of JSON, as a line of text has them. Without memory they stay JSON. */
static void text_of(const char *fields, struct tb_log_line *l)
{
    char object[sizeof l->text + 2];
    const char *key = NULL;
    const json_t *value = NULL;
    if (fields[0] != ',') return; /* there are none */
    (void)snprintf(object, sizeof object, "{%s}", fields + 1);
    json_t *parsed = json_loads(object, 0, NULL);
    if (parsed == NULL)
        (void)snprintf(l->text, sizeof l->text, " %.*s", (int)TB_EVENT_TEXT_BYTES, fields + 1);
    json_object_foreach(parsed, key, value)
    {
        field_as_text(l, key, value);
    }
    if (parsed != NULL) l->text[l->used] = '\0';
    json_decref(parsed);
}

/* Whole letters, as many as there is room for. */
static void cut(char text[TB_EVENT_TEXT_BYTES], const char *fields)
{
    size_t bytes = strlen(fields);
    if (bytes >= TB_EVENT_TEXT_BYTES) {
        bytes = TB_EVENT_TEXT_BYTES - 1;
        while (bytes > 0 && ((unsigned char)fields[bytes] & 0xc0) == 0x80)
            bytes--;
    }
    memcpy(text, fields, bytes);
    text[bytes] = '\0';
}

static void keep(enum tb_log_level level, const char *event, const char *fields, bool json)
{
    struct tb_log_line l = {.used = 0};
    if (json) text_of(fields, &l);
    const char *text = json ? l.text : fields;
    if (text[0] == ' ') text++;
    (void)pthread_mutex_lock(&lock);
    if (ring != NULL) {
        struct tb_event *e = &ring[++last % TB_EVENTS_MAX];
        e->id = last;
        e->wall_ms = tb_clock_wall_ms();
        e->level = level;
        (void)snprintf(e->name, sizeof e->name, "%s", event);
        cut(e->text, text);
    }
    (void)pthread_mutex_unlock(&lock);
}

/* ---- the ring ---- */

enum tb_status tb_events_open(void)
{
    struct tb_event *rows = tb_calloc(TB_EVENTS_MAX, sizeof *rows);
    if (rows == NULL) return TB_SITE_NOMEM;
    /* All of its memory is there from the start, so that a gateway's grows no more. */
    for (uint32_t i = 0; i < TB_EVENTS_MAX; i++)
        rows[i].level = TB_LOG_INFO;
    (void)pthread_mutex_lock(&lock);
    TB_ASSERT(ring == NULL);
    ring = rows;
    last = 0;
    (void)pthread_mutex_unlock(&lock);
    tb_log_keep(keep);
    return TB_OK;
}

void tb_events_close(void)
{
    tb_log_keep(NULL);
    (void)pthread_mutex_lock(&lock);
    tb_free(ring);
    ring = NULL;
    last = 0;
    (void)pthread_mutex_unlock(&lock);
}

static uint64_t first_of(uint64_t newest)
{
    return newest > TB_EVENTS_MAX ? newest - TB_EVENTS_MAX + 1 : newest > 0 ? 1 : 0;
}

uint64_t tb_events_first(void)
{
    return first_of(tb_events_last());
}

uint64_t tb_events_last(void)
{
    (void)pthread_mutex_lock(&lock);
    const uint64_t id = last;
    (void)pthread_mutex_unlock(&lock);
    return id;
}

uint32_t tb_events_after(uint64_t id, struct tb_event *out, uint32_t most)
{
    uint32_t count = 0;
    (void)pthread_mutex_lock(&lock);
    const uint64_t first = first_of(last);
    uint64_t next = id < last ? id + 1 : last + 1;
    if (next < first) next = first;
    for (; ring != NULL && next > 0 && next <= last && count < most; next++)
        out[count++] = ring[next % TB_EVENTS_MAX];
    (void)pthread_mutex_unlock(&lock);
    return count;
}
