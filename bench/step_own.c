/* SPDX-License-Identifier: Apache-2.0 */
/* One of our ranks; see step_own.h, coll_order.h. What it calls is the public interface alone. */
#include "bench/step_own.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/coll_order.h"
#include "tests/harness/patience.h"
#include "zinf/zinf.h"

/* A call that says nothing within this time is a fault of ours, to be seen as one. */
#define TIMEOUT_MS 60000u
#define ROWS       2048u
#define COLUMNS    2048u /* 4 Mi elements: a matrix of a real model */
#define STEP_LR    1e-3

struct own {
	struct zinf *zinf;
	uint32_t rank, world, unit_count;
	bool is_bf16;
};

/* Gradients of 0.5: every rank's, so their average as well. */
static void fill(void *gradient, bool is_bf16)
{
	float *wide = gradient;
	uint16_t *narrow = gradient;

	for (uint32_t i = 0; i < ROWS * COLUMNS; i++)
		if (is_bf16)
			narrow[i] = 0x3f00;
		else
			wide[i] = 0.5f;
}

static int own_open(struct own *own, uint64_t gradient_bytes)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	const uint64_t shape[2] = { ROWS, COLUMNS };
	uint64_t unit_bytes = (uint64_t)ROWS * COLUMNS * (own->is_bf16 ? 2 : 4);

	options.job = "step";
	options.rank = (int32_t)own->rank;
	options.world_size = own->world;
	options.timeout_ms = (uint32_t)(TIMEOUT_MS * patience());
	options.param_dtype = options.grad_dtype = own->is_bf16 ? ZINF_BF16 : ZINF_F32;
	options.offload_optimizer = ZINF_OFFLOAD_CPU;
	own->unit_count = (uint32_t)(gradient_bytes / unit_bytes);
	if (zinf_attach(&options, &own->zinf))
		return -1;
	for (uint32_t i = 0; i < own->unit_count; i++) {
		uint32_t unit, param;
		char name[32];

		(void)snprintf(name, sizeof name, "unit.%u", i);
		if (zinf_unit_add(own->zinf, name, &unit) ||
		    zinf_param_add(own->zinf, name, 2, shape, &param))
			return -1;
	}
	if (zinf_materialize(own->zinf) || zinf_commit(own->zinf, NULL, 0))
		return -1;
	for (uint32_t i = 0; i < own->unit_count; i++)
		fill(zinf_grad_data(own->zinf, i), own->is_bf16);
	return 0;
}

int step_own_step(struct zinf *zinf, uint32_t unit_count, const struct zinf_step_options *options,
                  struct zinf_step_stats *stats)
{
	zinf_ticket ticket;
	int r = zinf_step_begin(zinf, options);

	for (uint32_t i = unit_count; i-- > 0 && !r;) {
		r = zinf_grad_acquire(zinf, i);
		if (!r)
			r = zinf_reduce(zinf, i);
	}
	if (!r)
		r = zinf_step(zinf, NULL, 0, &ticket);
	return r ? r : zinf_wait(zinf, ticket, stats);
}

static int step(const struct own *own)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;

	options.lr = STEP_LR;
	options.weight_decay = 0;
	return step_own_step(own->zinf, own->unit_count, &options, NULL);
}

/* The first step from zero moves each parameter by lr, whatever its gradient is: what is measured
 * does compute. */
static int check(const struct own *own)
{
	uint32_t unit = own->unit_count - 1;
	const void *data;
	float value;
	int r;

	r = zinf_unshard(own->zinf, unit);
	if (r)
		return r;
	data = zinf_param_data(own->zinf, unit);
	if (own->is_bf16) {
		uint32_t bits = (uint32_t)((const uint16_t *)data)[ROWS * COLUMNS - 1] << 16;

		memcpy(&value, &bits, sizeof value);
	} else {
		value = ((const float *)data)[ROWS * COLUMNS - 1];
	}
	if (fabs((double)value + STEP_LR) > STEP_LR / 100) {
		fprintf(stderr, "bench: a parameter is %g after a step of %g\n", (double)value,
		        STEP_LR);
		return -1;
	}
	return zinf_reshard(own->zinf, unit);
}

static int obey(void *arg, int fd, const struct coll_order *order)
{
	const struct own *own = arg;
	uint64_t started_ns;
	int r;

	r = zinf_barrier(own->zinf);
	started_ns = coll_now_ns();
	for (uint32_t i = 0; i < order->iterations && !r; i++)
		r = step(own);
	if (r)
		fprintf(stderr, "bench: rank %u: %s\n", own->rank, zinf_error_text(own->zinf));
	else
		coll_rank_answer(fd, started_ns, coll_now_ns());
	return r;
}

int step_own_rank(int argc, char **argv)
{
	struct own own = { .rank = coll_rank_number("RANK"),
		           .world = coll_rank_number("WORLD_SIZE") };
	uint64_t bytes = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
	char words[COLL_PACKET_BYTES];
	bool is_served;

	own.is_bf16 = argc > 2 && !strcmp(argv[2], "bf16");
	if (own_open(&own, bytes) || step(&own) || check(&own))
		(void)snprintf(words, sizeof words, "skip %.200s",
		               own.zinf ? zinf_error_text(own.zinf) : zinf_attach_error());
	else
		(void)snprintf(words, sizeof words, "ready zinf " ZINF_VERSION);
	is_served = coll_rank_serve(own.rank, words, obey, &own);
	zinf_detach(own.zinf);
	return is_served ? EXIT_SUCCESS : EXIT_FAILURE;
}
