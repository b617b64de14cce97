/* publication_watch.h - what becomes of memory that was sealed or registered. */
#ifndef TB_INTRA_CLIENT_PUBLICATION_WATCH_H
#define TB_INTRA_CLIENT_PUBLICATION_WATCH_H

struct tb_publication;
struct tb_session;

/* Its pages, in a session that protects; without the lock. */
void tb_publication_protect(struct tb_session *s, struct tb_publication *p);
/* Under the lock, by the session thread: the log and the gateway hear of sealed memory that was
 * written to, or whose file was cut short. */
void tb_publications_look(struct tb_session *s);
/* Under the lock, once a second: has the ends of mapped files looked at, by a task of the crew. A
 * gateway of this host reads by system calls, which raise no signal. */
void tb_publication_watch_look(struct tb_session *s);

#endif
