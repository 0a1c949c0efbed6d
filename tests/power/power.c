/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a power failure at any moment loses nothing that was promised. Method: the life of a node
 * is recorded, write by write and flush by flush; the disk is rebuilt as it may be after the power
 * failed at any place of the record, with any choice of what was not flushed; a daemon is started
 * on it, and must have each job at its last acknowledged commit (or the one under way), whole, and
 * carry it on to the right bits. That the test can fail is tested as well: with a disk that lies.
 *
 *   power [--seed N] [--states N] [--durability power|process|mixed] [--votes 0|1] [--lie NAME]
 *         [--damages N] [--keep DIR]
 *
 * The seed fixes what is drawn (cuts, choices, damages), not the record they are drawn from:
 * threads of the engine and of the catalog take turns as they come, and identities are new in each
 * run. A wrong state is therefore kept (--keep) rather than found again by its seed.
 *
 * --states: drawn by the seed; with 0 all systematic ones. --damages: no power failure, but that
 * many disks on which something is not what was written: it must be named or not matter, and never
 * be trained on. --votes 1: jobs commit as those of several nodes do (votes.h). --keep: leave the
 * first wrong state there. Exits 0 when nothing is wrong; with a lie, when something is.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/types.h"
#include "tests/guard/guard.h"
#include "tests/power/damage.h"
#include "tests/power/disk.h"
#include "tests/power/image.h"
#include "tests/power/judge.h"

/* A state that keeps a daemon busy for longer has found a hang. */
#define JUDGE_S 120u

static const char *const lie_names[_DISK_LIE_COUNT] = {
	[DISK_HONEST] = "none",
	[DISK_DROPS_STORE_FLUSH] = "drops-store-flush",
	[DISK_FLUSHES_STORE_LATE] = "flushes-store-late",
	[DISK_DROPS_LOG_FLUSH] = "drops-log-flush",
	[DISK_DROPS_NAMES_FLUSH] = "drops-names-flush",
};
static const char *const durability_names[_LIFE_DURABILITY_COUNT] = {
	[LIFE_POWER] = "power",
	[LIFE_PROCESS] = "process",
	[LIFE_MIXED] = "mixed",
};

struct test {
	uint64_t seed;
	uint64_t state_count; /* 0: all corners of all cuts */
	uint64_t damage_count;
	enum disk_lie lie;
	const char *keep;
	char directory[64];
	struct life life;
	const struct record_list *list;
	uint64_t cuts; /* places of the record */
	struct disk *disk;
	uint64_t *seen; /* (seen_capacity,) hashes of states that were judged; 0: none */
	uint64_t seen_capacity, seen_count;
	uint64_t counts[JUDGE_WRONG + 1];
};

struct sample {
	uint64_t cut;
	struct disk_choice choice;
};

static void must(bool is_true, const char *what)
{
	if (is_true)
		return;
	(void)fprintf(stderr, "power: %s\n", what);
	abort();
}

