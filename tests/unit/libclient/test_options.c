/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: options, then the launchers' environment, then defaults decide who a rank is; what makes no
 * sense is refused by name. Method: what the fake daemon received is compared; the environment is
 * set per test (each runs in a process of its own). */
#include <stdio.h>

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
		                      "OMPI_MCA_ess_base_jobid" };

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
	options.takeover = true;
	options.timeout_ms = 9000;
	options.param_dtype = options.grad_dtype = ZINF_BF16;
	options.optimizer = ZINF_SGD;
	options.schedule = ZINF_SHARDED;
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
	cr_assert_eq(seen->flags, ZI_ATTACH_TAKEOVER);
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

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		setenv("RANK", bad[i], 1);
		expect_refused(-EINVAL, "$RANK is '");
		expect_attach_text(bad[i]);
	}
	unsetenv("RANK");
	setenv("WORLD_SIZE", "two", 1);
	expect_refused(-EINVAL, "$WORLD_SIZE is 'two'");
	setenv("WORLD_SIZE", "", 1);
	cr_assert_eq(attach()->world_size, 1);
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
	options.optimizer = (enum zinf_optimizer)4;
	expect_refused(-EINVAL, "optimizer is 4");
	options = good;
	options.param_dtype = ZINF_F16;
	expect_refused(-EOPNOTSUPP, "f16");
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
	options.bytes = sizeof(options) - 4;
	expect_refused(-EINVAL, "ZINF_OPTIONS_INIT");
	options.bytes = UINT32_MAX;
	expect_refused(-EINVAL, "ZINF_OPTIONS_INIT");
	newer.known.bytes = sizeof(newer);
	cr_assert_eq(zinf_attach(&newer.known, &zinf), 0, "unused fields of a later version");
	zinf_detach(zinf);
	newer.later = 1;
	cr_assert_eq(zinf_attach(&newer.known, &zinf), -EINVAL);
	expect_attach_text("later libzinf");
}
