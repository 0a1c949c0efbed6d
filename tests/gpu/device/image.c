/* SPDX-License-Identifier: Apache-2.0 */
/* The image of the kernels, as a part of the program. TRIAL_FATBIN: its path, by the Makefile. */
#include "tests/gpu/device/image.h"

__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        ".hidden trial_fatbin\n"
        ".global trial_fatbin\n"
        "trial_fatbin:\n"
        ".incbin \"" TRIAL_FATBIN "\"\n"
        ".popsection\n");
extern const unsigned char trial_fatbin[];

const void *trial_image(void)
{
	return trial_fatbin;
}
