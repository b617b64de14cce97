/* gpu_speed_absent.c - stands in for gpu_speed.c where CUDA's headers were not found. */
#include <stdio.h>

int main(void)
{
    fprintf(stderr, "gpu_speed: skipped: built without the headers of CUDA\n");
    return 77;
}
