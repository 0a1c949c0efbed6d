/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the pool runs each task once on a thread of its own and hands it back once on the loop that
 * submitted it, uses all its threads and no more, and drains. Method: tasks that write down who ran
 * them; tasks that meet in a barrier, which only tasks that run at the same time can pass. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "common/base/clock.h"
#include "daemon/device/device.h"
#include "tests/harness/cpu_time.h"

#define TASKS_MAX 256u

struct board {
	struct zi_loop *loop;
	struct dev *dev;
	uint32_t wanted_count;
	uint32_t done_count;
	uint32_t again_count; /* resubmissions that `done` has left to make */
	pthread_t loop_thread;
	pthread_barrier_t barrier;
};

struct job {
	struct dev_task task;
	struct board *board;
	uint32_t run_count;
	uint32_t done_count;
	pthread_t ran_on;
	char thread_name[16];
};

static void job_run(struct dev_task *task)
{
	struct job *job = container_of(task, struct job, task);

	job->run_count++;
	job->ran_on = pthread_self();
	(void)pthread_getname_np(pthread_self(), job->thread_name, sizeof(job->thread_name));
}

static void job_run_together(struct dev_task *task)
{
	(void)pthread_barrier_wait(&container_of(task, struct job, task)->board->barrier);
	job_run(task);
}

static void job_done(struct dev_task *task)
{
	struct job *job = container_of(task, struct job, task);
	struct board *board = job->board;

	cr_assert(pthread_equal(board->loop_thread, pthread_self()));
	cr_assert_leq(task->queued_ns, task->started_ns);
	cr_assert_leq(task->started_ns, task->finished_ns);
	job->done_count++;
	if (board->again_count) {
		board->again_count--;
		dev_submit(board->dev, task);
		return;
	}
	if (++board->done_count == board->wanted_count)
		zi_loop_stop(board->loop);
}

static void board_init(struct board *board, uint32_t thread_count)
{
	*board = (struct board){ .loop_thread = pthread_self() };
	cr_assert_eq(zi_loop_new(&board->loop), 0);
	cr_assert_eq(dev_host_new(NULL, NULL, thread_count, &board->dev), 0);
}

static void board_submit(struct board *board, struct job *jobs, uint32_t count, dev_task_fn run)
{
	board->wanted_count += count;
	for (uint32_t i = 0; i < count; i++) {
		jobs[i] = (struct job){ .board = board };
		jobs[i].task =
			(struct dev_task){ .run = run, .done = job_done, .loop = board->loop };
		dev_submit(board->dev, &jobs[i].task);
	}
}

static void board_deinit(struct board *board)
{
	board->dev = dev_free(board->dev);
	board->loop = zi_loop_free(board->loop);
}

Test(host, each_task_runs_once_elsewhere_and_comes_back_once_here)
{
	static struct job jobs[TASKS_MAX];
	struct board board;

	board_init(&board, 3);
	board_submit(&board, jobs, TASKS_MAX, job_run);
	cr_assert_eq(zi_loop_run(board.loop), 0);
	for (uint32_t i = 0; i < TASKS_MAX; i++) {
		cr_assert_eq(jobs[i].run_count, 1);
		cr_assert_eq(jobs[i].done_count, 1);
		cr_assert_not(pthread_equal(jobs[i].ran_on, pthread_self()));
		cr_assert_eq(strncmp(jobs[i].thread_name, "pool-", 5), 0);
	}
	board_deinit(&board);
}

Test(host, width_is_the_number_of_tasks_that_run_at_once)
{
	struct job jobs[4];
	struct board board;

	board_init(&board, 4);
	cr_assert_eq(dev_width(board.dev), 4);
	/* A pool that woke one thread too few would never get through. */
	(void)pthread_barrier_init(&board.barrier, NULL, 4);
	for (uint32_t round = 0; round < 200; round++) {
		board.wanted_count = board.done_count = 0;
		board_submit(&board, jobs, 4, job_run_together);
		cr_assert_eq(zi_loop_run(board.loop), 0);
	}
	(void)pthread_barrier_destroy(&board.barrier);
	board_deinit(&board);
}

