/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of test_grid.c: a grid of 2 × 2 that trains grid.h's net, on one node or two. */
#pragma once

#include "tests/system/coll.h"
#include "tests/system/far.h"
#include "tests/system/grid.h"
#include "zinf/coll.h"

/* What the ranks are compared with; they inherit it. */
static struct plain plain;
static enum zinf_strategy strategy;
static enum zinf_offload offload;

/* Over two nodes: the second one, and where each rank is. */
static struct {
	struct harness harness;
	const char *places; /* NULL: all ranks are on one node */
	uint32_t port;
	char job[16];
} far;

/* A rank's part of the model: rows of `up` from @first to @end, the columns of `down` with the same
 * numbers. A part that is not here has unit UINT32_MAX. */
struct part {
	struct coll_rank *self;
	uint32_t replica, first, end;
	uint32_t up, down, bias;       /* units, each of one parameter of the same number */
	struct zinf_coll_options peer; /* the group with the other part of this replica */
	float hidden[ROWS / 2][HIDDEN], back[ROWS / 2][HIDDEN];
	float outputs[ROWS / 2][OUTPUTS], differences[ROWS / 2][OUTPUTS];
};

static inline int add(struct coll_rank *self, const char *set, uint32_t first, uint32_t second,
                      const char *unit, uint64_t rows, uint64_t columns, uint32_t *ret_unit)
{
	const uint32_t ranks[2] = { first, second };
	bool is_all = first == second;
	uint32_t number, param;

	coll_must(
		self, 0,
		zinf_dp_group_add(self->zinf, set, is_all ? NULL : ranks, is_all ? 0 : 2, &number));
	coll_must(self, 0, zinf_unit_add(self->zinf, unit, ret_unit));
	coll_must(self, 0,
	          zinf_param_add(self->zinf, unit, 2, (uint64_t[]){ rows, columns }, &param));
	coll_check(self, param == *ret_unit);
	return 0;
}

static inline int write_unit(struct coll_rank *self, uint32_t unit, uint32_t root, uint32_t count,
                             double (*value_at)(uint32_t), uint32_t first, uint32_t width,
                             uint32_t stride)
{
	if (self->rank == root) {
		float *values;

		coll_must(self, 0, zinf_param_write_begin(self->zinf, unit));
		values = (float *)(uintptr_t)zinf_param_data(self->zinf, unit);
		for (uint32_t i = 0; i < count; i++)
			values[i] = (float)value_at(first + i / width * stride + i % width);
	}
	coll_must(self, 0, zinf_param_write_end(self->zinf, unit, (int32_t)root));
	return 0;
}

static inline const float *values_of(const struct part *part, uint32_t unit)
{
	return zinf_param_data(part->self->zinf, unit);
}

/* The rows of this rank's part of the hidden layer. */
static inline int forward_up(struct part *part, uint32_t step)
{
	coll_must(part->self, 0, zinf_unshard(part->self->zinf, part->up));
	for (uint32_t row = 0; row < ROWS / 2; row++)
		for (uint32_t h = part->first; h < part->end; h++) {
			const float *up = values_of(part, part->up) + (h - part->first) * INPUTS;
			float sum = 0;

			for (uint32_t i = 0; i < INPUTS; i++)
				sum += up[i] *
				       (float)x_at(step, part->replica * (ROWS / 2) + row, i);
			part->hidden[row][h] = sum > 0 ? sum : 0;
		}
	coll_must(part->self, 0, zinf_reshard(part->self->zinf, part->up));
	return 0;
}

/* What its columns give to the outputs. */
static inline int forward_down(struct part *part)
{
	uint32_t width = part->end - part->first;

	coll_must(part->self, 0, zinf_unshard(part->self->zinf, part->down));
	for (uint32_t row = 0; row < ROWS / 2; row++)
		for (uint32_t o = 0; o < OUTPUTS; o++) {
			float sum = 0;

			for (uint32_t h = part->first; h < part->end; h++)
				sum += values_of(part, part->down)[o * width + h - part->first] *
				       part->hidden[row][h];
			part->outputs[row][o] = sum;
		}
	return 0; /* It stays for backward. */
}

