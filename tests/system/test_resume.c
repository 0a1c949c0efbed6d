/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the training state outlives the trainer and, on disk, the daemon: whoever is killed
 * (SIGKILL), wherever they stood, the run goes on at the last committed step, with the blob of that
 * step, and ends in the bits of a run that was never disturbed. State in memory alone outlives the
 * trainers only; when the daemon dies it is reported as lost, and the job starts anew.
 * Method: a rank of harness/trainer.h kills itself, or the daemon, at a named point of its
 * protocol; the test starts it again, as a launcher would. Gradients depend on a random state that
 * only the blob carries. No waiting for a time: processes are waited for, the daemon says when it
 * is ready.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/ranks.h"
#include "tests/system/system.h"

TestSuite(resume, .timeout = 200);

/* Where somebody dies. */
struct fate {
	enum trainer_point point;
	int64_t step;         /* under way there; 0: before the first */
	int64_t stands_at[2]; /* where the job may stand afterwards: lowest, highest */
};

struct killing {
	const struct fate *fate;
	uint32_t rank;  /* who acts */
	pid_t victim;   /* 0: itself */
	uint32_t start; /* in its so many-th life */
};

static void kill_there(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	const struct killing *killing = arg;

	if (point == killing->fate->point && trainer->step == killing->fate->step &&
	    trainer->rank == killing->rank && trainer->start_count == killing->start)
		(void)kill(killing->victim ? killing->victim : getpid(), SIGKILL);
}

static const struct fate fates_of_rank[] = {
	{ TRAINER_MATERIALIZED, -1, { -1, -1 } },
	{ TRAINER_WRITE_BEGUN, 0, { -1, -1 } },
	{ TRAINER_WRITTEN, 0, { -1, -1 } },
	{ TRAINER_COMMITTED, 0, { 0, 0 } },
	{ TRAINER_STEP_BEGUN, 1, { 0, 0 } },
	{ TRAINER_STEP_BEGUN, 3, { 2, 2 } },
	{ TRAINER_UNSHARDED, 3, { 2, 2 } },
	{ TRAINER_ACQUIRED, 3, { 2, 2 } },
	{ TRAINER_REDUCED, 3, { 2, 2 } },
	{ TRAINER_BACKWARD, 3, { 2, 2 } },
	/* Whether the step is committed depends on whether the other came with its zinf_step(). */
	{ TRAINER_STEPPED, 3, { 2, 3 } },
	{ TRAINER_WAITED, 3, { 3, 3 } },
};
#define FATES_OF_RANK (sizeof(fates_of_rank) / sizeof(*fates_of_rank))

static struct trainer_settings settings_of(const struct harness *harness, const char *job,
                                           bool is_on_disk)
{
	struct trainer_settings settings = ranks_settings(harness, job, 2);

	settings.options.param_dtype = settings.options.grad_dtype = ZINF_BF16;
	settings.step.max_norm = 1;
	settings.steps = 5;
	if (is_on_disk) {
		settings.options.offload_optimizer = ZINF_OFFLOAD_NVME;
		settings.options.staging_bytes = 8 << 20;
	}
	return settings;
}

/* Rank 1 dies; rank 0 must hear of it (or have ended well before); both are started again. */
static void kill_rank_and_resume(struct harness *harness, const struct fate *fate, bool is_on_disk)
{
	struct trainer_settings settings = settings_of(harness, "resumed", is_on_disk);
	struct killing killing = { .fate = fate, .rank = 1 };
	const struct trainer_report *report;
	struct ranks ranks;

	settings.hook = kill_there;
	settings.hook_arg = &killing;
	cr_assert_eq(ranks_start(&ranks, &settings), 0);
	cr_assert_eq(ranks_wait(&ranks, 1), 1000 + SIGKILL, "point %d", fate->point);
	cr_assert_eq(ranks_wait(&ranks, 0), 1, "point %d: rank 0 ended well", fate->point);
	report = ranks.reports[0];
	cr_assert_eq(report->result, -EPIPE, "point %d: %s: %s (%s)", fate->point, report->call,
	             strerror(-report->result), report->text);
	ranks.settings.options.incarnation = "second";
	ranks.settings.hook = NULL;
	cr_assert_eq(ranks_start_one(&ranks, 0), 0);
	cr_assert_eq(ranks_start_one(&ranks, 1), 0);
	cr_assert_eq(ranks_join(&ranks), 0, "point %d", fate->point);
	cr_assert_eq(ranks.reports[0]->first_steps[0], ranks.reports[1]->first_steps[0]);
	cr_assert_geq(report->first_steps[0], fate->stands_at[0], "point %d", fate->point);
	cr_assert_leq(report->first_steps[0], fate->stands_at[1], "point %d", fate->point);
	cr_assert(ranks_are_right(&ranks), "point %d", fate->point);
	ranks_free(&ranks);
	cr_assert_eq(system_destroy_job(&settings), 0);
}

Test(resume, a_rank_killed_anywhere_leaves_a_job_on_disk_at_its_last_step)
{
	struct harness harness;

	system_start(&harness, &(struct harness_options){ .nvme_size = "32M" });
	for (size_t i = 0; i < FATES_OF_RANK; i++)
		kill_rank_and_resume(&harness, &fates_of_rank[i], true);
	cr_assert_eq(harness_stop(&harness), 0);
}

Test(resume, a_rank_killed_anywhere_leaves_a_job_in_memory_at_its_last_step)
{
	struct harness harness;

	system_start(&harness, &(struct harness_options){ 0 });
	for (size_t i = 0; i < FATES_OF_RANK; i++)
		kill_rank_and_resume(&harness, &fates_of_rank[i], false);
	cr_assert_eq(harness_stop(&harness), 0);
}

