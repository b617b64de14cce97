/* conformance.h - what every way to move bytes inside a site must do; conformance.c runs
 * each test over each way.
 *
 *   P1  what is held is what was sealed        P4  no chunk is written twice
 *   P6  a lost source does not stop a reader   P7  hostile peers cost a bounded amount
 *   P8  only the token and print that were granted open an export
 *   P9  a door of the release before is asked nothing that it would refuse
 *   P10 each refusal leaves one line */
#ifndef TB_TESTS_INTRA_CONFORMANCE_H
#define TB_TESTS_INTRA_CONFORMANCE_H

#include "scene.h"

#define CONFORMANCE_TESTS(X)                                                                                 \
    X(P1_a_whole_transfer_is_exact)                                                                          \
    X(P1_scattered_tensors_arrive_packed)                                                                    \
    X(P1_encoded_chunks_are_decoded)                                                                         \
    X(P1_far_chunks_are_brought_there)                                                                       \
    X(P1_a_damaged_encoded_chunk_is_bad)                                                                     \
    X(only_what_is_wanted_is_read)                                                                           \
    X(P1_a_filling_source_is_followed)                                                                       \
    X(P6_many_chunks_in_one_go)                                                                              \
    X(P6_a_dead_source_is_replaced)                                                                          \
    X(P4_two_hops_write_no_chunk_twice)                                                                      \
    X(P1_corrupted_bytes_are_never_held)                                                                     \
    X(P1_forged_bytes_have_no_proof)                                                                         \
    X(P1_forged_encoded_bytes_have_no_proof)                                                                 \
    X(P1_forged_far_bytes_have_no_proof)                                                                     \
    X(P1_foreign_chunks_wait_for_their_proofs)                                                               \
    X(P1_revoked_memory_is_nobodys_fault)                                                                    \
    X(P6_a_drain_lets_readers_finish)                                                                        \
    X(P1_a_closed_hop_is_silent)                                                                             \
    X(P8_a_token_opens_once)                                                                                 \
    X(P8_a_wrong_token_is_refused)                                                                           \
    X(P8_a_wrong_print_is_refused)                                                                           \
    X(P7_a_read_outside_the_export_is_refused)                                                               \
    X(P6_an_idle_source_is_lost)                                                                             \
    X(P6_a_quiet_source_is_kept)                                                                             \
    X(pacing_is_never_exceeded)                                                                              \
    X(P7_garbage_at_the_door_is_dropped)                                                                     \
    X(P7_hostile_requests_are_refused)                                                                       \
    X(P7_a_flood_of_requests_is_bounded)                                                                     \
    X(P7_a_false_door_is_dropped)                                                                            \
    X(P9_an_older_door_is_asked_for_rdma_once)                                                               \
    X(P1_a_failure_counts_only_if_the_source_confirms)                                                       \
    X(P6_a_killed_process_is_a_lost_source)                                                                  \
    X(nobody_there_is_unreachable)                                                                           \
    X(transport_none_prefers_shm_then_the_network)                                                           \
    X(bad_options_are_refused_at_once)

#define DECLARE(test) void test(void **state);
CONFORMANCE_TESTS(DECLARE)
#undef DECLARE

#endif
