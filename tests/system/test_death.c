/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a client that is killed at any step of the protocol leaves nothing charged; the other rank
 * of its job hears of it within a second, by rank number and pid; another job goes on undisturbed.
 * Method: for each step a client is killed there with SIGKILL. What libzinf passes through in one
 * call is cut with a raw client (harness/raw.h); calls that wait are killed in their wait, which
 * the daemon itself tells (`zctl jobs`: what each rank is doing). A neighbour trains in the same
 * daemon all the time, one step after each death, and must end in the bits of the reference.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/harness/patience.h"
#include "tests/harness/ranks.h"
#include "tests/harness/raw.h"
#include "tests/system/system.h"

TestSuite(death, .timeout = 200);

/* A daemon with a neighbour; what is charged when only the neighbour is there. */
struct scene {
	struct harness harness;
	struct neighbour neighbour;
	uint64_t baseline_bytes;
};

static void scene_open(struct scene *scene)
{
	struct trainer_settings settings;

	system_start(&scene->harness, &(struct harness_options){ .nvme_size = "64M" });
	settings = ranks_settings(&scene->harness, "neighbour", 1);
	settings.options.offload_optimizer = ZINF_OFFLOAD_NVME;
	settings.options.staging_bytes = 8 << 20;
	cr_assert_eq(neighbour_start(&scene->neighbour, &settings), 0);
	cr_assert(neighbour_steps(&scene->neighbour));
	scene->baseline_bytes = harness_cpu_bytes(&scene->harness);
	cr_assert_gt(scene->baseline_bytes, 0);
}

/* After each death. */
static void expect_undisturbed(struct scene *scene, const char *where)
{
	cr_assert(harness_charges_return(&scene->harness, scene->baseline_bytes, 10000), "%s",
	          where);
	cr_assert(neighbour_steps(&scene->neighbour), "%s", where);
}

static void scene_close(struct scene *scene)
{
	cr_assert(neighbour_stop(&scene->neighbour));
	cr_assert_eq(harness_stop(&scene->harness), 0);
}

/* ---- cut by a raw client ---- */

enum cut {
	CUT_CONNECTED,
	CUT_GREETED,
	CUT_ATTACHED,
	CUT_LAYOUT,
	CUT_MATERIALIZING,
	CUT_MATERIALIZED,
	CUT_WRITING,
	CUT_BLOB,
	CUT_BATCH,
	_CUT_COUNT
};

struct raw_death {
	const struct harness *harness;
	enum cut cut;
};

/* Up to the cut, as far as nothing fails; then it is killed. Alone in its job. */
static int die_raw(void *arg)
{
	static struct raw raw;
	const struct raw_death *death = arg;
	struct zi_attach message;
	int r = raw_connect(&raw, death->harness->socket_path);

	raw_attach_message(&message, "cut", "", 0, 1);
	message.config.offload_optimizer = ZI_OFFLOAD_NVME;
	message.config.staging_bytes = 8 << 20;
	if (!r && death->cut >= CUT_GREETED)
		r = raw_hello(&raw);
	if (!r && death->cut >= CUT_ATTACHED)
		r = raw_attach(&raw, &message);
	if (!r && death->cut >= CUT_LAYOUT)
		r = raw_layout(&raw, 3, 300000);
	if (!r && death->cut == CUT_MATERIALIZING)
		r = raw_send_materialize(&raw, 1, 3);
	if (!r && death->cut >= CUT_MATERIALIZED)
		r = raw_materialize(&raw, 3);
	if (!r && death->cut == CUT_WRITING) {
		struct zi_param_write_begin begin = {
			.header = { ZI_CONTROL_MAGIC, ZI_MESSAGE_PARAM_WRITE_BEGIN, 0,
			            sizeof(begin), 100 },
		};

		r = raw_send(&raw, &begin, sizeof(begin), NULL, 0);
	}
	if (!r && death->cut == CUT_BLOB)
		r = raw_send_plain(&raw, ZI_MESSAGE_BLOB_GET);
	if (!r && death->cut == CUT_BATCH) {
		for (uint32_t i = 0; i < 200; i++)
			raw_push(&raw, &(struct zi_sqe){ .user_data = i, .opcode = i % 8 });
		raw_ring(&raw);
	}
	if (r) {
		fprintf(stderr, "the raw client failed before its cut: %s\n", strerror(-r));
		return 1;
	}
	raise(SIGKILL);
	return 0;
}

Test(death, between_any_two_messages_leaves_nothing)
{
	struct scene scene;

	scene_open(&scene);
	for (enum cut cut = CUT_CONNECTED; cut < _CUT_COUNT; cut++) {
		struct raw_death death = { &scene.harness, cut };
		char where[32];

		(void)snprintf(where, sizeof(where), "cut %d", cut);
		cr_assert_eq(harness_wait(harness_fork(die_raw, &death), 20000), 1000 + SIGKILL);
		expect_undisturbed(&scene, where);
	}
	scene_close(&scene);
}

