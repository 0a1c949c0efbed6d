/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever a trainer gets wrong when it attaches or describes its model is answered at the
 * call that is wrong, with an errno and a sentence that holds the figures or names; who did nothing
 * wrong goes on.
 * Method: ranks attached from threads of the test; each mistake is made and its answer looked at.
 */
#include <unistd.h>

#include "tests/system/pair.h"

#define OTHER_UID 65534u

TestSuite(badinput, .timeout = 120);

Test(badinput, no_daemon_is_told_with_its_path)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	char path[200];

	options.socket_path = "/nowhere/zinfd.sock";
	expect_refused(&options, -ENOENT, "/nowhere/zinfd.sock");
	memset(path, 'p', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	options.socket_path = path;
	expect_refused(&options, -ENAMETOOLONG, "too long");
	options.socket_path = "/nowhere/zinfd.sock";
	options.wait_for_daemon = true;
	options.timeout_ms = 50;
	expect_refused(&options, -ETIMEDOUT, "50 ms");
}

Test(badinput, a_rank_that_joins_twice_is_told_who_is_there)
{
	struct zinf_options options;
	struct zinf *zinf;
	char pid[32];

	start(NULL);
	options = options_of(1, 2);
	zinf = attach(&options);
	(void)snprintf(pid, sizeof(pid), "process %d", getpid());
	expect_refused(&options, -EBUSY, pid);
	system_expect_text(zinf_attach_error(), "rank 1");
	cr_assert_eq(zinf_ping(zinf), 0); /* the first is not harmed */
	zinf_detach(zinf);
	stop();
}

Test(badinput, a_world_of_another_size_is_told_with_both)
{
	struct zinf_options options;
	struct zinf *zinf;

	start(NULL);
	options = options_of(0, 2);
	zinf = attach(&options);
	options = options_of(1, 3);
	expect_refused(&options, -EINVAL, "world_size is 3, but 2");
	options = options_of(5, 5);
	expect_refused(&options, -EINVAL, "rank 5 of a world of 5");
	options = options_of(0, 65);
	expect_refused(&options, -EINVAL, "1 to 64");
	zinf_detach(zinf);
	stop();
}

Test(badinput, a_setting_that_differs_between_ranks_is_named)
{
	struct zinf_options options;
	struct zinf *zinf;

	start(NULL);
	options = options_of(0, 2);
	zinf = attach(&options);
	options = options_of(1, 2);
	options.optimizer = ZINF_SGD;
	expect_refused(&options, -EINVAL, "optimizer is sgd, but adamw");
	options = options_of(1, 2);
	options.grad_reduction = ZINF_REDUCE_PER_MICRO_BATCH;
	expect_refused(&options, -EINVAL, "grad_reduction is per_micro_batch, but per_step");
	options = options_of(1, 2);
	options.staging_bytes = 1 << 20;
	expect_refused(&options, -EINVAL, "staging_bytes is 1 MiB");
	options = options_of(1, 2);
	options.grad_dtype = ZINF_BF16;
	expect_refused(&options, -EINVAL, "grad_dtype");
	options = options_of(1, 2);
	options.strategy = ZINF_ZERO2;
	expect_refused(&options, -EINVAL, "strategy is zero2, but ddp in the other ranks");
	zinf_detach(zinf);
	options = options_of(0, 2);
	options.strategy = ZINF_ZERO3;
	zinf = attach(&options);
	options.rank = 1;
	options.shard_size = 1;
	expect_refused(&options, -EINVAL, "shard_size is 1, but 0 in the other ranks");
	zinf_detach(zinf);
	stop();
}

Test(badinput, what_is_not_built_says_so)
{
	struct zinf_options options;

	start(NULL);
	options = options_of(0, 1);
	options.param_dtype = ZINF_F32;
	options.grad_dtype = ZINF_F16;
	expect_refused(&options, -EINVAL, "grad_dtype f16 with param_dtype f32");
	options = options_of(0, 1);
	options.offload_param = ZINF_OFFLOAD_NVME;
	options.offload_optimizer = ZINF_OFFLOAD_CPU;
	expect_refused(&options, -EINVAL, "offload_param nvme needs offload_optimizer nvme");
	options = options_of(0, 1);
	options.grad_budget_bytes = 1 << 20;
	expect_refused(&options, -EINVAL, "grad_budget_bytes is 1 MiB, but strategy ddp");
	options.strategy = ZINF_ZERO2;
	options.accumulation = 4;
	expect_refused(&options, -EINVAL, "with accumulation 4 each rank adds up");
	options = options_of(0, 1);
	options.param_dtype = options.grad_dtype = ZINF_F16;
	options.reduce_dtype = ZINF_BF16;
	expect_refused(&options, -EINVAL, "reduce_dtype is bf16, but grad_dtype is f16: use f32");
	options = options_of(0, 1);
	options.group_count = 65;
	expect_refused(&options, -EINVAL, "group_count is 65: 0 to 64");
	stop();
}

/* 0: refused as it must be. */
static int attach_as_other(void *arg)
{
	struct zinf *zinf;

	if (setgid(OTHER_UID) || setuid(OTHER_UID))
		return 1;
	if (zinf_attach(arg, &zinf) != -EACCES)
		return 2;
	return strstr(zinf_attach_error(), "taken by another user") ? 0 : 3;
}

static int attach_without_the_right(void *arg)
{
	struct zinf *zinf;

	if (setgid(OTHER_UID) || setuid(OTHER_UID))
		return 1;
	if (zinf_attach(arg, &zinf) != -EACCES)
		return 2;
	return strstr(zinf_attach_error(), "daemon.socket_mode") &&
	                       strstr(zinf_attach_error(), "uid 65534")
	               ? 0
	               : 3;
}

