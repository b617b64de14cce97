/* doctor_finding.h - what one look of `tombolo doctor` found: a mark, a sentence, and what to
 * change. Pure. */
#ifndef TB_GATEWAY_CLI_DOCTOR_FINDING_H
#define TB_GATEWAY_CLI_DOCTOR_FINDING_H

enum tb_mark {
    TB_MARK_FINE,
    TB_MARK_WARNING, /* it works, and could be better or will end soon */
    TB_MARK_WRONG,   /* a cross */
    TB_MARK_UNKNOWN, /* nothing that was seen says how it is */
    TB_MARK_SKIPPED, /* not looked at; the text says why */
    TB_MARK_COUNT
};

#define TB_FINDING_BYTES 640

struct tb_finding {
    enum tb_mark mark;
    char text[TB_FINDING_BYTES];
    /* The line to change, or a command; empty: there is none. One of the configuration begins with
     * its key: "peers.west.ca: ...". */
    char advice[TB_FINDING_BYTES];
};

struct tb_finding tb_find(enum tb_mark mark, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tb_advise(struct tb_finding *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "fine", "warning", "wrong", "unknown", "not-checked". */
const char *tb_mark_name(enum tb_mark mark);

#endif
