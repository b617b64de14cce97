/* tsan_marks.h - what a file that ThreadSanitizer does not instrument reads and writes, told to it.
 *
 * A loop that reads each byte once through unaligned words costs tens of times as much under it as
 * one mark for the whole range, and finds the same races: the mark stands in the shadow of the
 * bytes like the reads would. The build leaves such files out of the instrumentation and defines
 * TB_TSAN_MARKS for them (base/CMakeLists.txt); elsewhere the marks are nothing. */
#ifndef TB_BASE_TSAN_MARKS_H
#define TB_BASE_TSAN_MARKS_H

#include <stddef.h>

#if defined(TB_TSAN_MARKS)
void __tsan_read_range(void *bytes, unsigned long count);
void __tsan_write_range(void *bytes, unsigned long count);
#define TB_TSAN_READS(bytes, count)  __tsan_read_range((void *)(bytes), (count))
#define TB_TSAN_WRITES(bytes, count) __tsan_write_range((bytes), (count))
#else
#define TB_TSAN_READS(bytes, count)  ((void)(bytes), (void)(count))
#define TB_TSAN_WRITES(bytes, count) ((void)(bytes), (void)(count))
#endif

#endif
