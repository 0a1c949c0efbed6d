/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a copy waits for exactly what must come before it, nothing in use or pinned is displaced,
 * and prefetch follows the order as far as the ring reaches. Method: rings of a few chunks by hand.
 */
#include "tests/unit/gpu/ring.h"

/* Units of 2, 1 and 1 chunks on a ring of 2: 'a' shares a chunk with each of the others. */
enum { A, B, C };

static struct zi_gpu_ring *ring_of_three(void)
{
	struct scene scene;

	return ring_of(scene_init(&scene, (const uint32_t[]){ 2, 1, 1 }, 3), 2);
}

static void expect_waits(struct zi_gpu_ring *ring, uint32_t unit, uint32_t count, uint64_t first,
                         uint64_t second)
{
	const uint64_t *events;

	cr_assert_eq(zi_gpu_ring_waits(ring, unit, &events), count, "unit %u", unit);
	if (count)
		cr_expect_eq(events[0], first, "unit %u: %lu", unit, events[0]);
	if (count > 1)
		cr_expect_eq(events[1], second, "unit %u: %lu", unit, events[1]);
}

static void expect_displaced(const struct zi_gpu_ring *ring, uint32_t count, uint32_t first,
                             uint32_t second)
{
	const uint32_t *units;

	cr_assert_eq(zi_gpu_ring_displaced(ring, &units), count);
	if (count)
		cr_expect_eq(units[0], first);
	if (count > 1)
		cr_expect_eq(units[1], second);
}

/* A use from the demand to its end. @copied, @used: events. */
static void use(struct zi_gpu_ring *ring, uint32_t unit, uint64_t copied, uint64_t used)
{
	uint64_t event = 0;

	cr_assert_eq(zi_gpu_ring_unshard(ring, unit, &event), ZI_GPU_RING_E_FRESH);
	zi_gpu_ring_copied(ring, unit, copied);
	zi_gpu_ring_reshard(ring, unit, used);
}

Test(gpu_ring, unit_is_absent_then_coming_then_present)
{
	struct zi_gpu_ring *ring = ring_of_three();
	uint64_t event = 5;

	cr_expect_eq(zi_gpu_ring_presence(ring, A), ZI_GPU_ABSENT);
	cr_expect_eq(zi_gpu_ring_unshard(ring, A, &event), ZI_GPU_RING_E_FRESH);
	cr_expect_eq(zi_gpu_ring_presence(ring, A), ZI_GPU_COMING);
	cr_expect_eq(zi_gpu_ring_use_count(ring, A), 1);
	cr_expect_eq(zi_gpu_ring_unshard(ring, A, &event), ZI_GPU_RING_E_COMING);
	cr_expect_eq(event, 5, "a condition gives no event");
	zi_gpu_ring_copied(ring, A, 10);
	cr_expect_eq(zi_gpu_ring_presence(ring, A), ZI_GPU_PRESENT);
	cr_expect_eq(zi_gpu_ring_unshard(ring, A, &event), 0);
	cr_expect_eq(event, 10);
	cr_expect_eq(zi_gpu_ring_use_count(ring, A), 3);
	for (uint64_t i = 0; i < 3; i++)
		zi_gpu_ring_reshard(ring, A, 11 + i);
	cr_expect_eq(zi_gpu_ring_use_count(ring, A), 0);
	cr_expect_eq(zi_gpu_ring_presence(ring, A), ZI_GPU_PRESENT);
	cr_expect_eq(zi_gpu_ring_unshard(ring, A, &event), 0);
	cr_expect_eq(event, 10, "still its copy's");
	(void)zi_gpu_ring_free(ring);
}

