/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: replicas in threads of one process train as ranks in processes do: a batch that is
 * scattered over any number of them gives the same bits, an error in one is told with its number
 * while nobody waits for it, collectives work among them, ranks of two processes are refused, and
 * a thread that cannot be started ends the others. Method: a process with a made-up model, whose
 * gradients are whole numbers, so that no order of adding them changes the sum.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

#include "tests/system/system.h"

#define ELEMENTS 5000u
#define ROWS     10u
#define STEPS    3u

static struct harness harness;

/* What the process has to tell; shared with it. */
static struct told {
	int result;
	char text[256];
	float params[ELEMENTS];
} * told;

struct batch {
	struct zinf_options options;
	uint32_t count;
	uint32_t failing; /* replica that gives up in the second step; UINT32_MAX: none */
	uint32_t unit, param;
};

static void start(void)
{
	system_start(&harness, &(struct harness_options){ .nvme_size = "32M" });
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(told, MAP_FAILED);
}

static void stop(void)
{
	cr_assert_eq(munmap(told, sizeof(*told)), 0);
	cr_assert_eq(harness_stop(&harness), 0);
}

TestSuite(dp, .init = start, .fini = stop, .timeout = 60);

static struct batch batch_of(const char *job, uint32_t count)
{
	struct batch batch = { .options = ZINF_OPTIONS_INIT,
		               .count = count,
		               .failing = UINT32_MAX };

	batch.options.socket_path = harness.socket_path;
	batch.options.job = job;
	batch.options.incarnation = "one";
	/* Longer than the test may take: nobody is to wait for it. */
	batch.options.timeout_ms = 600000;
	return batch;
}

static int describe(struct zinf *zinf, struct batch *batch, uint32_t replica)
{
	uint32_t unit, param;
	uint64_t shape = ELEMENTS;
	int r = zinf_unit_add(zinf, "unit", &unit);

	if (!r)
		r = zinf_param_add(zinf, "param", 1, &shape, &param);
	if (!r)
		r = zinf_materialize(zinf);
	if (!r && replica == 0)
		r = zinf_param_write_begin(zinf, unit);
	if (r)
		return r;
	if (replica == 0)
		memset((void *)(uintptr_t)zinf_param_data(zinf, param), 0,
		       ELEMENTS * sizeof(float)); /* Writable while it is being written. */
	batch->unit = batch->param = 0;           /* The first ones. */
	r = zinf_param_write_end(zinf, unit, 0);
	return r ? r : zinf_commit(zinf, NULL, 0);
}

/* Sums over the rows that are this replica's. */
static void fill(float *grad, const struct batch *batch, uint32_t replica, uint32_t step)
{
	uint64_t first, count;

	zinf_scatter(ROWS, batch->count, replica, &first, &count);
	memset(grad, 0, ELEMENTS * sizeof(*grad));
	for (uint64_t row = first; row < first + count; row++)
		for (uint32_t i = 0; i < ELEMENTS; i++)
			grad[i] += (float)((row * 7 + i * 13 + step) % 101) - 50;
}

static int make_step(struct zinf *zinf, const struct batch *batch, uint32_t replica, uint32_t step)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	zinf_ticket ticket = 0;
	int r;

	options.lr = 1e-2;
	options.sum = true;
	r = zinf_step_begin(zinf, &options);
	if (!r)
		r = zinf_grad_acquire(zinf, batch->unit);
	if (r)
		return r;
	if (replica == batch->failing && step == 1) {
		/* What was dealt with is not why it fails. */
		return zinf_unshard(zinf, batch->unit + 1) == -EINVAL ? -EDOM : -EILSEQ;
	}
	fill(zinf_grad_data(zinf, batch->param), batch, replica, step);
	r = zinf_reduce(zinf, batch->unit);
	if (!r)
		r = zinf_step(zinf, NULL, 0, &ticket);
	return r ? r : zinf_wait(zinf, ticket, NULL);
}

static int train(struct zinf *zinf, uint32_t replica, void *arg)
{
	struct batch *batch = arg;
	int r = describe(zinf, batch, replica);

	for (uint32_t step = 0; step < STEPS && !r; step++)
		r = make_step(zinf, batch, replica, step);
	if (r || replica != batch->count - 1)
		return r;
	r = zinf_unshard(zinf, batch->unit);
	if (r)
		return r;
	memcpy(told->params, zinf_param_data(zinf, batch->param), sizeof(told->params));
	return zinf_reshard(zinf, batch->unit);
}

static int run(struct batch *batch, zinf_replica_fn body)
{
	struct zinf_replicas *replicas;
	int r = zinf_replicas_attach(&batch->options, batch->count, &replicas);

	if (r) {
		(void)snprintf(told->text, sizeof(told->text), "%s", zinf_attach_error());
		return r;
	}
	r = zinf_replicas_run(replicas, body, batch);
	(void)snprintf(told->text, sizeof(told->text), "%s", zinf_replicas_error(replicas));
	zinf_replicas_detach(replicas);
	return r;
}

