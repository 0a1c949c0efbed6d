/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what zctl estimate says is what zctl jobs then measures, within 2 % of each plane and of
 * the sum; and a setting that it names for what memory there is does train in it. Method: zinf-gpt
 * trains at three settings; what it holds meanwhile is compared with the estimate of its exported
 * parameters, of its configuration as Hugging Face would write it, and of their number.
 */
#include <signal.h>
#include <unistd.h>

#include "tests/system/estimate.h"

#define WORDS_MAX 40
/* 3.2 M elements in 6 units; it trains until it is ended. */
#define MODEL                                                                       \
	"--ranks 2 --layers 4 --heads 4 --d-model 256 --seq-len 64 --batch-size 1 " \
	"--warmup 1 --quiet "

TestSuite(estimate, .init = start, .fini = stop, .timeout = 120);

static int run_gpt(void *arg)
{
	char **arguments = arg, program[300];

	harness_program("zinf-gpt", program, sizeof(program));
	arguments[0] = program;
	(void)setenv("ZINF_SOCKET", harness.socket_path, 1);
	(void)freopen("/dev/null", "w", stdout);
	(void)execv(program, arguments);
	return 77;
}

/* Words of a line, for exec; [0] is free. */
static char **split(char *line)
{
	static char *arguments[WORDS_MAX];
	uint32_t count = 1;

	for (char *word = strtok_r(line, " ", &line); word; word = strtok_r(NULL, " ", &line)) {
		cr_assert_lt(count, WORDS_MAX - 1);
		arguments[count++] = word;
	}
	arguments[count] = NULL;
	return arguments;
}

/* @options: of zinf-gpt. Its process. */
static pid_t start_gpt(const char *options)
{
	char line[512];

	(void)snprintf(line, sizeof(line), "%s %s", MODEL, options);
	return harness_fork(run_gpt, split(line));
}

/* When it has committed two steps, so that all that a job holds is there. */
static json_t *await_steps(void)
{
	for (;;) {
		json_t *job = ask_job();

		if (json_integer_value(json_object_get(job, "committed_step")) >= 2)
			return job;
		json_decref(job);
	}
}

/* With all its ranks. */
static void end_gpt(pid_t pid)
{
	cr_assert_eq(kill(pid, SIGTERM), 0);
	cr_assert_eq(harness_wait(pid, 20000), 1000 + SIGTERM);
	for (;;) {
		json_t *job = ask_job();
		bool is_over = !json_integer_value(json_object_get(job, "attached"));

		json_decref(job);
		if (is_over)
			return;
	}
}

/* @source: and the options that say the same as those of zinf-gpt. */
static void compare_estimate(const json_t *job, const char *source, const char *options)
{
	char line[256];
	json_t *estimate;

	cr_assert_lt(snprintf(line, sizeof(line), "estimate %s --ranks 2 %s", source, options),
	             (int)sizeof(line));
	estimate = harness_admin(&harness, line);
	cr_assert_not_null(estimate, "%s", line);
	cr_expect_eq(json_integer_value(json_object_get(estimate, "elements")),
	             json_integer_value(json_object_get(job, "elements")), "%s", line);
	compare_planes(estimate, job);
	compare("copies",
	        (uint64_t)json_integer_value(json_object_get(estimate, "write_buffer_bytes")),
	        copy_bytes(job));
	cr_expect(json_equal(json_object_get(estimate, "logical"), json_object_get(job, "logical")),
	          "%s", line);
	json_decref(estimate);
}

static void write_config(const char *path, const char *dtype)
{
	FILE *file = fopen(path, "we");

	cr_assert_not_null(file);
	(void)fprintf(file,
	              "{\"model_type\":\"gpt2\",\"n_embd\":256,\"n_layer\":4,\"n_head\":4,"
	              "\"n_positions\":64,\"vocab_size\":256,\"torch_dtype\":\"%s\"}",
	              dtype);
	cr_assert_eq(fclose(file), 0);
}

/* Return: its path, until the next call. */
static const char *write_config_of(const char *dtype)
{
	static char path[100];

	(void)snprintf(path, sizeof(path), "%s/config.json", folder.path);
	write_config(path, dtype);
	return path;
}

