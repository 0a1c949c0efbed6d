/* SPDX-License-Identifier: Apache-2.0 */
/* The image of the kernels, as a part of the program. TRIAL_FATBIN: its path, by the Makefile. */
#include "tests/gpu/device/image.h"

#include "common/base/embed.h"

ZI_EMBED(trial_fatbin, TRIAL_FATBIN);

const void *trial_image(void)
{
	return trial_fatbin;
}
