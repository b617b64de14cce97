/* publication_watch.h - what becomes of memory that was sealed or registered. */
#ifndef TB_INTRA_CLIENT_PUBLICATION_WATCH_H
#define TB_INTRA_CLIENT_PUBLICATION_WATCH_H

struct tb_publication;
struct tb_session;

/* Its pages, in a session that protects; without the lock. */
void tb_publication_protect(struct tb_session *s, struct tb_publication *p);
/* Under the lock, by the session thread: who wrote to sealed memory is told to the log and to the
 * gateway. */
void tb_publications_look(struct tb_session *s);
void tb_registrations_look(struct tb_session *s);

#endif