static uint64_t draw(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15ull;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* ---- one state ---- */

/* Whether the same disk was judged at the same promises. */
static bool is_seen(struct test *test, uint64_t hash)
{
	uint64_t slot = hash % test->seen_capacity;

	while (test->seen[slot] && test->seen[slot] != hash)
		slot = (slot + 1) % test->seen_capacity;
	if (test->seen[slot])
		return true;
	test->seen[slot] = hash;
	test->seen_count++;
	return false;
}

/* Changes with what is promised at a cut. */
static uint64_t promises_at(const struct life *life, uint64_t cut)
{
	uint64_t count = 0;

	for (uint32_t name = 0; name < LIFE_NAMES; name++)
		for (uint32_t i = 0; i < life->point_count[name]; i++) {
			count += life->points[name][i].begun < cut;
			count += life->points[name][i].acknowledged < cut;
		}
	return count;
}

/* In a process of its own: an assertion of the daemon's is an answer too. */
static enum judge_verdict judge(const struct test *test, enum judge_trial trial, uint64_t cut,
                                struct zi_text *text)
{
	int fds[2];
	int status = 0;
	pid_t child;

	must(!pipe2(fds, O_CLOEXEC), "no pipe");
	(void)fflush(NULL);
	child = fork();
	must(child >= 0, "no process");
	if (!child) {
		enum judge_verdict verdict;

		(void)alarm(JUDGE_S);
		verdict = judge_disk(&test->life, trial, test->directory, cut, text);
		_exit(write(fds[1], text, sizeof(*text)) == (ssize_t)sizeof(*text) ? (int)verdict
		                                                                   : JUDGE_WRONG);
	}
	(void)zi_close(fds[1]);
	zi_text_set(text, "the daemon died");
	must(read(fds[0], text, sizeof(*text)) >= 0, "the pipe cannot be read");
	(void)zi_close(fds[0]);
	must(waitpid(child, &status, 0) == child, "waitpid");
	if (!WIFEXITED(status) || WEXITSTATUS(status) > JUDGE_WRONG)
		return JUDGE_WRONG;
	return (enum judge_verdict)WEXITSTATUS(status);
}

static void tell_wrong(struct test *test, const struct sample *sample, const struct zi_text *text)
{
	char pending[256];

	disk_describe(test->disk, pending, sizeof(pending));
	(void)printf("wrong: %s\n  cut %llu of %llu, %s %u.%u, sectors of %u, seed %llu; %s\n",
	             text->chars, (unsigned long long)sample->cut, (unsigned long long)test->cuts,
	             sample->choice.corner == DISK_RANDOM ? "random" : "corner",
	             sample->choice.corner, sample->choice.tear, sample->choice.sector_bytes,
	             (unsigned long long)sample->choice.seed, pending);
	if (!test->keep)
		return;
	disk_write(test->disk, test->keep);
	(void)printf("  the state is kept in %s\n", test->keep);
	test->keep = NULL;
}

static void try_state(struct test *test, const struct sample *sample)
{
	enum judge_verdict verdict;
	struct zi_text text;
	uint64_t hash;

	disk_cut(test->disk, sample->cut);
	hash = disk_choose(test->disk, &sample->choice);
	hash += promises_at(&test->life, sample->cut) * 0x9e3779b97f4a7c15ull;
	if (is_seen(test, hash ? hash : 1))
		return;
	disk_write(test->disk, test->directory);
	verdict = judge(test, JUDGE_HONEST, sample->cut, &text);
	if (verdict == JUDGE_WRONG && !test->lie && test->counts[JUDGE_WRONG] < 20)
		tell_wrong(test, sample, &text);
	test->counts[verdict]++;
}

/* ---- many ---- */

static int by_cut(const void *one, const void *other)
{
	const struct sample *a = one;
	const struct sample *b = other;

	return (a->cut > b->cut) - (a->cut < b->cut);
}

/* Every cut with every corner: what is systematic. */
static uint64_t fill_corners(const struct test *test, struct sample *samples)
{
	uint64_t count = 0;

	for (uint64_t cut = 0; cut <= test->cuts; cut++)
		for (uint32_t corner = 0; corner < DISK_CORNERS * _DISK_TEAR_COUNT; corner++)
			samples[count++] = (struct sample){
				.cut = cut,
				.choice = { .corner = corner % DISK_CORNERS,
				            .tear = (enum disk_tear)(corner / DISK_CORNERS),
				            .sector_bytes = 512 },
			};
	return count;
}

/* A quarter are corners. */
static uint64_t fill_drawn(const struct test *test, struct sample *samples)
{
	uint64_t state = test->seed;

	for (uint64_t i = 0; i < test->state_count; i++) {
		bool is_corner = draw(&state) % 4 == 0;

		samples[i] = (struct sample){
			.cut = draw(&state) % (test->cuts + 1),
			.choice = { .corner = is_corner ? draw(&state) % DISK_CORNERS : DISK_RANDOM,
			            .tear = (enum disk_tear)(draw(&state) % _DISK_TEAR_COUNT),
			            .sector_bytes = draw(&state) % 2 ? 512 : 4096,
			            .seed = draw(&state) },
		};
	}
	qsort(samples, test->state_count, sizeof(*samples), by_cut);
	return test->state_count;
}

static void try_all(struct test *test)
{
	uint64_t capacity = test->state_count ? test->state_count
	                                      : (test->cuts + 1) * DISK_CORNERS * _DISK_TEAR_COUNT;
	struct sample *samples = calloc(capacity, sizeof(*samples));
	uint64_t count;

	test->seen_capacity = 2 * capacity + 1;
	test->seen = calloc(test->seen_capacity, sizeof(*test->seen));
	must(samples && test->seen, "no memory");
	count = test->state_count ? fill_drawn(test, samples) : fill_corners(test, samples);
	for (uint64_t i = 0; i < count; i++) {
		try_state(test, &samples[i]);
		if (test->lie && test->counts[JUDGE_WRONG])
			break;
	}
	free(samples);
	free(test->seen);
}

/* ---- damage ---- */

/* A disk on which every call before @cut has had its effect. */
static struct disk *disk_at(const struct test *test, uint64_t cut)
{
	struct disk *disk = disk_new(test->list, DISK_HONEST, 0);

	disk_cut(disk, cut);
	(void)disk_choose(
		disk, &(struct disk_choice){ .corner = DISK_CORNERS - 1, .sector_bytes = 4096 });
	return disk;
}

static void try_damage(struct test *test, uint64_t number)
{
	static const char *const kinds[_DAMAGE_KIND_COUNT] = { "flip",  "zero",      "noise",
		                                               "stale", "misplaced", "cut" };
	static const char *const parts[] = { "store", "catalog", "log" };
	uint64_t state = test->seed * 1000003 + number;
	enum disk_part part = (enum disk_part)(draw(&state) % DISK_NAMES);
	enum damage_kind kind = (enum damage_kind)(draw(&state) % _DAMAGE_KIND_COUNT);
	uint64_t cut = test->life.made + draw(&state) % (test->cuts - test->life.made);
	struct disk *before = disk_at(test, draw(&state) % cut);
	struct disk *disk = disk_at(test, cut);
	struct zi_text text;

	if (damage(disk, before, part, kind, draw(&state))) {
		enum judge_verdict verdict;

		disk_write(disk, test->directory);
		verdict = judge(test, part == DISK_LOG ? JUDGE_LOG_DAMAGED : JUDGE_DAMAGED, cut,
		                &text);
		test->seen_count++;
		test->counts[verdict]++;
		if (verdict == JUDGE_WRONG)
			(void)printf("wrong: %s of the %s, number %llu, cut %llu: %s\n",
			             kinds[kind], parts[part], (unsigned long long)number,
			             (unsigned long long)cut, text.chars);
	}
	disk = disk_free(disk);
	before = disk_free(before);
}

/* ---- the run ---- */

static void make_directory(struct test *test)
{
	must(mkdtemp(guard_path(test->directory, sizeof(test->directory), "power")) != NULL,
	     "no directory");
}

/* The record, played from its beginning, gives the files: nothing was missed. */
static void check_record(const struct test *test)
{
	struct disk *disk = disk_new(test->list, DISK_HONEST, 0);

	disk_cut(disk, test->cuts);
	(void)disk_choose(
		disk, &(struct disk_choice){ .corner = DISK_CORNERS - 1, .sector_bytes = 4096 });
	must(disk_compare(disk, test->directory), "the recorder has missed something");
	disk = disk_free(disk);
}

static void record(struct test *test)
{
	life_reference(&test->life, test->directory);
	record_start(test->directory);
	life_run(&test->life, test->directory);
	test->list = record_stop();
	test->cuts = record_now();
	check_record(test);
}

static int find_name(const char *name, const char *const *names, int count)
{
	for (int i = 0; i < count; i++)
		if (strcmp(name, names[i]) == 0)
			return i;
	(void)fprintf(stderr, "power: '%s' is unknown\n", name);
	exit(2);
}

static void parse(struct test *test, int argc, char **argv)
{
	for (int i = 1; i < argc; i += 2) {
		const char *value = argv[i + 1];

		must(i + 1 < argc, "an option without a value");
		if (strcmp(argv[i], "--seed") == 0)
			test->seed = strtoull(value, NULL, 10);
		else if (strcmp(argv[i], "--states") == 0)
			test->state_count = strtoull(value, NULL, 10);
		else if (strcmp(argv[i], "--damages") == 0)
			test->damage_count = strtoull(value, NULL, 10);
		else if (strcmp(argv[i], "--lie") == 0)
			test->lie = (enum disk_lie)find_name(value, lie_names, _DISK_LIE_COUNT);
		else if (strcmp(argv[i], "--keep") == 0)
			test->keep = value;
		else if (strcmp(argv[i], "--votes") == 0)
			job_has_votes = strcmp(value, "0") != 0;
		else if (strcmp(argv[i], "--durability") == 0)
			test->life.durability = (enum life_durability)find_name(
				value, durability_names, _LIFE_DURABILITY_COUNT);
		else
			must(false, "an option that is unknown");
	}
}

static int tell(const struct test *test, uint64_t started_ns)
{
	double seconds = (double)(zi_clock_now_ns() - started_ns) / 1e9;

	if (test->lie) {
		bool is_caught = test->counts[JUDGE_WRONG] > 0;

		(void)printf("power: a disk that %s is %s (state %llu)\n", lie_names[test->lie],
		             is_caught ? "caught" : "NOT caught",
		             (unsigned long long)test->seen_count);
		return is_caught ? 0 : 1;
	}
	(void)printf("power: durability %s%s, seed %llu, %u calls recorded: %llu %s "
	             "(%llu whole, %llu with losses that are named), %llu wrong, %.1f s\n",
	             durability_names[test->life.durability], job_has_votes ? ", with votes" : "",
	             (unsigned long long)test->seed, test->list->count,
	             (unsigned long long)test->seen_count,
	             test->damage_count ? "damaged disks" : "different states",
	             (unsigned long long)test->counts[JUDGE_WHOLE],
	             (unsigned long long)test->counts[JUDGE_NAMED],
	             (unsigned long long)test->counts[JUDGE_WRONG], seconds);
	return test->counts[JUDGE_WRONG] ? 1 : 0;
}

int main(int argc, char **argv)
{
	static struct test test = { .seed = 1 };
	uint64_t started_ns = zi_clock_now_ns();

	parse(&test, argc, argv);
	make_directory(&test);
	record(&test);
	/* The first start is honest: without it nothing can go wrong. */
	test.disk = disk_new(test.list, test.lie,
	                     test.lie == DISK_DROPS_NAMES_FLUSH ? 0 : test.life.made);
	for (uint64_t i = 0; i < test.damage_count; i++)
		try_damage(&test, i);
	if (!test.damage_count)
		try_all(&test);
	test.disk = disk_free(test.disk);
	image_clear_directory(test.directory);
	must(!rmdir(test.directory), "something was left in the directory");
	return tell(&test, started_ns);
}