/* @trained: options of zinf-gpt; @planned: those of zctl estimate that mean the same; @recorded:
 * those of them that an export does not say by itself. */
static void check_setting(const char *trained, const char *planned, const char *recorded,
                          const char *dtype)
{
	char export[100], config[100];
	pid_t pid = start_gpt(trained);
	json_t *job = await_steps();

	(void)snprintf(export, sizeof(export), "%s/export.safetensors", folder.path);
	(void)snprintf(config, sizeof(config), "%s/config.json", folder.path);
	write_config(config, dtype);
	cr_assert_eq(harness_zctl(harness.socket_path,
	                          (const char *const[]){ "export", "gpt", export, NULL }, words,
	                          sizeof(words)),
	             0, "%s", words);
	compare_estimate(job, export, recorded);
	compare_estimate(job, config, planned);
	json_decref(job);
	end_gpt(pid);
}

Test(estimate, of_state_in_memory_is_what_is_held)
{
	check_setting("--bf16 --offload-optimizer none", "", "", "bfloat16");
}

Test(estimate, of_state_on_nvme_with_a_resident_share_is_what_is_held)
{
	const char *planned =
		"--grad-reduction per_micro_batch --optimizer lion --offload-optimizer nvme "
		"--resident 5M --staging 8M";

	check_setting("--bf16 --grad-reduction per_micro_batch --optimizer lion --resident 5M "
	              "--staging 8M",
	              planned, "--offload-optimizer nvme --resident 5M --staging 8M", "bfloat16");
}

Test(estimate, of_parameters_on_nvme_is_what_is_held)
{
	const char *planned = "--offload-optimizer nvme --offload-param nvme --param-budget 9M";

	check_setting("--offload-param nvme --param-budget 9M", planned, planned, "float32");
}

/* Two units for each of two ranks are less than two planes; sums that the budget has no room for
 * lie on the store during a step. */
Test(estimate, of_gradients_in_buckets_is_what_is_held)
{
	const char *planned = "--strategy zero2 --grad-budget 3M --offload-optimizer nvme";
	uint64_t bytes;
	pid_t pid = start_gpt("--bf16 --strategy zero2 --grad-budget 3M");
	json_t *job = await_steps();

	compare_estimate(job, write_config_of("bfloat16"), planned);
	bytes = bytes_of(job, "grad", "cpu_bytes");
	cr_expect_lt(bytes, 2 * bytes_of(job, "param", "cpu_bytes"), "%llu",
	             (unsigned long long)bytes);
	json_decref(job);
	end_gpt(pid);
}

/* Sums of a wider type lie beside the gradients. */
Test(estimate, of_sums_of_a_type_of_their_own_is_what_is_held)
{
	pid_t pid = start_gpt("--bf16 --reduce-dtype f32");
	json_t *job = await_steps();

	compare_estimate(job, write_config_of("bfloat16"),
	                 "--reduce-dtype f32 --offload-optimizer nvme");
	cr_expect_gt(bytes_of(job, "reduced_grad", "cpu_bytes"), 0);
	json_decref(job);
	end_gpt(pid);
}

/* One file for the trainer and for its estimate. */
Test(estimate, of_a_file_of_deepspeeds_is_what_is_held)
{
	char path[120], options[200];
	FILE *file;
	pid_t pid;
	json_t *job;

	(void)snprintf(path, sizeof(path), "%s/ds.json", folder.path);
	file = fopen(path, "we");
	cr_assert_not_null(file);
	(void)fputs("{ \"train_micro_batch_size_per_gpu\": 1, \"bf16\": { \"enabled\": true },"
	            "  \"communication_data_type\": \"fp32\","
	            "  \"zero_optimization\": { \"stage\": 3, \"mics_shard_size\": 1,"
	            "    \"offload_param\": { \"device\": \"nvme\", \"max_in_cpu\": 5e6 },"
	            "    \"offload_optimizer\": { \"device\": \"nvme\" } } }",
	            file);
	cr_assert_eq(fclose(file), 0);
	(void)snprintf(options, sizeof(options), "--deepspeed-config %s", path);
	pid = start_gpt(options);
	job = await_steps();
	compare_estimate(job, write_config_of("bfloat16"), options);
	json_decref(job);
	end_gpt(pid);
}

