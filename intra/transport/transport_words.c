/* transport_words.c - what a hop goes by and why, as words and as the byte of PROGRESS. Pure. */
#include "intra/transport/transport_words.h"
#include "base/assert.h"

const char *tb_transport_name(enum tb_transport transport)
{
    switch (transport) {
    case TB_TRANSPORT_NONE:
        return "none";
    case TB_TRANSPORT_SHM:
        return "shm";
    case TB_TRANSPORT_TCP:
        return "tcp";
    case TB_TRANSPORT_VERBS:
        return "verbs";
    case TB_TRANSPORT_CUDA:
        return "cuda";
    }
    return "unknown";
}

const char *tb_transport_why_text(enum tb_transport_why why)
{
    static const char *const texts[TB_WHY_COUNT] = {
        [TB_WHY_UNKNOWN] = "not known",
        [TB_WHY_ASKED] = "asked for",
        [TB_WHY_SAME_HOST] = "same host, mapped",
        [TB_WHY_RDMA] = "both ends have rdma",
        [TB_WHY_NO_RDMA_HERE] = "the reader has no rdma",
        [TB_WHY_NO_RDMA_THERE] = "the source has no rdma",
        [TB_WHY_RDMA_FAILED] = "rdma did not connect",
        [TB_WHY_GPU] = "same host, from the source's gpu",
        [TB_WHY_GPU_REFUSED] = "same host; its gpu is not reached",
        [TB_WHY_GPU_NO_TRAY] = "same host; its gpu lends nothing",
        [TB_WHY_SAME_HOST_READV] = "same host, by process_vm_readv",
        [TB_WHY_SAME_HOST_SOCKET] = "same host; by the socket what is not reached",
        [TB_WHY_UNREGISTERED_HERE] = "the reader's memory is not registered",
        [TB_WHY_UNREGISTERED_THERE] = "the source's memory is not registered",
        [TB_WHY_RDMA_PART] = "both ends have rdma; by tcp what is not registered",
        [TB_WHY_SAME_HOST_LENT] = "same host, by lent memory"};
    return why < TB_WHY_COUNT ? texts[why] : texts[TB_WHY_UNKNOWN];
}

uint8_t tb_transport_pack(enum tb_transport transport, enum tb_transport_why why)
{
    TB_ASSERT((uint32_t)transport < 16 && (uint32_t)why < 16); /* four bits each */
    return (uint8_t)((uint32_t)transport | (uint32_t)why << 4);
}

void tb_transport_unpack(uint8_t packed, enum tb_transport *transport_out, enum tb_transport_why *why_out)
{
    const uint32_t transport = packed & 15u, why = packed >> 4;
    *transport_out = transport <= TB_TRANSPORT_CUDA ? (enum tb_transport)transport : TB_TRANSPORT_NONE;
    *why_out = why < TB_WHY_COUNT ? (enum tb_transport_why)why : TB_WHY_UNKNOWN;
}
