/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever a trainer gets wrong is answered at the call that is wrong, with an errno and a sentence
 * that holds the figures or names, and what can be mended goes on afterwards. Method: ranks attached
 * from threads of the test; each mistake is made, its answer looked at, and the right thing done after.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/ranks.h"
#include "tests/system/system.h"

#define OTHER_UID 65534u

TestSuite(badinput, .timeout = 120);

static struct harness harness;

static void start(const char *extra)
{
	system_start(&harness, &(struct harness_options){ .nvme_size = "16M", .extra = extra });
}

static void stop(void)
{
	cr_assert_eq(harness_stop(&harness), 0);
}

static struct zinf_options options_of(int32_t rank, int32_t world)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;

	options.socket_path = harness.socket_path;
	options.job = "mistaken";
	options.incarnation = "first";
	options.rank = rank;
	options.world_size = world;
	options.timeout_ms = 20000;
	return options;
}

static void expect_refused(const struct zinf_options *options, int error, const char *part)
{
	struct zinf *zinf = NULL;

	cr_assert_eq(zinf_attach(options, &zinf), error, "%s", zinf_attach_error());
	cr_assert_null(zinf);
	system_expect_text(zinf_attach_error(), part);
}

static struct zinf *attach(const struct zinf_options *options)
{
	struct zinf *zinf = NULL;

	cr_assert_eq(zinf_attach(options, &zinf), 0, "%s", zinf_attach_error());
	return zinf;
}

/* One unit of @elements, and one of 10. */
static void lay_out(struct zinf *zinf, uint64_t rows, uint64_t columns)
{
	const uint64_t shape[2] = { rows, columns }, ten = 10;
	uint32_t index;

	cr_assert_eq(zinf_unit_add(zinf, "body", &index), 0);
	cr_assert_eq(zinf_param_add(zinf, "body.weight", 2, shape, &index), 0);
	cr_assert_eq(zinf_unit_add(zinf, "head", &index), 0);
	cr_assert_eq(zinf_param_add(zinf, "head.bias", 1, &ten, &index), 0);
}

/* ---- two ranks at once ---- */

typedef int (*call_fn)(struct zinf *zinf);
struct peer {
	struct zinf *zinf;
	call_fn call;
	int result;
};

static void *run_peer(void *arg)
{
	struct peer *peer = arg;

	peer->result = peer->call(peer->zinf);
	return NULL;
}

/* Both call; rank 1's result to @ret_other. */
static int both(struct zinf *const zinf[2], call_fn call, int *ret_other)
{
	struct peer peer = { zinf[1], call, 0 };
	pthread_t thread;
	int r;

	cr_assert_eq(pthread_create(&thread, NULL, run_peer, &peer), 0);
	r = call(zinf[0]);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	*ret_other = peer.result;
	return r;
}

static int commit(struct zinf *zinf)
{
	return zinf_commit(zinf, NULL, 0);
}

static int step_and_wait(struct zinf *zinf)
{
	zinf_ticket ticket;
	int r = zinf_step(zinf, NULL, 0, &ticket);

	return r ? r : zinf_wait(zinf, ticket, NULL);
}

/* A job of two ranks that stands at step 0. */
static void make_pair(struct zinf *zinf[2])
{
	int other;

	for (int32_t rank = 0; rank < 2; rank++) {
		struct zinf_options options = options_of(rank, 2);

		zinf[rank] = attach(&options);
		lay_out(zinf[rank], 30, 40);
	}
	cr_assert_eq(both(zinf, zinf_materialize, &other), 0, "%s", zinf_error_text(zinf[0]));
	cr_assert_eq(other, 0);
	cr_assert_eq(both(zinf, commit, &other), 0, "%s", zinf_error_text(zinf[0]));
	cr_assert_eq(other, 0);
}

static void end_pair(struct zinf *zinf[2])
{
	zinf_detach(zinf[1]);
	zinf_detach(zinf[0]);
}

/* ---- attaching ---- */

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
	options.schedule = ZINF_SHARDED;
	expect_refused(&options, -EINVAL, "schedule is sharded, but local");
	options = options_of(1, 2);
	options.staging_bytes = 1 << 20;
	expect_refused(&options, -EINVAL, "staging_bytes is 1 MiB");
	options = options_of(1, 2);
	options.grad_dtype = ZINF_BF16;
	expect_refused(&options, -EINVAL, "grad_dtype");
	zinf_detach(zinf);
	stop();
}

