/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever the disk does at whatever block, who needed it is told the job, the plane, the
 * offset and the path; the job stands at a committed step and goes on to the right bits; what is
 * damaged for good is named at every later use, and never returned as good data; another job on the
 * same store goes on undisturbed.
 * Method: a real zinfd whose engine injects one fault (backend = faulty:…) at the n-th block of one
 * job, for n from 1 until the job passes through: every read and write of materialise, steps and
 * commits in turn. A neighbour in the same store trains before and after. Then faults that last: a
 * path that vanishes, a limit of file sizes (the kernel's own); and flushes (flush.c). Then bits
 * are turned on the disk between two lives of the daemon: in every plane, the superblock and the
 * catalog.
 * Usage: check_faults [--seed N] [--stride N]   (stride: only each N-th site, drawn by the seed)
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "tests/faults/faults.h"
#include "tests/harness/option.h"

/* More sites than the small job has: a sweep that does not end has failed. */
#define SITES_MAX 200u

enum outcome {
	NAMED,  /* the error is told, with the place; nothing is lost */
	WHOLE,  /* nobody notices */
	DAMAGE, /* silent; named when it is read, or never needed again */
};

struct kind {
	const char *rule; /* the site's number follows */
	enum outcome outcome;
	int error; /* NAMED */
	bool is_write;
	bool may_hit_neighbour;
};

/* Bit flips and blocks from elsewhere are caught by the checksum of what was read. */
static const struct kind kinds[] = {
	{ "EIO=write@", NAMED, -EIO, true, false },
	{ "EIO=read@", NAMED, -EIO, false, false },
	{ "ENODATA=read@", NAMED, -ENODATA, false, false },
	{ "ENOSPC=write@", NAMED, -ENOSPC, true, false },
	{ "EFBIG=write@", NAMED, -EFBIG, true, false },
	{ "flip=read@", NAMED, -EBADMSG, false, false },
	{ "misplace=read@", NAMED, -EBADMSG, false, false },
	{ "short=any@/", WHOLE, 0, true, false },
	{ "stall_ms=5,stall=any@", WHOLE, 0, true, false },
	{ "flip=write@", DAMAGE, 0, true, false },
	{ "lost=write@", DAMAGE, 0, true, false },
	{ "torn=write@", DAMAGE, 0, true, false },
	{ "misplace=write@", DAMAGE, 0, true, true },
};
#define KIND_COUNT (sizeof(kinds) / sizeof(*kinds))

static bool clear(struct test *test)
{
	json_t *tiers;
	json_int_t bytes;

	if (!faults_destroy(test, "victim") || !faults_destroy(test, "neighbour"))
		return false;
	tiers = harness_admin(&test->harness, "tiers");
	bytes = json_integer_value(
		json_object_get(json_array_get(tiers, json_array_size(tiers) - 1), "extent_bytes"));
	json_decref(tiers);
	return faults_says(bytes == 0, "space is left over", test->extra);
}

/* ---- a fault at one block ---- */

static bool check_named(struct test *test, const struct kind *kind, int r,
                        struct trainer_report *report)
{
	if (!faults_says(r == kind->error, "another error than the one injected", report->text) ||
	    !faults_says(faults_names_place(test, report->text),
	                 "the error does not name its place", report->text))
		return false;
	test->found_count++;
	/* The fault was once: the job goes on. */
	r = faults_train(test, 3, false, report);
	return faults_says(r == 0, "the job does not go on", report->text);
}

/* On the disk there may be damage: after a restart on a sound engine it is named, twice, or not
 * needed. */
static bool check_damage(struct test *test, int r, struct trainer_report *report)
{
	if (r && (!faults_says(r == -EBADMSG, "another error than damage", report->text) ||
	          !faults_says(faults_names_place(test, report->text), "damage is not named",
	                       report->text)))
		return false;
	if (!faults_halt(test) || !faults_start(test, "threads"))
		return false;
	r = faults_train(test, 4, false, report);
	if (!r) {
		test->harmless_count++; /* Overwritten since; or it was read, and mended by that. */
		return true;
	}
	for (uint32_t i = 0; i < 2; i++) {
		if (!faults_says(r == -EBADMSG && faults_names_place(test, report->text),
		                 "damage is not named at every use", report->text))
			return false;
		r = faults_train(test, 4, i == 0, report);
	}
	test->found_count++;
	return faults_says(r != 0, "damage has gone by itself", report->text);
}

/* Return: 1 the job passed through before the site came, 0 right, -1 wrong. */
static int run_case(struct test *test, const struct kind *kind, uint32_t site)
{
	struct trainer_settings settings;
	struct trainer_report report;
	struct neighbour neighbour;
	char backend[160];
	char rule[64];
	bool is_right;
	int r;

	(void)snprintf(rule, sizeof(rule), "%s%u", kind->rule, site);
	(void)snprintf(backend, sizeof(backend), "faulty:over=threads,seed=%llu,%s@%llu-%llu",
	               (unsigned long long)test->seed, rule, (unsigned long long)test->first_bytes,
	               1ull << 40);
	if (!faults_start(test, backend))
		return -1;
	settings = faults_settings(test, "neighbour");
	if (neighbour_start(&neighbour, &settings) || !neighbour_steps(&neighbour))
		return faults_says(false, "the neighbour does not begin", backend) ? 0 : -1;
	r = faults_train_all(test, &report);
	if (kind->outcome == NAMED && !r) {
		is_right = neighbour_stop(&neighbour) && clear(test) && faults_halt(test);
		return is_right ? 1 : -1;
	}
	is_right = neighbour_steps(&neighbour) || kind->may_hit_neighbour;
	is_right &= neighbour_stop(&neighbour) || kind->may_hit_neighbour;
	is_right = faults_says(is_right, "the neighbour was disturbed", backend);
	if (is_right && kind->outcome == NAMED)
		is_right = check_named(test, kind, r, &report);
	else if (is_right && kind->outcome == WHOLE)
		is_right = faults_says(r == 0, "a fault that can be mended was not", report.text);
	else if (is_right)
		is_right = check_damage(test, r, &report);
	is_right = is_right && clear(test) && faults_halt(test);
	test->case_count++;
	return faults_says(is_right, "FAILED at", backend) ? 0 : -1;
}

static bool is_chosen(const struct test *test, size_t kind, uint32_t site)
{
	return faults_mix(test->seed * 1000003 + kind * 1009 + site) % test->stride == 0;
}

static bool sweep(struct test *test, size_t index)
{
	const struct kind *kind = &kinds[index];
	uint32_t last = kind->outcome == NAMED ? SITES_MAX : test->site_counts[kind->is_write];

	for (uint32_t site = 1; site <= last; site++) {
		int r;

		/* The first sweep of each direction counts the sites, and leaves none out. */
		if (index > 1 && !is_chosen(test, index, site))
			continue;
		if (index > 1 && kind->outcome == NAMED && site > test->site_counts[kind->is_write])
			return true;
		/* With a stride, doubling finds the end as well. */
		r = run_case(test, kind, site);
		if (r < 0)
			return false;
		if (index <= 1 && !r && test->stride > 1)
			site += test->stride / 2;
		if (r > 0) {
			test->site_counts[kind->is_write] = site - 1;
			return faults_says(site > 5, "so few sites cannot be all", kind->rule);
		}
	}
	return faults_says(kind->outcome != NAMED || index > 1, "the sweep does not end",
	                   kind->rule);
}

/* ---- faults that last ---- */

/* @backend, or a limit of the file's size, fails the victim with @error until the daemon is started
 * on a sound disk again; the daemon lives. */
static bool check_lasting(struct test *test, const char *backend, uint64_t file_size_bytes,
                          int error)
{
	struct trainer_report report;
	json_t *status;
	bool is_right;

	test->harness.options.file_size_bytes = file_size_bytes;
	if (!faults_start(test, backend))
		return false;
	test->harness.options.file_size_bytes = 0;
	is_right = faults_says(faults_train_all(test, &report) == error &&
	                               faults_names_place(test, report.text),
	                       "a lasting fault is not named", report.text);
	status = harness_admin(&test->harness, "status");
	is_right = faults_says(status != NULL, "zinfd does not answer", backend) && is_right;
	json_decref(status);
	if (!is_right || !faults_halt(test) || !faults_start(test, "auto"))
		return false;
	test->case_count++;
	test->found_count++;
	return faults_says(faults_train_all(test, &report) == 0, "the job does not go on",
	                   report.text) &&
	       faults_destroy(test, "victim") && faults_halt(test);
}

/* A path that vanishes at some block, and a file size that the kernel refuses to write beyond. */
static bool check_lasting_faults(struct test *test)
{
	static const uint32_t sites[] = { 1, 3, 9, 20, 33 };
	char backend[64];

	for (size_t i = 0; i<sizeof(sites) / sizeof(*sites); i += test->stride> 1 ? 2 : 1) {
		(void)snprintf(backend, sizeof(backend), "faulty:over=auto,ENODEV=any@%u+",
		               sites[i]);
		if (!check_lasting(test, backend, 0, -ENODEV))
			return false;
	}
	/* Above the largest segment of memory, for which it holds, too; step 3 passes it. */
	return check_lasting(test, "io_uring", 9 << 20, -EFBIG) &&
	       check_lasting(test, "threads", 9 << 20, -EFBIG);
}

/* ---- all of it ---- */

/* What a neighbour takes of an empty store in its first commit and step: the victim comes after. */
static bool measure(struct test *test)
{
	struct trainer_settings settings = faults_settings(test, "neighbour");
	struct neighbour neighbour;
	json_t *jobs, *held;
	uint64_t param_bytes, state_bytes;

	if (neighbour_start(&neighbour, &settings) || !neighbour_steps(&neighbour))
		return faults_says(false, "no neighbour", "at the start");
	jobs = harness_admin(&test->harness, "jobs");
	held = json_object_get(json_array_get(jobs, 0), "held");
	param_bytes = (uint64_t)json_integer_value(
		json_object_get(json_object_get(held, "param"), "nvme_bytes"));
	state_bytes = (uint64_t)json_integer_value(
		json_object_get(json_object_get(held, "state"), "nvme_bytes"));
	json_decref(jobs);
	test->first_bytes = FAULTS_SUPERBLOCK_BYTES + 2 * param_bytes + state_bytes;
	return neighbour_stop(&neighbour) && faults_destroy(test, "neighbour") && faults_halt(test);
}

int main(int count, char **words)
{
	struct test test = { .seed = option_number(count, words, "--seed", 1),
		             .stride = (uint32_t)option_number(count, words, "--stride", 1) };
	uint64_t started_ns = zi_clock_now_ns();
	bool is_right =
		faults_says(test.stride > 0, "the stride", "is 0") &&
		harness_start(&test.harness, &(struct harness_options){ .nvme_size = "48M" }) == 0;

	is_right = is_right && measure(&test);
	for (size_t i = 0; i < KIND_COUNT && is_right; i++)
		is_right = sweep(&test, i);
	is_right = is_right && faults_check_ways(&test) && faults_check_flushes(&test) &&
	           faults_check_stripe(&test) && check_lasting_faults(&test) &&
	           faults_check_rest(&test);
	if (is_right)
		is_right = harness_stop(&test.harness) == 0;
	else
		harness_print_log(&test.harness);
	harness_remove(&test.harness);
	printf("check-faults: seed %llu: %u cases (%u writes and %u reads of a job, %u flushes, "
	       "and %u sites of other ways in turn), %u times named, %u times harmless, "
	       "in %.1f s: %s\n",
	       (unsigned long long)test.seed, test.case_count, test.site_counts[1],
	       test.site_counts[0], test.flush_sites, test.way_sites, test.found_count,
	       test.harmless_count, (double)(zi_clock_now_ns() - started_ns) / (double)ZI_NS_PER_S,
	       is_right ? "nothing lost, no damage unseen" : "FAILED");
	return is_right ? 0 : 1;
}
