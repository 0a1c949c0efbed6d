/* SPDX-License-Identifier: Apache-2.0 */
/* The image of the kernels, as a part of the program. KERN_FATBIN: its path, by the Makefile. */
#include "kernels/cuda/image.h"

#include "common/base/embed.h"

ZI_EMBED(kern_fatbin, KERN_FATBIN);

const void *kern_cuda_image(void)
{
	return kern_fatbin;
}