Test(badinput, what_is_not_built_says_so)
{
	struct zinf_options options;

	start(NULL);
	options = options_of(0, 1);
	options.param_dtype = options.grad_dtype = ZINF_F16;
	expect_refused(&options, -EOPNOTSUPP, "f16");
	options = options_of(0, 1);
	options.offload_param = ZINF_OFFLOAD_NVME;
	expect_refused(&options, -EOPNOTSUPP, "offload_param nvme");
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
	return strstr(zinf_attach_error(), "uid 0") ? 0 : 3;
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

Test(badinput, who_does_not_come_is_named)
{
	struct zinf_options options;
	struct zinf *zinf;

	start(NULL);
	options = options_of(0, 2);
	options.timeout_ms = 200;
	zinf = attach(&options);
	lay_out(zinf, 30, 40);
	cr_assert_eq(zinf_materialize(zinf), -ETIMEDOUT);
	system_expect_text(zinf_error_text(zinf), "rank 1 is not attached");
	zinf_detach(zinf);
	stop();
}

/* ---- steps ---- */

static void do_unit(struct zinf *zinf, uint32_t unit, uint64_t elements)
{
	cr_assert_eq(zinf_unshard(zinf, unit), 0, "%s", zinf_error_text(zinf));
	cr_assert_eq(zinf_grad_acquire(zinf, unit), 0, "%s", zinf_error_text(zinf));
	memset(zinf_grad_data(zinf, unit), 0, elements * sizeof(float));
	cr_assert_eq(zinf_reduce(zinf, unit), 0, "%s", zinf_error_text(zinf));
	cr_assert_eq(zinf_reshard(zinf, unit), 0, "%s", zinf_error_text(zinf));
}

Test(badinput, a_step_with_gradients_missing_names_the_unit_and_can_be_mended)
{
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	struct zinf *zinf[2];
	zinf_ticket ticket;
	int other;

	start(NULL);
	make_pair(zinf);
	for (int rank = 0; rank < 2; rank++) {
		cr_assert_eq(zinf_step_begin(zinf[rank], &step), 0);
		do_unit(zinf[rank], 1, 10);
	}
	cr_assert_eq(zinf_step(zinf[0], NULL, 0, &ticket), -ENODATA);
	system_expect_text(zinf_error_text(zinf[0]), "body");
	for (int rank = 0; rank < 2; rank++)
		do_unit(zinf[rank], 0, 1200);
	cr_assert_eq(both(zinf, step_and_wait, &other), 0, "%s", zinf_error_text(zinf[0]));
	cr_assert_eq(other, 0);
	end_pair(zinf);
	stop();
}

Test(badinput, a_step_with_a_unit_still_unsharded_names_it_and_can_be_mended)
{
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	struct zinf *zinf[2];
	zinf_ticket ticket;
	int other;

	start(NULL);
	make_pair(zinf);
	for (int rank = 0; rank < 2; rank++) {
		cr_assert_eq(zinf_step_begin(zinf[rank], &step), 0);
		do_unit(zinf[rank], 1, 10);
		do_unit(zinf[rank], 0, 1200);
	}
	cr_assert_eq(zinf_unshard(zinf[0], 1), 0);
	cr_assert_eq(zinf_step(zinf[0], NULL, 0, &ticket), -EBUSY);
	system_expect_text(zinf_error_text(zinf[0]), "head");
	cr_assert_eq(zinf_reshard(zinf[0], 1), 0);
	cr_assert_eq(both(zinf, step_and_wait, &other), 0, "%s", zinf_error_text(zinf[0]));
	cr_assert_eq(other, 0);
	end_pair(zinf);
	stop();
}

Test(badinput, step_options_that_differ_are_named_with_both_values)
{
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	struct zinf *zinf[2];

	start(NULL);
	make_pair(zinf);
	step.lr = 0.25;
	cr_assert_eq(zinf_step_begin(zinf[0], &step), 0);
	step.lr = 0.5;
	cr_assert_eq(zinf_step_begin(zinf[1], &step), -EINVAL);
	system_expect_text(zinf_error_text(zinf[1]), "lr is 0.5 in rank 1, but 0.25 in rank 0");
	step.lr = 0.25;
	step.nesterov = true;
	cr_assert_eq(zinf_step_begin(zinf[1], &step), -EINVAL);
	system_expect_text(zinf_error_text(zinf[1]), "nesterov");
	step.nesterov = false;
	cr_assert_eq(zinf_step_begin(zinf[1], &step), 0);
	end_pair(zinf);
	stop();
}

Test(badinput, calls_at_the_wrong_time_are_refused_one_by_one)
{
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	static char blob[ZINF_BLOB_BYTES + 1];
	struct zinf *zinf[2];
	zinf_ticket ticket;

	start(NULL);
	make_pair(zinf);
	cr_assert_eq(zinf_step(zinf[0], NULL, 0, &ticket), -EINVAL);
	cr_assert_eq(zinf_reshard(zinf[0], 0), -EINVAL);
	cr_assert_eq(zinf_unshard(zinf[0], 2), -EINVAL);
	system_expect_text(zinf_error_text(zinf[0]), "unit 2");
	cr_assert_eq(zinf_param_write_end(zinf[0], 0, 7), -EINVAL);
	system_expect_text(zinf_error_text(zinf[0]), "root 7");
	step.micro_batches = 2;
	cr_assert_eq(zinf_step_begin(zinf[0], &step), -EINVAL);
	system_expect_text(zinf_error_text(zinf[0]), "micro_batches is 2");
	step.micro_batches = 1;
	cr_assert_eq(zinf_step_begin(zinf[0], &step), 0);
	cr_assert_eq(zinf_param_write_begin(zinf[0], 0), -EBUSY);
	do_unit(zinf[0], 0, 1200);
	cr_assert_eq(zinf_reduce(zinf[0], 0), -EALREADY);
	cr_assert_eq(zinf_step(zinf[0], blob, sizeof(blob), &ticket), -EINVAL);
	system_expect_text(zinf_error_text(zinf[0]), "65537");
	cr_assert_eq(zinf_ping(zinf[0]), 0);
	end_pair(zinf);
	stop();
}