Test(gpu_ring, copy_waits_for_the_last_unit_of_each_chunk)
{
	struct zi_gpu_ring *ring = ring_of_three();
	uint64_t event;

	cr_assert_eq(zi_gpu_ring_unshard(ring, A, &event), ZI_GPU_RING_E_FRESH);
	expect_waits(ring, A, 0, 0, 0);
	expect_displaced(ring, 0, 0, 0);
	zi_gpu_ring_copied(ring, A, 10);
	zi_gpu_ring_reshard(ring, A, 11);
	cr_assert_eq(zi_gpu_ring_unshard(ring, B, &event), ZI_GPU_RING_E_FRESH);
	expect_displaced(ring, 1, A, 0);
	expect_waits(ring, B, 1, 11, 0);
	zi_gpu_ring_copied(ring, B, 20);
	zi_gpu_ring_reshard(ring, B, 21);
	cr_assert_eq(zi_gpu_ring_unshard(ring, C, &event), ZI_GPU_RING_E_FRESH);
	expect_displaced(ring, 0, 0, 0);
	expect_waits(ring, C, 1, 11, 0);
	zi_gpu_ring_copied(ring, C, 30);
	zi_gpu_ring_reshard(ring, C, 31);
	cr_assert_eq(zi_gpu_ring_unshard(ring, A, &event), ZI_GPU_RING_E_FRESH);
	expect_displaced(ring, 2, B, C);
	expect_waits(ring, A, 2, 21, 31);
	zi_gpu_ring_copied(ring, A, 40);
	zi_gpu_ring_reshard(ring, A, 0);
	cr_assert_eq(zi_gpu_ring_unshard(ring, C, &event), ZI_GPU_RING_E_FRESH);
	expect_waits(ring, C, 1, 40, 0);
	(void)zi_gpu_ring_free(ring);
}

Test(gpu_ring, new_values_of_a_unit_wait_for_its_own_last_use)
{
	struct zi_gpu_ring *ring = ring_of_three();
	uint64_t event;

	use(ring, A, 10, 11);
	zi_gpu_ring_void(ring, A);
	cr_expect_eq(zi_gpu_ring_presence(ring, A), ZI_GPU_ABSENT);
	zi_gpu_ring_void(ring, A);
	cr_assert_eq(zi_gpu_ring_unshard(ring, A, &event), ZI_GPU_RING_E_FRESH);
	expect_displaced(ring, 0, 0, 0);
	expect_waits(ring, A, 1, 11, 0);
	(void)zi_gpu_ring_free(ring);
}

Test(gpu_ring, copy_that_does_not_come_leaves_what_was_before)
{
	struct zi_gpu_ring *ring = ring_of_three();
	uint64_t event;

	use(ring, A, 10, 11);
	cr_assert_eq(zi_gpu_ring_unshard(ring, B, &event), ZI_GPU_RING_E_FRESH);
	cr_assert_eq(zi_gpu_ring_unshard(ring, B, &event), ZI_GPU_RING_E_COMING);
	zi_gpu_ring_cancel(ring, B);
	cr_expect_eq(zi_gpu_ring_presence(ring, B), ZI_GPU_ABSENT);
	cr_expect_eq(zi_gpu_ring_use_count(ring, B), 0);
	cr_assert_eq(zi_gpu_ring_unshard(ring, B, &event), ZI_GPU_RING_E_FRESH);
	expect_waits(ring, B, 1, 11, 0);
	zi_gpu_ring_copied(ring, B, 20);
	zi_gpu_ring_reshard(ring, B, 21);
	cr_assert_eq(zi_gpu_ring_unshard(ring, A, &event), ZI_GPU_RING_E_FRESH);
	expect_waits(ring, A, 2, 21, 11);
	(void)zi_gpu_ring_free(ring);
}