/* What ranks share in one node is no less for being divided: what each stands for is. */
Test(estimate, of_a_strategy_each_rank_stands_for_what_jobs_says)
{
	static const struct {
		const char *name;
		enum zinf_strategy strategy;
	} strategies[] = { { "zero1", ZINF_ZERO1 },
		           { "zero2", ZINF_ZERO2 },
		           { "fsdp", ZINF_ZERO3 } };
	struct trainer_settings settings = ranks_settings(&harness, "divided", 3);
	char export[100], line[256];
	struct ranks ranks;

	settings.options.offload_optimizer = ZINF_OFFLOAD_NVME;
	settings.options.staging_bytes = 8 << 20;
	(void)snprintf(export, sizeof(export), "%s/export.safetensors", folder.path);
	for (size_t i = 0; i < ZI_COUNT_OF(strategies); i++) {
		json_t *job, *estimate;

		settings.options.strategy = strategies[i].strategy;
		settings.options.incarnation = strategies[i].name;
		settings.steps = 1 + (uint32_t)i;
		cr_assert_eq(ranks_train(&ranks, &settings), 0);
		ranks_free(&ranks);
		if (!i)
			cr_assert_eq(harness_zctl(harness.socket_path,
			                          (const char *const[]){ "export", "divided",
			                                                 export, NULL },
			                          words, sizeof(words)),
			             0, "%s", words);
		(void)snprintf(line, sizeof(line),
		               "estimate %s --ranks 3 --offload-optimizer nvme --strategy %s",
		               export, strategies[i].name);
		estimate = harness_admin(&harness, line);
		job = ask_job();
		cr_assert_eq(json_array_size(json_object_get(job, "logical")), 3);
		cr_expect(json_equal(json_object_get(estimate, "logical"),
		                     json_object_get(job, "logical")),
		          "%s", strategies[i].name);
		json_decref(estimate);
		json_decref(job);
	}
}

/* ---- a refusal ---- */

/* Words of a refusal as options of zinf-gpt; more behind @options. */
static void add_named(char *options, size_t capacity, const char *advice)
{
	static const struct {
		const char *words, *option;
	} named[] = {
		{ "offload_optimizer nvme", "--offload-optimizer nvme" },
		{ "offload_param nvme", "--offload-param nvme" },
		{ "param_budget_bytes ", "--param-budget " },
		{ "staging_bytes ", "--staging " },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(named); i++) {
		const char *place = strstr(advice, named[i].words);
		bool has_figure = named[i].option[strlen(named[i].option) - 1] == ' ';
		size_t used = strlen(options);

		if (place)
			(void)snprintf(options + used, capacity - used, " %s%.*s", named[i].option,
			               has_figure ? (int)strspn(place + strlen(named[i].words),
			                                        "0123456789")
			                          : 0,
			               place + strlen(named[i].words));
	}
}

/* Of a trainer that ends by itself, with what it says in @words. */
static int run_to_end(const char *options)
{
	char command[1200], program[300];
	size_t byte_count;
	FILE *pipe;

	harness_program("zinf-gpt", program, sizeof(program));
	(void)snprintf(command, sizeof(command),
	               "ZINF_SOCKET=%s %s " MODEL "--bf16 --steps 3 %s 2>&1", harness.socket_path,
	               program, options);
	pipe = popen(command, "r");
	cr_assert_not_null(pipe);
	byte_count = fread(words, 1, sizeof(words) - 1, pipe);
	words[byte_count] = '\0';
	return WEXITSTATUS(pclose(pipe));
}

/* As it is wished it does not fit; as it is told it does. */
static void check_refusal(const char *named)
{
	char options[256] = "--job other";
	char *advice;

	cr_assert_eq(run_to_end("--offload-optimizer none"), 1, "%s", words);
	system_expect_text(words, "asked for on cpu:0");
	system_expect_text(words, named);
	advice = strstr(words, "; in all ");
	cr_assert_not_null(advice, "%s", words);
	add_named(options, sizeof(options), advice);
	cr_assert_eq(run_to_end(options), 0, "%s: %s", options, words);
}

