/* A name server's SRV answer. An accepted answer has names that end, in the order in which
 * they are to be tried.
 *
 * Covers: base/net/srv.c */
#include "base/net/srv.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct tb_srv_answer a;
    if (tb_srv_read(bytes, count, &a) != TB_OK) return 0;
    FUZZ_REQUIRE(a.count > 0 && a.count <= TB_SRV_TARGETS_MAX);
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < a.count; i++) {
            FUZZ_REQUIRE(memchr(a.targets[i].host, '\0', 254) != NULL && a.targets[i].host[0] != '\0');
            FUZZ_REQUIRE(i == 0 || a.targets[i - 1].priority <= a.targets[i].priority);
        }
        tb_srv_order(&a, count);
    }
    return 0;
}