Test(gpu_ring, unit_in_use_or_pinned_refuses_and_is_named)
{
	struct zi_gpu_ring *ring = ring_of_three();
	uint64_t event;

	cr_assert_eq(zi_gpu_ring_unshard(ring, B, &event), ZI_GPU_RING_E_FRESH);
	cr_expect_eq(zi_gpu_ring_unshard(ring, A, &event), ZI_GPU_RING_E_BUSY, "coming, in use");
	zi_gpu_ring_copied(ring, B, 10);
	cr_expect_eq(zi_gpu_ring_unshard(ring, A, &event), ZI_GPU_RING_E_BUSY, "present, in use");
	cr_expect_eq(zi_gpu_ring_blocker(ring, A), B);
	cr_expect_eq(zi_gpu_ring_blocker(ring, B), ZI_GPU_RING_NONE, "not by itself");
	cr_expect_eq(zi_gpu_ring_blocker(ring, C), ZI_GPU_RING_NONE, "no chunk in common");
	cr_expect_eq(zi_gpu_ring_presence(ring, A), ZI_GPU_ABSENT);
	cr_expect_eq(zi_gpu_ring_use_count(ring, A), 0);
	zi_gpu_ring_pin(ring, B);
	zi_gpu_ring_reshard(ring, B, 11);
	cr_expect_eq(zi_gpu_ring_unshard(ring, A, &event), ZI_GPU_RING_E_BUSY, "pinned");
	zi_gpu_ring_unpin(ring, B);
	cr_expect_eq(zi_gpu_ring_unshard(ring, A, &event), ZI_GPU_RING_E_FRESH);
	expect_displaced(ring, 1, B, 0);
	zi_gpu_ring_copied(ring, A, 20);
	zi_gpu_ring_reshard(ring, A, 21);
	zi_gpu_ring_pin(ring, A);
	zi_gpu_ring_void(ring, A);
	cr_expect_eq(zi_gpu_ring_unshard(ring, B, &event), ZI_GPU_RING_E_FRESH,
	             "what is absent is not pinned");
	(void)zi_gpu_ring_free(ring);
}

/* ---- prefetch ---- */

/* One step that uses units by their letters, with a ring of @chunk_count chunks. */
struct trainer {
	struct scene scene;
	struct ring_model model;
	bool is_prefetching;
	uint32_t late_count; /* demands whose copy was not reserved before */
};

static void trainer_init(struct trainer *trainer, const uint32_t *chunks, uint32_t unit_count,
                         uint32_t chunk_count, bool is_prefetching)
{
	*trainer = (struct trainer){ .is_prefetching = is_prefetching };
	cr_assert_eq(ring_model_init(&trainer->model,
	                             scene_init(&trainer->scene, chunks, unit_count), chunk_count),
	             0);
}

static void trainer_deinit(struct trainer *trainer)
{
	ring_model_drain(&trainer->model);
	cr_assert_str_empty(trainer->model.failure, "%s", trainer->model.failure);
	ring_model_deinit(&trainer->model);
}

static void prefetch_all(struct trainer *trainer)
{
	uint32_t unit;

	while (trainer->is_prefetching && !trainer->model.failure[0] &&
	       ring_model_prefetch(&trainer->model, &unit))
		ring_model_copy(&trainer->model, unit);
}

static void step(struct trainer *trainer, const char *uses)
{
	struct ring_model *model = &trainer->model;

	trainer->late_count = 0;
	model->copy_count = 0;
	prefetch_all(trainer);
	for (const char *at = uses; *at; at++) {
		uint32_t unit = (uint32_t)(*at - 'a');
		int r = ring_model_unshard(model, unit);

		cr_assert_neq(r, ZI_GPU_RING_E_BUSY, "%s", uses);
		if (r == ZI_GPU_RING_E_FRESH) {
			trainer->late_count++;
			ring_model_copy(model, unit);
		}
		prefetch_all(trainer);
		ring_model_reshard(model, unit);
	}
	ring_model_step(model);
	cr_assert_str_empty(model->failure, "%s: %s", uses, model->failure);
}

Test(gpu_ring, recorded_order_is_copied_ahead_and_the_turn_copies_nothing_again)
{
	static const uint32_t chunks[] = { 1, 1, 1, 1, 1, 1 };
	static const struct {
		uint32_t chunk_count, copy_count;
	} cases[] = { { 1, 11 }, { 2, 10 }, { 3, 9 }, { 5, 7 }, { 6, 6 }, { 7, 6 } };

	for (size_t i = 0; i < ZI_COUNT_OF(cases); i++) {
		struct trainer trainer;

		trainer_init(&trainer, chunks, 6, cases[i].chunk_count, true);
		step(&trainer, "abcdeffedcba");
		cr_expect_eq(trainer.model.copy_count, cases[i].copy_count, "recording, case %zu",
		             i);
		for (uint32_t k = 0; k < 3; k++) {
			step(&trainer, "abcdeffedcba");
			cr_expect_eq(trainer.model.copy_count, cases[i].copy_count, "case %zu", i);
			/* With one chunk the unit in use bars the next one. */
			if (cases[i].chunk_count > 1)
				cr_expect_eq(trainer.late_count, 0, "case %zu", i);
		}
		trainer_deinit(&trainer);
	}
}