Test(host, a_lone_thread_keeps_the_order_of_submission)
{
	static struct job jobs[TASKS_MAX];
	struct board board;

	board_init(&board, 1);
	board_submit(&board, jobs, TASKS_MAX, job_run);
	cr_assert_eq(zi_loop_run(board.loop), 0);
	for (uint32_t i = 1; i < TASKS_MAX; i++)
		cr_assert_leq(jobs[i - 1].task.finished_ns, jobs[i].task.started_ns);
	board_deinit(&board);
}

Test(host, a_task_may_be_submitted_again_by_its_done)
{
	struct job jobs[2];
	struct board board;

	board_init(&board, 2);
	board.again_count = 1000;
	board_submit(&board, jobs, 2, job_run);
	cr_assert_eq(zi_loop_run(board.loop), 0);
	cr_assert_eq(jobs[0].run_count + jobs[1].run_count, 1002);
	board_deinit(&board);
}

Test(host, free_runs_what_is_queued_and_posts_its_done)
{
	static struct job jobs[TASKS_MAX];
	struct board board;

	board_init(&board, 2);
	board_submit(&board, jobs, TASKS_MAX, job_run);
	board.dev = dev_free(board.dev);
	for (uint32_t i = 0; i < TASKS_MAX; i++)
		cr_assert_eq(jobs[i].run_count, 1, "all have run when free returns");
	cr_assert_eq(zi_loop_run(board.loop), 0);
	cr_assert_eq(board.done_count, TASKS_MAX);
	board_deinit(&board);
}

Test(host, free_of_an_idle_pool_and_of_none_returns_null)
{
	struct dev *dev = NULL;

	cr_assert_null(dev_free(NULL));
	cr_assert_eq(dev_host_new(NULL, NULL, 8, &dev), 0);
	cr_assert_null(dev_free(dev));
}

static int bind_count(void *arg)
{
	return atomic_fetch_add((_Atomic int *)arg, 1) >= 0 ? 0 : -1;
}

static int bind_second_fails(void *arg)
{
	return atomic_fetch_add((_Atomic int *)arg, 1) == 1 ? -EXDEV : 0;
}

Test(host, every_thread_is_bound_once_before_new_returns)
{
	_Atomic int count = 0;
	struct dev *dev = NULL;

	cr_assert_eq(dev_host_new(bind_count, &count, 5, &dev), 0);
	cr_assert_eq(count, 5);
	dev = dev_free(dev);
}

Test(host, a_thread_that_cannot_be_bound_fails_new_and_leaves_no_thread)
{
	_Atomic int count = 0;
	struct dev *dev = NULL;

	cr_assert_eq(dev_host_new(bind_second_fails, &count, 4, &dev), -EXDEV);
	cr_assert_null(dev, "untouched on failure");
	cr_assert_eq(count, 4, "the others were waited for");
}

struct alarm {
	struct zi_timer timer;
	struct zi_loop *loop;
};

static void alarm_due(struct zi_timer *timer)
{
	zi_loop_stop(container_of(timer, struct alarm, timer)->loop);
}

Test(host, an_idle_pool_uses_no_cpu)
{
	struct alarm alarm = { 0 };
	struct board board;
	uint64_t cpu_ns;

	board_init(&board, 4);
	alarm.loop = board.loop;
	cpu_ns = process_cpu_ns();
	zi_loop_arm(board.loop, &alarm.timer, zi_clock_deadline_ns(200 * ZI_NS_PER_MS), alarm_due);
	cr_assert_eq(zi_loop_run(board.loop), 0);
	/* One thread that spins would have used 200 ms (100 on a busy machine). */
	cr_assert_lt(process_cpu_ns() - cpu_ns, 20 * ZI_NS_PER_MS);
	board_deinit(&board);
}
