/* SPDX-License-Identifier: Apache-2.0 */
/* A test double: kern_combine() with the second and third rank in each other's place, so that the
 * tree is another one (ld --wrap). Sums of floats differ then, and check_coll must say so. */
#include "kernels/combine.h"

void __real_kern_combine(const struct kern_combine_run *run);
void __wrap_kern_combine(const struct kern_combine_run *run);

void __wrap_kern_combine(const struct kern_combine_run *run)
{
	const void *sources[ZI_WORLD_MAX];
	struct kern_combine_run wrong = *run;

	for (uint32_t i = 0; i < run->source_count; i++)
		sources[i] = run->sources[i];
	if (run->source_count > 2) {
		sources[1] = run->sources[2];
		sources[2] = run->sources[1];
	}
	wrong.sources = sources;
	__real_kern_combine(&wrong);
}