Test(gpu_ring, prefetch_goes_past_a_unit_that_is_barred_but_not_onto_its_chunks)
{
	/* Ring of 4: a 0, b 1, c 2 3, d 0, e 1. */
	static const uint32_t chunks[] = { 1, 1, 2, 1, 1 };
	struct trainer trainer;
	struct ring_model *model = &trainer.model;
	uint32_t unit = 0;

	trainer_init(&trainer, chunks, 5, 4, false);
	step(&trainer, "adbec");
	cr_assert(ring_model_prefetch(model, &unit));
	cr_expect_eq(unit, 0, "a");
	cr_assert(ring_model_prefetch(model, &unit));
	cr_expect_eq(unit, 1, "b: d is barred by a, which is coming");
	cr_assert(ring_model_prefetch(model, &unit));
	cr_expect_eq(unit, 2, "c: e is barred by b, which is used earlier");
	cr_expect_not(ring_model_prefetch(model, &unit));
	ring_model_copy(model, 0);
	cr_assert_eq(ring_model_unshard(model, 0), 0);
	cr_expect_not(ring_model_prefetch(model, &unit), "a is in use");
	ring_model_reshard(model, 0);
	cr_assert(ring_model_prefetch(model, &unit));
	cr_expect_eq(unit, 3, "d over a");
	trainer_deinit(&trainer);
}

Test(gpu_ring, prefetch_keeps_a_unit_that_is_used_earlier)
{
	/* Ring of 3: a 0, b 1, c 2, d 0. */
	static const uint32_t chunks[] = { 1, 1, 1, 1 };
	struct trainer trainer;
	struct ring_model *model = &trainer.model;
	uint32_t unit = 0;

	trainer_init(&trainer, chunks, 4, 3, false);
	step(&trainer, "abad");
	cr_assert_eq(ring_model_unshard(model, 0), ZI_GPU_RING_E_FRESH);
	ring_model_copy(model, 0);
	ring_model_reshard(model, 0);
	cr_assert(ring_model_prefetch(model, &unit));
	cr_expect_eq(unit, 1, "b");
	cr_expect_not(ring_model_prefetch(model, &unit), "a is used before d");
	ring_model_copy(model, 1);
	cr_assert_eq(ring_model_unshard(model, 1), 0);
	ring_model_reshard(model, 1);
	cr_assert_eq(ring_model_unshard(model, 0), 0);
	ring_model_reshard(model, 0);
	cr_assert(ring_model_prefetch(model, &unit));
	cr_expect_eq(unit, 3, "d");
	trainer_deinit(&trainer);
}

Test(gpu_ring, prefetch_displaces_no_unit_that_is_coming)
{
	/* Ring of 2: a 0, b 1, c 0. */
	static const uint32_t chunks[] = { 1, 1, 1 };
	struct trainer trainer;
	struct ring_model *model = &trainer.model;
	uint32_t unit = 0;

	trainer_init(&trainer, chunks, 3, 2, false);
	step(&trainer, "abc");
	cr_assert_eq(ring_model_unshard(model, 0), ZI_GPU_RING_E_FRESH);
	ring_model_copy(model, 0);
	ring_model_reshard(model, 0);
	cr_assert(ring_model_prefetch(model, &unit));
	cr_assert(ring_model_prefetch(model, &unit));
	cr_expect_eq(unit, 2, "c, as a is not used again");
	ring_model_discard(model);
	cr_expect_not(ring_model_prefetch(model, &unit), "a is used next, but c is coming");
	ring_model_copy(model, 2);
	cr_assert(ring_model_prefetch(model, &unit));
	cr_expect_eq(unit, 0, "a over c");
	trainer_deinit(&trainer);
}

