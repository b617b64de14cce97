/* verbs_library.c - libibverbs and librdmacm, opened when the first of their functions is called.
 *
 * For builds that are carried to other machines (TB_VERBS_AT_RUN_TIME, the Python wheel). They need
 * no rdma-core to start, and use the machine's own: a libibverbs that is carried along does not
 * find its providers. The functions here have the libraries' names and pass each call on. Where a
 * library or a function is missing, a call fails with ENOSYS. Then no event channel can be made,
 * and the NIC part says so and steps aside.
 *
 * It registers no memory by itself: region.c alone decides what is registered. */
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#undef ibv_reg_mr /* a macro, which picks one of two functions */

/* result, name, parameters, arguments, result where it is missing */
#define CALLS(X)                                                                                             \
    X(struct ibv_pd *, ibv_alloc_pd, (struct ibv_context * c), (c), NULL)                                    \
    X(int, ibv_dealloc_pd, (struct ibv_pd * pd), (pd), ENOSYS)                                               \
    X(struct ibv_mr *, ibv_reg_mr, (struct ibv_pd * pd, void *addr, size_t length, int access),              \
      (pd, addr, length, access), NULL)                                                                      \
    X(struct ibv_mr *, ibv_reg_mr_iova2,                                                                     \
      (struct ibv_pd * pd, void *addr, size_t length, uint64_t iova, unsigned int access),                   \
      (pd, addr, length, iova, access), NULL)                                                                \
    X(struct ibv_mr *, ibv_reg_dmabuf_mr,                                                                    \
      (struct ibv_pd * pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access),               \
      (pd, offset, length, iova, fd, access), NULL)                                                          \
    X(int, ibv_dereg_mr, (struct ibv_mr * mr), (mr), ENOSYS)                                                 \
    X(struct ibv_context *, ibv_open_device, (struct ibv_device * d), (d), NULL)                             \
    X(int, ibv_close_device, (struct ibv_context * c), (c), -1)                                              \
    X(int, ibv_query_device, (struct ibv_context * context, struct ibv_device_attr * device_attr),           \
      (context, device_attr), ENOSYS)                                                                        \
    X(const char *, ibv_get_device_name, (struct ibv_device * d), (d), "")                                   \
    X(struct ibv_comp_channel *, ibv_create_comp_channel, (struct ibv_context * c), (c), NULL)               \
    X(int, ibv_destroy_comp_channel, (struct ibv_comp_channel * channel), (channel), ENOSYS)                 \
    X(struct ibv_cq *, ibv_create_cq,                                                                        \
      (struct ibv_context * context, int cqe, void *cq_context, struct ibv_comp_channel *channel,            \
       int comp_vector),                                                                                     \
      (context, cqe, cq_context, channel, comp_vector), NULL)                                                \
    X(int, ibv_destroy_cq, (struct ibv_cq * cq), (cq), ENOSYS)                                               \
    X(int, ibv_get_cq_event, (struct ibv_comp_channel * channel, struct ibv_cq * *cq, void **context),       \
      (channel, cq, context), -1)                                                                            \
    X(int, ibv_get_async_event, (struct ibv_context * context, struct ibv_async_event * event),              \
      (context, event), -1)                                                                                  \
    X(int, ibv_modify_qp, (struct ibv_qp * qp, struct ibv_qp_attr * attributes, int mask),                   \
      (qp, attributes, mask), ENOSYS)                                                                        \
    X(const char *, ibv_event_type_str, (enum ibv_event_type event), (event), "unknown")                     \
    X(const char *, ibv_wc_status_str, (enum ibv_wc_status status), (status), "unknown")                     \
    X(int, ibv_fork_init, (void), (), ENOSYS)                                                                \
    X(struct rdma_event_channel *, rdma_create_event_channel, (void), (), NULL)                              \
    X(int, rdma_create_id,                                                                                   \
      (struct rdma_event_channel * channel, struct rdma_cm_id * *id, void *context,                          \
       enum rdma_port_space ps),                                                                             \
      (channel, id, context, ps), -1)                                                                        \
    X(int, rdma_destroy_id, (struct rdma_cm_id * id), (id), -1)                                              \
    X(int, rdma_bind_addr, (struct rdma_cm_id * id, struct sockaddr * address), (id, address), -1)           \
    X(int, rdma_resolve_addr,                                                                                \
      (struct rdma_cm_id * id, struct sockaddr * src_addr, struct sockaddr * dst_addr, int timeout_ms),      \
      (id, src_addr, dst_addr, timeout_ms), -1)                                                              \
    X(int, rdma_resolve_route, (struct rdma_cm_id * id, int ms), (id, ms), -1)                               \
    X(int, rdma_create_qp,                                                                                   \
      (struct rdma_cm_id * id, struct ibv_pd * pd, struct ibv_qp_init_attr * qp_init_attr),                  \
      (id, pd, qp_init_attr), -1)                                                                            \
    X(int, rdma_connect, (struct rdma_cm_id * id, struct rdma_conn_param * conn_param), (id, conn_param),    \
      -1)                                                                                                    \
    X(int, rdma_listen, (struct rdma_cm_id * id, int backlog), (id, backlog), -1)                            \
    X(int, rdma_accept, (struct rdma_cm_id * id, struct rdma_conn_param * conn_param), (id, conn_param), -1) \
    X(int, rdma_reject, (struct rdma_cm_id * id, const void *private_data, uint8_t private_data_len),        \
      (id, private_data, private_data_len), -1)                                                              \
    X(int, rdma_disconnect, (struct rdma_cm_id * id), (id), -1)                                              \
    X(int, rdma_get_cm_event, (struct rdma_event_channel * channel, struct rdma_cm_event * *event),          \
      (channel, event), -1)                                                                                  \
    X(int, rdma_ack_cm_event, (struct rdma_cm_event * event), (event), -1)                                   \
    X(__be16, rdma_get_src_port, (struct rdma_cm_id * id), (id), 0)                                          \
    X(int, rdma_set_option, (struct rdma_cm_id * id, int level, int optname, void *optval, size_t optlen),   \
      (id, level, optname, optval, optlen), -1)                                                              \
    X(const char *, rdma_event_str, (enum rdma_cm_event_type event), (event), "unknown")

