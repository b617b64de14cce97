/* session_news.h - what the catalog has told to workers, over their sessions. */
#ifndef TB_DAEMON_SESSION_NEWS_H
#define TB_DAEMON_SESSION_NEWS_H

struct tb_catalog_todo;
struct tb_daemon;

void tb_worker_tell(struct tb_daemon *d, const struct tb_catalog_todo *todo);
void tb_worker_go(struct tb_daemon *d, const struct tb_catalog_todo *todo);
void tb_worker_answer(struct tb_daemon *d, const struct tb_catalog_todo *todo);

#endif
