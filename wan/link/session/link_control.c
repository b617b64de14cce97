/* link_control.c - the control stream of a link: is it up, what is written to it, and a step of its life. */
#include "base/log.h"
#include "wan/link/link.h"

bool link_is_up(const struct link *l)
{
    return l->session != NULL;
}

struct tb_writer *link_begin(struct link *l, enum tb_frame_type type, size_t payload_max)
{
    return l->session != NULL ? tb_wire_begin(l->session->wire, (uint16_t)type, 0, payload_max) : NULL;
}

void link_end(struct link *l)
{
    tb_wire_end(l->session->wire);
}

void link_log(const struct link *l, enum tb_log_level level, const char *event, enum tb_status why,
              const char *address)
{
    struct tb_log_line line;
    char uri[TB_URI_BYTES_MAX];
    tb_identity_format(&l->identity, uri);
    tb_log_begin(&line, level, event);
    tb_log_str(&line, "peer", uri);
    if (address != NULL && address[0] != '\0') tb_log_str(&line, "address", address);
    if (why != TB_OK) tb_log_str(&line, "status", tb_status_name(why));
    tb_log_end(&line);
}

void link_step(struct link *l, enum tb_link_session_event_kind kind, const struct tb_link_session_event *more,
               struct tb_link_session_todo *todo_out)
{
    struct tb_link_session_event ev = {0};
    if (more != NULL) ev = *more;
    ev.kind = kind;
    ev.now = tb_clock_now();
    ev.random = links_random();
    if (tb_link_session_step(&l->life, &ev, todo_out) != TB_OK) memset(todo_out, 0, sizeof *todo_out);
}
