/* range.h - indexes that follow one another. Pure. */
#ifndef TB_BASE_RANGE_H
#define TB_BASE_RANGE_H

#include <stdint.h>

struct tb_range {
    uint32_t first; /* index */
    uint32_t end;   /* index; first == end is empty */
};

#endif
