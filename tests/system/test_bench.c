/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a store is measured while jobs use it and to no one's harm, by those who may, and what was
 * found outlives the daemon; a device that stalls is told of and costs its job's step, no more.
 * Method: zctl beside a job that trains and is compared bit by bit; a second daemon in the same
 * place; another uid; a block that the fault injector holds back.
 */
#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.h"
#include "tests/system/system.h"

#define OTHER_UID 65534u

TestSuite(bench, .timeout = 120);

static struct harness harness;
static char words[1 << 20];

/* zctl bench nvme, running by itself; its words come through the pipe. */
static FILE *start_bench(const char *rest)
{
	char program[300], command[900];
	FILE *pipe;

	(void)snprintf(command, sizeof(command), "%s --socket %s --json bench nvme %s 2>&1",
	               harness_program("zctl", program, sizeof(program)), harness.socket_path,
	               rest);
	pipe = popen(command, "re");
	cr_assert_not_null(pipe);
	return pipe;
}

/* Its exit code; `words` has what it said. */
static int end_bench(FILE *pipe)
{
	words[fread(words, 1, sizeof(words) - 1, pipe)] = '\0';
	return WEXITSTATUS(pclose(pipe));
}

static uint64_t count_of(const json_t *object, const char *key)
{
	cr_assert(json_is_integer(json_object_get(object, key)), "no number '%s' in %s", key,
	          words);
	return (uint64_t)json_integer_value(json_object_get(object, key));
}

/* What the daemon says it works with at its start. */
static void expect_log(const json_t *used)
{
	char expected[300];

	(void)snprintf(expected, sizeof(expected),
	               "used with reads of %s, %llu at once, and writes of %s, %llu at once",
	               zi_format_bytes(count_of(used, "read_block_bytes")).chars,
	               (unsigned long long)count_of(used, "read_depth"),
	               zi_format_bytes(count_of(used, "write_block_bytes")).chars,
	               (unsigned long long)count_of(used, "write_depth"));
	harness_log(&harness, words, sizeof(words));
	system_expect_text(words, expected);
}

static void check_rows(const json_t *answer)
{
	const json_t *rows = json_object_get(answer, "rows");
	unsigned chosen_count = 0;
	const json_t *row;
	size_t index;

	cr_assert_eq(json_array_size(rows), 20);
	json_array_foreach(rows, index, row) chosen_count +=
		json_is_true(json_object_get(row, "is_chosen"));
	cr_assert_eq(chosen_count, 2, "one for each direction");
}

Test(bench, runs_beside_a_job_and_its_choice_survives_a_restart)
{
	struct trainer_settings settings;
	struct neighbour neighbour;
	struct pollfd event;
	const json_t *answer;
	json_t *answers;
	FILE *pipe;

	system_start(&harness, &(struct harness_options){ .nvme_size = "256M" });
	settings = ranks_settings(&harness, "beside", 1);
	settings.options.offload_optimizer = ZINF_OFFLOAD_NVME;
	settings.options.staging_bytes = 8 << 20;
	cr_assert_eq(neighbour_start(&neighbour, &settings), 0);
	cr_assert(neighbour_steps(&neighbour));
	/* On a busy machine no step may fall into the second that is measured. */
	for (unsigned seconds = 1;; seconds *= 4) {
		char rest[32];

		(void)snprintf(rest, sizeof(rest), "disk --seconds %u", seconds);
		pipe = start_bench(rest);
		event = (struct pollfd){ .fd = fileno(pipe), .events = POLLIN };
		do
			cr_assert(neighbour_steps(&neighbour),
			          "no step while the store is measured");
		while (neighbour.step_count < TRAINER_STEPS_MAX - 1 && poll(&event, 1, 0) == 0);
		cr_assert_eq(end_bench(pipe), 0, "%s", words);
		answers = json_loads(words, 0, NULL);
		answer = json_array_get(answers, 0);
		cr_assert(answer, "%s", words);
		if (count_of(answer, "other_bytes") > 0)
			break;
		cr_assert_lt(seconds, 16, "nothing moved for the job: %s", words);
		json_decref(answers);
	}
	check_rows(answer);
	cr_assert_gt(count_of(answer, "moved_bytes"), 0);
	cr_assert(json_is_true(json_object_get(answer, "is_kept")));
	cr_assert(neighbour_steps(&neighbour));
	cr_assert(neighbour_stop(&neighbour), "the job's bits are not the reference's");
	cr_assert_eq(harness_halt(&harness), 0);
	cr_assert_eq(harness_restart(&harness), 0);
	expect_log(json_object_get(answer, "used"));
	json_decref(answers);
	cr_assert_eq(harness_stop(&harness), 0);
}

