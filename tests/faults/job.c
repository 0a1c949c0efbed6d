/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon and the victim of check_faults (faults.h). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/faults/faults.h"

bool faults_says(bool is_right, const char *words, const char *detail)
{
	if (!is_right)
		fprintf(stderr, "check_faults: %s: %s\n", words, detail);
	return is_right;
}

uint64_t faults_mix(uint64_t z)
{
	z += 0x9e3779b97f4a7c15ull;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

bool faults_start(struct test *test, const char *backend)
{
	int used = snprintf(test->extra, sizeof(test->extra), "backend = %s\n", backend);

	if (test->deadline_s)
		(void)snprintf(test->extra + used, sizeof(test->extra) - (size_t)used,
		               "deadline_s = %u\n", test->deadline_s);
	test->harness.options.nvme_extra = test->extra;
	return faults_says(harness_restart(&test->harness) == 0, "zinfd does not start with",
	                   backend);
}

bool faults_halt(struct test *test)
{
	return faults_says(harness_halt(&test->harness) == 0, "zinfd did not stop cleanly",
	                   test->extra);
}

struct trainer_settings faults_settings(const struct test *test, const char *job)
{
	struct trainer_settings settings = ranks_settings(&test->harness, job, 1);

	settings.options.param_dtype = settings.options.grad_dtype = ZINF_BF16;
	settings.options.offload_optimizer = test->is_memory ? ZINF_OFFLOAD_CPU : ZINF_OFFLOAD_NVME;
	settings.options.durability = test->durability;
	settings.options.commit_interval = test->commit_interval;
	settings.options.staging_bytes = test->pool_bytes ? 10 << 20 : 8 << 20;
	if (test->pool_bytes) {
		settings.options.offload_param = ZINF_OFFLOAD_NVME;
		settings.options.param_budget_bytes = test->pool_bytes;
		settings.step.update_early = true;
	}
	return settings;
}

/* The victim, from wherever it stands to @steps. 0: there, with the right bits. */
int faults_train(struct test *test, uint32_t steps, bool is_resident,
                 struct trainer_report *ret_report)
{
	struct trainer_settings settings = faults_settings(test, "victim");
	char incarnation[32];
	struct ranks ranks;
	int r;

	(void)snprintf(incarnation, sizeof(incarnation), "run.%u", test->incarnation++);
	settings.options.incarnation = incarnation;
	settings.options.resident_bytes = is_resident ? 64 << 20 : 0;
	settings.steps = steps;
	if (ranks_start(&ranks, &settings))
		return -ENOMEM;
	r = ranks_wait(&ranks, 0);
	*ret_report = *ranks.reports[0]; /* Without the dump behind it. */
	if (!r && !ranks_are_right(&ranks))
		r = ret_report->result = -EILSEQ;
	else if (r)
		r = ret_report->result ? ret_report->result : -ECHILD;
	ranks_free(&ranks);
	return r;
}

/* All the ways: written, stepped, read anew with resident state, stepped. */
int faults_train_all(struct test *test, struct trainer_report *ret_report)
{
	int r = faults_train(test, 2, false, ret_report);

	return r ? r : faults_train(test, 3, true, ret_report);
}

/* The sentence has all that is needed to find the place. */
bool faults_names_place(const struct test *test, const char *text)
{
	char path[300];

	if (test->harness.options.nvme_path)
		(void)snprintf(path, sizeof(path), "%s", test->harness.options.nvme_path);
	else
		(void)snprintf(path, sizeof(path), "%s/store", test->harness.directory);
	return strstr(text, "job 'victim'") && strstr(text, "offset") && strstr(text, path) &&
	       (strstr(text, "parameters") || strstr(text, "optimizer state")) &&
	       strstr(text, "unit 'layer.");
}

static int destroy(void *arg)
{
	struct zinf_options options = *(const struct zinf_options *)arg;
	struct zinf *zinf;

	options.incarnation = "destroy";
	options.rank = 0;
	return zinf_attach(&options, &zinf) || zinf_destroy_job(zinf);
}

bool faults_destroy(struct test *test, const char *job)
{
	struct trainer_settings settings = faults_settings(test, job);

	return faults_says(harness_wait(harness_fork(destroy, &settings.options), 20000) == 0,
	                   "a job cannot be destroyed", job);
}
