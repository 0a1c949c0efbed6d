/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tier of two paths (faults.h). A write that fails goes to the other path, and nobody but the
 * administrator notices; a read that fails, or brings damage, is told with its place, and the job
 * goes on from where it stands; a path that vanishes is one or the other. The store that is meant
 * is the second one, or whichever comes.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/faults/faults.h"

/* More sites than the small job has. */
#define SITES_MAX 200u

struct kind {
	const char *rule; /* the site's number follows, and then @more */
	const char *more;
	int error; /* what the job is told; 0: nothing */
	bool is_lasting;
};

static const struct kind kinds[] = {
	{ "EIO=write@", "", 0, false },
	{ "ENOSPC=write@", "", 0, false },
	{ "EIO=read@", "", -EIO, false },
	{ "ENODATA=read@", "", -ENODATA, false },
	{ "flip=read@", "", -EBADMSG, false },
	{ "path=disk2,EIO=write@", "+", 0, true },
	{ "path=disk2,ENODEV=any@", "+", -ENODEV, true },
};

/* Members of the tier that failed, and errors that the engine met. */
static void look(struct test *test, uint32_t *ret_failed_count, bool *ret_was_hit)
{
	json_t *status = harness_admin(&test->harness, "status");
	json_t *tiers = harness_admin(&test->harness, "tiers");
	json_t *tier, *member;
	size_t i, j;

	*ret_failed_count = 0;
	*ret_was_hit = json_integer_value(json_object_get(status, "io_errors")) > 0;
	json_array_foreach(tiers, i, tier)
	{
		json_array_foreach(json_object_get(tier, "members"), j, member)
		{
			const char *state = json_string_value(json_object_get(member, "state"));

			*ret_failed_count += state && !strcmp(state, "failed");
		}
	}
	json_decref(tiers);
	json_decref(status);
}

static bool is_told(const struct test *test, const struct kind *kind, int r,
                    const struct trainer_report *report)
{
	return faults_says(r == kind->error, "another error than the one injected", report->text) &&
	       faults_says(faults_names_place(test, report->text),
	                   "the error does not name its place", report->text);
}

/* Return: 1 it passed through without the fault, 0 right, -1 wrong. */
static int run_case(struct test *test, const struct kind *kind, uint32_t site)
{
	struct trainer_report report;
	uint32_t failed_count;
	bool is_right, was_hit;
	char backend[96];
	int r;

	(void)snprintf(backend, sizeof(backend), "faulty:over=threads,%s%u%s", kind->rule, site,
	               kind->more);
	if (!faults_start(test, backend))
		return -1;
	r = faults_train_all(test, &report);
	look(test, &failed_count, &was_hit);
	was_hit |= r != 0;
	is_right = !r || is_told(test, kind, r, &report);
	/* A write that failed is not forgotten, though the job lost nothing by it. */
	if (!r && was_hit && !kind->error)
		is_right = faults_says(failed_count == 1, "the path does not count as failed",
		                       backend);
	if (is_right && kind->is_lasting)
		is_right = faults_halt(test) && faults_start(test, "threads");
	if (is_right && was_hit)
		is_right = faults_says(faults_train(test, 4, false, &report) == 0,
		                       "the job does not go on", report.text);
	is_right = is_right && faults_destroy(test, "victim") && faults_halt(test);
	test->found_count += r != 0;
	test->case_count += was_hit;
	if (!is_right)
		fprintf(stderr, "check_faults: FAILED on two paths at %s\n", backend);
	return !is_right ? -1 : was_hit ? 0 : 1;
}

static bool sweep(struct test *test, const struct kind *kind)
{
	for (uint32_t site = 1; site <= SITES_MAX; site += test->stride) {
		int r = run_case(test, kind, site);

		if (r < 0)
			return false;
		if (r > 0)
			return faults_says(site > 1, "it has no such site", kind->rule);
		test->way_sites++;
	}
	return faults_says(test->stride > 1, "the sweep does not end", kind->rule);
}

/* See faults.h. */
bool faults_check_stripe(struct test *test)
{
	struct test wide = { .seed = test->seed, .stride = test->stride };
	bool is_right;

	is_right = harness_start(&wide.harness,
	                         &(struct harness_options){ .nvme_size = "32M",
	                                                    .has_second_path = true }) == 0 &&
	           faults_halt(&wide);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds) && is_right; i++)
		is_right = sweep(&wide, &kinds[i]);
	if (!is_right)
		harness_print_log(&wide.harness);
	harness_remove(&wide.harness);
	test->case_count += wide.case_count;
	test->found_count += wide.found_count;
	test->way_sites += wide.way_sites;
	return is_right;
}