Test(bench, a_configured_figure_wins_and_is_told)
{
	const char *const plain[] = { "bench", "nvme", "--seconds", "1", NULL };

	system_start(&harness, &(struct harness_options){
				       .nvme_size = "64M",
				       .nvme_extra = "read_depth = 5\nwrite_block = 96K\n" });
	cr_assert_eq(harness_zctl(harness.socket_path, plain, words, sizeof(words)), 0, "%s",
	             words);
	system_expect_text(words, "store disk");
	system_expect_text(words, "chosen");
	system_expect_text(words, "5 at once (the configuration says so)");
	system_expect_text(words, "write: blocks of 96 KiB");
	cr_assert_eq(harness_stop(&harness), 0);
}

Test(bench, wrong_words_and_full_stores_are_refused_with_what_to_do)
{
	static const struct {
		const char *const arguments[6];
		int code;
		const char *part;
	} wrong[] = {
		{ { "bench" }, 2, "usage: zctl bench nvme" },
		{ { "bench", "disk" }, 2, "usage: zctl bench nvme" },
		{ { "bench", "nvme", "a", "b" }, 2, "usage: zctl bench nvme" },
		{ { "bench", "nvme", "--seconds" }, 2, "from 1 to 60" },
		{ { "bench", "nvme", "--seconds", "61" }, 2, "from 1 to 60" },
		{ { "bench", "nvme", "--seconds", "x" }, 2, "from 1 to 60" },
		{ { "bench", "nvme", "tape" }, 1, "no store 'tape'" },
		{ { "bench", "nvme", "../x" }, 1, "bench nvme STORE" },
		{ { "bench", "nvme", "disk" }, 1, "16 MiB" }, /* The store has 8. */
	};

	system_start(&harness, &(struct harness_options){ .nvme_size = "8M" });
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		cr_assert_eq(
			harness_zctl(harness.socket_path, wrong[i].arguments, words, sizeof(words)),
			wrong[i].code, "case %zu: %s", i, words);
		system_expect_text(words, wrong[i].part);
	}
	cr_assert_eq(harness_stop(&harness), 0);
	system_start(&harness, &(struct harness_options){ .nvme_size = NULL });
	cr_assert_eq(harness_zctl(harness.socket_path,
	                          (const char *const[]){ "bench", "nvme", NULL }, words,
	                          sizeof(words)),
	             1);
	system_expect_text(words, "no NVMe store");
	cr_assert_eq(harness_stop(&harness), 0);
}

/* As another user: 0 when it is refused with a word. */
static int ask_as_other(void *arg)
{
	const char *const plain[] = { "bench", "nvme", "disk", NULL };
	static char answer[4096];

	(void)arg;
	if (setgid(OTHER_UID) || setuid(OTHER_UID))
		return 3;
	if (harness_zctl(harness.socket_path, plain, answer, sizeof(answer)) != 1)
		return 1;
	return strstr(answer, "measuring is only for root and the uid of zinfd") ? 0 : 2;
}

Test(bench, another_uid_is_refused)
{
	if (geteuid() != 0)
		cr_skip_test("only root can become another user");
#ifdef ZI_COVERED
	cr_skip_test("another user's process cannot write what it counted, and says so at length");
#endif
	system_start(&harness, &(struct harness_options){ .nvme_size = "32M" });
	/* Its directory is private: the other user gets as far as the socket. */
	cr_assert_eq(chmod(harness.directory, 0711), 0);
	cr_assert_eq(harness_wait(harness_fork(ask_as_other, NULL), 20000), 0);
	cr_assert(system_is_alive(&harness));
	cr_assert_eq(harness_stop(&harness), 0);
}

Test(bench, a_second_one_waits_its_turn_and_stopping_does_not_wait)
{
	const char *const second[] = { "bench", "nvme", "disk", NULL };
	FILE *pipe;

	system_start(&harness, &(struct harness_options){ .nvme_size = "64M" });
	pipe = start_bench("disk --seconds 60");
	/* Its buffer is charged once it is under way. */
	while (harness_cpu_bytes(&harness) == 0)
		;
	cr_assert_eq(harness_zctl(harness.socket_path, second, words, sizeof(words)), 1);
	system_expect_text(words, "is being measured");
	cr_assert_eq(harness_halt(&harness), 0, "a minute is not waited for");
	cr_assert_eq(end_bench(pipe), 1);
	cr_assert_eq(harness_restart(&harness), 0);
	cr_assert_eq(harness_stop(&harness), 0);
}