Test(gpu_ring, unit_apart_is_prefetched_beyond_the_reach_of_the_ring)
{
	static const uint32_t chunks[] = { 1, 1, 1, 2 };
	struct scene scene;
	struct zi_gpu_units *units = scene_init(&scene, chunks, 4);
	struct ring_model model;
	uint32_t unit = 0;

	scene.list[3].is_apart = true;
	cr_assert_eq(ring_model_init(&model, units, 3), 0);
	for (uint32_t i = 0; i < 4; i++) {
		(void)ring_model_unshard(&model, i);
		ring_model_copy(&model, i);
		ring_model_reshard(&model, i);
	}
	ring_model_step(&model);
	cr_assert(ring_model_prefetch(&model, &unit));
	cr_expect_eq(unit, 0);
	cr_assert(ring_model_prefetch(&model, &unit));
	cr_expect_eq(unit, 3);
	cr_expect_not(ring_model_prefetch(&model, &unit));
	ring_model_drain(&model);
	cr_expect_str_empty(model.failure, "%s", model.failure);
	ring_model_deinit(&model);
}

Test(gpu_ring, demand_displaces_a_unit_that_was_prefetched_and_not_copied)
{
	static const uint32_t chunks[] = { 1, 1, 1 };
	struct trainer trainer;
	struct ring_model *model = &trainer.model;
	uint32_t unit = 0;

	trainer_init(&trainer, chunks, 3, 1, false);
	step(&trainer, "abc");
	cr_assert(ring_model_prefetch(model, &unit));
	cr_expect_eq(unit, 0);
	cr_expect_eq(ring_model_unshard(model, 2), ZI_GPU_RING_E_FRESH);
	expect_displaced(model->ring, 1, 0, 0);
	cr_expect_eq(zi_gpu_ring_presence(model->ring, 0), ZI_GPU_ABSENT);
	ring_model_copy(model, 2);
	ring_model_reshard(model, 2);
	trainer_deinit(&trainer);
}

/* What was queued of it is waited for on all its chunks. */
Test(gpu_ring, lost_copy_is_absent_and_orders_what_comes_after_it)
{
	struct zi_gpu_ring *ring = ring_of_three();
	uint64_t event = 0;

	use(ring, B, 10, 11);
	cr_expect_eq(zi_gpu_ring_unshard(ring, A, &event), ZI_GPU_RING_E_FRESH);
	expect_waits(ring, A, 1, 11, 0);
	zi_gpu_ring_lost(ring, A, 20);
	cr_expect_eq(zi_gpu_ring_presence(ring, A), ZI_GPU_ABSENT);
	cr_expect_eq(zi_gpu_ring_use_count(ring, A), 0);
	cr_expect_eq(zi_gpu_ring_unshard(ring, B, &event), ZI_GPU_RING_E_FRESH);
	expect_waits(ring, B, 1, 20, 0);
	cr_expect_eq(zi_gpu_ring_unshard(ring, C, &event), ZI_GPU_RING_E_FRESH);
	expect_waits(ring, C, 1, 20, 0);
	(void)zi_gpu_ring_free(ring);
}

/* ---- gradients ---- */

Test(gpu_ring, gradients_are_held_from_acquire_until_they_are_handed_over)
{
	struct zi_gpu_ring *ring = ring_of_three();

	cr_expect_eq(zi_gpu_ring_acquire(ring, A), ZI_GPU_RING_E_FRESH);
	expect_waits(ring, A, 0, 0, 0);
	cr_expect_eq(zi_gpu_ring_acquire(ring, A), 0, "the next micro-batch");
	cr_expect_eq(zi_gpu_ring_acquire(ring, B), ZI_GPU_RING_E_BUSY);
	cr_expect_eq(zi_gpu_ring_blocker(ring, B), A);
	zi_gpu_ring_handed(ring, A, 10);
	cr_expect_eq(zi_gpu_ring_presence(ring, A), ZI_GPU_ABSENT);
	cr_expect_eq(zi_gpu_ring_acquire(ring, B), ZI_GPU_RING_E_FRESH);
	expect_displaced(ring, 0, 0, 0);
	expect_waits(ring, B, 1, 10, 0);
	zi_gpu_ring_handed(ring, B, 20);
	cr_expect_eq(zi_gpu_ring_acquire(ring, A), ZI_GPU_RING_E_FRESH);
	expect_waits(ring, A, 2, 20, 10);
	zi_gpu_ring_cancel(ring, A);
	cr_expect_eq(zi_gpu_ring_acquire(ring, C), ZI_GPU_RING_E_FRESH);
	expect_waits(ring, C, 1, 10, 0);
	(void)zi_gpu_ring_free(ring);
}