/* ---- at every step of a trainer, with another rank that must hear of it ---- */

struct death {
	enum trainer_point point;
	int64_t step;
	int arrived_fds[2]; /* rank 0 says that it is attached; rank 1 does not die before */
};

static void die_there(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	struct death *death = arg;
	char word = 'a';

	if (trainer->rank == 0 && point == TRAINER_ATTACHED)
		(void)!write(death->arrived_fds[1], &word, 1);
	if (trainer->rank == 0 || point != death->point || trainer->step != death->step)
		return;
	(void)!read(death->arrived_fds[0], &word, 1);
	trainer->report->failed_ns = zi_clock_now_ns();
	raise(SIGKILL);
}

static struct trainer_settings settings_of(const struct scene *scene)
{
	struct trainer_settings settings = ranks_settings(&scene->harness, "mortal", 2);

	settings.options.offload_optimizer = ZINF_OFFLOAD_NVME;
	settings.options.staging_bytes = 8 << 20;
	settings.step.max_norm = 1;
	return settings;
}

/* Rank 0 has ended with an error that names the dead one, within a second of @died_ns; a busy
 * machine has more. */
static void expect_told(const struct ranks *ranks, pid_t pid, uint64_t died_ns, const char *where)
{
	const struct trainer_report *report = ranks->reports[0];
	char name[32];

	cr_assert_eq(report->result, -EPIPE, "%s: %s: %s (%s)", where, report->call,
	             strerror(-report->result), report->text);
	(void)snprintf(name, sizeof(name), "pid %d", pid);
	system_expect_text(report->text, name);
	system_expect_text(report->text, "rank 1");
	cr_assert_lt(report->failed_ns - died_ns, patient_ns(ZI_NS_PER_S), "%s: told after %.3f s",
	             where, (double)(report->failed_ns - died_ns) / 1e9);
}

static const struct death deaths[] = {
	{ TRAINER_ATTACHED, 0, { 0 } },      { TRAINER_LAID_OUT, 0, { 0 } },
	{ TRAINER_MATERIALIZED, -1, { 0 } }, { TRAINER_WRITE_BEGUN, 0, { 0 } },
	{ TRAINER_WRITTEN, 0, { 0 } },       { TRAINER_COMMITTED, 0, { 0 } },
	{ TRAINER_STEP_BEGUN, 1, { 0 } },    { TRAINER_UNSHARDED, 2, { 0 } },
	{ TRAINER_ACQUIRED, 2, { 0 } },      { TRAINER_REDUCED, 2, { 0 } },
	{ TRAINER_BACKWARD, 2, { 0 } },      { TRAINER_STEPPED, 2, { 0 } },
	{ TRAINER_WAITED, 2, { 0 } },
};

Test(death, at_any_point_of_training_is_told_to_the_others_within_a_second)
{
	struct scene scene;

	scene_open(&scene);
	for (size_t i = 0; i < sizeof(deaths) / sizeof(*deaths); i++) {
		struct trainer_settings settings = settings_of(&scene);
		struct death death = deaths[i];
		struct ranks ranks;
		char where[32], incarnation[16];
		pid_t pid;

		(void)snprintf(where, sizeof(where), "point %d", death.point);
		(void)snprintf(incarnation, sizeof(incarnation), "start.%zu", i);
		cr_assert_eq(pipe(death.arrived_fds), 0);
		settings.options.incarnation = incarnation;
		settings.hook = die_there;
		settings.hook_arg = &death;
		cr_assert_eq(ranks_start(&ranks, &settings), 0);
		pid = ranks.pids[1];
		cr_assert_eq(ranks_wait(&ranks, 1), 1000 + SIGKILL, "%s", where);
		cr_assert_eq(ranks_wait(&ranks, 0), 1, "%s", where);
		expect_told(&ranks, pid, ranks.reports[1]->failed_ns, where);
		ranks_free(&ranks);
		(void)close(death.arrived_fds[0]);
		(void)close(death.arrived_fds[1]);
		expect_undisturbed(&scene, where);
		cr_assert_eq(system_destroy_job(&settings), 0, "%s", where);
	}
	scene_close(&scene);
}

/* ---- in a call that waits for the other rank ---- */

struct wait_case {
	const char *doing;        /* as the daemon tells it */
	enum trainer_point point; /* where rank 0 stands still, so that rank 1 waits */
	int64_t step;
};

static const struct wait_case waits[] = {
	{ "materialize", TRAINER_LAID_OUT, 0 },
	{ "param_write_end", TRAINER_WRITE_BEGUN, 0 },
	{ "commit", TRAINER_WRITTEN, 0 },
	{ "step", TRAINER_BACKWARD, 1 },
};

