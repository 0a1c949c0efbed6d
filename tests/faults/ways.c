/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ways to a store beside those of a plain step (faults.h): pools of parameters, steps between
 * commits, a snapshot of state in memory, a job that begins with a snapshot, export, import,
 * tensors. Each is walked with an error at its n-th read or write, for n from 1 until it passes
 * through, and once more on a sound disk, where it must succeed. Every second walk runs beside a
 * busy loop on each CPU, so that threads meet in other orders.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/faults/faults.h"

#define TEXT_BYTES    512u
#define SITES_MAX     200u
#define TENSOR_BYTES  (300u << 10)
#define TENSORS       12u
#define TENSOR_BUDGET (2u << 20)

/* A way: 0, or a negative number and what was said. Whatever it leaves, the next walk takes. */
struct way {
	const char *words;
	int (*walk)(struct test *test, char *text);
	bool has_writes, has_reads;
	bool is_cold; /* each step reads all of its state */
};

static int zctl(struct test *test, char *text, const char *const *arguments)
{
	return harness_zctl(test->harness.socket_path, arguments, text, TEXT_BYTES) ? -EIO : 0;
}
#define ZCTL(test, text, ...) zctl(test, text, (const char *const[]){ __VA_ARGS__, NULL })

static int ended(struct test *test, char *text, int r, const struct trainer_report *report)
{
	(void)snprintf(text, TEXT_BYTES, "%s", report->text);
	test->pool_bytes = 0;
	return r;
}

static int walk_pool_of(struct test *test, uint64_t pool_bytes, char *text)
{
	struct trainer_report report;
	int r;

	test->pool_bytes = pool_bytes;
	r = test->is_again ? faults_train(test, 3, false, &report)
	                   : faults_train_all(test, &report);
	return ended(test, text, r, &report);
}

/* For the largest unit, and no more. */
static int walk_pool(struct test *test, char *text)
{
	return walk_pool_of(test, 544 << 10, text);
}

/* For all units: an update finds its parameters there while it reads its state. */
static int walk_wide_pool(struct test *test, char *text)
{
	return walk_pool_of(test, 4 << 20, text);
}

/* Two steps that no catalog names, which the end of the group commits; then three more. */
static int walk_interval(struct test *test, char *text)
{
	struct trainer_report report = { .result = 0 };
	int r = 0;

	test->commit_interval = 3;
	if (!test->is_again)
		r = faults_train(test, 2, false, &report);
	if (!r)
		r = faults_train(test, 5, false, &report);
	test->commit_interval = 0;
	return ended(test, text, r, &report);
}

/* ---- snapshots ---- */

struct told {
	int result;
	char text[TEXT_BYTES];
};

static void keep(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	struct zinf_snapshot_options options = ZINF_SNAPSHOT_OPTIONS_INIT;
	struct told *told = arg;

	if (point != TRAINER_WAITED || trainer->step != 1)
		return;
	options.name = "memory";
	told->result = zinf_snapshot(trainer->zinf, &options, NULL);
	(void)snprintf(told->text, sizeof(told->text), "%s", zinf_error_text(trainer->zinf));
}

/* The job goes on, whatever becomes of its snapshot. */
static int walk_snapshot(struct test *test, char *text)
{
	struct told *told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE,
	                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct trainer_settings settings;
	char words[TEXT_BYTES];
	struct ranks ranks;
	int r;

	test->is_memory = true;
	settings = faults_settings(test, "victim");
	settings.steps = 2;
	settings.hook = keep;
	settings.hook_arg = told;
	r = ranks_train(&ranks, &settings) || !ranks_are_right(&ranks) ? -EILSEQ : told->result;
	(void)snprintf(text, TEXT_BYTES, "%s", told->text);
	ranks_free(&ranks);
	(void)munmap(told, sizeof(*told));
	if (!r && ZCTL(test, words, "snapshot", "rm", "victim/memory"))
		r = -EILSEQ;
	if (!faults_destroy(test, "victim"))
		r = -EILSEQ;
	test->is_memory = false;
	return r;
}

static int walk_load(struct test *test, char *text)
{
	struct trainer_settings settings = faults_settings(test, "victim");
	struct trainer_report report;
	struct ranks ranks;
	int r;

	settings.load = "base/mine";
	settings.steps = 3;
	if (ranks_start(&ranks, &settings))
		return -ENOMEM;
	r = ranks_wait(&ranks, 0);
	report = *ranks.reports[0];
	if (!r && !ranks_are_right(&ranks))
		r = -EILSEQ;
	else if (r)
		r = report.result;
	ranks_free(&ranks);
	return faults_destroy(test, "victim") ? ended(test, text, r, &report) : -EILSEQ;
}

