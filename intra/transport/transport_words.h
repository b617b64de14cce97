/* transport_words.h - the transports that a hop goes by, why it goes by one, and both as words.
 * Pure. */
#ifndef TB_INTRA_TRANSPORT_WORDS_H
#define TB_INTRA_TRANSPORT_WORDS_H

#include <stdint.h>

/* CUDA is what a hop by SHM comes to where its source's bytes stand on a GPU that this process
 * reaches: it is not asked for. */
enum tb_transport {
    TB_TRANSPORT_NONE,
    TB_TRANSPORT_SHM,
    TB_TRANSPORT_TCP,
    TB_TRANSPORT_VERBS,
    TB_TRANSPORT_CUDA
};

const char *tb_transport_name(enum tb_transport transport);

/* Why a hop goes by the transport that it goes by. Numbers travel in PROGRESS, in four bits:
 * UNKNOWN is what a gateway makes of one that it does not know (P9). */
enum tb_transport_why {
    TB_WHY_UNKNOWN, /* it has not begun, or another release's */
    TB_WHY_ASKED,   /* its owner named the transport */
    /* shm: all of the source's memory is mapped. The release before says it of every shm hop */
    TB_WHY_SAME_HOST,
    TB_WHY_RDMA,          /* verbs: both ends have it, and all of the source's memory is registered */
    TB_WHY_NO_RDMA_HERE,  /* tcp: this end has none, or its config says so */
    TB_WHY_NO_RDMA_THERE, /* tcp: the source has none */
    TB_WHY_RDMA_FAILED,   /* tcp: no path between the two ends' NICs came up, or all of them rest */
    TB_WHY_GPU,           /* cuda: same host, from the source's GPU memory */
    TB_WHY_GPU_REFUSED,   /* shm: same host; this process could not open a tray of the source's GPU */
    TB_WHY_GPU_NO_TRAY,   /* shm: same host; the source gave none */
    /* shm: some or all of the source's memory is read by process_vm_readv, none by the socket */
    TB_WHY_SAME_HOST_READV,
    /* shm: some or all of it is reached neither way, and comes over the door's socket */
    TB_WHY_SAME_HOST_SOCKET,
    TB_WHY_UNREGISTERED_HERE,  /* tcp: our NIC could not register what the bytes land in */
    TB_WHY_UNREGISTERED_THERE, /* tcp: the source's NIC could register none of its memory */
    TB_WHY_RDMA_PART,          /* verbs, and tcp for what the source's NIC could not register */
    /* shm: this process may not read the source's memory, and the source copies it into memory that
     * this one lends */
    TB_WHY_SAME_HOST_LENT,
    TB_WHY_COUNT
};

_Static_assert(TB_WHY_COUNT <= 16, "PROGRESS has four bits for it");
/* "both ends have rdma" and so on. Static storage. */
const char *tb_transport_why_text(enum tb_transport_why why);
/* Both in one byte, as PROGRESS has them. */
uint8_t tb_transport_pack(enum tb_transport transport, enum tb_transport_why why);
void tb_transport_unpack(uint8_t packed, enum tb_transport *transport_out, enum tb_transport_why *why_out);

#endif