static const struct fate fates_of_daemon[] = {
	{ TRAINER_MATERIALIZED, -1, { -1, -1 } }, { TRAINER_WRITTEN, 0, { -1, -1 } },
	{ TRAINER_COMMITTED, 0, { 0, 0 } },       { TRAINER_STEP_BEGUN, 2, { 1, 1 } },
	{ TRAINER_REDUCED, 2, { 1, 1 } },         { TRAINER_BACKWARD, 2, { 1, 1 } },
	{ TRAINER_STEPPED, 2, { 1, 2 } },         { TRAINER_STEPPED, 3, { 2, 3 } },
	{ TRAINER_STEPPED, 4, { 3, 4 } },         { TRAINER_WAITED, 4, { 4, 4 } },
};
#define FATES_OF_DAEMON (sizeof(fates_of_daemon) / sizeof(*fates_of_daemon))

/* Rank 0 kills the daemon. The ranks hear -ESTALE, wait for the next daemon and attach again, by
 * themselves; the job stands between @low and @high then. */
static void kill_daemon_and_resume(struct harness *harness, const struct fate *fate,
                                   struct trainer_settings *settings, int64_t low, int64_t high)
{
	struct killing killing = { .fate = fate, .rank = 0, .victim = harness->pid };
	struct ranks ranks;

	settings->hook = kill_there;
	settings->hook_arg = &killing;
	settings->restart_max = 1;
	settings->options.wait_for_daemon = true;
	cr_assert_eq(ranks_start(&ranks, settings), 0);
	cr_assert_eq(harness_await_end(harness), 1000 + SIGKILL);
	cr_assert_eq(harness_restart(harness), 0);
	cr_assert_eq(ranks_join(&ranks), 0, "point %d of step %d", fate->point, (int)fate->step);
	for (uint32_t rank = 0; rank < 2; rank++) {
		const struct trainer_report *report = ranks.reports[rank];
		int64_t first_step = report->first_steps[report->attach_count - 1];

		cr_assert_eq(report->restart_result, -ESTALE);
		cr_assert_gt(strlen(report->restart_text), 0);
		cr_assert_geq(first_step, low, "point %d", fate->point);
		cr_assert_leq(first_step, high, "point %d", fate->point);
	}
	cr_assert(ranks_are_right(&ranks), "point %d of step %d", fate->point, (int)fate->step);
	ranks_free(&ranks);
}

Test(resume, a_daemon_killed_anywhere_comes_back_with_the_last_step_on_disk)
{
	struct harness harness;

	system_start(&harness, &(struct harness_options){ .nvme_size = "32M" });
	for (size_t i = 0; i < FATES_OF_DAEMON; i++) {
		const struct fate *fate = &fates_of_daemon[i];
		struct trainer_settings settings = settings_of(&harness, "resumed", true);

		kill_daemon_and_resume(&harness, fate, &settings, fate->stands_at[0],
		                       fate->stands_at[1]);
		cr_assert_eq(system_destroy_job(&settings), 0);
	}
	cr_assert_eq(harness_stop(&harness), 0);
}

Test(resume, a_daemon_killed_leaves_nothing_of_a_job_in_memory_and_says_so)
{
	static const struct fate fate = { TRAINER_BACKWARD, 3, { -1, -1 } };
	static char log[65536];
	struct harness harness;
	struct trainer_settings settings;
	uint32_t named_count = 0;

	system_start(&harness, &(struct harness_options){ 0 });
	settings = settings_of(&harness, "volatile", false);
	kill_daemon_and_resume(&harness, &fate, &settings, -1, -1);
	harness_log(&harness, log, sizeof(log));
	for (const char *at = log; (at = strstr(at, "volatile")); at++)
		named_count++;
	cr_assert_geq(named_count, 1, "the log does not name it: %s", log);
	system_expect_text(log, "its next start begins at step 0");
	cr_assert_eq(harness_stop(&harness), 0);
}

/* A planned stop and start, nobody attached: what is on disk is there, extents and blobs. */
Test(resume, a_job_on_disk_survives_a_planned_restart)
{
	struct harness harness;
	struct trainer_settings settings;
	struct ranks ranks;

	system_start(&harness, &(struct harness_options){ .nvme_size = "32M" });
	settings = settings_of(&harness, "planned", true);
	settings.steps = 2;
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	ranks_free(&ranks);
	cr_assert_eq(harness_halt(&harness), 0);
	cr_assert_eq(harness_restart(&harness), 0);
	settings.steps = 5;
	settings.options.incarnation = "second";
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert_eq(ranks.reports[0]->first_steps[0], 2);
	cr_assert(ranks_are_right(&ranks));
	ranks_free(&ranks);
	cr_assert_eq(harness_stop(&harness), 0);
}

/* The blobs of a step are of its ranks: a job resumes in another world, without a blob for the
 * new. */
Test(resume, a_rank_that_never_was_has_no_blob)
{
	struct harness harness;
	struct trainer_settings settings;
	struct ranks ranks;

	system_start(&harness, &(struct harness_options){ .nvme_size = "32M" });
	settings = settings_of(&harness, "grown", true);
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	ranks_free(&ranks);
	settings.options.incarnation = "second";
	settings.options.world_size = 3;
	cr_assert_eq(ranks_start(&ranks, &settings), 0);
	cr_assert_eq(ranks_wait(&ranks, 2), 1);
	cr_assert_eq(ranks.reports[2]->result, -EBADMSG); /* the trainer's own word: no blob */
	cr_assert_eq(ranks.reports[2]->first_steps[0], 5);
	ranks_free(&ranks);
	cr_assert_eq(harness_stop(&harness), 0);
}
