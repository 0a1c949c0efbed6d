/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: options, then the launchers' environment, then defaults decide who a rank is; what makes no
 * sense is refused by name. Method: what the fake daemon received is compared; the environment is
 * set per test (each runs in a process of its own). */
#include <stdio.h>

#include "common/base/cleanup.h"
#include "tests/fake/fake_job.h"

static struct fake_daemon *fake;
static struct zinf_options options;

static void setup(void)
{
	const char *const names[] = { "ZINF_SOCKET",
		                      "ZINF_JOB",
		                      "RANK",
		                      "WORLD_SIZE",
		                      "SLURM_JOB_ID",
		                      "ZINF_INCARNATION",
		                      "TORCHELASTIC_RUN_ID",
		                      "TORCHELASTIC_RESTART_COUNT",
		                      "SLURM_RESTART_COUNT",
		                      "OMPI_MCA_ess_base_jobid",
		                      "LOCAL_RANK",
		                      "OMPI_COMM_WORLD_RANK",
		                      "OMPI_COMM_WORLD_SIZE",
		                      "SLURM_PROCID",
		                      "SLURM_NTASKS",
		                      "SLURM_STEP_ID",
		                      "LOCAL_WORLD_SIZE",
		                      "OMPI_COMM_WORLD_LOCAL_SIZE",
		                      "SLURM_STEP_TASKS_PER_NODE",
		                      "SLURM_NODEID" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
	fake = fake_daemon_start(&(struct fake_daemon_options){ .features = UINT64_MAX });
	options = (struct zinf_options)ZINF_OPTIONS_INIT;
	options.socket_path = fake_daemon_path(fake);
}

static void teardown(void)
{
	fake_daemon_stop(fake);
}

TestSuite(options, .init = setup, .fini = teardown);

/* Attaches and leaves; what the daemon saw. */
static const struct zi_attach *attach(void)
{
	struct zinf *zinf;

	cr_assert_eq(zinf_attach(&options, &zinf), 0, "%s", zinf_attach_error());
	zinf_detach(zinf);
	return fake_daemon_attach(fake);
}

static void expect_refused(int error, const char *word)
{
	struct zinf *zinf;

	cr_expect_eq(zinf_attach(&options, &zinf), error, "%s", word);
	expect_attach_text(word);
}

Test(options, defaults_are_those_of_the_header)
{
	const struct zi_attach *seen = attach();

	cr_assert_str_eq(seen->job, "default");
	cr_assert_str_eq(seen->incarnation, "");
	cr_assert_eq(seen->rank, 0);
	cr_assert_eq(seen->world_size, 1);
	cr_assert_eq(seen->flags, 0);
	cr_assert_eq(seen->timeout_ms, 600000);
	cr_assert_eq(seen->config.param_dtype, ZI_DTYPE_F32);
	cr_assert_eq(seen->config.optimizer, ZI_OPTIMIZER_ADAMW);
	cr_assert_eq(seen->config.schedule, ZI_SCHEDULE_LOCAL);
}

Test(options, all_that_is_set_is_sent)
{
	const struct zi_attach *seen;

	options.job = "gpt";
	options.incarnation = "run.7";
	options.rank = 2;
	options.world_size = 4;
	options.takeover = options.must_exist = true;
	options.timeout_ms = 9000;
	options.param_dtype = options.grad_dtype = ZINF_BF16;
	options.optimizer = ZINF_SGD;
	options.grad_reduction = ZINF_REDUCE_PER_MICRO_BATCH;
	options.offload_optimizer = ZINF_OFFLOAD_NVME;
	options.offload_param = ZINF_OFFLOAD_NVME;
	options.param_budget_bytes = 1 << 25;
	options.durability = ZINF_DURABILITY_POWER;
	options.resident_bytes = 1 << 30;
	options.staging_bytes = 1 << 20;
	setenv("RANK", "3", 1); /* loses */
	seen = attach();
	cr_assert_str_eq(seen->job, "gpt");
	cr_assert_str_eq(seen->incarnation, "run.7");
	cr_assert_eq(seen->rank, 2);
	cr_assert_eq(seen->world_size, 4);
	cr_assert_eq(seen->flags, ZI_ATTACH_TAKEOVER | ZI_ATTACH_MUST_EXIST);
	cr_assert_eq(seen->timeout_ms, 9000);
	cr_assert_eq(seen->config.param_dtype, ZI_DTYPE_BF16);
	cr_assert_eq(seen->config.grad_dtype, ZI_DTYPE_BF16);
	cr_assert_eq(seen->config.optimizer, ZI_OPTIMIZER_SGD);
	cr_assert_eq(seen->config.schedule, ZI_SCHEDULE_SHARDED);
	cr_assert_eq(seen->config.offload_optimizer, ZI_OFFLOAD_NVME);
	cr_assert_eq(seen->config.offload_param, ZI_OFFLOAD_NVME);
	cr_assert_eq(seen->config.param_budget_bytes, 1 << 25);
	cr_assert_eq(seen->config.durability, ZI_DURABILITY_POWER);
	cr_assert_eq(seen->config.resident_bytes, 1 << 30);
	cr_assert_eq(seen->config.staging_bytes, 1 << 20);
}

Test(options, a_job_that_must_exist_is_asked_of_a_daemon_that_knows_it)
{
	struct fake_daemon_options older = { .features = UINT64_MAX & ~ZI_FEATURE_EXIST };
	struct fake_daemon *other = fake_daemon_start(&older);
	struct zinf *zinf;

	options.must_exist = true;
	options.socket_path = fake_daemon_path(other);
	cr_expect_eq(zinf_attach(&options, &zinf), -EOPNOTSUPP);
	cr_expect_not_null(strstr(zinf_attach_error(), "must_exist is true, but zinfd at"), "%s",
	                   zinf_attach_error());
	fake_daemon_stop(other);
}

Test(options, environment_names_socket_job_and_rank)
{
	const struct zi_attach *seen;

	options.socket_path = NULL;
	setenv("ZINF_SOCKET", fake_daemon_path(fake), 1);
	setenv("ZINF_JOB", "from-env", 1);
	setenv("RANK", "5", 1);
	setenv("WORLD_SIZE", "8", 1);
	seen = attach();
	cr_assert_str_eq(seen->job, "from-env");
	cr_assert_eq(seen->rank, 5);
	cr_assert_eq(seen->world_size, 8);
}

Test(options, each_launcher_names_the_start_in_order)
{
	setenv("OMPI_MCA_ess_base_jobid", "1234", 1);
	cr_assert_str_eq(attach()->incarnation, "1234");
	setenv("SLURM_JOB_ID", "77", 1);
	cr_assert_str_eq(attach()->incarnation, "77.0");
	setenv("SLURM_RESTART_COUNT", "2", 1);
	cr_assert_str_eq(attach()->incarnation, "77.2");
	setenv("TORCHELASTIC_RUN_ID", "abc", 1);
	setenv("TORCHELASTIC_RESTART_COUNT", "3", 1);
	cr_assert_str_eq(attach()->incarnation, "abc.3");
	setenv("TORCHELASTIC_RUN_ID", "none", 1); /* torchrun's own, of every run */
	cr_assert_str_eq(attach()->incarnation, "");
	setenv("TORCHELASTIC_RUN_ID", "abc", 1);
	setenv("ZINF_INCARNATION", "mine", 1);
	cr_assert_str_eq(attach()->incarnation, "mine");
	setenv("ZINF_INCARNATION", "", 1); /* empty is unset */
	cr_assert_str_eq(attach()->incarnation, "abc.3");
	options.incarnation = "";
	cr_assert_str_eq(attach()->incarnation, "", "none, by wish");
}

Test(options, numbers_of_the_environment_are_read_strictly)
{
	const char *const bad[] = { "x",   "1x",         " 1",
		                    "+1",  "-1",         "1.0",
		                    "0x1", "2147483648", "99999999999999999999" };

	setenv("WORLD_SIZE", "4", 1);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		setenv("RANK", bad[i], 1);
		expect_refused(-EINVAL, "$RANK is '");
		expect_attach_text(bad[i]);
	}
	setenv("RANK", "0", 1);
	setenv("WORLD_SIZE", "two", 1);
	expect_refused(-EINVAL, "$WORLD_SIZE is 'two'");
	setenv("RANK", "", 1); /* empty is unset */
	setenv("WORLD_SIZE", "", 1);
	cr_assert_eq(attach()->world_size, 1);
}

