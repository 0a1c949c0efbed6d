/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: four ranks with data of different lengths train to the end of the longest by zinf_join(),
 * to the parameters of a plain run in which those without data give zeros, keep their blobs, and
 * make another step together afterwards. Discarded steps change nothing of that. One that joins and
 * is killed ends it for all. Method: gradients of small integers and rates of powers of two, so
 * that every value is exact.
 */
#include "tests/system/coll.h"

#define WORLD 4u
#define UNITS 6u   /* in buckets where that is less than a plane a rank */
#define WIDTH 100u /* elements of a unit */

struct course {
	uint32_t batches[WORLD];
	bool divides_by_live, discards;
	enum zinf_grad_reduction schedule;
	enum zinf_offload offload;
	float expected[UNITS][WIDTH];
};

static struct course course; /* the ranks inherit it */

static float first_at(uint32_t unit, uint32_t i)
{
	return (float)((unit * 3 + i) % 8);
}

static float grad_at(uint32_t rank, uint32_t batch, uint32_t micro, uint32_t unit, uint32_t i)
{
	return (float)((rank * 3 + batch * 5 + micro + unit * 2 + i) % 7) - 3;
}

static uint32_t micro_batches(void)
{
	return course.schedule == ZINF_REDUCE_PER_MICRO_BATCH ? 2 : 1;
}

static void plain_step(uint32_t batch, uint64_t live)
{
	uint32_t count = course.divides_by_live ? (uint32_t)__builtin_popcountll(live) : WORLD;

	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (uint32_t i = 0; i < WIDTH; i++) {
			float sum = 0;

			for (uint32_t rank = 0; rank < WORLD; rank++)
				for (uint32_t micro = 0; micro < micro_batches(); micro++)
					if (live >> rank & 1)
						sum += grad_at(rank, batch, micro, unit, i);
			course.expected[unit][i] -= 0.5f * sum / (float)count;
		}
}

/* Batch 99 is the one that all make together afterwards. */
static void plain_run(void)
{
	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (uint32_t i = 0; i < WIDTH; i++)
			course.expected[unit][i] = first_at(unit, i);
	for (uint32_t batch = 0;; batch++) {
		uint64_t live = 0;

		for (uint32_t rank = 0; rank < WORLD; rank++)
			live |= batch < course.batches[rank] ? 1ull << rank : 0;
		if (!live)
			break;
		plain_step(batch, live);
	}
	plain_step(99, (1u << WORLD) - 1);
}

static int attach(struct coll_rank *self)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	uint32_t unit, param;

	options.socket_path = self->scene->harness.socket_path;
	options.job = "join";
	options.incarnation = self->scene->incarnation;
	options.rank = (int32_t)self->rank;
	options.world_size = (int32_t)self->world;
	options.timeout_ms = self->scene->timeout_ms;
	options.optimizer = ZINF_SGD;
	options.grad_reduction = course.schedule;
	options.offload_optimizer = course.offload;
	options.strategy = course.offload ? ZINF_ZERO3 : ZINF_DDP; /* Gradients in buckets, too. */
	if (zinf_attach(&options, &self->zinf)) {
		fprintf(stderr, "rank %u: attach: %s\n", self->rank, zinf_attach_error());
		return 1;
	}
	coll_must(self, -EINVAL, zinf_join(self->zinf, false));
	coll_text(self, "call zinf_materialize() first");
	for (uint32_t i = 0; i < UNITS; i++) {
		char name[8];

		(void)snprintf(name, sizeof(name), "u%u", i);
		coll_must(self, 0, zinf_unit_add(self->zinf, name, &unit));
		coll_must(self, 0,
		          zinf_param_add(self->zinf, name, 1, (uint64_t[]){ WIDTH }, &param));
	}
	coll_must(self, 0, zinf_materialize(self->zinf));
	for (uint32_t i = 0; i < UNITS; i++) {
		if (!self->rank) {
			float *values;

			coll_must(self, 0, zinf_param_write_begin(self->zinf, i));
			values = (float *)(uintptr_t)zinf_param_data(self->zinf, i);
			for (uint32_t k = 0; k < WIDTH; k++)
				values[k] = first_at(i, k);
		}
		coll_must(self, 0, zinf_param_write_end(self->zinf, i, 0));
	}
	coll_must(self, 0, zinf_commit(self->zinf, NULL, 0));
	return 0;
}

/* A step that is not to be, each rank another part of it. One rank may be told of another's. */
static int waste_batch(struct coll_rank *self, uint32_t batch)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	int r = 0;

	options.micro_batches = micro_batches();
	options.is_deferred = true;
	coll_must(self, 0, zinf_step_begin(self->zinf, &options));
	for (uint32_t unit = 0; unit < (self->rank + batch) % (UNITS + 1) && !r; unit++) {
		r = zinf_grad_acquire(self->zinf, unit);
		if (!r)
			coll_must(self, 0, zinf_reduce(self->zinf, unit));
	}
	coll_check(self, !r || r == -ECANCELED);
	coll_must(self, 0, zinf_step_discard(self->zinf));
	return 0;
}