static void start_with_40(void)
{
	start_with("40M");
}

static void start_with_28(void)
{
	start_with("28M");
}

Test(estimate_refusal, a_job_beyond_memory_is_told_to_move_its_state, .init = start_with_40,
     .fini = stop, .timeout = 120)
{
	check_refusal("it fits with offload_optimizer nvme, staging_bytes 7864320");
}

Test(estimate_refusal, and_where_that_is_not_enough_its_parameters, .init = start_with_28,
     .fini = stop, .timeout = 120)
{
	check_refusal(
		"it fits with offload_optimizer nvme, offload_param nvme, param_budget_bytes");
}

/* ---- the command ---- */

static void run_estimate(int code, const char *const *arguments)
{
	int got = harness_zctl("/nobody/listens", arguments, words, sizeof(words));

	cr_assert_eq(got, code, "%s ended with %d: %s", arguments[1], got, words);
}
#define ESTIMATE(code, ...) \
	run_estimate((code), (const char *const[]){ "estimate", __VA_ARGS__, NULL })

Test(estimate_command, asks_no_daemon_and_says_what_fits, .timeout = 20)
{
	json_t *json, *fit;

	ESTIMATE(0, "1.3G", "--ranks", "2", "--fit", "16G");
	system_expect_text(words, "20 units");
	system_expect_text(words, "19.5 GiB\na step moves nothing to or from NVMe\n");
	system_expect_text(words, "it fits with offload_optimizer nvme: 7.5 GiB of memory and "
	                          "29.1 GiB of NVMe then");
	ESTIMATE(0, "1.3G", "--ranks", "2", "--fit", "16G", "--json");
	json = json_loads(words, 0, NULL);
	fit = json_object_get(json, "fit");
	cr_assert(json_is_true(json_object_get(fit, "is_found")), "%s", words);
	cr_expect_str_eq(json_string_value(json_object_get(json_object_get(fit, "config"),
	                                                   "offload_optimizer")),
	                 "nvme");
	cr_expect_eq(json_array_size(json_object_get(json, "logical")), 2);
	cr_expect_eq(json_array_size(json_object_get(json_object_get(json, "model"), "units")), 20);
	cr_expect(json_is_null(json_object_get(json, "params")));
	json_decref(json);
	ESTIMATE(1, "1.3G", "--fit", "1G", "--fit-nvme", "1G");
	system_expect_text(words, "zctl: no setting fits: with all on NVMe it takes ");
	/* No setting of ddp fits; a strategy whose ranks hold less does. */
	ESTIMATE(0, "6.7G", "--ranks", "8", "--fit", "64G");
	system_expect_text(words, "\nwith --strategy zero");
	system_expect_text(words, " it fits");
	ESTIMATE(1, "1.3G", "--fit", "1G", "--json");
	system_expect_text(words, "\"is_found\": false");
	ESTIMATE(0, "1G");
	cr_assert(!strstr(words, "fits"), "%s", words);
	ESTIMATE(0, "--help");
	system_expect_text(words, "usage: zctl estimate SOURCE [OPTIONS]");
}

Test(estimate_command, refuses_what_cannot_be, .timeout = 20)
{
	ESTIMATE(2, "1G", "--rank", "2");
	system_expect_text(words, "did you mean --ranks? (zctl estimate --help)");
	ESTIMATE(1, "/");
	system_expect_text(words, "zctl: /: is a directory");
	ESTIMATE(1, "1G", "--dtype", "f16", "--grad-dtype", "bf16");
	system_expect_text(words, "grad_dtype bf16 with param_dtype f16");
	ESTIMATE(1, "1G", "--offload-optimizer", "nvme", "--staging", "1M");
	system_expect_text(words, "at least 7864320 bytes");
	ESTIMATE(1, "1G", "--strategy", "zero2", "--nodes", "2", "--param-budget", "1G");
	system_expect_text(words, "param_budget_bytes is for offload_param nvme");
}