/* The daemon's directory has not one file more than before: nothing was kept. */
Test(bench, an_error_of_the_disk_is_told_and_nothing_is_kept)
{
	const char *const plain[] = { "bench", "nvme", "disk", "--seconds", "1", NULL };

	system_start(&harness, &(struct harness_options){
				       .nvme_size = "64M",
				       .nvme_extra = "backend = faulty:write_eio_at=7\n" });
	cr_assert_eq(harness_zctl(harness.socket_path, plain, words, sizeof(words)), 1);
	system_expect_text(words, "write of 262144 bytes at offset");
	system_expect_text(words, "EIO");
	cr_assert_eq(harness_zctl(harness.socket_path, plain, words, sizeof(words)), 0, "%s",
	             words);
	cr_assert_eq(harness_stop(&harness), 0);
}

Test(bench, a_stalled_device_fails_the_step_at_its_deadline_and_is_told)
{
	struct trainer_settings settings;
	struct ranks ranks;
	json_t *status;

	system_start(&harness, &(struct harness_options){
				       .nvme_size = "64M",
				       .nvme_extra = "backend = faulty:stall_at=12,stall_ms=2500\n"
						     "deadline_s = 1\n" });
	settings = ranks_settings(&harness, "stalled", 1);
	settings.options.offload_optimizer = ZINF_OFFLOAD_NVME;
	settings.options.staging_bytes = 8 << 20;
	cr_assert_eq(ranks_start(&ranks, &settings), 0);
	cr_assert_eq(ranks_wait(&ranks, 0), 1);
	system_expect_text(ranks.reports[0]->text, "ETIMEDOUT");
	ranks_free(&ranks);
	harness_log(&harness, words, sizeof(words));
	system_expect_text(words, "has not ended within ");
	system_expect_text(words, " s (deadline_s)");
	system_expect_text(words, "the device still holds a part of it");
	status = harness_admin(&harness, "status");
	cr_assert_geq(count_of(status, "io_late"), 1);
	json_decref(status);
	/* The disk is well again: the job goes on where it stood. */
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert(ranks_are_right(&ranks));
	ranks_free(&ranks);
	cr_assert_eq(harness_stop(&harness), 0);
}

Test(bench, a_new_store_is_measured_once_at_start)
{
	struct harness_options options = { .nvme_size = "64M", .is_measured = true };
	json_t *tiers, *nvme;

	system_start(&harness, &options);
	harness_log(&harness, words, sizeof(words));
	system_expect_text(words, "never measured");
	system_expect_text(words, "Store 'disk' reads ");
	/* What it took is given back. */
	tiers = harness_admin(&harness, "tiers");
	cr_assert_not_null(tiers);
	nvme = json_array_get(tiers, 1);
	cr_assert_eq(count_of(nvme, "used_bytes"), 0);
	/* Its share is known before any job writes. */
	cr_assert_eq(json_real_value(json_object_get(
			     json_array_get(json_object_get(nvme, "members"), 0), "share")),
	             1);
	json_decref(tiers);
	cr_assert_eq(harness_halt(&harness), 0);

	cr_assert_eq(truncate(harness.log_path, 0), 0);
	cr_assert_eq(harness_restart(&harness), 0);
	harness_log(&harness, words, sizeof(words));
	system_expect_text(words, "Store 'disk' is used with reads of ");
	cr_assert_null(strstr(words, "never measured"));
	cr_assert_null(strstr(words, "Store 'disk' reads "), "measured twice: %s", words);
	cr_assert_eq(harness_stop(&harness), 0);
}

Test(bench, a_store_that_cannot_be_measured_at_start_works_without)
{
	/* Too small for the extent that a measurement needs. */
	struct harness_options options = { .nvme_size = "8M", .is_measured = true };

	system_start(&harness, &options);
	harness_log(&harness, words, sizeof(words));
	system_expect_text(words, "Store 'disk' could not be measured, continuing with defaults");
	cr_assert_eq(harness_stop(&harness), 0);
}
