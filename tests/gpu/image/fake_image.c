/* SPDX-License-Identifier: Apache-2.0 */
/* A fake in place of examples/gpt/gpu/image.c: it has the first bytes of a fatbin and no kernels,
 * since the fake driver has them. */
#include <stdint.h>

#include "examples/gpt/gpu/image.h"

const void *gpt_gpu_image(void)
{
	static const uint32_t fatbin[] = { 0xba55ed50, 1, 0, 0 };

	return fatbin;
}
