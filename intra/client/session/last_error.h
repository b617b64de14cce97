/* last_error.h - the text behind tb_last_error: one for each thread, valid until the thread's next
 * call.
 *
 * Threads: each has its own text; nothing is shared. */
#ifndef TB_INTRA_CLIENT_LAST_ERROR_H
#define TB_INTRA_CLIENT_LAST_ERROR_H

#include "tombolo/status.h"

#define TB_LAST_ERROR_BYTES 768

/* Keeps "what happened (status text)" for tb_last_error and gives `status` back, so that a refusal
 * is one line. */
int tb_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
