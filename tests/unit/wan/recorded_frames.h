/* recorded_frames.h - what the frames in recorded_frames_1.txt say, which the release wrote that
 * spoke protocol 1 alone, and those in recorded_frames_2.txt: what protocol 2 brought.
 *
 * S(message, type, fields...). A line of the file is the message's name and the frame as it
 * stood on the wire, header included. Files of later protocols get lists of their own;
 * these do not change. */
#ifndef TB_TESTS_RECORDED_FRAMES_H
#define TB_TESTS_RECORDED_FRAMES_H

#define RECORDED_ID(n)                                                                                       \
    {                                                                                                        \
        {                                                                                                    \
            n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n                                                   \
        }                                                                                                    \
    }
#define RECORDED_PAGE                                                                                        \
    {                                                                                                        \
        (const uint8_t *)"0123456789abcdef", 16                                                              \
    }
#define RECORDED_WORDS                                                                                       \
    {                                                                                                        \
        (const uint8_t *)"\1\0\0\0\377\0\0\0\0\0\0\200", 12                                                  \
    }
#define RECORDED_KEY                                                                                         \
    {                                                                                                        \
        .uid = RECORDED_ID(1), .model = {"policy"}, .run = RECORDED_ID(2), .run_order = 3, .number = 400,    \
        .shard_count = 2, .root = {                                                                          \
            {9, 8, 7}                                                                                        \
        }                                                                                                    \
    }

/* clang-format off */
#define RECORDED_1(S)                                                                                        \
    S(hello, TB_FRAME_HELLO, .protocol = 1, .protocol_min = 1, .site = {"east"}, .gateway = {"gw"},          \
      .lane_count = 1, .life = RECORDED_ID(3), .incarnation = 7, .session = RECORDED_ID(4),                  \
      .more = {(const uint8_t *)"", 0})                                                                      \
    S(bye, TB_FRAME_BYE, .status_negated = 307, .detail = 12)                                                \
    S(ping, TB_FRAME_PING, .stamp = 99)                                                                      \
    S(pong, TB_FRAME_PONG, .stamp = 99)                                                                      \
    S(subscribe, TB_FRAME_SUBSCRIBE, .model = {"policy"}, .home = {"east"})                                  \
    S(denied, TB_FRAME_DENIED, .model = {"policy"})                                                          \
    S(version, TB_FRAME_VERSION, .key = RECORDED_KEY, .bytes = 1 << 30, .state = TB_FRAME_VERSION_READY)     \
    S(gone, TB_FRAME_GONE, .uid = RECORDED_ID(1), .status_negated = 603)                                     \
    S(ask, TB_FRAME_ASK, .uid = RECORDED_ID(1))                                                              \
    S(head, TB_FRAME_HEAD, .uid = RECORDED_ID(1), .shard = 1, .total_bytes = 300, .offset = 16,     \
      .page = RECORDED_PAGE)                                                                       \
    S(digests, TB_FRAME_DIGESTS, .uid = RECORDED_ID(1), .shard = 1, .first = 5, .page = RECORDED_PAGE)       \
    S(want, TB_FRAME_WANT, .crossing = 6, .uid = RECORDED_ID(1))                                             \
    S(held, TB_FRAME_HELD, .crossing = 6, .shard = 1, .words = RECORDED_WORDS)                               \
    S(start, TB_FRAME_START, .crossing = 6)                                                                  \
    S(stop, TB_FRAME_STOP, .crossing = 6)                                                                    \
    S(refused, TB_FRAME_REFUSED, .crossing = 6, .shard = 1, .chunk = 70, .why = TB_REFUSAL_LOST)             \
    S(whole, TB_FRAME_WHOLE, .uid = RECORDED_ID(1))                                                          \
    S(stream_gone, TB_FRAME_STREAM_GONE, .stream = 8)                                                        \
    S(report, TB_FRAME_REPORT, .uid = RECORDED_ID(1), .site = {"north"}, .state = 2)                         \
    S(bind, TB_FRAME_BIND, .session = RECORDED_ID(4), .stream = 8)                                           \
    S(bound, TB_FRAME_BOUND, .stream = 8)
#define RECORDED_2(S)                                                                                        \
    S(hello, TB_FRAME_HELLO, .protocol = 2, .protocol_min = 1, .site = {"east"}, .gateway = {"gw"},          \
      .lane_count = 1, .life = RECORDED_ID(3), .incarnation = 7, .session = RECORDED_ID(4),                  \
      .more = {(const uint8_t *)"", 0})                                                                      \
    S(base, TB_FRAME_BASE, .crossing = 6, .uid = RECORDED_ID(5))                                             \
    S(streams, TB_FRAME_STREAMS, .count = 12)                                                                \
    S(take, TB_FRAME_TAKE, .crossing = 6, .shard = 1, .words = RECORDED_WORDS)                               \
    S(have, TB_FRAME_HAVE, .crossing = 6, .shard = 1, .words = RECORDED_WORDS)                               \
    S(expect, TB_FRAME_EXPECT, .crossing = 6, .model = {"policy"}, .base = RECORDED_ID(5))                   \
    S(push, TB_FRAME_PUSH, .crossing = 6, .uid = RECORDED_ID(1))                                             \
    S(spent, TB_FRAME_SPENT, .spent = 1)                                                                     \
    S(refused, TB_FRAME_REFUSED, .crossing = 6, .shard = 1, .chunk = 70, .why = TB_REFUSAL_NO_BASE)
/* clang-format on */

#endif
