/* verbs_suite.h - what only RDMA can do wrong: the tests of verbs.c, verbs_nics.c, verbs_memory.c
 * and verbs_hostile.c, which are one program.
 *
 *   P1  nobody writes into registered memory; no READ ends after its memory was given back
 *   P6  what broke is left, rested and tried again, on one NIC or among two
 *   P7  a hostile reader loses its queue pair and nothing else
 *   P8  a key opens its own export alone */
#ifndef TB_TESTS_INTRA_VERBS_SUITE_H
#define TB_TESTS_INTRA_VERBS_SUITE_H

#include "intra/verbs/nic.h"
#include "scene.h"

/* In clear; what is logged is caught until it closes. */
void verbs_open(struct scene *s, uint32_t tensors);
/* TB_TRANSPORT_NONE: as if the owner were on another host, by the best way there is. */
struct tb_hop *verbs_hop(struct scene *s, enum tb_transport transport);
void verbs_close(struct scene *s);

/* Both ends' owners say that it stays. */
void verbs_memory_stays(struct scene *s);
struct tb_pinned_counts verbs_pinned(struct tb_fabric *f);

/* For a fabric's thread: cmocka's assertions are the test's own thread's. */
void must(bool right, const char *what);

/* The first kills a process that it forked: before RDMA is open in this one. */
#define VERBS_TESTS(X)                                                                                       \
    X(P6_a_peer_killed_in_mid_read)                                                                          \
    X(P6_a_broken_queue_pair_rests_its_path)                                                                 \
    X(P6_a_dead_device_is_left)                                                                              \
    X(P6_a_port_that_is_down_rests_until_it_is_up)                                                           \
    X(P6_two_nics_share_the_load_and_stand_in_for_each_other)                                                \
    X(P6_two_nics_are_begun_on_as_drawn)                                                                     \
    X(P6_a_link_that_goes_down_is_left)                                                                      \
    X(memory_that_stays_is_registered_once)                                                                  \
    X(other_memory_is_registered_for_each_hop)                                                               \
    X(a_path_that_fails_costs_no_registration)                                                               \
    X(memory_that_is_not_registered_is_told)                                                                 \
    X(the_right_key_opens)                                                                                   \
    X(P8_a_wrong_key_opens_nothing)                                                                          \
    X(P8_past_the_end_there_is_nothing)                                                                      \
    X(P8_another_exports_key_opens_nothing)                                                                  \
    X(P1_nobody_writes_remotely)                                                                             \
    X(P7_who_sends_loses_its_queue_pair)                                                                     \
    X(P7_who_sends_to_nobody_is_told_so)                                                                     \
    X(P1_no_read_ends_after_its_memory_is_given_back)                                                        \
    X(P1_a_cut_that_is_read_outlives_the_next)                                                               \
    X(device_memory_is_read_by_its_dmabuf)                                                                   \
    X(a_gpus_memory_is_shown_by_the_nics_beside_it)                                                          \
    X(where_dmabuf_fails_the_host_copy_is_read)                                                              \
    X(a_target_in_device_memory_is_written_by_its_dmabuf)                                                    \
    X(where_its_dmabuf_fails_a_target_is_brought_there)                                                      \
    X(an_idle_fabric_burns_no_core)

#define DECLARE(test) void test(void **state);
VERBS_TESTS(DECLARE)
#undef DECLARE

#endif