/* A launcher's pair, both of its values. */
static void set_pair(const char *rank_name, const char *rank, const char *world_name,
                     const char *world)
{
	setenv(rank_name, rank, 1);
	setenv(world_name, world, 1);
}

static void expect_place(uint32_t rank, uint32_t world_size)
{
	const struct zi_attach *seen = attach();

	cr_expect_eq(seen->rank, rank, "%u", seen->rank);
	cr_expect_eq(seen->world_size, world_size, "%u", seen->world_size);
}

Test(options, each_launcher_says_the_rank_the_inner_one_first)
{
	set_pair("SLURM_PROCID", "3", "SLURM_NTASKS", "6");
	expect_place(0, 1); /* a batch script: srun did not start this */
	setenv("SLURM_STEP_ID", "0", 1);
	expect_place(3, 6);
	set_pair("OMPI_COMM_WORLD_RANK", "2", "OMPI_COMM_WORLD_SIZE", "5");
	expect_place(2, 5);
	set_pair("RANK", "1", "WORLD_SIZE", "4");
	setenv("LOCAL_RANK", "1", 1); /* torchrun, one of them on each of mpirun's nodes */
	expect_place(1, 4);
	options.rank = 7;
	options.world_size = 8;
	expect_place(7, 8);
}

Test(options, what_the_caller_says_needs_only_the_other_half)
{
	options.rank = 1;
	setenv("WORLD_SIZE", "4", 1);
	expect_place(1, 4);
	unsetenv("WORLD_SIZE");
	options = (struct zinf_options){ .bytes = sizeof(options), .rank = -1, .world_size = 3 };
	options.socket_path = fake_daemon_path(fake);
	options.param_dtype = options.grad_dtype = ZINF_F32;
	options.optimizer = ZINF_ADAMW;
	options.grad_reduction = ZINF_REDUCE_PER_STEP;
	setenv("OMPI_COMM_WORLD_RANK", "2", 1);
	expect_place(2, 3);
}