Test(badinput, a_socket_that_is_not_for_this_uid_says_what_decides)
{
	struct zinf_options options;

	if (geteuid())
		cr_skip_test("becoming another uid needs root");
	system_start(&harness, &(struct harness_options){ .daemon_extra = "socket_mode = 0600\n" });
	options = options_of(0, 1);
	cr_assert_eq(harness_wait(harness_fork(attach_without_the_right, &options), 20000), 0);
	stop();
}

Test(badinput, nvme_without_a_store_says_how_to_get_one)
{
	struct zinf_options options;

	system_start(&harness, &(struct harness_options){ 0 });
	options = options_of(0, 1);
	options.offload_optimizer = ZINF_OFFLOAD_NVME;
	expect_refused(&options, -EOPNOTSUPP, "or use cpu");
	stop();
}

Test(badinput, a_job_of_another_uid_is_refused)
{
	struct zinf_options options;
	struct zinf *zinf;

	if (geteuid())
		cr_skip_test("becoming another uid needs root");
	start(NULL);
	options = options_of(0, 1);
	zinf = attach(&options);
	cr_assert_eq(harness_wait(harness_fork(attach_as_other, &options), 20000), 0);
	zinf_detach(zinf);
	stop();
}

/* ---- incarnations ---- */

Test(badinput, an_older_incarnation_is_refused_and_a_newer_one_takes_over)
{
	struct zinf_options options;
	struct zinf *old, *new;

	start(NULL);
	options = options_of(0, 1);
	old = attach(&options);
	options.incarnation = "second";
	new = attach(&options);
	cr_assert_eq(zinf_ping(old), -ESTALE);
	system_expect_text(zinf_error_text(old), "second");
	options.incarnation = "first";
	expect_refused(&options, -ESTALE, "'first'");
	system_expect_text(zinf_attach_error(), "second");
	cr_assert_eq(zinf_ping(new), 0);
	zinf_detach(old);
	zinf_detach(new);
	stop();
}

Test(badinput, a_nameless_start_needs_takeover_while_somebody_lives)
{
	struct zinf_options options;
	struct zinf *old, *new;

	(void)unsetenv("ZINF_INCARNATION");
	start(NULL);
	options = options_of(0, 1);
	old = attach(&options);
	options.incarnation = NULL;
	expect_refused(&options, -EBUSY, "takeover");
	options.takeover = true;
	new = attach(&options);
	cr_assert_eq(zinf_ping(old), -ESTALE);
	cr_assert_eq(zinf_ping(new), 0);
	zinf_detach(old);
	zinf_detach(new);
	stop();
}

/* ---- the model ---- */

Test(badinput, a_parameter_of_another_shape_is_named_with_both_shapes)
{
	struct zinf *zinf[2];
	int other, r;

	start(NULL);
	for (int32_t rank = 0; rank < 2; rank++) {
		struct zinf_options options = options_of(rank, 2);

		zinf[rank] = attach(&options);
		lay_out(zinf[rank], rank ? 31 : 30, 40);
	}
	r = both(zinf, zinf_materialize, &other);
	cr_assert_eq(r, -EINVAL, "%s", zinf_error_text(zinf[0]));
	cr_assert_eq(other, -EINVAL);
	for (int rank = 0; rank < 2; rank++) {
		system_expect_text(zinf_error_text(zinf[rank]), "body.weight");
		system_expect_text(zinf_error_text(zinf[rank]), "30");
		system_expect_text(zinf_error_text(zinf[rank]), "31");
		system_expect_text(zinf_error_text(zinf[rank]), "rank");
	}
	end_pair(zinf);
	stop();
}

Test(badinput, a_model_other_than_the_stored_one_is_refused)
{
	struct zinf_options options;
	struct zinf *zinf[2];

	start(NULL);
	make_pair(zinf);
	end_pair(zinf);
	options = options_of(0, 1);
	options.incarnation = "second";
	zinf[0] = attach(&options);
	lay_out(zinf[0], 30, 41);
	cr_assert_eq(zinf_materialize(zinf[0]), -EINVAL);
	system_expect_text(zinf_error_text(zinf[0]), "the stored job");
	system_expect_text(zinf_error_text(zinf[0]), "41");
	zinf_detach(zinf[0]);
	options.param_dtype = options.grad_dtype = ZINF_BF16;
	options.incarnation = "third";
	expect_refused(&options, -EINVAL, "param_dtype is bf16, but f32 in the stored job");
	stop();
}

Test(badinput, who_does_not_come_is_named_and_may_come_later)
{
	struct zinf_options options;
	struct zinf *zinf[2];
	uint32_t unit;
	int other;

	start(NULL);
	options = options_of(0, 2);
	options.timeout_ms = 1000;
	zinf[0] = attach(&options);
	lay_out(zinf[0], 30, 40);
	cr_assert_eq(zinf_materialize(zinf[0]), -ETIMEDOUT);
	system_expect_text(zinf_error_text(zinf[0]), "rank 1 is not attached");
	/* The model is told; the others are compared with it. */
	cr_assert_eq(zinf_unit_add(zinf[0], "more", &unit), -EINVAL);
	options = options_of(1, 2);
	zinf[1] = attach(&options);
	lay_out(zinf[1], 30, 40);
	cr_assert_eq(both(zinf, zinf_materialize, &other), 0, "%s", zinf_error_text(zinf[0]));
	cr_assert_eq(other, 0, "%s", zinf_error_text(zinf[1]));
	cr_assert_eq(zinf_materialize(zinf[0]), -EINVAL);
	system_expect_text(zinf_error_text(zinf[0]), "called before");
	end_pair(zinf);
	stop();
}
