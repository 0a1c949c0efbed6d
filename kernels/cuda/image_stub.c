/* SPDX-License-Identifier: Apache-2.0 */
/* In place of image.c where there is no nvcc. */
#include <stddef.h>

#include "kernels/cuda/image.h"

const void *kern_cuda_image(void)
{
	return NULL;
}
