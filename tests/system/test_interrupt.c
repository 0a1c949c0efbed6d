/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: with a real daemon, a rank that is interrupted while it waits for the others goes on with
 * the same calls, and every rank gets what it would have got. Method: rank 0 interrupts itself,
 * from its own thread before each call and by a timer while it waits, and repeats; rank 1 comes
 * only when rank 0 was interrupted.
 */
#include <signal.h>
#include <string.h>
#include <sys/time.h>

#include "tests/system/coll.h"

TestSuite(interrupt, .timeout = 120);

#define LARGE_COUNT (1u << 18)

static struct zinf *victim;

static void on_alarm(int number)
{
	(void)number;
	zinf_interrupt(victim);
}

/* Rank 1: until rank 0 was interrupted. */
static int wait_turn(struct coll_rank *rank)
{
	return rank->rank ? coll_await(rank) : 0;
}

static int let_other_come(const struct coll_rank *rank)
{
	return write(rank->scene->start_fds[1], "x", 1) == 1 ? 0 : -errno;
}

/* Rank 0: the call is interrupted, once before it begins and then while it sleeps; the second time
 * it lets the other rank come. */
#define repeat(self, call)                                                  \
	do {                                                                \
		coll_must(self, 0, wait_turn(self));                        \
		if ((self)->rank == 0) {                                    \
			zinf_interrupt((self)->zinf);                       \
			coll_must(self, -EINTR, call);                      \
			start_timer();                                      \
			coll_must(self, -EINTR, call);                      \
			coll_text(self, "interrupted by zinf_interrupt()"); \
			coll_must(self, 0, let_other_come(self));           \
		}                                                           \
		coll_must(self, 0, call);                                   \
	} while (0)

static void start_timer(void)
{
	const struct itimerval soon = { .it_value = { .tv_usec = 3000 } };

	(void)setitimer(ITIMER_REAL, &soon, NULL); /* cannot fail with these */
}

static int sums(struct coll_rank *rank)
{
	static float source[LARGE_COUNT], target[LARGE_COUNT], letter[16];
	struct zinf_coll_p2p ops[2] = {
		{ .is_send = 1,
		  .peer = !rank->rank,
		  .data = source,
		  .count = 16,
		  .dtype = ZINF_F32 },
		{ .peer = !rank->rank, .data = letter, .count = 16, .dtype = ZINF_F32 },
	};
	zinf_group group = ZINF_GROUP_NONE;
	float *arena = NULL;

	victim = rank->zinf;
	coll_check(rank, signal(SIGALRM, on_alarm) != SIG_ERR);
	for (uint32_t i = 0; i < LARGE_COUNT; i++)
		source[i] = (float)(i % 100 + rank->rank);
	repeat(rank, zinf_coll_barrier(rank->zinf, NULL));
	repeat(rank, zinf_coll_all_reduce(rank->zinf, source, target, 5, ZINF_F32, ZINF_SUM, NULL));
	coll_check(rank, target[4] == 9);
	repeat(rank, zinf_coll_all_reduce(rank->zinf, source, target, LARGE_COUNT, ZINF_F32,
	                                  ZINF_SUM, NULL));
	coll_check(rank, target[LARGE_COUNT - 1] == 2 * (float)((LARGE_COUNT - 1) % 100) + 1);
	coll_must(rank, 0,
	          zinf_coll_alloc(rank->zinf, LARGE_COUNT * sizeof(*arena), (void **)&arena));
	memcpy(arena, source, sizeof(source));
	repeat(rank, zinf_coll_all_reduce(rank->zinf, arena, arena, LARGE_COUNT, ZINF_F32, ZINF_SUM,
	                                  NULL));
	coll_check(rank, arena[LARGE_COUNT - 1] == 2 * (float)((LARGE_COUNT - 1) % 100) + 1);
	repeat(rank, zinf_coll_batch(rank->zinf, ops, 2, NULL));
	coll_check(rank, letter[15] == (float)(15 + !rank->rank));
	repeat(rank, zinf_coll_group(rank->zinf, (uint32_t[]){ 0, 1 }, 2, NULL, &group));
	coll_check(rank, group != ZINF_GROUP_NONE);
	return 0;
}

Test(interrupt, collectives_go_on_with_the_right_values)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_run(&scene, 2, sums);
	coll_close_scene(&scene);
}

static int train(struct coll_rank *rank)
{
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	struct zinf *zinf = rank->zinf;
	uint32_t unit, param;
	zinf_ticket ticket;
	float *values;

	victim = zinf;
	coll_check(rank, signal(SIGALRM, on_alarm) != SIG_ERR);
	repeat(rank, zinf_coll_open(zinf, COLL_ARENA));
	coll_must(rank, 0, zinf_unit_add(zinf, "u", &unit));
	coll_must(rank, 0, zinf_param_add(zinf, "u.w", 1, (uint64_t[]){ 1000 }, &param));
	repeat(rank, zinf_materialize(zinf));
	coll_must(rank, 0, zinf_param_write_begin(zinf, unit));
	values = (float *)zinf_param_data(zinf, param);
	for (uint32_t i = 0; i < 1000; i++)
		values[i] = 1;
	repeat(rank, zinf_param_write_end(zinf, unit, 0));
	repeat(rank, zinf_barrier(zinf));
	repeat(rank, zinf_commit(zinf, "blob", 4));
	step.lr = 0.5;
	coll_must(rank, 0, zinf_step_begin(zinf, &step));
	coll_must(rank, 0, zinf_grad_acquire(zinf, unit));
	for (uint32_t i = 0; i < 1000; i++)
		((float *)zinf_grad_data(zinf, param))[i] = 1;
	coll_must(rank, 0, zinf_reduce(zinf, unit));
	coll_must(rank, 0, wait_turn(rank));
	coll_must(rank, 0, zinf_step(zinf, NULL, 0, &ticket));
	if (rank->rank == 0) {
		zinf_interrupt(zinf);
		coll_must(rank, -EINTR, zinf_wait(zinf, ticket, NULL));
		coll_must(rank, 0, let_other_come(rank));
	}
	coll_must(rank, 0, zinf_wait(zinf, ticket, NULL));
	coll_check(rank, zinf_committed_step(zinf) == 1);
	coll_must(rank, 0, zinf_unshard(zinf, unit));
	coll_check(rank, ((const float *)zinf_param_data(zinf, param))[999] < 1);
	coll_must(rank, 0, zinf_reshard(zinf, unit));
	return 0;
}

Test(interrupt, calls_of_training_go_on)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	scene.is_plain = true;
	coll_run(&scene, 2, train);
	coll_close_scene(&scene);
}

/* Rank 0 gives up what it was interrupted in: the other rank's call ends, and names rank 0. */
static int leave_early(struct coll_rank *rank)
{
	static float values[LARGE_COUNT];

	if (rank->rank == 0) {
		zinf_interrupt(rank->zinf);
		coll_must(rank, -EINTR,
		          zinf_coll_all_reduce(rank->zinf, values, values, LARGE_COUNT, ZINF_F32,
		                               ZINF_SUM, NULL));
		return let_other_come(rank);
	}
	coll_must(rank, 0, coll_await(rank));
	coll_must(rank, -EPIPE,
	          zinf_coll_all_reduce(rank->zinf, values, values, LARGE_COUNT, ZINF_F32, ZINF_SUM,
	                               NULL));
	coll_text(rank, "rank 0");
	return 0;
}

Test(interrupt, rank_that_gives_up_leaves_in_good_order)
{
	struct coll_scene scene;

	coll_open_scene(&scene);
	coll_run(&scene, 2, leave_early);
	coll_close_scene(&scene);
}