static int train_body(void *arg)
{
	told->result = run(arg, train);
	return 0;
}

static void in_a_process(int (*body)(void *arg), struct batch *batch)
{
	int code;

	told->text[0] = '\0';
	code = harness_wait(harness_fork(body, batch), 50000);
	cr_assert_eq(code, 0, "%d", code);
}

Test(dp, a_batch_over_any_number_of_replicas_gives_the_same_bits)
{
	static const uint32_t counts[] = { 1, 2, 3, 4, 8, 16 };
	static float alone[ELEMENTS];

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		struct batch batch;
		char job[16];

		(void)snprintf(job, sizeof(job), "of-%u", counts[i]);
		batch = batch_of(job, counts[i]);
		in_a_process(train_body, &batch);
		cr_assert_eq(told->result, 0, "%u replicas: %s", counts[i], told->text);
		cr_assert_str_eq(told->text, "");
		if (counts[i] == 1)
			memcpy(alone, told->params, sizeof(alone));
		cr_assert_neq(alone[0], 0.0f);
		cr_assert_arr_eq(told->params, alone, sizeof(alone), "%u replicas", counts[i]);
	}
}

Test(dp, an_error_is_told_with_the_replica_and_nobody_waits_for_it)
{
	struct batch batch = batch_of("fails", 3);

	batch.failing = 1;
	in_a_process(train_body, &batch);
	cr_assert_eq(told->result, -EDOM, "%d: %s", told->result, told->text);
	cr_assert_str_eq(told->text, "replica 1: EDOM");
	/* The job stands where it did, and goes on. */
	batch.failing = UINT32_MAX;
	batch.options.incarnation = "two";
	in_a_process(train_body, &batch);
	cr_assert_eq(told->result, 0, "%s", told->text);
}

/* Larger than any post of a board. */
static int gather(struct zinf *zinf, uint32_t replica, void *arg)
{
	const struct batch *batch = arg;
	enum { COUNT = 300000 };
	float *mine = calloc(COUNT, sizeof(*mine));
	float *all = calloc((size_t)COUNT * batch->count, sizeof(*all));
	int r = mine && all ? zinf_coll_open(zinf, 1 << 20) : -ENOMEM;

	for (uint32_t i = 0; i < COUNT && !r; i++)
		mine[i] = (float)(replica * COUNT + i);
	if (!r)
		r = zinf_coll_all_gather(zinf, mine, all, COUNT, ZINF_F32, NULL);
	for (uint32_t i = 0; i < COUNT * batch->count && !r; i++)
		r = all[i] == (float)i ? 0 : -EILSEQ;
	free(mine);
	free(all);
	return r;
}

static int gather_body(void *arg)
{
	told->result = run(arg, gather);
	return 0;
}

Test(dp, collectives_work_among_replicas)
{
	struct batch batch = batch_of("gathers", 4);

	in_a_process(gather_body, &batch);
	cr_assert_eq(told->result, 0, "%s", told->text);
}

/* So large a stack there is not: threads cannot be made, whatever the machine has. */
static int starved_body(void *arg)
{
	pthread_attr_t attributes;

	if (pthread_attr_init(&attributes) ||
	    pthread_attr_setstacksize(&attributes, (size_t)1 << 47) ||
	    pthread_setattr_default_np(&attributes))
		return 1;
	told->result = run(arg, train);
	return 0;
}

Test(dp, a_thread_that_cannot_be_started_is_an_error)
{
	struct batch batch = batch_of("starved", 2);

	in_a_process(starved_body, &batch);
	cr_assert_eq(told->result, -EAGAIN, "%d: %s", told->result, told->text);
	cr_assert_str_eq(told->text, "replica 0: starting its thread failed");
}

static int stranger_body(void *arg)
{
	struct batch *batch = arg;
	struct zinf *zinf;

	batch->options.strategy = ZINF_DP;
	batch->options.world_size = 2;
	batch->options.rank = 1;
	told->result = zinf_attach(&batch->options, &zinf);
	(void)snprintf(told->text, sizeof(told->text), "%s", zinf_attach_error());
	return 0;
}

Test(dp, ranks_of_two_processes_are_refused)
{
	struct batch batch = batch_of("two", 2);
	struct zinf *zinf;

	batch.options.strategy = ZINF_DP;
	batch.options.world_size = 2;
	batch.options.rank = 0;
	cr_assert_eq(zinf_attach(&batch.options, &zinf), 0, "%s", zinf_attach_error());
	in_a_process(stranger_body, &batch);
	cr_assert_eq(told->result, -EINVAL, "%d: %s", told->result, told->text);
	system_expect_text(told->text, "strategy dp needs all ranks in one process");
	system_expect_text(told->text, "for several processes use ddp");
	zinf_detach(zinf);
}
