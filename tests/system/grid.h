/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The net that test_grid.c trains, and its plain run: two layers with few small integers for
 * weights and data, and powers of two for rates, so that every sum is exact and its order does not
 * matter.
 */
#pragma once

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>

#define INPUTS  4u
#define HIDDEN  8u
#define OUTPUTS 2u
#define ROWS    4u /* of the batch; each replica has half */
#define SHARD   (HIDDEN / 2)
#define STEPS   2u
#define RATE    0.5

#define UP   (HIDDEN * INPUTS)  /* elements: hidden by input */
#define DOWN (OUTPUTS * HIDDEN) /* output by hidden */

struct net {
	double up[UP], down[DOWN], bias[OUTPUTS];
};

static inline double x_at(uint32_t step, uint32_t row, uint32_t i)
{
	return (double)((step + row * 2 + i * i) % 3) - 1;
}

static inline double t_at(uint32_t step, uint32_t row, uint32_t o)
{
	return (double)((step + row * 2 + o) % 3) - 1;
}

static inline double up_at(uint32_t index)
{
	return (double)((index * 7 + index / 4) % 3) - 1;
}

static inline double down_at(uint32_t index)
{
	return (double)((index * 5 + 1) % 3) - 1;
}

static inline double bias_at(uint32_t index)
{
	return (double)index - 1;
}

struct plain {
	struct net net;
	double losses[STEPS], norms[STEPS];
};

/* Of one row: its loss; what its gradient adds, divided by @rows. */
static inline double plain_row(const struct net *net, uint32_t step, uint32_t row, double rows,
                               struct net *gradient)
{
	double hidden[HIDDEN], difference[OUTPUTS], loss = 0;

	for (uint32_t h = 0; h < HIDDEN; h++) {
		hidden[h] = 0;
		for (uint32_t i = 0; i < INPUTS; i++)
			hidden[h] += net->up[h * INPUTS + i] * x_at(step, row, i);
		hidden[h] = fmax(hidden[h], 0);
	}
	for (uint32_t o = 0; o < OUTPUTS; o++) {
		difference[o] = net->bias[o] - t_at(step, row, o);
		for (uint32_t h = 0; h < HIDDEN; h++)
			difference[o] += net->down[o * HIDDEN + h] * hidden[h];
		loss += 0.5 * difference[o] * difference[o];
		gradient->bias[o] += difference[o] / rows;
		for (uint32_t h = 0; h < HIDDEN; h++)
			gradient->down[o * HIDDEN + h] += difference[o] * hidden[h] / rows;
	}
	for (uint32_t h = 0; h < HIDDEN; h++) {
		double back = 0;

		for (uint32_t o = 0; o < OUTPUTS; o++)
			back += net->down[o * HIDDEN + h] * difference[o];
		for (uint32_t i = 0; i < INPUTS && hidden[h] > 0; i++)
			gradient->up[h * INPUTS + i] += back * x_at(step, row, i) / rows;
	}
	return loss / rows;
}

/* Return: the sum of squares of the gradient. */
static inline double descend(double *values, const double *gradient, uint32_t count)
{
	double sum = 0;

	for (uint32_t i = 0; i < count; i++) {
		values[i] -= RATE * gradient[i];
		sum += gradient[i] * gradient[i];
		cr_assert_eq((double)(float)values[i], values[i], "not exact in f32");
		cr_assert_eq((double)(float)gradient[i], gradient[i], "not exact in f32");
	}
	return sum;
}

static inline void plain_run(struct plain *plain)
{
	for (uint32_t i = 0; i < UP; i++)
		plain->net.up[i] = up_at(i);
	for (uint32_t i = 0; i < DOWN; i++)
		plain->net.down[i] = down_at(i);
	for (uint32_t i = 0; i < OUTPUTS; i++)
		plain->net.bias[i] = bias_at(i);
	for (uint32_t step = 0; step < STEPS; step++) {
		struct net gradient = { .up = { 0 } };
		double sum;

		plain->losses[step] = 0;
		for (uint32_t row = 0; row < ROWS; row++)
			plain->losses[step] += plain_row(&plain->net, step, row, ROWS, &gradient);
		sum = descend(plain->net.up, gradient.up, UP);
		sum += descend(plain->net.down, gradient.down, DOWN);
		sum += descend(plain->net.bias, gradient.bias, OUTPUTS);
		plain->norms[step] = sqrt(sum);
	}
	cr_assert_neq(plain->losses[0], plain->losses[1], "it learns nothing");
}
