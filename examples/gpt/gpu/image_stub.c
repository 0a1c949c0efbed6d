/* SPDX-License-Identifier: Apache-2.0 */
/* In place of image.c where there is no nvcc. */
#include <stddef.h>

#include "examples/gpt/gpu/image.h"

const void *gpt_gpu_image(void)
{
	return NULL;
}
