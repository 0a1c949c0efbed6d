/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a run goes on where the job's blob says that it stood, or says why it cannot. Method: the
 * reference backend, which is told to have a past.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "examples/gpt/begin.h"
#include "tests/unit/gpt/fixture.h"

static const struct gpt_config tiny = {
	.layer_count = 1, .head_count = 2, .channel_count = 8, .sequence_count = 6, .batch_count = 3
};

static struct gpt_blob stored;
static bool has_blob = true;
static size_t stored_bytes = sizeof(stored);
static uint32_t rank;
static int64_t stored_step, stored_updates, stored_lost = -1;

static int64_t past_step(const struct gpt_backend *backend)
{
	(void)backend;
	return stored_step;
}

static int64_t past_lost(const struct gpt_backend *backend)
{
	(void)backend;
	return stored_lost;
}

static int64_t past_updates(const struct gpt_backend *backend)
{
	(void)backend;
	return stored_updates;
}

static int past_blob(struct gpt_backend *backend, void *blob, size_t blob_bytes, size_t *ret_bytes)
{
	(void)backend;
	cr_assert_eq(blob_bytes, sizeof(stored));
	if (has_blob)
		memcpy(blob, &stored, stored_bytes);
	*ret_bytes = has_blob ? stored_bytes : 0;
	return 0;
}

/* Begins as the flags say, with that past. @ret_step: where it stands. */
static int begin(const char *first_flag, const char *second_flag, uint64_t *ret_step,
                 struct gpt_problem *problem)
{
	static struct fixture f;
	struct gpt_backend_ops ops;
	struct gpt_corpus corpus = { .fingerprint = stored.fingerprint };
	struct gpt_run run = { .args = &f.args, .model = &f.model, .corpus = &corpus };
	struct gpt_report report = { .args = &f.args };
	struct gpt_blob blob;
	int r;

	set_up(&f, &tiny, first_flag, second_flag);
	f.args.is_quiet = true;
	ops = *f.backend->ops;
	ops.committed_step = past_step;
	ops.lost_step = past_lost;
	ops.update_count = past_updates;
	ops.blob_get = past_blob;
	f.backend->ops = &ops;
	f.backend->rank_first = rank;
	r = gpt_begin(&run, f.backend, &report, &blob, ret_step, problem);
	tear_down(&f);
	return r;
}

/* What gpt_begin() commits is found again. */
static void remember(void)
{
	stored = (struct gpt_blob){ .magic = GPT_BLOB_MAGIC, .step = 4, .seed = 1 };
	stored_step = 4;
	stored_updates = 3;
}

Test(begin, a_run_goes_on_at_its_blob)
{
	struct gpt_problem problem = { "" };
	uint64_t step = 0;

	remember();
	cr_assert_eq(begin("--lr-schedule=linear", "--skip-nonfinite", &step, &problem), 0, "%s",
	             problem.chars);
	cr_expect_eq(step, 4);
}

Test(begin, an_older_daemon_does_not_know_what_was_skipped)
{
	struct gpt_problem problem = { "" };
	uint64_t step = 0;

	remember();
	stored_updates = -1;
	cr_expect_eq(begin("--lr-schedule=linear", "--skip-nonfinite", &step, &problem), -EINVAL);
	cr_expect(strstr(problem.chars, "the job is at step 4, and --skip-nonfinite may "
	                                "have skipped some steps"),
	          "%s", problem.chars);
	cr_expect_eq(begin("--skip-nonfinite", NULL, &step, &problem), -EINVAL);
	cr_expect_eq(begin("--skip-nonfinite", "--lr-schedule=constant", &step, &problem), 0);
	cr_expect_eq(begin("--lr-schedule=linear", NULL, &step, &problem), 0, "nothing is skipped");
}

/* @note: NULL, nothing is said. */
static void expect_note(const char *steps, const char *total, const char *note)
{
	struct gpt_problem problem = { "" };
	char words[1024] = "";
	uint64_t step = 0;
	FILE *errors = tmpfile();
	int saved = dup(STDERR_FILENO);

	cr_assert(errors && saved >= 0);
	(void)dup2(fileno(errors), STDERR_FILENO);
	cr_expect_eq(begin(steps, total, &step, &problem), 0, "%s", problem.chars);
	(void)dup2(saved, STDERR_FILENO);
	(void)close(saved);
	rewind(errors);
	words[fread(words, 1, sizeof(words) - 1, errors)] = '\0';
	(void)fclose(errors);
	if (note)
		cr_expect(strstr(words, note), "%s", words);
	else
		cr_expect_str_eq(words, "");
}

Test(begin, a_schedule_that_ends_elsewhere_is_noted)
{
	remember();
	stored.lr_total = 30;
	expect_note("--steps=30", NULL, NULL);
	expect_note("--steps=40", "--lr-total=30", NULL);
	expect_note("--steps=40", NULL,
	            "the learning-rate schedule ended at update 30 and ends at "
	            "40 now; --lr-total 30 keeps it\n");
	stored.lr_total = 0;
	expect_note("--steps=40", NULL, NULL);
}

/* A new start, or a snapshot of an earlier step; not one that goes on behind it. */
Test(begin, state_that_was_lost_is_noted_with_its_step)
{
	remember();
	stored_lost = 9;
	expect_note("--job=lost", NULL,
	            "job 'lost' was at step 9 with its state in memory, which was lost when "
	            "zinfd ended: it starts at step 4. --offload-optimizer nvme keeps ");
	stored_lost = 4;
	expect_note("--job=lost", NULL, NULL);
	stored_step = -1;
	expect_note("--job=lost", NULL, "it starts at step 0. ");
}

Test(begin, the_blob_of_an_older_program_is_taken)
{
	struct gpt_problem problem = { "" };
	uint64_t step = 0;

	remember();
	stored_bytes = GPT_BLOB_BYTES_FIRST;
	cr_expect_eq(begin("--steps=40", NULL, &step, &problem), 0, "%s", problem.chars);
	stored_bytes--;
	cr_expect_eq(begin("--steps=40", NULL, &step, &problem), -EINVAL);
}

Test(begin, a_job_of_another_program_is_refused)
{
	struct gpt_problem problem = { "" };
	uint64_t step = 0;

	remember();
	stored.magic++;
	cr_expect_eq(begin(NULL, NULL, &step, &problem), -EINVAL);
	cr_expect(strstr(problem.chars, "was not trained by this program"));
	remember();
	stored.step = 3;
	cr_expect_eq(begin(NULL, NULL, &step, &problem), -EINVAL);
}

/* Of a job that had fewer ranks: it has no blob, and draws the batches of its number and the step.
 * Rank 0 has one, or the job is not this program's. */
Test(begin, a_rank_that_is_new_goes_on_with_the_others)
{
	struct gpt_problem problem = { "" };
	uint64_t step = 0;

	remember();
	has_blob = false;
	rank = 2;
	cr_assert_eq(begin(NULL, NULL, &step, &problem), 0, "%s", problem.chars);
	cr_expect_eq(step, 4);
	rank = 0;
	cr_expect_eq(begin(NULL, NULL, &step, &problem), -EINVAL);
	cr_expect(strstr(problem.chars, "was not trained by this program"));
}
