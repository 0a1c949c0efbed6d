/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of a row in 16 fixed lanes. Lane j adds the elements j, j + 16, j + 32, … in this order, and
 * the lanes are joined pairwise. On a GPU 16 threads compute a row, each one lane, and they join
 * by shuffles. On the CPU a loop goes over the lanes, which the compiler turns into vectors.
 *
 * A function over lanes is written once:
 *   gpt_each_lane(lane, slot)  on the CPU all lanes, on a GPU the thread's own. @slot: its place in
 *                              an array of GPT_LANE_SLOTS
 *   gpt_each_own(i, count)     on the CPU all elements, on a GPU those of the thread's lane
 * On a GPU a thread sees what other lanes wrote only behind gpt_lanes_sync().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "examples/gpt/element/element.h"

#define GPT_LANES 16u

#ifdef __CUDA_ARCH__
#define GPT_LANE_SLOTS 1u
#define GPT_FIRST_LANE (threadIdx.x % GPT_LANES)
#define GPT_OWN_STEP   GPT_LANES
/* The threads of this row, of the warp's 32. */
#define GPT_LANES_MASK (0xffffu << (threadIdx.x & GPT_LANES))
#else
#define GPT_LANE_SLOTS GPT_LANES
#define GPT_FIRST_LANE 0u
#define GPT_OWN_STEP   1u
#endif

#define gpt_each_lane(lane, slot) \
	for (unsigned slot = 0, lane = GPT_FIRST_LANE; slot < GPT_LANE_SLOTS; slot++, lane++)
#define gpt_each_own(i, count) for (uint64_t i = GPT_FIRST_LANE; i < (count); i += GPT_OWN_STEP)

/* Of the threads of a row one, which writes what belongs to the row. */
GPT_ELEMENT bool gpt_is_first_lane(void)
{
	return GPT_FIRST_LANE == 0;
}

GPT_ELEMENT void gpt_lanes_sync(void)
{
#ifdef __CUDA_ARCH__
	__syncwarp(GPT_LANES_MASK);
#endif
}

/* Joins 16 lanes pairwise. lanes: (GPT_LANE_SLOTS,). Return: the sum, in all threads of the row. */
GPT_ELEMENT float gpt_join_lanes(float *lanes)
{
#ifdef __CUDA_ARCH__
	float sum = lanes[0];

	for (unsigned width = GPT_LANES / 2; width; width /= 2)
		sum += __shfl_down_sync(GPT_LANES_MASK, sum, width, GPT_LANES);
	return __shfl_sync(GPT_LANES_MASK, sum, 0, GPT_LANES);
#else
	for (unsigned width = GPT_LANES / 2; width; width /= 2)
		for (unsigned i = 0; i < width; i++)
			lanes[i] += lanes[i + width];
	return lanes[0];
#endif
}

/* The largest of 16 lanes. */
GPT_ELEMENT float gpt_largest_lane(const float *lanes)
{
#ifdef __CUDA_ARCH__
	float max = lanes[0];

	for (unsigned width = GPT_LANES / 2; width; width /= 2) {
		float other = __shfl_down_sync(GPT_LANES_MASK, max, width, GPT_LANES);

		max = other > max ? other : max;
	}
	return __shfl_sync(GPT_LANES_MASK, max, 0, GPT_LANES);
#else
	float max = lanes[0];

	for (unsigned j = 1; j < GPT_LANES; j++)
		max = lanes[j] > max ? lanes[j] : max;
	return max;
#endif
}

/* sum of x[i]. x: (count,). */
GPT_ELEMENT float gpt_sum(const float *x, uint64_t count)
{
	float lanes[GPT_LANE_SLOTS] = { 0 };
	uint64_t i = 0;

	for (; i + GPT_LANES <= count; i += GPT_LANES)
		gpt_each_lane(lane, slot)
			lanes[slot] += x[i + lane];
	gpt_each_lane(lane, slot)
		if (i + lane < count)
			lanes[slot] += x[i + lane];
	return gpt_join_lanes(lanes);
}

/* sum of x[i] * y[i]. x, y: (count,). */
GPT_ELEMENT float gpt_dot(const float *x, const float *y, uint64_t count)
{
	float lanes[GPT_LANE_SLOTS] = { 0 };
	uint64_t i = 0;

	for (; i + GPT_LANES <= count; i += GPT_LANES)
		gpt_each_lane(lane, slot)
			lanes[slot] += x[i + lane] * y[i + lane];
	gpt_each_lane(lane, slot)
		if (i + lane < count)
			lanes[slot] += x[i + lane] * y[i + lane];
	return gpt_join_lanes(lanes);
}

/* The largest of x[i]; a NaN is passed over (exp() brings it back). Of zeros either sign. count >=
 * 1. */
GPT_ELEMENT float gpt_max(const float *x, uint64_t count)
{
	float lanes[GPT_LANE_SLOTS];
	uint64_t i = 0;

	gpt_each_lane(lane, slot)
		lanes[slot] = x[0];
	for (; i + GPT_LANES <= count; i += GPT_LANES)
		gpt_each_lane(lane, slot)
			lanes[slot] = x[i + lane] > lanes[slot] ? x[i + lane] : lanes[slot];
	gpt_each_lane(lane, slot)
		if (i + lane < count)
			lanes[slot] = x[i + lane] > lanes[slot] ? x[i + lane] : lanes[slot];
	return gpt_largest_lane(lanes);
}
