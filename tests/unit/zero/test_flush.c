/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a store whose flush does not answer holds up the commits of the jobs that wrote to it, and
 * no others; a flush that fails commits nothing. Method: two stores, a tier and a job each, and a
 * double of fdatasync() that stops at a gate or fails; nothing is timed.
 */
#include <pthread.h>

#include "daemon/zero/step/step.h"
#include "tests/unit/zero/plain.h"

static struct node node;
static struct actor actors[2]; /* a job each */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int gate_fd = -1; /* of the store whose flushes stop; -1: none */
static int failing_fd = -1;
static uint32_t waiting_count;

/* Test double of libc's: nothing is flushed. */
int fdatasync(int fd)
{
	bool is_failing;

	(void)pthread_mutex_lock(&lock);
	waiting_count += fd == gate_fd;
	(void)pthread_cond_broadcast(&changed);
	while (fd == gate_fd)
		(void)pthread_cond_wait(&changed, &lock);
	is_failing = fd == failing_fd;
	(void)pthread_mutex_unlock(&lock);
	errno = EIO;
	return is_failing ? -1 : 0;
}

static void gate_set(int fd)
{
	(void)pthread_mutex_lock(&lock);
	gate_fd = fd;
	(void)pthread_cond_broadcast(&changed);
	(void)pthread_mutex_unlock(&lock);
}

/* A flush stands at the gate. */
static bool gate_has_one(void)
{
	bool has_one;

	(void)pthread_mutex_lock(&lock);
	has_one = waiting_count > 0;
	(void)pthread_mutex_unlock(&lock);
	return has_one;
}

static struct zero_job *job_of(uint32_t index)
{
	return node_job(&node, index ? "other" : "train");
}

static void begin(void)
{
	node_init(&node);
	node.store_count = 2;
	node.is_split = true;
	node_start(&node);
	for (uint32_t i = 0; i < 2; i++) {
		struct attach_options options = { .job = i ? "other" : "train",
			                          .world = 1,
			                          .config = model_config(ZI_DTYPE_BF16,
			                                                 ZI_OFFLOAD_NVME) };

		options.config.durability = ZI_DURABILITY_POWER;
		cr_assert_eq(actor_attach(&node, &actors[i], &options), 0);
		cr_assert_eq(model_materialize(&actors[i], 1), 0, "%s", actors[i].text.chars);
		model_write(&actors[i], 1);
	}
	cr_assert_neq(job_of(0)->nvme_tier, job_of(1)->nvme_tier, "a store each");
}

static void end(void)
{
	for (uint32_t i = 0; i < 2; i++)
		actor_leave(&actors[i], true);
	node_deinit(&node);
}

Test(zero_flush, store_that_does_not_answer_holds_up_its_own_jobs_alone)
{
	struct zi_step_options step = model_options();

	begin();
	gate_set(job_of(0)->nvme_tier->members[0].store->fd);
	model_gradients(&actors[0], 1, 1, &step);
	actor_start(&actors[0], 0, zero_step, NULL);
	while (!gate_has_one())
		node_turn(&node);
	cr_assert_eq(model_step(&actors[1], 1, 1, &step), 0, "%s", actors[1].text.chars);
	cr_assert_eq(model_step(&actors[1], 1, 2, &step), 0, "%s", actors[1].text.chars);
	cr_assert_eq(job_of(1)->committed_step, 2);
	cr_assert_not(actors[0].calls[0].is_done);
	cr_assert_eq(job_of(0)->step.phase, ZERO_STEP_COMMITTING);
	gate_set(-1);
	cr_assert_eq(actor_wait(&actors[0], 0), 0, "%s", actors[0].text.chars);
	cr_assert_eq(job_of(0)->committed_step, 1);
	end();
}

/* What an administrator sees of it. */
struct seen {
	char path[128];
	uint64_t ns;
	bool is_late;
};

static void see(void *arg, const struct zero_job_report *report)
{
	struct seen *seen = arg;

	*seen = (struct seen){ .ns = report->flush_ns, .is_late = report->is_flush_late };
	(void)snprintf(seen->path, sizeof(seen->path), "%s",
	               report->flush_path ? report->flush_path : "");
}

/* Valid until the next call. */
static const struct seen *seen_of(const char *job)
{
	static struct seen seen;

	cr_assert(zero_report(node.zero, job, see, &seen));
	return &seen;
}

Test(zero_flush, that_does_not_answer_is_reported_with_its_path_and_its_job)
{
	struct zi_step_options step = model_options();
	struct nvme_store *store;

	begin();
	store = job_of(0)->nvme_tier->members[0].store;
	cr_assert_str_eq(seen_of("train")->path, "");
	gate_set(store->fd);
	model_gradients(&actors[0], 1, 1, &step);
	store->timeout_ns = 0; /* deadline_s = none */
	actor_start(&actors[0], 0, zero_step, NULL);
	while (!gate_has_one())
		node_turn(&node);
	cr_assert_str_eq(seen_of("train")->path, store->path);
	cr_assert_gt(seen_of("train")->ns, 0);
	cr_assert_not(seen_of("train")->is_late);
	store->timeout_ns = 1;
	cr_assert(seen_of("train")->is_late);
	cr_assert_str_eq(seen_of("other")->path, "", "it waits for nothing");
	gate_set(-1);
	cr_assert_eq(actor_wait(&actors[0], 0), 0, "%s", actors[0].text.chars);
	cr_assert_eq(job_of(0)->committed_step, 1, "late is not lost");
	cr_assert_str_eq(seen_of("train")->path, "");
	store->timeout_ns = 0;
	end();
}

Test(zero_flush, that_fails_commits_nothing_and_names_its_path)
{
	struct zi_step_options step = model_options();

	begin();
	failing_fd = job_of(0)->nvme_tier->members[0].store->fd;
	cr_assert_eq(model_step(&actors[0], 1, 1, &step), -EIO);
	cr_assert_not_null(strstr(actors[0].text.chars, "job 'train': flushing "), "%s",
	                   actors[0].text.chars);
	cr_assert_not_null(strstr(actors[0].text.chars, job_of(0)->nvme_tier->members[0].path));
	cr_assert_eq(job_of(0)->committed_step, 0);
	cr_assert_eq(model_step(&actors[1], 1, 1, &step), 0, "%s", actors[1].text.chars);
	failing_fd = -1;
	end();
}