/* ---- files ---- */

static const char *file_of(const struct test *test, const char *name)
{
	static char path[300];

	(void)snprintf(path, sizeof(path), "%s/%s", test->harness.directory, name);
	return path;
}

static bool remove_files(const struct test *test, const char *name)
{
	char command[320];

	(void)snprintf(command, sizeof(command), "rm -rf %s", file_of(test, name));
	return system(command) == 0;
}

static int walk_export(struct test *test, char *text)
{
	int r = ZCTL(test, text, "export", "base", file_of(test, "out"));

	return remove_files(test, "out") ? r : -EILSEQ;
}

static int walk_import(struct test *test, char *text)
{
	int r = ZCTL(test, text, "load", file_of(test, "kept"), "victim/mine");
	char words[TEXT_BYTES];

	if (!r && ZCTL(test, words, "snapshot", "rm", "victim/mine"))
		return -EILSEQ;
	return r;
}

/* ---- tensors ---- */

/* Each is put and got back twice, beyond the budget, so that it is read. */
static int tensors_body(struct zinf *zinf)
{
	static unsigned char bytes[TENSOR_BYTES], back[TENSOR_BYTES];
	int r = zinf_tensor_open(zinf, TENSOR_BUDGET);
	zinf_ticket ticket;

	for (uint32_t i = 0; i < 4 * TENSORS && !r; i++) {
		memset(bytes, (int)(i % TENSORS + 1), sizeof(bytes));
		if (i / TENSORS % 2 == 0) {
			r = zinf_tensor_put(zinf, i % TENSORS, bytes, sizeof(bytes), &ticket);
			if (!r)
				r = zinf_wait(zinf, ticket, NULL);
			continue;
		}
		r = zinf_tensor_get(zinf, i % TENSORS, back, sizeof(back), &ticket);
		if (!r)
			r = zinf_wait(zinf, ticket, NULL);
		if (!r && memcmp(bytes, back, sizeof(bytes)) != 0)
			return -EILSEQ;
		if (!r)
			r = zinf_tensor_free(zinf, i % TENSORS);
	}
	return r;
}

static int tensors_rank(void *arg)
{
	struct zinf_options options = ((struct trainer_settings *)arg)->options;
	struct told *told = ((struct trainer_settings *)arg)->hook_arg;
	struct zinf *zinf;
	uint32_t index;
	uint64_t shape[1] = { 16 };

	options.rank = 0;
	told->result = zinf_attach(&options, &zinf);
	if (told->result) {
		(void)snprintf(told->text, sizeof(told->text), "%s", zinf_attach_error());
		return 0;
	}
	if (zinf_unit_add(zinf, "layer.0", &index) ||
	    zinf_param_add(zinf, "weight", 1, shape, &index) || zinf_materialize(zinf)) {
		told->result = -EILSEQ;
		(void)snprintf(told->text, sizeof(told->text), "%s", zinf_error_text(zinf));
		return 0;
	}
	told->result = tensors_body(zinf);
	(void)snprintf(told->text, sizeof(told->text), "%s", zinf_error_text(zinf));
	zinf_detach(zinf);
	return 0;
}

static int walk_tensors(struct test *test, char *text)
{
	struct trainer_settings settings = faults_settings(test, "victim");
	struct told *told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE,
	                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int r;

	settings.hook_arg = told;
	r = harness_wait(harness_fork(tensors_rank, &settings), 60000) ? -EILSEQ : told->result;
	(void)snprintf(text, TEXT_BYTES, "%s", told->text);
	(void)munmap(told, sizeof(*told));
	return r;
}

/* ---- all of them ---- */

static const struct way ways[] = {
	{ "a pool of parameters", walk_pool, true, true, false },
	{ "a pool of all parameters", walk_wide_pool, true, true, true },
	{ "steps that are not committed", walk_interval, true, true, false },
	{ "a snapshot of state in memory", walk_snapshot, true, false, false },
	{ "a job that begins with a snapshot", walk_load, true, true, false },
	{ "export", walk_export, false, true, false },
	{ "import", walk_import, true, false, false },
	{ "tensors", walk_tensors, true, true, false },
};

/* Where it failed is said: the place in the store, its path, and what it was. */
static bool names_place(const struct test *test, const char *text)
{
	return strstr(text, "offset") && strstr(text, file_of(test, "store")) &&
	       (strstr(text, "job '") || strstr(text, "tensor"));
}

