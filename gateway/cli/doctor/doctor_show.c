/* doctor_show.c - see doctor_show.h. */
#include "gateway/cli/doctor/doctor_show.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/cli/options.h"

/* "peers.west.ca" of "peers.west.ca: ..."; false: it does not begin with a key. */
static bool key_of(const char *advice, char key_out[160])
{
    const size_t bytes = strcspn(advice, ": ");
    if (bytes == 0 || bytes >= 160 || advice[bytes] != ':' || memchr(advice, '.', bytes) == NULL)
        return false;
    if (memchr(advice, '/', bytes) != NULL) return false;
    (void)snprintf(key_out, 160, "%.*s", (int)bytes, advice);
    return true;
}

/* With the place in the file in front, where the advice is a line of the configuration. */
static void place_advice(const struct tb_doctor *d, const char *advice, char out[TB_FINDING_BYTES + 512])
{
    char key[160];
    uint32_t line = 1, column = 1;
    out[0] = '\0';
    const bool is_key = d->config != NULL && key_of(advice, key);
    if (is_key) tb_config_place(d->config, key, &line, &column);
    if (line > 1)
        (void)snprintf(out, TB_FINDING_BYTES + 512, "%.300s:%u: %s", d->file, line, advice);
    else
        (void)snprintf(out, TB_FINDING_BYTES + 512, "%s", advice);
}

static bool says_utf8(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && (strstr(value, "UTF-8") != NULL || strstr(value, "utf8") != NULL);
}

bool tb_doctor_show_begin(struct tb_doctor_show *s, const struct tb_cli_call *call, const struct tb_doctor *d)
{
    *s =
        (struct tb_doctor_show){.call = call,
                                .d = d,
                                .json = tb_cli_given(call, "json"),
                                .quiet = tb_cli_given(call, "quiet"),
                                .unicode = says_utf8("LC_ALL") || says_utf8("LC_CTYPE") || says_utf8("LANG")};
    tb_progress_start(&s->progress, call);
    if (s->json) s->rows = json_array();
    return !s->json || s->rows != NULL;
}

static const char *mark_of(const struct tb_doctor_show *s, enum tb_mark mark)
{
    static const char *const plain[TB_MARK_COUNT] = {"ok", "!", "X", "?", "-"};
    static const char *const marks[TB_MARK_COUNT] = {"\u2713", "!", "\u2717", "?", "-"};
    return s->unicode ? marks[mark] : plain[mark];
}

static void print_row(struct tb_doctor_show *s, const struct tb_result *r, const char *text,
                      const char *advice)
{
    char group[96];
    const bool asks = r->finding.mark == TB_MARK_WRONG || r->finding.mark == TB_MARK_WARNING;
    const int pad = s->unicode ? 1 : 2 - (int)strlen(mark_of(s, r->finding.mark)) + 1;
    if (s->quiet && !asks) return;
    (void)snprintf(group, sizeof group, "%s%s%s", r->check->group, r->site[0] != '\0' ? " " : "", r->site);
    if (strcmp(group, s->group) != 0) (void)printf("%s%s\n", s->group[0] != '\0' ? "\n" : "", group);
    (void)snprintf(s->group, sizeof s->group, "%s", group);
    (void)printf("  %s%*s%-12s  %s\n", mark_of(s, r->finding.mark), pad, "", r->name, text);
    if (advice[0] != '\0') (void)printf("      -> %s\n", advice);
    (void)fflush(stdout);
}

static void keep_row(struct tb_doctor_show *s, const struct tb_result *r, const char *text,
                     const char *advice)
{
    json_t *row =
        json_pack("{s:s, s:s?, s:s, s:s, s:s, s:s?}", "group", r->check->group, "peer",
                  r->site[0] != '\0' ? r->site : NULL, "check", r->name, "mark",
                  tb_mark_name(r->finding.mark), "text", text, "advice", advice[0] != '\0' ? advice : NULL);
    if (json_array_append_new(s->rows, row) != 0) s->lacking = true;
}

void tb_doctor_show_row(void *show, const struct tb_result *r)
{
    struct tb_doctor_show *s = show;
    char text[TB_FINDING_BYTES], placed[TB_FINDING_BYTES + 512], advice[TB_FINDING_BYTES + 512];
    TB_ASSERT(r->finding.mark < TB_MARK_COUNT);
    s->counts[r->finding.mark]++;
    tb_show_clean(r->finding.text, text, sizeof text);
    place_advice(s->d, r->finding.advice, placed);
    tb_show_clean(placed, advice, sizeof advice);
    if (r->finding.mark == TB_MARK_WRONG && s->first[0] == '\0')
        (void)snprintf(s->first, sizeof s->first, "%s", text);
    tb_progress_end(&s->progress);
    if (s->json)
        keep_row(s, r, text, advice);
    else
        print_row(s, r, text, advice);
}

void tb_doctor_show_progress(void *show, uint32_t ended, uint32_t all)
{
    struct tb_doctor_show *s = show;
    char text[64];
    (void)snprintf(text, sizeof text, "%u of %u checks", ended, all);
    tb_progress_show(&s->progress, text, 0, 0);
}

static enum tb_cli_exit end_json(struct tb_doctor_show *s)
{
    const bool wrong = s->counts[TB_MARK_WRONG] > 0;
    json_t *object =
        s->lacking
            ? NULL
            : json_pack("{s:i, s:b, s:s, s:O, s:i, s:i, s:i, s:i, s:i}", "schema", 1, "ok", !wrong, "file",
                        s->d->file, "checks", s->rows, "fine", (int)s->counts[TB_MARK_FINE], "warnings",
                        (int)s->counts[TB_MARK_WARNING], "wrong", (int)s->counts[TB_MARK_WRONG], "unknown",
                        (int)s->counts[TB_MARK_UNKNOWN], "not_checked", (int)s->counts[TB_MARK_SKIPPED]);
    json_decref(s->rows);
    if (object != NULL && wrong) {
        (void)json_object_set_new(object, "status", json_string(tb_status_name(TB_SITE_CONFIG)));
        (void)json_object_set_new(object, "error", json_string(s->first));
    }
    const enum tb_cli_exit said = tb_say_object(object);
    return said == TB_CLI_DONE && wrong ? TB_CLI_REFUSED : said;
}

enum tb_cli_exit tb_doctor_show_end(struct tb_doctor_show *s)
{
    const uint32_t *n = s->counts;
    tb_progress_end(&s->progress);
    if (s->json) return end_json(s);
    if (!s->quiet)
        (void)printf("\n%u fine, %u wrong, %u to improve, %u not known, %u not checked\n", n[TB_MARK_FINE],
                     n[TB_MARK_WRONG], n[TB_MARK_WARNING], n[TB_MARK_UNKNOWN], n[TB_MARK_SKIPPED]);
    return n[TB_MARK_WRONG] > 0 ? TB_CLI_REFUSED : TB_CLI_DONE;
}
