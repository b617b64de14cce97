/* message.c - writer and reader of each kind of field, side by side. */
#include "base/message.h"

#include "base/assert.h"
#include "base/layout/version_key.h"
#include "base/utf8.h"

void tb_field_write_bool(struct tb_writer *w, const tb_field_bool *v)
{
    tb_write_u8(w, *v ? 1 : 0);
}

void tb_field_read_bool(struct tb_reader *r, tb_field_bool *v_out)
{
    const uint8_t v = tb_read_u8(r);
    if (v > 1) r->bad = true;
    *v_out = v == 1;
}

void tb_field_write_u8(struct tb_writer *w, const tb_field_u8 *v)
{
    tb_write_u8(w, *v);
}

void tb_field_read_u8(struct tb_reader *r, tb_field_u8 *v_out)
{
    *v_out = tb_read_u8(r);
}

void tb_field_write_u16(struct tb_writer *w, const tb_field_u16 *v)
{
    tb_write_u16(w, *v);
}

void tb_field_read_u16(struct tb_reader *r, tb_field_u16 *v_out)
{
    *v_out = tb_read_u16(r);
}

void tb_field_write_u32(struct tb_writer *w, const tb_field_u32 *v)
{
    tb_write_u32(w, *v);
}

void tb_field_read_u32(struct tb_reader *r, tb_field_u32 *v_out)
{
    *v_out = tb_read_u32(r);
}

void tb_field_write_u64(struct tb_writer *w, const tb_field_u64 *v)
{
    tb_write_u64(w, *v);
}

void tb_field_read_u64(struct tb_reader *r, tb_field_u64 *v_out)
{
    *v_out = tb_read_u64(r);
}

void tb_field_write_id(struct tb_writer *w, const tb_field_id *v)
{
    tb_write_id(w, v);
}

void tb_field_read_id(struct tb_reader *r, tb_field_id *v_out)
{
    *v_out = tb_read_id(r);
}

void tb_field_write_digest(struct tb_writer *w, const tb_field_digest *v)
{
    tb_write_bytes(w, v->bytes, sizeof v->bytes);
}

void tb_field_read_digest(struct tb_reader *r, tb_field_digest *v_out)
{
    tb_read_bytes(r, v_out->bytes, sizeof v_out->bytes);
}

void tb_field_write_fingerprint(struct tb_writer *w, const tb_field_fingerprint *v)
{
    tb_write_bytes(w, v->bytes, sizeof v->bytes);
}

void tb_field_read_fingerprint(struct tb_reader *r, tb_field_fingerprint *v_out)
{
    tb_read_bytes(r, v_out->bytes, sizeof v_out->bytes);
}

void tb_field_write_name(struct tb_writer *w, const tb_field_name *v)
{
    tb_write_name(w, v);
}

void tb_field_read_name(struct tb_reader *r, tb_field_name *v_out)
{
    tb_read_name(r, v_out);
}

void tb_field_write_opt_name(struct tb_writer *w, const tb_field_opt_name *v)
{
    if (v->text[0] == '\0') {
        tb_write_u16(w, 0);
    } else {
        tb_write_name(w, v);
    }
}

void tb_field_read_opt_name(struct tb_reader *r, tb_field_opt_name *v_out)
{
    struct tb_reader ahead = *r;
    const bool empty = tb_read_u16(&ahead) == 0 && !ahead.bad;
    if (empty) {
        memset(v_out, 0, sizeof *v_out);
        *r = ahead;
    } else {
        tb_read_name(r, v_out);
    }
}

/* A text is often an error message, cut to length wherever that fell: what is not UTF-8 goes out as
 * '?', because the other end refuses it. */
void tb_field_write_text(struct tb_writer *w, const tb_field_text *v)
{
    struct tb_text clean;
    const size_t count = strnlen(v->text, TB_TEXT_BYTES_MAX);
    TB_ASSERT(count < sizeof clean.text);
    memcpy(clean.text, v->text, count);
    clean.text[count] = '\0';
    for (size_t at = 0; at < count;) {
        uint32_t code = 0;
        const size_t step = tb_utf8_decode(clean.text + at, count - at, &code);
        if (step == 0) clean.text[at] = '?';
        at += step == 0 ? 1 : step;
    }
    tb_write_str(w, clean.text);
}

void tb_field_read_text(struct tb_reader *r, tb_field_text *v_out)
{
    memset(v_out, 0, sizeof *v_out);
    tb_read_str(r, v_out->text, sizeof v_out->text);
    const size_t count = strlen(v_out->text);
    for (size_t at = 0; at < count;) {
        uint32_t code = 0;
        const size_t step = tb_utf8_decode(v_out->text + at, count - at, &code);
        if (step == 0) {
            r->bad = true;
            return;
        }
        at += step;
    }
}

void tb_field_write_span(struct tb_writer *w, const tb_field_span *v)
{
    TB_ASSERT(v->bytes != NULL || v->count == 0);
    tb_write_u32(w, v->count);
    tb_write_bytes(w, v->bytes, v->count);
}

void tb_field_read_span(struct tb_reader *r, tb_field_span *v_out)
{
    v_out->count = tb_read_u32(r);
    v_out->bytes = tb_read_span(r, v_out->count);
    if (v_out->bytes == NULL) v_out->count = 0;
}

void tb_field_write_key(struct tb_writer *w, const tb_field_key *v)
{
    tb_version_key_encode(v, w);
}

void tb_field_read_key(struct tb_reader *r, tb_field_key *v_out)
{
    memset(v_out, 0, sizeof *v_out);
    if (tb_version_key_decode(r, v_out) != TB_OK) r->bad = true;
}