/* The disk was asked for something that failed. */
static bool was_hit(struct test *test)
{
	json_t *status = harness_admin(&test->harness, "status");
	bool was_hit = json_integer_value(json_object_get(status, "io_errors")) > 0;

	json_decref(status);
	return was_hit;
}

/* What failed is named, and is well on a sound disk. */
static bool goes_on(struct test *test, const struct way *way, int r, char *text)
{
	bool is_right =
		faults_says(r == -EIO || r == -EBADMSG, "another error than the one injected",
	                    text) &&
		faults_says(names_place(test, text), "the error does not name its place", text);

	is_right = is_right && faults_halt(test) && faults_start(test, "auto");
	test->is_again = true;
	is_right = is_right && faults_says(way->walk(test, text) == 0,
	                                   "it does not go on, on a sound disk", text);
	test->is_again = false;
	test->found_count++;
	return is_right;
}

/* Return: 1 it passed through, 0 right, -1 wrong. */
static int run_site(struct test *test, const struct way *way, const char *rule, uint32_t site)
{
	char backend[96], text[TEXT_BYTES] = "";
	bool is_right = true, was_reached;
	int r;

	(void)snprintf(backend, sizeof(backend), "faulty:over=threads,seed=%llu,%s%u",
	               (unsigned long long)test->seed, rule, site);
	test->harness.options.extra = way->is_cold ? HARNESS_COLD : NULL;
	if (!faults_start(test, backend))
		return -1;
	faults_busy_set(test->case_count % 2);
	r = way->walk(test, text);
	faults_busy_set(false);
	was_reached = r || was_hit(test);
	if (r)
		is_right = goes_on(test, way, r, text);
	else if (was_reached) /* Read anew when it was needed. */
		test->harmless_count++;
	is_right = is_right && faults_destroy(test, "victim") && faults_halt(test);
	test->case_count += was_reached;
	if (!is_right)
		fprintf(stderr, "check_faults: FAILED: %s, %s\n", way->words, backend);
	return !is_right ? -1 : was_reached ? 0 : 1;
}

/* From the first site on, each stride-th. @ret_last: of the sites that there are. */
static bool sweep(struct test *test, const struct way *way, const char *rule, uint32_t *ret_last)
{
	for (uint32_t site = 1; site <= SITES_MAX; site += test->stride) {
		int r = run_site(test, way, rule, site);

		if (r < 0)
			return false;
		if (r > 0)
			return faults_says(site > 1, "it has no such site", way->words);
		*ret_last = site;
		test->way_sites++;
	}
	return faults_says(test->stride > 1, "the sweep does not end", way->words);
}

/* A bit that is turned is no error of the disk: the sites are those of the sweep before. */
static bool sweep_damage(struct test *test, const struct way *way, uint32_t last)
{
	for (uint32_t site = 1; site <= last; site += test->stride)
		if (run_site(test, way, "flip=read@", site) < 0)
			return false;
	return true;
}

/* "base" stands at step 2, has a snapshot, and lies in files. */
static bool prepare(struct test *test)
{
	struct trainer_settings settings = faults_settings(test, "base");
	char words[TEXT_BYTES];
	struct ranks ranks;
	bool is_right;

	settings.steps = 2;
	is_right = faults_start(test, "auto") && ranks_train(&ranks, &settings) == 0;
	if (is_right)
		ranks_free(&ranks);
	return is_right &&
	       faults_says(!ZCTL(test, words, "snapshot", "base", "--name", "mine"), "no snapshot",
	                   words) &&
	       faults_says(!ZCTL(test, words, "export", "base", file_of(test, "kept")), "no export",
	                   words) &&
	       faults_halt(test);
}

/* See faults.h. */
bool faults_check_ways(struct test *test)
{
	char words[TEXT_BYTES];
	bool is_right = prepare(test) && faults_busy_start();
	uint32_t last = 0;

	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways) && is_right; i++) {
		if (ways[i].has_writes)
			is_right = sweep(test, &ways[i], "EIO=write@", &last);
		if (ways[i].has_reads)
			is_right = is_right && sweep(test, &ways[i], "EIO=read@", &last) &&
			           sweep_damage(test, &ways[i], last);
	}
	faults_busy_stop();
	test->harness.options.extra = NULL;
	is_right = is_right && faults_start(test, "auto") &&
	           faults_says(!ZCTL(test, words, "snapshot", "rm", "base/mine"),
	                       "no snapshot is left", words) &&
	           faults_destroy(test, "base") && faults_halt(test);
	return remove_files(test, "kept") && is_right;
}
