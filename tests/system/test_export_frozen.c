/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: planes of an export have zeros where a job keeps nothing, however much that is beside what
 * it keeps. Method: a unit that is frozen whole has no state; it is larger than the one that is
 * trained, so that its state would be longer than anything that the daemon hands out.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/system/files.h"
#include "tests/system/system.h"

#define FROZEN_ELEMENTS 8192u
#define HEAD_ELEMENTS   100u

TestSuite(export_frozen, .init = files_start, .fini = files_stop, .timeout = 120);

/* In a process of its own: what it is sent stays charged while it lives. */
static int train(void *arg)
{
	static const uint64_t body[] = { FROZEN_ELEMENTS }, head[] = { HEAD_ELEMENTS };
	struct zinf_options options = ZINF_OPTIONS_INIT;
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	uint32_t unit, frozen, param;
	struct zinf *zinf;
	zinf_ticket ticket;
	float *gradient;
	int r;

	(void)arg;
	options.socket_path = harness.socket_path;
	options.job = "base";
	options.world_size = 1;
	options.rank = 0;
	options.offload_optimizer = ZINF_OFFLOAD_NVME;
	options.staging_bytes = 8 << 20;
	if (zinf_attach(&options, &zinf))
		return 2;
	r = zinf_unit_add(zinf, "body", &unit);
	r = r ? r : zinf_param_add(zinf, "body.0", 1, body, &frozen);
	r = r ? r : zinf_param_group(zinf, frozen, ZINF_GROUP_FROZEN);
	r = r ? r : zinf_unit_add(zinf, "head", &unit);
	r = r ? r : zinf_param_add(zinf, "head.0", 1, head, &param);
	r = r ? r : zinf_materialize(zinf);
	r = r ? r : zinf_commit(zinf, NULL, 0);
	r = r ? r : zinf_step_begin(zinf, &step);
	r = r ? r : zinf_grad_acquire(zinf, unit);
	if (r)
		return 3;
	gradient = zinf_grad_data(zinf, param);
	for (uint32_t i = 0; i < HEAD_ELEMENTS; i++)
		gradient[i] = 1;
	r = zinf_reduce(zinf, unit);
	r = r ? r : zinf_step(zinf, NULL, 0, &ticket);
	r = r ? r : zinf_wait(zinf, ticket, NULL);
	zinf_detach(zinf);
	return r ? 4 : 0;
}

static void check_moment(const char *path)
{
	static float values[FROZEN_ELEMENTS + HEAD_ELEMENTS];
	FILE *file = fopen(path, "rb");
	uint64_t head_bytes;

	cr_assert_not_null(file, "%s", path);
	cr_assert_eq(fread(&head_bytes, sizeof(head_bytes), 1, file), 1);
	cr_assert_eq(fseek(file, (long)head_bytes, SEEK_CUR), 0);
	cr_assert_eq(fread(values, sizeof(values), 1, file), 1);
	(void)fclose(file);
	for (uint32_t i = 0; i < FROZEN_ELEMENTS; i++)
		cr_assert_eq(values[i], 0, "%s: element %u is %g", path, i, (double)values[i]);
	cr_assert_neq(values[FROZEN_ELEMENTS], 0);
}

Test(export_frozen, what_has_no_state_is_zeros)
{
	cr_assert_eq(harness_wait(harness_fork(train, NULL), 60000), 0);
	RUN(0, "snapshot", "base", "--name", "one");
	RUN(0, "export", "base/one", path_of("all"), "--format", "zinf");
	check_moment(path_of("all/exp_avg.safetensors"));
	check_moment(path_of("all/exp_avg_sq.safetensors"));
}
