/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: zctl launch starts each rank as torchrun's users expect: its variables, its place, its
 * input and output; and says what is wrong with a command line. Method: the real zctl with ranks
 * that are one-liners of sh; their words are compared whole.
 */
#include <fcntl.h>
#include <unistd.h>

#include "tests/guard/guard.h"
#include "tests/system/launch.h"

TestSuite(launch, .timeout = 180);

static void clear_environment(void)
{
	static const char *const names[] = { "OMP_NUM_THREADS", "ZINF_PORT", "ZINF_JOB",
		                             "ZINF_SOCKET" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		cr_assert_eq(unsetenv(names[i]), 0);
}

/* ---- variables ---- */

static int compare_lines(const void *first, const void *second)
{
	return strcmp(*(char *const *)first, *(char *const *)second);
}

/* The lines of one rank, sorted, without their prefix: (ret_count,). */
static char **lines_of(char *words, const char *prefix, size_t *ret_count)
{
	char **lines = calloc(1000, sizeof(*lines));
	char *place = NULL;

	*ret_count = 0;
	for (char *line = strtok_r(words, "\n", &place); line; line = strtok_r(NULL, "\n", &place))
		if (strncmp(line, prefix, strlen(prefix)) == 0)
			lines[(*ret_count)++] = line + strlen(prefix);
	qsort(lines, *ret_count, sizeof(*lines), compare_lines);
	return lines;
}

/* Whether @line is as @expected: "NAME=@" the rank, "NAME=text*" begins so, else the same. */
static bool is_as_expected(const char *line, const char *expected, int rank)
{
	size_t bytes = strcspn(expected, "@*");

	if (strncmp(line, expected, bytes) != 0)
		return false;
	if (expected[bytes] == '@')
		return atoi(line + bytes) == rank && strlen(line) == bytes + 1;
	return expected[bytes] == '*' || !line[bytes];
}

/* Whether the rank has it from us, or from its shell. */
static bool is_inherited(const char *line)
{
	size_t bytes = strcspn(line, "=");
	char name[100];
	const char *value;

	(void)snprintf(name, sizeof(name), "%.*s", (int)bytes, line);
	if (strcmp(name, "_") == 0 || strcmp(name, "PWD") == 0 || strcmp(name, "OLDPWD") == 0 ||
	    strcmp(name, "SHLVL") == 0)
		return true;
	value = getenv(name);
	return value && strcmp(value, line + bytes + 1) == 0;
}

Test(launch, each_rank_has_exactly_torchruns_variables_and_ours)
{
	static const char *const expected[] = {
		"GROUP_RANK=0",
		"GROUP_WORLD_SIZE=1",
		"LOCAL_RANK=@",
		"LOCAL_WORLD_SIZE=3",
		"MASTER_ADDR=127.0.0.1",
		"MASTER_PORT=*",
		"OMP_NUM_THREADS=1",
		"RANK=@",
		"ROLE_NAME=default",
		"ROLE_RANK=@",
		"ROLE_WORLD_SIZE=3",
		"TORCHELASTIC_ERROR_FILE=/*",
		"TORCHELASTIC_MAX_RESTARTS=4",
		"TORCHELASTIC_RESTART_COUNT=0",
		"TORCHELASTIC_RUN_ID=mine",
		"TORCHELASTIC_USE_AGENT_STORE=False",
		"WORLD_SIZE=3",
		"ZINF_INCARNATION=zctl-*",
		"ZINF_JOB=work",
		"ZINF_PORT=*",
		"ZINF_SOCKET=/nowhere/sock",
	};
	const size_t expected_count = sizeof(expected) / sizeof(expected[0]);
	char *copy;

	clear_environment();
	RUN(0, "--nproc_per_node=3", "--max-restarts", "4", "--rdzv_id", "mine", "--job", "work",
	    "--socket", "/nowhere/sock", "env");
	expect_words(err, "OMP_NUM_THREADS=1 for each rank");
	expect_words(err, "no zinfd listens at /nowhere/sock yet");
	copy = strdup(out);
	for (int rank = 0; rank < 3; rank++) {
		char prefix[32];
		size_t count, found = 0;
		char **lines;

		(void)snprintf(prefix, sizeof(prefix), "[rank %d]: ", rank);
		memcpy(copy, out, launched.counts[0] + 1);
		lines = lines_of(copy, prefix, &count);
		for (size_t i = 0; i < count; i++) {
			if (is_inherited(lines[i]))
				continue;
			cr_assert_lt(found, expected_count, "too much: %s", lines[i]);
			cr_expect(is_as_expected(lines[i], expected[found], rank),
			          "rank %d: '%s', not '%s'", rank, lines[i], expected[found]);
			found++;
		}
		cr_expect_eq(found, expected_count, "rank %d has %zu of %zu", rank, found,
		             expected_count);
		free(lines);
	}
	cr_expect_eq(launch_number(out, "ZINF_PORT="), launch_number(out, "MASTER_PORT=") + 1);
	free(copy);
	launched_free(&launched);
}

Test(launch, variables_of_the_caller_stay)
{
	clear_environment();
	cr_assert_eq(setenv("OMP_NUM_THREADS", "7", 1), 0);
	cr_assert_eq(setenv("ZINF_PORT", "12345", 1), 0);
	RUN(0, "--standalone", "--nproc-per-node", "2", "sh", "-c",
	    "echo $OMP_NUM_THREADS $ZINF_PORT");
	cr_expect_eq(launched_count(out, "]: 7 12345\n"), 2, "%s", out);
	cr_expect_str_eq(err, "", "nothing to be told");
	launched_free(&launched);
}

Test(launch, each_start_has_another_incarnation)
{
	char first[100];

	RUN(0, "sh", "-c", "echo $ZINF_INCARNATION");
	(void)snprintf(first, sizeof(first), "%.90s", out);
	cr_assert_not_null(strstr(first, "[rank 0]: zctl-"));
	cr_expect_not_null(strstr(first, ".0\n"));
	launched_free(&launched);
	RUN(0, "sh", "-c", "echo $ZINF_INCARNATION");
	cr_expect_str_neq(first, out);
	launched_free(&launched);
}

Test(launch, torchruns_environment_is_a_default)
{
	cr_assert_eq(setenv("PET_NPROC_PER_NODE", "2", 1), 0);
	cr_assert_eq(setenv("PET_NO_PYTHON", "1", 1), 0);
	cr_assert_eq(setenv("OMP_NUM_THREADS", "1", 1), 0);
	RUN(0, "sh", "-c", "echo of $WORLD_SIZE");
	cr_expect_eq(launched_count(out, "of 2\n"), 2, "%s", out);
	launched_free(&launched);
	RUN(0, "--nproc-per-node", "1", "sh", "-c", "echo of $WORLD_SIZE");
	cr_expect_str_eq(out, "[rank 0]: of 1\n");
	launched_free(&launched);
	cr_assert_eq(setenv("PET_MAX_RESTARTS", "x", 1), 0);
	RUN(2, "true");
	expect_words(err, "$PET_MAX_RESTARTS x: a whole number from 0 to 1000000 is needed");
	launched_free(&launched);
}

/* ---- programs ---- */

Test(launch, python_scripts_and_modules_are_started_by_python)
{
	/* A stand-in that says how it was called. */
	cr_assert_eq(setenv("PYTHON_EXEC", "echo", 1), 0);
	RUN(0, "dir/train.py", "--lr", "1", "-m");
	cr_expect_str_eq(out, "[rank 0]: -u dir/train.py --lr 1 -m\n");
	launched_free(&launched);
	RUN(0, "-m", "package.train", "--json");
	cr_expect_str_eq(out, "[rank 0]: -u -m package.train --json\n");
	launched_free(&launched);
	RUN(127, "--no-python", "./nowhere/train.py");
	expect_words(err, "starting './nowhere/train.py' failed: No such file");
	launched_free(&launched);
}

Test(launch, programs_that_cannot_be_started_are_named_once)
{
	RUN(127, "--nproc-per-node", "3", "--max-restarts", "5", "no-such-program");
	expect_words(err, "zctl: starting 'no-such-program' failed: No such file or directory\n");
	cr_expect_eq(launched_count(err, "no-such-program"), 1, "%s", err);
	launched_free(&launched);
	RUN(126, "/dev/null");
	expect_words(err, "starting '/dev/null' failed: Permission denied (a Python script");
	launched_free(&launched);
}

Test(launch, sixty_four_ranks_are_started_and_no_more)
{
	RUN(0, "--nproc-per-node", "64", "sh", "-c", "echo I am $RANK of $WORLD_SIZE");
	for (int rank = 0; rank < 64; rank++) {
		char line[64];

		(void)snprintf(line, sizeof(line), "[rank %d]: I am %d of 64\n", rank, rank);
		cr_expect_eq(launched_count(out, line), 1, "%s", line);
	}
	launched_free(&launched);
	RUN(2, "--nproc-per-node", "65", "true");
	expect_words(err, "--nproc-per-node 65: a whole number from 1 to 64 is needed");
	launched_free(&launched);
}

Test(launch, standard_input_is_rank_0s_or_nobodys)
{
	static const char *const script = "read line; echo got ${line:-nothing}";
	int ends[2];

	for (int round = 0; round < 2; round++) {
		cr_assert_eq(pipe(ends), 0);
		cr_assert_eq(write(ends[1], "words\n", 6), 6);
		(void)close(ends[1]);
		launched_start(&launched,
		               (const char *const[]){ "--nproc-per-node", "2", "--stdin",
		                                      round ? "none" : "0", "sh", "-c", script,
		                                      NULL },
		               ends[0]);
		(void)close(ends[0]);
		launch_end(0);
		expect_words(out, round ? "[rank 0]: got nothing\n" : "[rank 0]: got words\n");
		expect_words(out, "[rank 1]: got nothing\n");
		launched_free(&launched);
	}
}

Test(launch, torch_distributed_meets_at_master_port)
{
	static const char *const script = "import torch, torch.distributed as d\n"
					  "d.init_process_group('gloo')\n"
					  "t = torch.tensor([float(d.get_rank() + 1)])\n"
					  "d.all_reduce(t)\n"
					  "print('sum', t.item())\n"
					  "d.destroy_process_group()\n";
	char path[256];
	FILE *file;

	if (system("/usr/bin/python3 -c 'import torch.distributed' >/dev/null 2>&1"))
		cr_skip_test("/usr/bin/python3 has no torch");
	cr_assert_eq(setenv("PYTHON_EXEC", "/usr/bin/python3", 1), 0);
	cr_assert_not_null(mkdtemp(guard_path(path, sizeof(path) - 10, "torch")));
	(void)strncat(path, "/sum.py", 8);
	file = fopen(path, "we");
	cr_assert_not_null(file);
	cr_assert_geq(fputs(script, file), 0);
	cr_assert_eq(fclose(file), 0);
	RUN(0, "--nproc-per-node", "2", "--standalone", path);
	expect_words(out, "[rank 0]: sum 3.0\n");
	expect_words(out, "[rank 1]: sum 3.0\n");
	launched_free(&launched);
	cr_assert_eq(unlink(path), 0);
	*strrchr(path, '/') = '\0';
	cr_assert_eq(rmdir(path), 0);
}

Test(launch, a_terminal_is_nobodys_input)
{
	int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), input;

	cr_assert(terminal >= 0 && !grantpt(terminal) && !unlockpt(terminal));
	input = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
	cr_assert_geq(input, 0);
	cr_assert_eq(write(terminal, "words\n", 6), 6);
	launched_start(
		&launched,
		(const char *const[]){ "sh", "-c", "read line; echo got ${line:-nothing}", NULL },
		input);
	launch_end(0);
	cr_expect_str_eq(out, "[rank 0]: got nothing\n");
	launched_free(&launched);
	(void)close(input);
	(void)close(terminal);
}