/* Of this replica's rows, which are half of all. */
static inline int differences_of(struct part *part, uint32_t step, double *ret_loss)
{
	double loss = 0;

	coll_must(part->self, 0, zinf_unshard(part->self->zinf, part->bias));
	for (uint32_t row = 0; row < ROWS / 2; row++)
		for (uint32_t o = 0; o < OUTPUTS; o++) {
			float *difference = &part->differences[row][o];

			*difference = part->outputs[row][o] + values_of(part, part->bias)[o] -
			              (float)t_at(step, part->replica * (ROWS / 2) + row, o);
			loss += 0.5 * (double)*difference * (double)*difference;
		}
	coll_must(part->self, 0, zinf_reshard(part->self->zinf, part->bias));
	*ret_loss = loss / (ROWS / 2);
	return 0;
}

static inline int hand_over(struct part *part, uint32_t unit)
{
	coll_must(part->self, 0, zinf_reduce(part->self->zinf, unit));
	return 0;
}

static inline int acquire(struct part *part, uint32_t unit, uint32_t count, float **ret_grad)
{
	coll_must(part->self, 0, zinf_grad_acquire(part->self->zinf, unit));
	*ret_grad = zinf_grad_data(part->self->zinf, unit);
	memset(*ret_grad, 0, count * sizeof(float));
	return 0;
}

static inline int backward_bias(struct part *part)
{
	float *grad;

	if (acquire(part, part->bias, OUTPUTS, &grad))
		return 1;
	for (uint32_t row = 0; row < ROWS / 2; row++)
		for (uint32_t o = 0; o < OUTPUTS; o++)
			grad[o] += part->differences[row][o] / (ROWS / 2);
	return hand_over(part, part->bias);
}

static inline int backward_down(struct part *part)
{
	uint32_t width = part->end - part->first;
	float *grad;

	if (acquire(part, part->down, OUTPUTS * width, &grad))
		return 1;
	for (uint32_t row = 0; row < ROWS / 2; row++)
		for (uint32_t h = part->first; h < part->end; h++) {
			float back = 0;

			for (uint32_t o = 0; o < OUTPUTS; o++) {
				uint32_t place = o * width + h - part->first;

				grad[place] += part->differences[row][o] * part->hidden[row][h] /
				               (ROWS / 2);
				back += values_of(part, part->down)[place] *
				        part->differences[row][o];
			}
			part->back[row][h] = back;
		}
	coll_must(part->self, 0, zinf_reshard(part->self->zinf, part->down));
	return hand_over(part, part->down);
}

static inline int backward_up(struct part *part, uint32_t step)
{
	float *grad;

	if (acquire(part, part->up, (part->end - part->first) * INPUTS, &grad))
		return 1;
	for (uint32_t row = 0; row < ROWS / 2; row++)
		for (uint32_t h = part->first; h < part->end; h++)
			for (uint32_t i = 0; i < INPUTS && part->hidden[row][h] > 0; i++)
				grad[(h - part->first) * INPUTS + i] +=
					part->back[row][h] *
					(float)x_at(step, part->replica * (ROWS / 2) + row, i) /
					(ROWS / 2);
	return hand_over(part, part->up);
}

static inline int begin_step(struct part *part)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;

	options.lr = RATE;
	options.beta1 = options.beta2 = 0;
	options.want_norm = true;
	coll_must(part->self, 0, zinf_step_begin(part->self->zinf, &options));
	return 0;
}

/* @loss: of this rank's replica; of ranks that know it @weight is what they count for. */
static inline int end_step(struct part *part, uint32_t step, double loss, double weight)
{
	struct zinf_step_stats stats = { .bytes = sizeof(stats) };
	float mean = (float)(loss * weight);
	zinf_ticket ticket;

	coll_must(part->self, 0, zinf_step(part->self->zinf, NULL, 0, &ticket));
	coll_must(part->self, 0, zinf_wait(part->self->zinf, ticket, &stats));
	coll_must(
		part->self, 0,
		zinf_coll_all_reduce(part->self->zinf, &mean, &mean, 1, ZINF_F32, ZINF_SUM, NULL));
	coll_check(part->self, (double)mean == plain.losses[step]);
	coll_check(part->self, stats.norm == plain.norms[step]);
	return 0;
}