struct halt {
	const struct wait_case *wait;
	int arrived_fds[2]; /* rank 0 says that it stands still */
	int go_fds[2];
};

static void halt_there(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	const struct halt *halt = arg;
	char word = 'a';

	if (trainer->rank || point != halt->wait->point || trainer->step != halt->wait->step)
		return;
	(void)!write(halt->arrived_fds[1], &word, 1);
	(void)!read(halt->go_fds[0], &word, 1);
}

/* What a rank of the job did last, as the daemon tells it. */
static bool is_doing(struct harness *harness, uint32_t rank, const char *doing)
{
	json_t *jobs = harness_admin(harness, "jobs");
	bool is_found = false;
	json_t *job;
	size_t i;

	/* clang-format off: it does not know the loop */
	json_array_foreach(jobs, i, job)
	{
		const json_t *one = json_array_get(json_object_get(job, "ranks"), rank);
		const char *word = json_string_value(json_object_get(one, "doing"));

		is_found |= !strcmp(json_string_value(json_object_get(job, "name")), "mortal") &&
		            word && !strcmp(word, doing);
	}
	/* clang-format on */
	json_decref(jobs);
	return is_found;
}

static void kill_waiting(struct scene *scene, const struct wait_case *wait)
{
	struct trainer_settings settings = settings_of(scene);
	struct halt halt = { .wait = wait };
	uint64_t deadline_ns, died_ns;
	struct ranks ranks;
	char word;
	pid_t pid;

	cr_assert_eq(pipe(halt.go_fds), 0);
	cr_assert_eq(pipe(halt.arrived_fds), 0);
	settings.hook = halt_there;
	settings.hook_arg = &halt;
	cr_assert_eq(ranks_start(&ranks, &settings), 0);
	pid = ranks.pids[1];
	(void)close(halt.arrived_fds[1]);
	cr_assert_eq(read(halt.arrived_fds[0], &word, 1), 1, "rank 0 never stood still");
	deadline_ns = zi_clock_deadline_ns(patient_ns(20 * ZI_NS_PER_S));
	while (!is_doing(&scene->harness, 1, wait->doing))
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "rank 1 never came to %s",
		             wait->doing);
	cr_assert_eq(kill(pid, SIGKILL), 0);
	died_ns = zi_clock_now_ns();
	cr_assert_eq(ranks_wait(&ranks, 1), 1000 + SIGKILL);
	cr_assert_eq(write(halt.go_fds[1], "g", 1), 1);
	cr_assert_eq(ranks_wait(&ranks, 0), 1, "%s", wait->doing);
	expect_told(&ranks, pid, died_ns, wait->doing);
	ranks_free(&ranks);
	(void)close(halt.go_fds[0]);
	(void)close(halt.go_fds[1]);
	(void)close(halt.arrived_fds[0]);
	expect_undisturbed(scene, wait->doing);
	cr_assert_eq(system_destroy_job(&settings), 0);
}

Test(death, in_a_call_that_waits_is_told_to_the_others_within_a_second)
{
	struct scene scene;

	scene_open(&scene);
	for (size_t i = 0; i < sizeof(waits) / sizeof(*waits); i++)
		kill_waiting(&scene, &waits[i]);
	scene_close(&scene);
}

/* ---- a leave is not a death, but is told as well ---- */

static int leave_after_materialize(void *arg)
{
	struct trainer_settings *settings = arg;
	struct trainer trainer = { 0 };
	struct trainer_report *report = calloc(1, sizeof(*report) + trainer_dump_bytes(settings));
	int r = report ? trainer_open(&trainer, settings, 1, report) : -ENOMEM;

	trainer_close(&trainer);
	free(report);
	return r != 0;
}

Test(death, a_rank_that_detaches_is_told_as_one_that_left)
{
	struct scene scene;
	struct trainer_settings settings;
	struct ranks ranks;
	pid_t pid;

	scene_open(&scene);
	settings = settings_of(&scene);
	ranks = (struct ranks){ .settings = settings, .world = 1 };
	ranks.reports[0] = mmap(NULL, sizeof(struct trainer_report) + trainer_dump_bytes(&settings),
	                        PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert_eq(ranks_start_one(&ranks, 0), 0);
	pid = harness_fork(leave_after_materialize, &settings);
	cr_assert_eq(harness_wait(pid, 20000), 0);
	cr_assert_eq(ranks_wait(&ranks, 0), 1);
	cr_assert_eq(ranks.reports[0]->result, -EPIPE);
	system_expect_text(ranks.reports[0]->text, "left");
	ranks_free(&ranks);
	expect_undisturbed(&scene, "left");
	scene_close(&scene);
}
