/* trays_scene.c - see trays_scene.h. */
#include "trays_scene.h"

#include "tests/unit/scratch.h"
#include "unit/cuda/fake_cuda.h"

int64_t trays_ask(const struct scene *s, enum far_op op)
{
    return far_do(s->owner.far, &(struct far_ask){.op = op}, NULL).value;
}

void trays_check_nothing_left(struct scene *s)
{
    wait_until(owner_readers(&s->owner) == 0 && trays_ask(s, FAR_DEVICE_TRAYS) == 0);
    assert_int_equal(fake_cuda_counts().ipc, 0);
}