/* those without a result */
#define ENDS(X)                                                                                              \
    X(ibv_ack_async_event, (struct ibv_async_event * event), (event))                                        \
    X(ibv_ack_cq_events, (struct ibv_cq * cq, unsigned int nevents), (cq, nevents))                          \
    X(rdma_destroy_event_channel, (struct rdma_event_channel * channel), (channel))                          \
    X(rdma_destroy_qp, (struct rdma_cm_id * id), (id))

enum call {
#define CALL_INDEX(result, name, parameters, arguments, absent) CALL_##name,
#define END_INDEX(name, parameters, arguments)                  CALL_##name,
    CALLS(CALL_INDEX) ENDS(END_INDEX) CALL_COUNT
};

static const char *const names[CALL_COUNT] = {
#define CALL_NAME(result, name, parameters, arguments, absent) [CALL_##name] = #name,
#define END_NAME(name, parameters, arguments)                  [CALL_##name] = #name,
    CALLS(CALL_NAME) ENDS(END_NAME)};

static void *functions[CALL_COUNT]; /* NULL: missing; written by find_all alone */
static pthread_once_t found = PTHREAD_ONCE_INIT;

/* The libraries stay open: their threads and fork handlers do not end. */
static void find_all(void)
{
    void *const libraries[] = {dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL),
                               dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL)};
    for (int i = 0; i < CALL_COUNT; i++) {
        void *const library = libraries[strncmp(names[i], "rdma_", 5) == 0];
        if (library != NULL) functions[i] = dlsym(library, names[i]);
    }
}

/* *function_out is a pointer to a function: POSIX lets dlsym's be copied into one. */
static bool find(enum call call, void *function_out)
{
    if (pthread_once(&found, find_all) != 0 || functions[call] == NULL) {
        errno = ENOSYS;
        return false;
    }
    memcpy(function_out, &functions[call], sizeof functions[call]);
    return true;
}

#define DEFINE_CALL(result, name, parameters, arguments, absent)                                             \
    result name parameters                                                                                   \
    {                                                                                                        \
        result(*call) parameters;                                                                            \
        return find(CALL_##name, &call) ? call arguments : (absent);                                         \
    }
#define DEFINE_END(name, parameters, arguments)                                                              \
    void name parameters                                                                                     \
    {                                                                                                        \
        void(*call) parameters;                                                                              \
        if (find(CALL_##name, &call)) call arguments;                                                        \
    }

CALLS(DEFINE_CALL)
ENDS(DEFINE_END)
