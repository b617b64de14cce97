/* web_facts.c - see web_facts.h. */
#include "gateway/web/web_facts.h"

#include <string.h>

const char *tb_facts_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

double tb_facts_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

bool tb_facts_is_number(const json_t *object, const char *key)
{
    return json_is_number(json_object_get(object, key));
}

bool tb_facts_is_true(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

bool tb_facts_equals(const json_t *object, const char *key, const char *text)
{
    return strcmp(tb_facts_text(object, key), text) == 0;
}
