#include "island_device.h"

bool island_device_begin(void)
{
    return false;
}

void island_device_end(void)
{
}
