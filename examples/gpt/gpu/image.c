/* SPDX-License-Identifier: Apache-2.0 */
/* The image of the kernels, as a part of the program. GPT_FATBIN: its path, by the Makefile. */
#include "examples/gpt/gpu/image.h"

__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        ".hidden gpt_gpu_fatbin\n"
        ".global gpt_gpu_fatbin\n"
        "gpt_gpu_fatbin:\n"
        ".incbin \"" GPT_FATBIN "\"\n"
        ".popsection\n");
extern const unsigned char gpt_gpu_fatbin[];

const void *gpt_gpu_image(void)
{
	return gpt_gpu_fatbin;
}
