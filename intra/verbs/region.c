#include "intra/verbs/region.h"

#include <errno.h>

#include "base/assert.h"

#define EXPORT_RIGHTS IBV_ACCESS_REMOTE_READ
#define TARGET_RIGHTS IBV_ACCESS_LOCAL_WRITE

static tb_region_dmabuf_fn register_dmabuf = ibv_reg_dmabuf_mr;

void tb_region_replace_dmabuf(tb_region_dmabuf_fn fn)
{
    register_dmabuf = fn != NULL ? fn : ibv_reg_dmabuf_mr;
}

/* By its offset in the descriptor: a NIC wants the address it is known by to be as far into a
 * page as the memory is. */
static bool register_device(const struct tb_region_options *o, int rights, struct tb_region *region_out)
{
    TB_ASSERT(region_out->mr == NULL);
    if (o->dmabuf < 0) return false;
    region_out->mr =
        register_dmabuf(o->domain, o->dmabuf_offset, o->count, o->dmabuf_offset, o->dmabuf, rights);
    region_out->address = o->dmabuf_offset;
    region_out->staged = region_out->mr == NULL;
    return region_out->mr != NULL;
}

enum tb_status tb_region_register(const struct tb_region_options *options, struct tb_region *region_out)
{
    const int rights = options->target ? TARGET_RIGHTS : EXPORT_RIGHTS;
    *region_out = (struct tb_region){0};
    TB_ASSERT(options->domain != NULL);
    if (options->count == 0) return TB_BAD_ARGUMENT;
    if (register_device(options, rights, region_out)) return TB_OK;
    if (options->bytes == NULL) return TB_SITE_IO;
    region_out->mr = ibv_reg_mr(options->domain, options->bytes, options->count, rights);
    region_out->address = (uint64_t)(uintptr_t)options->bytes;
    return region_out->mr != NULL ? TB_OK : TB_SITE_IO;
}

void tb_region_free(struct tb_region *region)
{
    if (region->mr == NULL) return;
    const int error = ibv_dereg_mr(region->mr);
    TB_ASSERT(error == 0 || error == EIO); /* EIO: the device is gone, and its registrations with it */
    region->mr = NULL;
}

struct ibv_pd *tb_region_domain_new(struct ibv_context *device)
{
    return ibv_alloc_pd(device);
}

void tb_region_domain_free(struct ibv_pd *domain)
{
    TB_ASSERT(domain != NULL);
    const int error = ibv_dealloc_pd(domain);
    TB_ASSERT(error == 0 || error == EIO);
}
