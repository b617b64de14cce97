/* verbs_here.c - a program of the build tree, linked to libibverbs and librdmacm,
 * finds the lab's device.
 *
 * verbs_here ADDRESS: librdmacm resolves ADDRESS to a device, which must be rxe0; a domain, 1 MiB
 * registered for remote reads alone (never for writes), and a queue are made on it and taken down.
 * Exit code 0, or 1 with what failed.
 *
 * Covers: sim/vm/run */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REGION_BYTES (1 << 20)
#define RESOLVE_MS   5000
#define WANTED       "rxe0"

static int failed(const char *what)
{
    fprintf(stderr, "verbs_here: %s: %s\n", what, strerror(errno));
    return 1;
}

static int region_register(struct ibv_context *device)
{
    int code = 1;
    void *bytes = malloc(REGION_BYTES);
    if (bytes == NULL) return failed("malloc");
    struct ibv_pd *domain = ibv_alloc_pd(device);
    if (domain == NULL) {
        (void)failed("ibv_alloc_pd");
        goto undo_bytes;
    }
    struct ibv_mr *region =
        ibv_reg_mr(domain, bytes, REGION_BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    if (region == NULL) {
        (void)failed("ibv_reg_mr");
        goto undo_domain;
    }
    struct ibv_cq *queue = ibv_create_cq(device, 64, NULL, NULL, 0);
    if (queue == NULL) {
        (void)failed("ibv_create_cq");
        goto undo_region;
    }
    printf("%s: %d bytes registered for remote reads, a queue of %d\n", ibv_get_device_name(device->device),
           REGION_BYTES, queue->cqe);
    code = ibv_destroy_cq(queue) == 0 ? 0 : failed("ibv_destroy_cq");
undo_region:
    if (ibv_dereg_mr(region) != 0) code = failed("ibv_dereg_mr");
undo_domain:
    if (ibv_dealloc_pd(domain) != 0) code = failed("ibv_dealloc_pd");
undo_bytes:
    free(bytes);
    return code;
}

/* Waits for one event, which librdmacm bounds by RESOLVE_MS. */
static int resolved(struct rdma_event_channel *events)
{
    struct rdma_cm_event *event;
    if (rdma_get_cm_event(events, &event) != 0) return failed("rdma_get_cm_event");
    const enum rdma_cm_event_type got = event->event;
    (void)rdma_ack_cm_event(event);
    if (got == RDMA_CM_EVENT_ADDR_RESOLVED) return 0;
    fprintf(stderr, "verbs_here: the address was not resolved: %s\n", rdma_event_str(got));
    return 1;
}

static int at_address(struct sockaddr_in *address)
{
    int code = 1;
    struct rdma_cm_id *id = NULL;
    struct rdma_event_channel *events = rdma_create_event_channel();
    if (events == NULL) return failed("rdma_create_event_channel");
    if (rdma_create_id(events, &id, NULL, RDMA_PS_TCP) != 0) {
        (void)failed("rdma_create_id");
        goto undo_events;
    }
    if (rdma_resolve_addr(id, NULL, (struct sockaddr *)address, RESOLVE_MS) != 0) {
        (void)failed("rdma_resolve_addr");
    } else if (resolved(events) == 0) {
        if (id->verbs != NULL && strcmp(ibv_get_device_name(id->verbs->device), WANTED) == 0) {
            code = region_register(id->verbs);
        } else {
            fprintf(stderr, "verbs_here: the address is not of " WANTED "\n");
        }
    }
    (void)rdma_destroy_id(id);
undo_events:
    rdma_destroy_event_channel(events);
    return code;
}

int main(int count, char **words)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    if (count != 2 || inet_pton(AF_INET, words[1], &address.sin_addr) != 1) {
        fprintf(stderr, "usage: verbs_here ADDRESS   (example: verbs_here \"$TB_VM_ADDRESS\")\n");
        return 2;
    }
    return at_address(&address);
}
