/* link_dtypes.c - layouts that a peer's protocol cannot read: of dtypes by name and bits
 * (base/layout/layout.h). Such a version is announced, and refused where it is asked for: the peer
 * hears why, and other versions of the link go on. */
#include "wan/link/traffic/link_dtypes.h"

#include "base/layout/dtype.h"
#include "base/layout/tensor.h"
#include "base/log.h"
#include "wan/link/link.h"
#include "wan/link/session/link_control.h"
#include "wan/link/traffic/announced_versions.h"
#include "wan/link/traffic/offer_table.h"

static const struct tb_tensor *first_other(const struct tb_offer *o)
{
    for (uint32_t s = 0; s < o->share->shard_count; s++) {
        const struct tb_layout *layout = &o->share->places[s].manifest->layout;
        for (uint32_t i = 0; layout->other_dtypes && i < layout->tensor_count; i++)
            if (layout->tensors[i].dtype == TB_DTYPE_OTHER) return &layout->tensors[i];
    }
    return NULL;
}

bool tb_link_may_read(const struct tb_link *l, const struct tb_offer *o)
{
    if (tb_link_protocol(l) >= TB_LINK_PROTOCOL_DTYPES) return true;
    for (uint32_t s = 0; s < o->share->shard_count; s++)
        if (o->share->places[s].manifest->layout.other_dtypes) return false;
    return true;
}

void tb_link_refuse_dtypes(struct tb_link *l, const struct tb_offer *o)
{
    const struct tb_tensor *t = first_other(o);
    l->stats.dtypes_refused++;
    tb_link_send_gone(l, &o->key.uid, TB_PEER_PROTOCOL);
    /* Each version of the model has the same. */
    if (l->traffic.models.told_dtypes == tb_link_session_seq(l) &&
        tb_name_equal(&l->traffic.models.told_dtypes_of, &o->key.model))
        return;
    l->traffic.models.told_dtypes = tb_link_session_seq(l);
    l->traffic.models.told_dtypes_of = o->key.model;
    tb_log(TB_LOG_WARN, "link.dtypes_refused",
           "peer=%s model=%s number=%llu tensor=%.80s dtype=%s protocol=%u needs_protocol=%u", l->label.text,
           o->key.model.text, (unsigned long long)o->key.number, t->name, tb_tensor_dtype_name(t),
           tb_link_protocol(l), TB_LINK_PROTOCOL_DTYPES);
}
