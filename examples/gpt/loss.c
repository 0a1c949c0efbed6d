/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and cross entropy on the CPU. */
#include <assert.h>
#include <math.h>

#include "examples/gpt/element/softmax.h"
#include "examples/gpt/layers_cpu.h"
#include "examples/gpt/vector.h"

/* One row of logits becomes probabilities. Return: the log of the sum of their exponentials. */
GPT_CLONES static float softmax(uint64_t classes, float *row)
{
	struct gpt_softmax softmax = gpt_softmax_row(row, classes);

	return softmax.max + logf(softmax.sum);
}

/* logits: (N, V), become probabilities. targets: (N,). Return: the mean cross entropy in nats; the
 * rows are summed in f64, in order. */
double gpt_loss_forward(uint64_t rows, uint64_t classes, const uint8_t *targets, float *logits)
{
	double sum = 0;

	assert(rows > 0);
	for (uint64_t row = 0; row < rows; row++) {
		float *x = logits + row * classes;
		float target = x[targets[row]];

		assert(targets[row] < classes);
		sum += (double)(softmax(classes, x) - target);
	}
	return sum / (double)rows;
}

/* probabilities: (N, V), become the gradient of scale * N * loss with respect to the logits. */
GPT_CLONES void gpt_loss_backward(uint64_t rows, uint64_t classes, const uint8_t *targets,
                                  float scale, float *probabilities)
{
	for (uint64_t row = 0; row < rows; row++) {
		float *p = probabilities + row * classes;

		p[targets[row]] -= 1.0f;
		for (uint64_t i = 0; i < classes; i++)
			p[i] *= scale;
	}
}
