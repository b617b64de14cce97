/* page_updates.h - updates of the page to those who have it open, as server-sent events.
 *
 * An event is the whole body of the view, as page.h writes it; its id is INSTANCE-NUMBER. The
 * number grows by one with each update, so a client sees that it missed some; another instance
 * is another process. While nobody has a page open, the thread sleeps and the gateway is asked
 * nothing.
 *
 * A shell: one thread of its own, and libmicrohttpd's calls. P7: at most 24 clients. */
#ifndef TB_GATEWAY_WEB_PAGE_UPDATES_H
#define TB_GATEWAY_WEB_PAGE_UPDATES_H

#include <microhttpd.h>
#include <pthread.h>

#include "gateway/web/page.h"
#include "gateway/web/web_answers.h"

#define TB_WATCHERS_MAX 24u

struct tb_page_updates;

/* `answers` is used under `lock`; both outlive it. TB_SITE_NOMEM: memory, or no thread. */
TB_MUST_USE enum tb_status tb_page_updates_open(struct tb_web_answers *answers, pthread_mutex_t *lock,
                                                struct tb_page_updates **updates_out);
/* The body of an answer that does not end. The caller destroys it. NULL: there are too many, or no
 * memory. */
struct MHD_Response *tb_page_updates_to(struct tb_page_updates *updates, struct MHD_Connection *connection,
                                        struct tb_page_place place);
/* Ends what is open; then the HTTP daemon may be stopped, and then tb_page_updates_free called. */
void tb_page_updates_end(struct tb_page_updates *updates);
void tb_page_updates_free(struct tb_page_updates *updates);

#endif
