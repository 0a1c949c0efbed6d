/* SPDX-License-Identifier: Apache-2.0 */
/* A job to step; see subject.h. */
#include "bench/subject.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"

#define UNIT_ROWS    2048u
#define UNIT_COLUMNS 2048u /* 4 Mi elements: a matrix of a real model */

static_assert(UNIT_ROWS * UNIT_COLUMNS == SUBJECT_UNIT_ELEMENTS, "of a unit");

static int fail(const struct zinf *zinf, const char *what)
{
	fprintf(stderr, "bench: %s: %s\n", what,
	        zinf ? zinf_error_text(zinf) : zinf_attach_error());
	return -1;
}

int subject_open(struct subject *subject, const struct harness *harness, const char *job,
                 enum zinf_offload offload, uint32_t unit_count)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	uint64_t shape[2] = { UNIT_ROWS, UNIT_COLUMNS };
	struct zinf *zinf;

	options.socket_path = harness->socket_path;
	options.job = job;
	options.rank = 0;
	options.world_size = 1;
	options.param_dtype = options.grad_dtype = ZINF_BF16;
	options.offload_optimizer = offload;
	if (zinf_attach(&options, &zinf))
		return fail(NULL, "attach");
	*subject = (struct subject){ .zinf = zinf, .unit_count = unit_count };
	for (uint32_t i = 0; i < unit_count; i++) {
		char name[32];
		uint32_t unit, param;

		(void)snprintf(name, sizeof name, "unit.%u", i);
		if (zinf_unit_add(zinf, name, &unit) ||
		    zinf_param_add(zinf, name, 2, shape, &param))
			return fail(zinf, "layout");
	}
	if (zinf_materialize(zinf) || zinf_commit(zinf, NULL, 0))
		return fail(zinf, "materialize");
	for (uint32_t i = 0; i < unit_count; i++)
		memset(zinf_grad_data(zinf, i), 0x3c, (size_t)UNIT_ROWS * UNIT_COLUMNS * 2);
	return 0;
}

double subject_step_seconds(const struct subject *subject, struct zinf_step_stats *stats)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	uint64_t start_ns = zi_clock_now_ns();
	zinf_ticket ticket;

	stats->bytes = sizeof *stats;
	if (zinf_step_begin(subject->zinf, &options))
		return fail(subject->zinf, "step_begin");
	for (uint32_t i = 0; i < subject->unit_count; i++)
		if (zinf_grad_acquire(subject->zinf, i) || zinf_reduce(subject->zinf, i))
			return fail(subject->zinf, "reduce");
	if (zinf_step(subject->zinf, NULL, 0, &ticket) || zinf_wait(subject->zinf, ticket, stats))
		return fail(subject->zinf, "step");
	return (double)(zi_clock_now_ns() - start_ns) / 1e9;
}

void subject_close(struct subject *subject)
{
	zinf_detach(subject->zinf);
	subject->zinf = NULL;
}
