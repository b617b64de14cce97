#include "intra/coalesce.h"

#include "base/assert.h"

void tb_together_init(struct tb_together *t, tb_together_fn fn, void *user)
{
    *t = (struct tb_together){.fn = fn, .user = user};
    t->last = &t->first;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
}

void tb_together_fini(struct tb_together *t)
{
    TB_ASSERT(!t->busy && t->first == NULL);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
}

/* Under the lock, let go meanwhile. */
static void lead(struct tb_together *t)
{
    TB_ASSERT(!t->busy && t->first != NULL);
    struct tb_asked *all[TB_TOGETHER_MAX];
    uint32_t count = 0;
    for (; count < TB_TOGETHER_MAX && t->first != NULL; t->first = t->first->next)
        all[count++] = t->first;
    if (t->first == NULL) t->last = &t->first;
    TB_ASSERT(count > 0 && (t->first == NULL) == (t->last == &t->first));
    t->busy = true;
    pthread_mutex_unlock(&t->lock);
    const enum tb_status status = t->fn(t->user, all, count);
    pthread_mutex_lock(&t->lock);
    t->busy = false;
    for (uint32_t i = 0; i < count; i++) {
        all[i]->status = status;
        all[i]->done = true;
    }
    pthread_cond_broadcast(&t->changed);
}

enum tb_status tb_together_ask(struct tb_together *t, struct tb_asked *mine)
{
    *mine = (struct tb_asked){.status = TB_OK};
    pthread_mutex_lock(&t->lock);
    *t->last = mine;
    t->last = &mine->next;
    while (!mine->done) {
        if (t->busy)
            pthread_cond_wait(&t->changed, &t->lock);
        else
            lead(t);
    }
    pthread_mutex_unlock(&t->lock);
    return mine->status;
}
