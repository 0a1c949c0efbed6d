/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what zctl estimate says of a job that trains nothing is what zctl jobs then measures, with
 * neither gradients nor state. Method: the test is its one rank, with values that it gives, and
 * with those of a snapshot.
 */
#include "tests/system/estimate.h"

TestSuite(estimate_forward, .init = start, .fini = stop, .timeout = 120);

/* This process is a rank; two units of 1 M elements, given or of a snapshot. */
static struct zinf *use(const char *job, enum zinf_offload param, const char *load)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	struct zinf *zinf;
	uint32_t index;

	options.socket_path = harness.socket_path;
	options.job = job;
	options.rank = 0;
	options.world_size = 1;
	options.param_dtype = options.grad_dtype = ZINF_BF16;
	options.offload_optimizer = ZINF_OFFLOAD_NVME;
	options.offload_param = param;
	options.is_forward_only = true;
	options.strategy = ZINF_ZERO3;
	cr_assert_eq(zinf_attach(&options, &zinf), 0, "%s", zinf_attach_error());
	for (uint32_t i = 0; i < 3; i++) {
		char name[8];

		(void)snprintf(name, sizeof(name), "u%u", i);
		cr_assert_eq(zinf_unit_add(zinf, name, &index), 0);
		cr_assert_eq(zinf_param_add(zinf, name, 1, (uint64_t[]){ 1000000 }, &index), 0);
	}
	if (load)
		cr_assert_eq(zinf_load(zinf, load), 0, "%s", zinf_error_text(zinf));
	cr_assert_eq(zinf_materialize(zinf), 0, "%s", zinf_error_text(zinf));
	for (uint32_t i = 0; i < 3 && !load; i++) {
		cr_assert_eq(zinf_param_write_begin(zinf, i), 0, "%s", zinf_error_text(zinf));
		memset((void *)zinf_param_data(zinf, i), (int)i + 1, 2000000);
		cr_assert_eq(zinf_param_write_end(zinf, i, 0), 0, "%s", zinf_error_text(zinf));
	}
	if (!load)
		cr_assert_eq(zinf_commit(zinf, "blob", 4), 0, "%s", zinf_error_text(zinf));
	return zinf;
}

static void expect_values(struct zinf *zinf)
{
	for (uint32_t i = 0; i < 3; i++) {
		cr_assert_eq(zinf_unshard(zinf, i), 0, "%s", zinf_error_text(zinf));
		cr_expect_eq(((const uint8_t *)zinf_param_data(zinf, i))[1999999], i + 1);
		cr_assert_eq(zinf_reshard(zinf, i), 0);
	}
}

/* What runs is estimated by a description of it, and shown as what it is. */
static void check_forward(const char *job, enum zinf_offload param, const char *load)
{
	const char *options = param == ZINF_OFFLOAD_NVME
	                              ? "--offload-optimizer nvme --offload-param nvme"
	                              : "--offload-optimizer nvme";
	struct zinf *zinf = use(job, param, load);
	char line[200];
	json_t *held, *estimate;

	expect_values(zinf);
	(void)snprintf(line, sizeof(line),
	               "estimate 3M --units 3 --forward-only --strategy zero3 %s", options);
	held = ask_job();
	estimate = harness_admin(&harness, line);
	cr_assert_not_null(estimate);
	compare_planes(estimate, held);
	if (!load)
		compare("copies",
		        (uint64_t)json_integer_value(
				json_object_get(estimate, "write_buffer_bytes")),
		        copy_bytes(held));
	for (size_t i = 0; i < 2; i++) {
		cr_expect_eq(bytes_of(held, "grad", i ? "cpu_bytes" : "nvme_bytes"), 0);
		cr_expect_eq(bytes_of(held, "state", i ? "cpu_bytes" : "nvme_bytes"), 0);
	}
	cr_expect(
		json_equal(json_object_get(estimate, "logical"), json_object_get(held, "logical")));
	cr_expect(json_is_true(json_object_get(held, "is_forward_only")));
	cr_expect(json_is_false(json_object_get(held, "has_state")));
	json_decref(held);
	json_decref(estimate);
	cr_assert_eq(harness_zctl(harness.socket_path, (const char *const[]){ "jobs", job, NULL },
	                          words, sizeof(words)),
	             0, "%s", words);
	system_expect_text(words, "forward only: neither gradients nor optimizer state");
	cr_assert_eq(zinf_destroy_job(zinf), 0, "%s", zinf_error_text(zinf));
}

Test(estimate_forward, forward_only_is_what_is_held)
{
	struct zinf *zinf = use("given", ZINF_OFFLOAD_NONE, NULL);

	cr_assert_eq(harness_zctl(harness.socket_path,
	                          (const char *const[]){ "snapshot", "given", "--name", "a", NULL },
	                          words, sizeof(words)),
	             0, "%s", words);
	cr_assert_eq(zinf_destroy_job(zinf), 0, "%s", zinf_error_text(zinf));
	check_forward("given", ZINF_OFFLOAD_NONE, NULL);
	check_forward("given", ZINF_OFFLOAD_NVME, NULL);
	check_forward("loaded", ZINF_OFFLOAD_CPU, "given/a");
	check_forward("loaded", ZINF_OFFLOAD_NVME, "given/a");
	cr_assert_eq(harness_zctl(harness.socket_path,
	                          (const char *const[]){ "estimate", "3M", "--forward-only",
	                                                 "--nodes", "2", NULL },
	                          words, sizeof(words)),
	             0, "%s", words);
	system_expect_text(words, "strategy ddp, 1 rank on each of 2 nodes");
	cr_assert_eq(harness_zctl(harness.socket_path,
	                          (const char *const[]){ "estimate", "3M", "--forward-only",
	                                                 "--offload-optimizer", "nvme",
	                                                 "--offload-param", "nvme", NULL },
	                          words, sizeof(words)),
	             0, "%s", words);
	system_expect_text(words, "job: forward only, param bf16, strategy ddp, 1 rank\n");
	system_expect_text(words, "a pass over all units reads at most 5.7 MiB from NVMe");
}