Test(options, half_a_pair_is_refused)
{
	setenv("RANK", "1", 1);
	set_pair("OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "2");
	expect_refused(-EINVAL, "$RANK is set, but $WORLD_SIZE is not");
	unsetenv("RANK");
	unsetenv("OMPI_COMM_WORLD_RANK");
	expect_refused(-EINVAL, "$OMPI_COMM_WORLD_SIZE is set, but $OMPI_COMM_WORLD_RANK is not");
	unsetenv("OMPI_COMM_WORLD_SIZE");
	setenv("SLURM_STEP_ID", "0", 1);
	setenv("SLURM_PROCID", "0", 1);
	expect_refused(-EINVAL, "$SLURM_PROCID is set, but $SLURM_NTASKS is not");
	setenv("SLURM_NTASKS", "x", 1);
	expect_refused(-EINVAL, "$SLURM_NTASKS is 'x'");
}

Test(options, a_rank_beyond_its_world_is_refused_by_variable)
{
	set_pair("OMPI_COMM_WORLD_RANK", "2", "OMPI_COMM_WORLD_SIZE", "2");
	expect_refused(-EINVAL, "$OMPI_COMM_WORLD_RANK is 2 and $OMPI_COMM_WORLD_SIZE is 2");
}

Test(options, variables_set_by_hand_must_agree_with_the_launcher)
{
	set_pair("RANK", "0", "WORLD_SIZE", "2");
	set_pair("OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "2");
	expect_refused(-EINVAL, "$RANK and $WORLD_SIZE say 0 of 2, mpirun's "
	                        "$OMPI_COMM_WORLD_RANK and $OMPI_COMM_WORLD_SIZE 1 of 2");
	setenv("RANK", "1", 1);
	expect_place(1, 2);
	setenv("SLURM_STEP_ID", "0", 1);
	set_pair("SLURM_PROCID", "0", "SLURM_NTASKS", "4");
	expect_refused(-EINVAL, "srun's $SLURM_PROCID and $SLURM_NTASKS 0 of 4: unset");
	setenv("SLURM_NTASKS", "1", 1); /* an interactive shell of srun's */
	expect_place(1, 2);
	setenv("OMPI_COMM_WORLD_SIZE", "?", 1);
	expect_refused(-EINVAL, "$OMPI_COMM_WORLD_SIZE is '?'");
}

Test(options, impossible_options_are_refused_by_name)
{
	const struct zinf_options good = options;
	char name[80];

	memset(name, 'a', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	options.rank = 1;
	expect_refused(-EINVAL, "rank 1 of a world of 1");
	options.rank = -2;
	expect_refused(-EINVAL, "RANK of -2");
	options = good;
	options.world_size = 65;
	expect_refused(-EINVAL, "world size 65");
	options.world_size = 0;
	expect_refused(-EINVAL, "world size 0");
	options = good;
	options.job = "a b";
	expect_refused(-EINVAL, "job name 'a b'");
	options.job = "";
	expect_refused(-EINVAL, "job name ''");
	options.job = name;
	expect_refused(-EINVAL, "too long");
	options = good;
	options.incarnation = name;
	expect_refused(-EINVAL, "too long");
	options = good;
	setenv("SLURM_JOB_ID", name, 1);
	expect_refused(-EINVAL, "ZINF_INCARNATION");
	unsetenv("SLURM_JOB_ID");
	options.optimizer = (enum zinf_optimizer)(ZINF_LION + 1);
	expect_refused(-EINVAL, "optimizer is 6: 1 to 5 are allowed");
	options = good;
	options.param_dtype = ZINF_F16;
	options.grad_dtype = ZINF_BF16;
	expect_refused(-EINVAL, "grad_dtype bf16 with param_dtype f16");
	options = good;
	options.offload_param = ZINF_OFFLOAD_NVME;
	expect_refused(-EINVAL, "offload_param nvme needs offload_optimizer nvme");
	options = good;
	options.reserved[1] = 1;
	expect_refused(-EINVAL, "reserved");
	options = good;
	options.socket_path =
		"/tmp/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
	expect_refused(-ENAMETOOLONG, "");
}

Test(options, versions_of_the_struct_are_told_apart)
{
	struct {
		struct zinf_options known;
		uint64_t later;
	} newer = { .known = options };
	struct zinf *zinf;

	options.bytes = 0;
	expect_refused(-EINVAL, "ZINF_OPTIONS_INIT");
	options.bytes = 127; /* the first version has 128 */
	expect_refused(-EINVAL, "options of 127 bytes: begin with ZINF_OPTIONS_INIT");
	options.bytes = UINT32_MAX;
	expect_refused(-EINVAL, "ZINF_OPTIONS_INIT");
	newer.known.bytes = sizeof(newer);
	cr_assert_eq(zinf_attach(&newer.known, &zinf), 0, "unused fields of a later version");
	zinf_detach(zinf);
	newer.later = 1;
	cr_assert_eq(zinf_attach(&newer.known, &zinf), -EINVAL);
	expect_attach_text("later libzinf");
}

Test(options, fewer_ranks_here_than_in_all_are_a_job_that_spans_nodes)
{
	static const struct {
		const char *tasks, *node;
		uint32_t local;
	} steps[] = {
		{ "2(x3),1", "0", 2 }, { "2(x3),1", "2", 2 },
		{ "2(x3),1", "3", 1 }, { "3,4", "1", 4 },
		{ "7", "0", 0 }, /* all: not said on the wire */
		{ "3,4", "2", 0 },     /* it does not say */ { "x", "0", 0 },
	};

	set_pair("SLURM_PROCID", "3", "SLURM_NTASKS", "7");
	setenv("SLURM_STEP_ID", "0", 1);
	cr_expect_eq(attach()->local_world_size, 0);
	for (size_t i = 0; i < ZI_COUNT_OF(steps); i++) {
		setenv("SLURM_STEP_TASKS_PER_NODE", steps[i].tasks, 1);
		setenv("SLURM_NODEID", steps[i].node, 1);
		cr_expect_eq(attach()->local_world_size, steps[i].local, "%s, node %s",
		             steps[i].tasks, steps[i].node);
	}
	set_pair("OMPI_COMM_WORLD_RANK", "3", "OMPI_COMM_WORLD_SIZE", "7");
	setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "5", 1);
	cr_expect_eq(attach()->local_world_size, 5);
	set_pair("RANK", "3", "WORLD_SIZE", "7");
	setenv("LOCAL_RANK", "1", 1);
	setenv("LOCAL_WORLD_SIZE", "7", 1);
	cr_expect_eq(attach()->local_world_size, 0);
	setenv("LOCAL_WORLD_SIZE", "2", 1);
	cr_expect_eq(attach()->local_world_size, 2);
	/* Who says rank and world itself may be fewer than the launcher's. */
	options.rank = 0;
	options.world_size = 1;
	cr_expect_eq(attach()->local_world_size, 0);
}

Test(options, more_ranks_here_than_in_all_are_refused)
{
	set_pair("RANK", "3", "WORLD_SIZE", "7");
	setenv("LOCAL_WORLD_SIZE", "8", 1);
	expect_refused(-EINVAL, "LOCAL_WORLD_SIZE says that 8 ranks are on this node, of 7 in all");
	setenv("LOCAL_WORLD_SIZE", "some", 1);
	expect_refused(-EINVAL, "$LOCAL_WORLD_SIZE is 'some': a whole number is expected");
}
