/* measured.h - what the floors share: a clock, memory whose pages are there before it runs, and
 * an end that says why. */
#ifndef TB_BENCH_MEASURED_H
#define TB_BENCH_MEASURED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

_Noreturn void measured_die(const char *what); /* with what errno says; exit code 1 */
_Noreturn void measured_end(const char *what); /* the same without errno */
void *measured_given(void *memory);            /* NULL: ends */
uint64_t measured_random(uint64_t *seed);      /* splitmix64 without its last step */
double measured_now_s(void);                   /* monotonic */
/* Seconds of the last of two passes that agree within 5 %, of eight at most: the host of a virtual
 * machine may have taken the memory back, and gives it again at the first touch. Negative: a pass
 * failed. */
double measured_pass_s(bool (*pass)(void *user), void *user, bool *steady_out);
/* Every byte is written once: no page is made while a clock runs, and none is the kernel's
 * shared page of zeros. */
uint8_t *measured_memory(size_t bytes, int fill);
uint8_t *measured_shared_memory(size_t bytes, int fill); /* as stagings stand in: never in huge pages */

#endif
