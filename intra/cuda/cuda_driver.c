#include "intra/cuda/cuda_driver.h"

#include "base/assert.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct entry {
    const char *name;
    int version;
    size_t offset; /* of its field */
    bool needed;
};

static const struct entry entries[] = {
#define NEEDED(field, entry, version)   {#entry, version, offsetof(struct tb_cuda_driver, field), true},
#define OPTIONAL(field, entry, version) {#entry, version, offsetof(struct tb_cuda_driver, field), false},
    TB_CUDA_NEEDED(NEEDED) TB_CUDA_OPTIONAL(OPTIONAL)};

/* dlsym and cuGetProcAddress give a pointer to data that is one to a function: POSIX lets it be
 * copied. */
static void set_function(void *field, void *function)
{
    memcpy(field, &function, sizeof function);
}

static bool find_entry(PFN_cuGetProcAddress_v12000 find, const struct entry *e, void **function_out)
{
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    const CUresult result =
        find(e->name, function_out, e->version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found);
    return result == CUDA_SUCCESS && found == CU_GET_PROC_ADDRESS_SUCCESS && *function_out != NULL;
}

enum tb_status tb_cuda_driver_fill(PFN_cuGetProcAddress_v12000 find, struct tb_cuda_driver *driver_out,
                                   char *why)
{
    struct tb_cuda_driver d;
    memset(&d, 0, sizeof d);
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        void *function = NULL;
        if (find_entry(find, &entries[i], &function)) {
            set_function((uint8_t *)&d + entries[i].offset, function);
        } else if (entries[i].needed) {
            snprintf(why, TB_CUDA_WHY_BYTES, "the driver has no %s as CUDA %d.%d has it: use a newer one",
                     entries[i].name, entries[i].version / 1000, entries[i].version % 1000 / 10);
            return TB_PEER_PROTOCOL;
        }
    }
    TB_ASSERT(d.driver_version != NULL && d.error_name != NULL); /* the list says that both are needed */
    const CUresult result = d.driver_version(&d.version);
    if (result != CUDA_SUCCESS) {
        snprintf(why, TB_CUDA_WHY_BYTES, "cuDriverGetVersion: %s", tb_cuda_error_name(&d, result));
        return TB_PEER_PROTOCOL;
    }
    *driver_out = d;
    return TB_OK;
}

enum tb_status tb_cuda_driver_load(const char *path, struct tb_cuda_driver *driver_out, char *why)
{
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL)
                                 : dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == NULL) {
        const char *error = path != NULL ? dlerror() : NULL;
        snprintf(why, TB_CUDA_WHY_BYTES, "%s",
                 error != NULL ? error : "this process has not loaded libcuda.so.1");
        return TB_NOT_FOUND;
    }
    PFN_cuGetProcAddress_v12000 find = NULL;
    set_function(&find, dlsym(library, "cuGetProcAddress_v2"));
    enum tb_status status = TB_PEER_PROTOCOL;
    if (find == NULL)
        snprintf(why, TB_CUDA_WHY_BYTES, "the driver is older than CUDA 12.0: it has no cuGetProcAddress_v2");
    else
        status = tb_cuda_driver_fill(find, driver_out, why);
    if (status == TB_OK)
        driver_out->library = library;
    else
        dlclose(library);
    return status;
}

void tb_cuda_driver_unload(struct tb_cuda_driver *driver)
{
    if (driver->library != NULL) dlclose(driver->library);
    memset(driver, 0, sizeof *driver);
}

const char *tb_cuda_error_name(const struct tb_cuda_driver *driver, CUresult result)
{
    const char *name = NULL;
    if (driver->error_name(result, &name) != CUDA_SUCCESS || name == NULL)
        return "an error that CUDA does not name";
    return name;
}
