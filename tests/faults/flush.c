/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flushes that fail (faults.h): a job with durability = power commits only what its disk says it
 * has. Each flush in turn fails, stalls, is not made, or is the last thing that zinfd does; beside
 * it trains a neighbour that asks for none.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/faults/faults.h"

/* Of the first values, three steps, and whatever may come. */
#define FLUSHES_MAX 12u

enum outcome {
	TOLD,   /* the error, with job and path; the job goes on */
	WHOLE,  /* nobody notices */
	KILLED, /* zinfd is gone; the next one finds a committed step */
};

struct kind {
	const char *rule; /* the flush's number follows, and then @more */
	const char *more;
	enum outcome outcome;
	int error; /* TOLD */
};

static const struct kind kinds[] = {
	{ "EIO=flush@", "", TOLD, -EIO },  { "ENOSPC=flush@", "", TOLD, -ENOSPC },
	{ "EIO=flush@", "+", TOLD, -EIO }, { "stall_ms=3,stall=flush@", "", WHOLE, 0 },
	{ "kill=flush@", "", KILLED, 0 },  { "kill_done=flush@", "", KILLED, 0 },
};

static bool names_place(const struct test *test, const char *text)
{
	char place[320];

	(void)snprintf(place, sizeof(place), "job 'victim': flushing %s/store failed",
	               test->harness.directory);
	return strstr(text, place) != NULL;
}

static bool start_neighbour(struct test *test, struct neighbour *neighbour)
{
	struct trainer_settings settings = faults_settings(test, "neighbour");

	settings.options.durability = ZINF_DURABILITY_PROCESS;
	return faults_says(neighbour_start(neighbour, &settings) == 0 && neighbour_steps(neighbour),
	                   "the neighbour does not begin", test->extra);
}

/* To step 4, on a sound disk if it is to be, with the right bits. */
static bool goes_on(struct test *test, bool is_elsewhere)
{
	struct trainer_report report;

	if (is_elsewhere && (!faults_halt(test) || !faults_start(test, "threads")))
		return false;
	return faults_says(faults_train(test, 4, false, &report) == 0, "the job does not go on",
	                   report.text);
}

static bool was_killed(struct test *test)
{
	return harness_await_end(&test->harness) == 1000 + SIGKILL;
}

/* Return: 1 it passed through without the fault, 0 right, -1 wrong. */
static int run_case(struct test *test, const struct kind *kind, uint32_t number)
{
	struct trainer_report report;
	struct neighbour neighbour;
	bool is_right, is_over = false;
	char backend[96];
	int r;

	(void)snprintf(backend, sizeof(backend), "faulty:over=threads,%s%u%s", kind->rule, number,
	               kind->more);
	if (!faults_start(test, backend) ||
	    (kind->outcome != KILLED && !start_neighbour(test, &neighbour)))
		return -1;
	r = faults_train_all(test, &report);
	is_over = !r && kind->outcome != WHOLE;
	is_right = true;
	if (kind->outcome != KILLED) {
		is_right = neighbour_steps(&neighbour);
		is_right = faults_says(neighbour_stop(&neighbour) && is_right,
		                       "the neighbour was disturbed", backend);
	}
	if (is_over || kind->outcome == WHOLE)
		is_right = faults_says(r == 0, "a flush that is late was not waited for",
		                       report.text) &&
		           is_right;
	else if (kind->outcome == TOLD)
		is_right = is_right &&
		           faults_says(r == kind->error && names_place(test, report.text),
		                       "a flush that fails is not named", report.text) &&
		           goes_on(test, kind->more[0] == '+');
	else
		is_right = faults_says(was_killed(test), "zinfd lives", backend) &&
		           faults_start(test, "threads") && goes_on(test, false);
	test->found_count += r != 0;
	test->case_count += !is_over;
	is_right = is_right && faults_destroy(test, "victim") &&
	           (kind->outcome == KILLED || faults_destroy(test, "neighbour")) &&
	           faults_halt(test);
	if (!is_right)
		fprintf(stderr, "check_faults: FAILED at %s\n", backend);
	return !is_right ? -1 : is_over ? 1 : 0;
}

static bool sweep(struct test *test, const struct kind *kind, uint32_t *last)
{
	for (uint32_t number = 1; number <= *last; number++) {
		int r;

		/* With a stride, one of them each. */
		if (test->stride > 1 && number != 1 + faults_mix(test->seed) % 3)
			continue;
		r = run_case(test, kind, number);
		if (r < 0)
			return false;
		test->flush_sites += r == 0;
		if (r > 0) {
			*last = number - 1;
			return faults_says(number > 4, "so few flushes cannot be all", kind->rule);
		}
	}
	return faults_says(*last < FLUSHES_MAX || test->stride > 1, "the sweep does not end",
	                   kind->rule);
}

/* Beyond deadline_s: the commit waits, and that is said, with who waits for what. */
static bool check_late(struct test *test)
{
	char expected[400], log[8192];
	struct trainer_report report;
	bool is_right;

	(void)truncate(test->harness.log_path, 0);
	test->deadline_s = 1;
	is_right = faults_start(test, "faulty:over=threads,stall_ms=1100,stall=flush@2") &&
	           faults_says(faults_train_all(test, &report) == 0, "a late flush is no error",
	                       report.text);
	test->deadline_s = 0;
	harness_log(&test->harness, log, sizeof(log));
	(void)snprintf(expected, sizeof(expected),
	               "Job 'victim': its commit of step 1 waits for the flush of %s/store",
	               test->harness.directory);
	test->case_count++;
	return is_right &&
	       faults_says(strstr(log, expected) && strstr(log, "has ended after"),
	                   "a late flush is not told", log) &&
	       faults_destroy(test, "victim") && faults_halt(test);
}

/* See faults.h. */
bool faults_check_flushes(struct test *test)
{
	enum zinf_durability durability = test->durability;
	uint32_t last = FLUSHES_MAX;
	bool is_right = true;

	test->durability = ZINF_DURABILITY_POWER;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds) && is_right; i++)
		is_right = sweep(test, &kinds[i], &last);
	is_right = is_right && check_late(test);
	test->durability = durability;
	return is_right;
}
