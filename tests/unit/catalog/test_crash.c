/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a daemon that is killed at any moment leaves one committed step, whole, and never an older
 * one than it had reported. Method: a child commits in a loop and reports each commit on a pipe;
 * the parent kills it (SIGKILL) after a random number of reports and a random number of
 * instructions more, opens the catalog and compares all of it. */
#include <signal.h>
#include <sys/wait.h>

#include "tests/unit/catalog/fixture.h"

#define ROUNDS  24u
#define EXTENTS 400u

static uint64_t random_state = 20240607;

static uint64_t draw(uint64_t below)
{
	random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
	return (random_state >> 33) % below;
}

/* Some time within the duration of a commit, without a clock. */
static void burn(uint64_t turns)
{
	for (volatile uint64_t i = 0; i < turns; i++)
		;
}

/* Never returns. Reports each committed step with one byte. */
static void commit_for_ever(const struct fixture *parent, int pipe_fd, int64_t first_step,
                            bool is_durable)
{
	struct fixture fixture = *parent;
	struct sample sample;
	struct catalog_request request = { .kind = CATALOG_COMMIT, .is_durable = is_durable };

	fixture.catalog = NULL;
	if (fixture_open(&fixture) || catalog_start(fixture.catalog))
		_exit(1);
	sample_init(&sample, "train", EXTENTS);
	request.job = &sample.job;
	for (int64_t step = first_step;; step++) {
		sample_set_step(&sample, step);
		if (fixture_run(&fixture, &request) || write(pipe_fd, "", 1) != 1)
			_exit(2);
	}
}

static void kill_and_wait(pid_t child)
{
	int status;

	cr_assert_eq(kill(child, SIGKILL), 0);
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFSIGNALED(status), "it had failed by itself: %x", (unsigned)status);
}

static void run_rounds(bool is_durable)
{
	struct fixture fixture;
	struct sample sample;
	int64_t step = -1;

	fixture_begin(&fixture, &sample, EXTENTS);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint64_t wait_count = 1 + draw(6);
		int64_t reported_step = step + (int64_t)wait_count;
		struct catalog_job *job;
		int fds[2];
		pid_t child;

		fixture.catalog = catalog_close(fixture.catalog);
		cr_assert_eq(pipe(fds), 0);
		child = fork();
		if (!child)
			commit_for_ever(&fixture, fds[1], step + 1, is_durable);
		(void)zi_close(fds[1]);
		for (uint64_t i = 0; i < wait_count; i++) {
			char byte;

			cr_assert_eq(read(fds[0], &byte, 1), 1);
		}
		burn(draw(6000000));
		kill_and_wait(child);
		(void)zi_close(fds[0]);

		cr_assert_eq(fixture_open(&fixture), 0, "%s", fixture.text.chars);
		job = fixture_load(&fixture);
		cr_assert_geq(job->step, reported_step, "what was reported is there");
		step = job->step;
		sample_set_step(&sample, step);
		assert_committed(job, &sample);
		job = catalog_job_free(job);
	}
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(crash, a_killed_daemon_leaves_one_whole_step)
{
	run_rounds(false);
}

Test(crash, a_killed_daemon_leaves_one_whole_step_when_commits_are_synced)
{
	run_rounds(true);
}

Test(crash, a_daemon_killed_while_it_makes_the_catalog_is_no_obstacle)
{
	for (uint32_t round = 0; round < 40; round++) {
		struct fixture fixture;
		int fds[2];
		char byte;
		pid_t child;

		fixture_init(&fixture);
		cr_assert_eq(pipe(fds), 0);
		child = fork();
		if (!child) {
			if (write(fds[1], "", 1) == 1)
				(void)fixture_open(&fixture); /* It may be killed before. */
			(void)pause();
		}
		cr_assert_eq(read(fds[0], &byte, 1), 1);
		burn(draw(8000000));
		kill_and_wait(child);
		(void)zi_close(fds[0]);
		(void)zi_close(fds[1]);
		cr_assert_eq(fixture_open(&fixture), 0, "%s", fixture.text.chars);
		cr_assert_null(fixture_load(&fixture));
		fixture_deinit(&fixture);
	}
}