/* Every rank sees every unit, also those of others. */
static inline int compare(struct coll_rank *self, uint32_t unit, uint32_t count,
                          const double *expected, uint32_t first, uint32_t width, uint32_t stride)
{
	const float *values;

	coll_must(self, 0, zinf_unshard(self->zinf, unit));
	values = zinf_param_data(self->zinf, unit);
	for (uint32_t i = 0; i < count; i++)
		coll_check(self,
		           (double)values[i] == expected[first + i / width * stride + i % width]);
	coll_must(self, 0, zinf_reshard(self->zinf, unit));
	return 0;
}

static inline int sub_groups(struct coll_rank *self, const uint32_t pairs[2][2],
                             zinf_group *ret_mine)
{
	zinf_group group;

	for (uint32_t i = 0; i < 2; i++) {
		coll_must(self, 0, zinf_coll_group(self->zinf, pairs[i], 2, NULL, &group));
		if (group != ZINF_GROUP_NONE)
			*ret_mine = group;
	}
	return 0;
}

/* Job "grid", attached with collectives. */
static inline int attach(struct coll_rank *self)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;

	options.socket_path = self->scene->harness.socket_path;
	options.job = "grid";
	if (far.places) {
		options.job = far.job;
		if (far.places[self->rank] == '1')
			options.socket_path = far.harness.socket_path;
		far_set_number("LOCAL_WORLD_SIZE", 2);
		far_set_number("MASTER_PORT", far.port - 1);
		coll_must(self, 0, setenv("MASTER_ADDR", "127.0.0.1", 1));
	}
	options.incarnation = self->scene->incarnation;
	options.rank = (int32_t)self->rank;
	options.world_size = (int32_t)self->world;
	options.timeout_ms = self->scene->timeout_ms;
	options.optimizer = ZINF_SGD;
	options.offload_optimizer = offload;
	options.strategy = strategy;
	if (zinf_attach(&options, &self->zinf)) {
		fprintf(stderr, "rank %u: attach: %s\n", self->rank, zinf_attach_error());
		return 1;
	}
	coll_must(self, 0, zinf_coll_open(self->zinf, COLL_ARENA));
	return 0;
}

/* ---- tensor-parallel: ranks 0 and 1 are one replica, each with half of the hidden layer ---- */

static inline int tensor_step(struct part *part, uint32_t step)
{
	struct zinf *zinf = part->self->zinf;
	double loss;

	if (begin_step(part) || forward_up(part, step) || forward_down(part))
		return 1;
	coll_must(part->self, 0,
	          zinf_coll_all_reduce(zinf, part->outputs, part->outputs, OUTPUTS * (ROWS / 2),
	                               ZINF_F32, ZINF_SUM, &part->peer));
	if (differences_of(part, step, &loss) || backward_bias(part) || backward_down(part) ||
	    backward_up(part, step))
		return 1;
	return end_step(part, step, loss, 0.25);
}

static inline int tensor_body(void *arg)
{
	static const uint32_t pairs[2][2] = { { 0, 1 }, { 2, 3 } };
	struct coll_rank *self = arg;
	struct part *part = calloc(1, sizeof(*part));
	uint32_t shard = self->rank % 2;
	uint32_t up[2], down[2];

	if (!part || attach(self))
		return 1;
	*part = (struct part){ .self = self,
		               .replica = self->rank / 2,
		               .first = shard * SHARD,
		               .end = (shard + 1) * SHARD,
		               .peer = ZINF_COLL_OPTIONS_INIT };
	if (sub_groups(self, pairs, &part->peer.group) ||
	    add(self, "left", 0, 2, "up.left", SHARD, INPUTS, &up[0]) ||
	    add(self, "left", 0, 2, "down.left", OUTPUTS, SHARD, &down[0]) ||
	    add(self, "right", 1, 3, "up.right", SHARD, INPUTS, &up[1]) ||
	    add(self, "right", 1, 3, "down.right", OUTPUTS, SHARD, &down[1]) ||
	    add(self, "all", 0, 0, "bias", 1, OUTPUTS, &part->bias))
		return 1;
	part->up = up[shard];
	part->down = down[shard];
	coll_must(self, 0, zinf_materialize(self->zinf));
	for (uint32_t i = 0; i < 2; i++)
		if (write_unit(self, up[i], i, SHARD * INPUTS, up_at, i * SHARD * INPUTS, INPUTS,
		               INPUTS) ||
		    write_unit(self, down[i], i + 2, DOWN / 2, down_at, i * SHARD, SHARD, HIDDEN))
			return 1;
	if (write_unit(self, part->bias, 3, OUTPUTS, bias_at, 0, OUTPUTS, 0))
		return 1;
	coll_must(self, 0, zinf_commit(self->zinf, NULL, 0));
	for (uint32_t step = 0; step < STEPS; step++)
		if (tensor_step(part, step))
			return 1;
	for (uint32_t i = 0; i < 2; i++)
		if (compare(self, up[i], UP / 2, plain.net.up, i * UP / 2, INPUTS, INPUTS) ||
		    compare(self, down[i], DOWN / 2, plain.net.down, i * SHARD, SHARD, HIDDEN))
			return 1;
	if (compare(self, part->bias, OUTPUTS, plain.net.bias, 0, OUTPUTS, 0))
		return 1;
	coll_check(self, !zinf_grad_data(self->zinf, up[!shard]));
	/* What is divided over nodes is to be had as long as its owners are there. */
	coll_must(self, 0, zinf_barrier(self->zinf));
	zinf_detach(self->zinf);
	free(part);
	return 0;
}

