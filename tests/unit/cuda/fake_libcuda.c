/* fake_libcuda.c - the fake as a library that is loaded by its name, which exports what a
 * driver's does: one function. */
#include "unit/cuda/fake_cuda.h"

__attribute__((visibility("default"))) CUresult CUDAAPI
cuGetProcAddress_v2(const char *symbol, void **function_out, int version, cuuint64_t flags,
                    CUdriverProcAddressQueryResult *found_out);

CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **function_out, int version, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult *found_out)
{
    return fake_cuda_find(symbol, function_out, version, flags, found_out);
}
