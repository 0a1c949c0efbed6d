/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Test doubles (ld --wrap) of a zinf-gpt that is wrong on purpose: what the comparisons must find.
 * ZINF_WRONG says in which way.
 *   element  one element of the last rank's gradient of one unit comes with the other sign
 *   rank     the last rank's gradient is left out of the sum (ranks as processes only)
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/layers_cpu.h"
#include "zinf/zinf.h"

#define WRONG_UNIT  1u /* the first block */
#define WRONG_PARAM 4u /* qkv.weight: behind two of the embeddings and two of its own */
#define SIGN_BYTE   3u /* of the first element in f32, of the second in bf16 */

int __real_zinf_reduce(struct zinf *zinf, uint32_t unit);
int __wrap_zinf_reduce(struct zinf *zinf, uint32_t unit);
void __real_gpt_loss_backward(uint64_t rows, uint64_t classes, const uint8_t *targets, float scale,
                              float *probabilities);
void __wrap_gpt_loss_backward(uint64_t rows, uint64_t classes, const uint8_t *targets, float scale,
                              float *probabilities);

static int is_wrong(const char *way)
{
	const char *asked = getenv("ZINF_WRONG");

	return asked && strcmp(asked, way) == 0;
}

int __wrap_zinf_reduce(struct zinf *zinf, uint32_t unit)
{
	if (unit == WRONG_UNIT && zinf_rank(zinf) == zinf_world_size(zinf) - 1 &&
	    is_wrong("element"))
		((uint8_t *)zinf_grad_data(zinf, WRONG_PARAM))[SIGN_BYTE] ^= 0x80;
	return __real_zinf_reduce(zinf, unit);
}

void __wrap_gpt_loss_backward(uint64_t rows, uint64_t classes, const uint8_t *targets, float scale,
                              float *probabilities)
{
	const char *rank = getenv("RANK"), *world = getenv("WORLD_SIZE");

	if (rank && world && atoi(rank) == atoi(world) - 1 && is_wrong("rank"))
		scale = 0;
	__real_gpt_loss_backward(rows, classes, targets, scale, probabilities);
}