/* ---- pipeline-parallel: ranks 0 and 1 have the first layer, 2 and 3 the second ---- */

static inline int first_stage_step(struct part *part, uint32_t step)
{
	struct zinf *zinf = part->self->zinf;

	if (begin_step(part) || forward_up(part, step))
		return 1;
	coll_must(
		part->self, 0,
		zinf_coll_send(zinf, part->hidden, HIDDEN * (ROWS / 2), ZINF_F32, 1, &part->peer));
	coll_must(part->self, 0,
	          zinf_coll_recv(zinf, part->back, HIDDEN * (ROWS / 2), ZINF_F32, 1, &part->peer));
	return backward_up(part, step) || end_step(part, step, 0, 0);
}

static inline int second_stage_step(struct part *part, uint32_t step)
{
	struct zinf *zinf = part->self->zinf;
	double loss;

	if (begin_step(part))
		return 1;
	coll_must(
		part->self, 0,
		zinf_coll_recv(zinf, part->hidden, HIDDEN * (ROWS / 2), ZINF_F32, 0, &part->peer));
	if (forward_down(part) || differences_of(part, step, &loss) || backward_bias(part) ||
	    backward_down(part))
		return 1;
	coll_must(part->self, 0,
	          zinf_coll_send(zinf, part->back, HIDDEN * (ROWS / 2), ZINF_F32, 0, &part->peer));
	return end_step(part, step, loss, 0.5);
}

static inline int pipeline_body(void *arg)
{
	static const uint32_t pairs[2][2] = { { 0, 2 }, { 1, 3 } };
	struct coll_rank *self = arg;
	struct part *part = calloc(1, sizeof(*part));

	if (!part || attach(self))
		return 1;
	*part = (struct part){ .self = self,
		               .replica = self->rank % 2,
		               .end = HIDDEN,
		               .peer = ZINF_COLL_OPTIONS_INIT };
	if (sub_groups(self, pairs, &part->peer.group) ||
	    add(self, "first", 0, 1, "up", HIDDEN, INPUTS, &part->up) ||
	    add(self, "second", 2, 3, "down", OUTPUTS, HIDDEN, &part->down) ||
	    add(self, "second", 2, 3, "bias", 1, OUTPUTS, &part->bias))
		return 1;
	coll_must(self, 0, zinf_materialize(self->zinf));
	if (write_unit(self, part->up, 1, UP, up_at, 0, UP, 0) ||
	    write_unit(self, part->down, 2, DOWN, down_at, 0, DOWN, 0) ||
	    write_unit(self, part->bias, 3, OUTPUTS, bias_at, 0, OUTPUTS, 0))
		return 1;
	coll_must(self, 0, zinf_commit(self->zinf, NULL, 0));
	for (uint32_t step = 0; step < STEPS; step++)
		if (self->rank < 2 ? first_stage_step(part, step) : second_stage_step(part, step))
			return 1;
	if (compare(self, part->up, UP, plain.net.up, 0, UP, 0) ||
	    compare(self, part->down, DOWN, plain.net.down, 0, DOWN, 0) ||
	    compare(self, part->bias, OUTPUTS, plain.net.bias, 0, OUTPUTS, 0))
		return 1;
	/* What is divided over nodes is to be had as long as its owners are there. */
	coll_must(self, 0, zinf_barrier(self->zinf));
	zinf_detach(self->zinf);
	free(part);
	return 0;
}