static int one_batch(struct coll_rank *self, uint32_t batch)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	zinf_ticket ticket;

	if (course.discards && waste_batch(self, batch))
		return 1;

	options.lr = 0.5;
	options.beta1 = options.beta2 = 0;
	options.micro_batches = micro_batches();
	coll_must(self, 0, zinf_step_begin(self->zinf, &options));
	coll_must(self, -EBUSY, zinf_join(self->zinf, course.divides_by_live));
	coll_text(self, "a step has begun");
	for (uint32_t micro = 0; micro < micro_batches(); micro++)
		for (uint32_t unit = 0; unit < UNITS; unit++) {
			float *grad = zinf_grad_data(self->zinf, unit);

			coll_must(self, 0, zinf_grad_acquire(self->zinf, unit));
			for (uint32_t i = 0; i < WIDTH; i++)
				grad[i] = grad_at(self->rank, batch, micro, unit, i);
			coll_must(self, 0, zinf_reduce(self->zinf, unit));
		}
	coll_must(self, 0, zinf_step(self->zinf, &batch, sizeof(batch), &ticket));
	coll_must(self, -EBUSY, zinf_join(self->zinf, course.divides_by_live));
	coll_text(self, "call zinf_wait() first");
	coll_must(self, 0, zinf_wait(self->zinf, ticket, NULL));
	return 0;
}

static int check_blob(struct coll_rank *self, uint32_t batch)
{
	uint32_t kept = 4711;
	size_t bytes;

	coll_must(self, 0, zinf_blob_get(self->zinf, &kept, sizeof(kept), &bytes));
	coll_check(self, bytes == sizeof(kept) && kept == batch);
	return 0;
}

/* In buckets nothing lies behind a gradient that was not acquired; a look that does not fault. */
static int check_buckets(struct coll_rank *self)
{
	int fds[2];
	bool is_there;

	coll_check(self, pipe(fds) == 0);
	is_there = write(fds[1], zinf_grad_data(self->zinf, 0), 1) == 1;
	close(fds[0]);
	close(fds[1]);
	coll_check(self, is_there == !course.offload);
	return 0;
}

/* Units are handed over from the first to the last: not in the order of backward. */
static int train_body(void *arg)
{
	struct coll_rank *self = arg;

	if (attach(self) || check_buckets(self))
		return 1;
	for (uint32_t i = 0; i < course.batches[self->rank]; i++)
		if (one_batch(self, i))
			return 1;
	coll_must(self, 0, zinf_unshard(self->zinf, 1));
	coll_must(self, -EBUSY, zinf_join(self->zinf, course.divides_by_live));
	coll_text(self, "unit 'u1' is unsharded");
	coll_must(self, 0, zinf_reshard(self->zinf, 1));
	coll_must(self, 0, zinf_join(self->zinf, course.divides_by_live));
	if (check_blob(self, course.batches[self->rank] - 1) || one_batch(self, 99))
		return 1;
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		coll_must(self, 0, zinf_unshard(self->zinf, unit));
		coll_check(self, memcmp(zinf_param_data(self->zinf, unit), course.expected[unit],
		                        sizeof(course.expected[unit])) == 0);
		coll_must(self, 0, zinf_reshard(self->zinf, unit));
	}
	zinf_detach(self->zinf);
	return 0;
}

static void start_ranks(struct coll_scene *scene, int (*body)(void *arg))
{
	scene->world = WORLD;
	for (uint32_t i = 0; i < WORLD; i++) {
		struct coll_rank child = { .scene = scene, .rank = i, .world = WORLD };

		scene->shared->pids[i] = harness_fork(body, &child);
		cr_assert_gt(scene->shared->pids[i], 0);
	}
}

static void train(bool divides_by_live, bool discards, const uint32_t batches[WORLD])
{
	static const char *const names[] = { "0", "1", "2", "3" };
	struct coll_scene scene;

	for (uint32_t i = 0; i < 4; i++) {
		course =
			(struct course){ .divides_by_live = divides_by_live,
			                 .discards = discards,
			                 .schedule = i % 2 ? ZINF_REDUCE_PER_MICRO_BATCH
			                                   : ZINF_REDUCE_PER_STEP,
			                 .offload = i / 2 ? ZINF_OFFLOAD_NVME : ZINF_OFFLOAD_NONE };
		memcpy(course.batches, batches, sizeof(course.batches));
		plain_run();
		coll_open_scene_with(&scene, &(struct harness_options){ .nvme_size = "64M" });
		scene.incarnation = names[i];
		start_ranks(&scene, train_body);
		for (uint32_t rank = 0; rank < WORLD; rank++)
			coll_join_one(&scene, rank, 0);
		coll_close_scene(&scene);
	}
}

TestSuite(join, .timeout = 200);

Test(join, ranks_without_data_give_zeros)
{
	train(false, false, (const uint32_t[WORLD]){ 5, 3, 4, 1 });
}

Test(join, ranks_without_data_are_not_counted)
{
	train(true, false, (const uint32_t[WORLD]){ 4, 2, 4, 2 });
}

Test(join, ranks_without_data_discard_what_others_discard)
{
	train(true, true, (const uint32_t[WORLD]){ 4, 1, 3, 1 });
}

static int killed_body(void *arg)
{
	struct coll_rank *self = arg;
	int r = 0;

	if (attach(self) || coll_tell(self))
		return 1;
	/* Rank 3 has data, and is in no hurry. */
	while (!r)
		r = self->rank == 3 ? zinf_barrier(self->zinf) : zinf_join(self->zinf, false);
	coll_check(self, r == -EPIPE);
	coll_text(self, "rank 1");
	return 0;
}

Test(join, one_that_is_killed_ends_it_for_all)
{
	struct coll_scene scene;

	course = (struct course){ .schedule = ZINF_REDUCE_PER_STEP };
	coll_open_scene(&scene);
	start_ranks(&scene, killed_body);
	coll_hear(&scene, WORLD);
	cr_assert_eq(kill(scene.shared->pids[1], SIGKILL), 0);
	cr_assert_neq(harness_wait(scene.shared->pids[1], 20000), 0);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (rank != 1)
			coll_join_one(&scene, rank, 0);
	coll_close_scene(&scene);
}
