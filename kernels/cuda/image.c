/* SPDX-License-Identifier: Apache-2.0 */
/* The image of the kernels, as a part of the program. KERN_FATBIN: its path, by the Makefile. */
#include "kernels/cuda/image.h"

__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        ".hidden kern_fatbin\n"
        ".global kern_fatbin\n"
        "kern_fatbin:\n"
        ".incbin \"" KERN_FATBIN "\"\n"
        ".popsection\n");
extern const unsigned char kern_fatbin[];

/* See image.h. */
const void *kern_cuda_image(void)
{
	return kern_fatbin;
}