/* ---- wrong command lines ---- */

Test(launch, a_wrong_command_line_is_answered_with_what_is_allowed)
{
	static const struct {
		const char *words[4];
		const char *answer;
	} cases[] = {
		{ { "--nproc-per-node", "2" }, "a program is missing" },
		{ { "--nproc", "2", "true" },
		  "--nproc is unknown; did you mean --nproc-per-node?" },
		{ { "--bogus", "true" }, "--bogus is unknown (zctl launch --help)" },
		{ { "--max-restart=2", "true" }, "unknown; did you mean --max-restarts?" },
		{ { "--max-retsarts", "2", "true" }, "unknown; did you mean --max-restarts?" },
		{ { "-z", "true" }, "-z is unknown" },
		{ { "--tee" }, "--tee needs a value: N|RANK:N,..." },
		{ { "--standalone=1", "true" }, "--standalone takes no value" },
		{ { "--nproc-per-node", "gpu", "true" }, "zinf has no GPU support" },
		{ { "--nproc-per-node", "0", "true" }, "a whole number from 1 to 64" },
		{ { "--nproc-per-node", "2x", "true" }, "a whole number from 1 to 64" },
		{ { "--nnodes", "2", "true" },
		  "--nnodes 2: zctl launch starts the ranks of one "
		  "node. For several use torchrun, srun or mpirun" },
		{ { "--nnodes", "1:4", "true" }, "use torchrun, srun or mpirun" },
		{ { "--node_rank", "1", "true" }, "use torchrun, srun or mpirun" },
		{ { "--max-restarts", "-1", "true" }, "a whole number from 0 to 1000000" },
		{ { "--master-port", "65535", "true" }, "a whole number from 0 to 65534" },
		{ { "--grace", "soon", "true" }, "--grace soon: seconds are needed" },
		{ { "--numa-binding", "socket", "true" }, "allowed are node, none, auto" },
		{ { "--stdin", "1", "true" }, "allowed are 0 and none" },
		{ { "-r", "4", "true" }, "--redirects 4: 0 to 3 is needed" },
		{ { "-t", "0:1,64:1", "true" }, "with ranks below 64" },
		{ { "--local-ranks-filter", "0,", "true" }, "ranks below 64 are needed" },
		{ { "--signals-to-handle", "SIGTERM,SIGKILL", "true" }, "that can be caught" },
		{ { "--signals-to-handle", "SIGNOT", "true" }, "that can be caught" },
		{ { "-m", "--no-python", "x" }, "-m and --no-python exclude each other" },
		{ { "--rdzv-id", "a/b", "true" }, "--rdzv-id a/b: letters, digits" },
		{ { "--job", "a b", "true" }, "--job a b: 1 to 63 of A-Z" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		launch_begin(cases[i].words);
		launch_end(2);
		expect_words(err, cases[i].answer);
		cr_expect_str_eq(out, "");
		launched_free(&launched);
	}
}

Test(launch, what_means_nothing_on_one_node_is_taken_and_said)
{
	RUN(0, "--nnodes=1:1", "--node-rank", "0", "--rdzv-backend", "c10d", "--rdzv_endpoint",
	    "localhost:0", "--monitor-interval", "1", "--start-method", "spawn", "--role",
	    "trainer", "--numa-binding", "auto", "--", "sh", "-c", "echo $ROLE_NAME");
	cr_expect_str_eq(out, "[rank 0]: trainer\n");
	expect_words(err, "has no effect on one node, ignoring");
	launched_free(&launched);
	RUN(0, "--help");
	expect_words(out, "usage: zctl launch [OPTIONS] PROGRAM");
	launched_free(&launched);
	RUN(0, "--nproc-per-node", "cpu", "sh", "-c", "echo of $WORLD_SIZE");
	cr_expect_gt(launch_number(out, "of "), 0);
	launched_free(&launched);
}
