/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: calls about optimizer state that do not fit are refused by name, none gets between another
 * and its end, and whatever fails or dies amid one leaves the committed state.
 * Method: calls out of their time, hostile arguments, a disk that is held or fails each request in
 * turn, and ranks that die.
 */
#include "tests/unit/zero/state_world.h"

TestSuite(zero_state_end, .timeout = 120);

/* ---- refused ---- */

Test(zero_state_end, what_does_not_fit_is_refused_by_name)
{
	start(&places[2]);
	refused(&actors[0], -EINVAL, "kind 9", range_of(&actors[0], 0, 9, 0, 1));
	refused(&actors[0], -EINVAL, "kind 0", range_of(&actors[0], 0, 0, 0, 1));
	refused(&actors[0], -EINVAL, "kind 4294967295", range_of(&actors[0], 0, UINT32_MAX, 0, 1));
	refused(&actors[0], -EINVAL, "0 elements of state",
	        range_of(&actors[0], 0, ZI_STATE_FIRST, 0, 0));
	refused(&actors[0], -EINVAL, "1048577 elements of state",
	        range_of(&actors[0], 1, ZI_STATE_FIRST, 0, ZI_STATE_WINDOW_ELEMENTS + 1));
	refused(&actors[0], -EINVAL, "unit 'embed' has 1000",
	        range_of(&actors[0], 0, ZI_STATE_FIRST, 1000, 1));
	refused(&actors[0], -EINVAL, "unit 'embed' has 1000",
	        range_of(&actors[0], 0, ZI_STATE_FIRST, UINT64_MAX, 2));
	refused(&actors[0], -EINVAL, "unit 7", range_of(&actors[0], 7, ZI_STATE_FIRST, 0, 1));
	refused(&actors[0], -EALREADY, "opened before",
	        actor_call(&actors[0], zero_state_open, NULL));
	refused(&actors[0], -EINVAL, "root is 2 of 2", write_range(0, ZI_STATE_FIRST, 0, 1, 2));
	refused(&actors[0], -EINVAL, "unit 'head' has 20000",
	        write_range(2, ZI_STATE_FIRST, 1, 20000, 0));
	refused(&actors[0], -EINVAL, "9007199254740993 updates",
	        all_call(actors, 2, zero_state_count,
	                 &(struct zero_op){ .state = { .update_count = (1ull << 53) + 1 } }));
	refused(&actors[0], -EINVAL, "beta2 is 1",
	        all_call(actors, 2, zero_state_count,
	                 &(struct zero_op){ .state = { .betas = { 0, 1 } } }));
	refused(&actors[0], -EINVAL, "beta1 is nan",
	        all_call(actors, 2, zero_state_count,
	                 &(struct zero_op){ .state = { .betas = { NAN, 0 } } }));
	finish();
}

Test(zero_state_end, kinds_that_the_optimizer_lacks_are_refused)
{
	start(&places[6]);
	refused(&actors[0], -EINVAL, "a second moment (kind 3): optimizer sgd over bf16",
	        range_of(&actors[0], 0, ZI_STATE_SECOND, 0, 1));
	end(2);
	start(&places[0]);
	refused(&actors[0], -EINVAL, "a remainder of the master (kind 1): optimizer adamw over f32",
	        range_of(&actors[0], 0, ZI_STATE_REMAINDER, 0, 1));
	end(2);
}

Test(zero_state_end, ranks_that_write_different_things_are_told_both)
{
	start(&places[2]);
	actor_start(&actors[0], 0, zero_state_write,
	            &(struct zero_op){ .state = { .kind = ZI_STATE_FIRST, .count = 5 } });
	refused(&actors[1], -EINVAL,
	        "kind 3 of unit 0 from root 0, 5 elements from 0 on, but rank 0 kind 2",
	        actor_call(&actors[1], zero_state_write,
	                   &(struct zero_op){ .state = { .kind = ZI_STATE_SECOND, .count = 5 } }));
	refused(&actors[1], -EINVAL, "rank 1 writes 4 updates",
	        actor_call(&actors[1], zero_state_count,
	                   &(struct zero_op){ .state = { .update_count = 4 } }));
	cr_assert_eq(
		actor_call(&actors[1], zero_state_write,
	                   &(struct zero_op){ .state = { .kind = ZI_STATE_FIRST, .count = 5 } }),
		0, "%s", actors[1].text.chars);
	cr_assert_eq(actor_wait(&actors[0], 0), 0);
	end(2);
}

Test(zero_state_end, nothing_is_written_during_a_step_or_without_a_window)
{
	struct zi_job_config config = config_of(&places[2]);

	begin_with(2, &config);
	refused(&actors[0], -EINVAL, "rank 0 has no window",
	        range_of(&actors[0], 0, ZI_STATE_FIRST, 0, 1));
	actor_start(&actors[1], 0, zero_state_write,
	            &(struct zero_op){ .state = { .kind = ZI_STATE_FIRST, .count = 5 } });
	refused(&actors[0], -EINVAL, "rank 0 has no window",
	        actor_call(&actors[0], zero_state_write,
	                   &(struct zero_op){ .state = { .kind = ZI_STATE_FIRST, .count = 5 } }));
	end(2);
	start(&places[2]);
	cr_assert_eq(all_call(actors, 2, zero_step_begin,
	                      &(struct zero_op){ .options = model_options() }),
	             0);
	refused(&actors[0], -EBUSY, "a step is under way", write_range(0, ZI_STATE_FIRST, 0, 1, 0));
	refused(&actors[0], -EBUSY, "a step is under way",
	        all_call(actors, 2, zero_state_count, NULL));
	end(2);
}

/* A call of this rank that would change the state meanwhile is refused; the others' go on. */
Test(zero_state_end, a_rank_that_reads_cannot_end_a_step_or_commit_meanwhile)
{
	start(&places[2]);
	node.is_disk_held = true;
	actor_start(&actors[0], 1, zero_state_read,
	            &(struct zero_op){ .unit = 1,
	                               .state = { .kind = ZI_STATE_FIRST, .count = 400000 } });
	refused(&actors[0], -EBUSY, "rank 0 reads optimizer state",
	        actor_call(&actors[0], zero_commit, NULL));
	refused(&actors[0], -EBUSY, "rank 0 reads optimizer state",
	        actor_unit(&actors[0], zero_param_write_end, 0));
	refused(&actors[0], -EBUSY, "rank 0 reads optimizer state",
	        range_of(&actors[0], 0, ZI_STATE_FIRST, 0, 1));
	refused(&actors[0], -EBUSY, "rank 0 reads optimizer state",
	        actor_call(&actors[0], zero_state_write,
	                   &(struct zero_op){ .state = { .kind = ZI_STATE_FIRST, .count = 5 } }));
	node.is_disk_held = false;
	cr_assert_eq(actor_wait(&actors[0], 1), 0, "%s", actors[0].text.chars);
	cr_assert_eq(memcmp(window(&actors[0]), plain.exp_avg[1], 400000 * 4), 0);
	end(2);
}

Test(zero_state_end, nothing_begins_while_state_is_written)
{
	start(&places[2]);
	memset(window(&actors[0]), 0, 400000 * 4);
	memset(plain.exp_avg[1], 0, 400000 * 4);
	node.is_disk_held = true;
	for (uint32_t i = 0; i < 2; i++)
		actor_start(
			&actors[i], 1, zero_state_write,
			&(struct zero_op){ .unit = 1,
		                           .state = { .kind = ZI_STATE_FIRST, .count = 400000 } });
	refused(&actors[0], -EBUSY, "optimizer state of unit 'h.0' is being written",
	        actor_call(&actors[0], zero_commit, NULL));
	refused(&actors[0], -EBUSY, "optimizer state of unit 'h.0' is being written",
	        step_begin(&actors[0], model_options()));
	refused(&actors[0], -EBUSY, "optimizer state of unit 'h.0' is being written",
	        range_of(&actors[0], 0, ZI_STATE_FIRST, 0, 1));
	refused(&actors[0], -EBUSY, "optimizer state of unit 'h.0' is being written",
	        actor_call(&actors[0], zero_state_count, NULL));
	refused(&actors[0], -EBUSY, "unit 'h.0' is being written",
	        actor_unit(&actors[0], zero_param_write_begin, 1));
	node.is_disk_held = false;
	cr_assert_eq(actor_wait(&actors[0], 1), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actor_wait(&actors[1], 1), 0);
	commit();
	go_on(2, 2);
	finish();
}

/* ---- ends ---- */

Test(zero_state_end, a_rank_that_dies_amid_a_read_or_write_leaves_the_committed_state)
{
	for (uint32_t round = 0; round < 2; round++) {
		uint64_t free_bytes;

		start(&places[2]);
		free_bytes = tier_extent_free_bytes(&node.nvme);
		node.is_disk_held = true;
		for (uint32_t i = 0; i <= round; i++)
			actor_start(&actors[i], 1, round ? zero_state_write : zero_state_read,
			            &(struct zero_op){
					    .unit = 1,
					    .state = { .kind = ZI_STATE_FIRST, .count = 400000 } });
		actor_leave(&actors[0], false);
		node.is_disk_held = false;
		cr_assert(actors[1].is_broken);
		attach_again(&places[2], "two");
		cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes);
		expect_plain(&actors[0]);
		go_on(2, 2);
		finish();
	}
}

Test(zero_state_end, a_window_or_scratch_without_room_is_refused_with_figures)
{
	struct zi_job_config config = config_of(&places[2]);
	uint64_t capacity_bytes;

	begin_with(2, &config);
	capacity_bytes = node.cpu.capacity_bytes;
	node.cpu.capacity_bytes = node.cpu.used_bytes;
	refused(&actors[0], -ENOSPC, "0 B free", actor_call(&actors[0], zero_state_open, NULL));
	node.cpu.capacity_bytes = capacity_bytes;
	cr_assert_eq(all_call(actors, 2, zero_state_open, NULL), 0);
	node.cpu.capacity_bytes = node.cpu.used_bytes;
	refused(&actors[0], -ENOSPC, "0 B free", range_of(&actors[0], 1, ZI_STATE_FIRST, 0, 5));
	refused(&actors[0], -ENOSPC, "0 B free", write_range(1, ZI_STATE_FIRST, 0, 5, 0));
	node.cpu.capacity_bytes = capacity_bytes;
	expect_plain(&actors[0]);
	end(2);
}

static void restart_with(const char *backend, const struct place *place, const char *incarnation)
{
	node.backend = backend;
	restart_node(place, incarnation);
}

/* One moment of unit h.0 anew, and a commit. Return: 0, -EIO: its error ended the group. */
static int try_write(const float *values)
{
	int r;

	memcpy(window(&actors[1]), values, model_elements[1] * 4);
	r = write_range(1, ZI_STATE_FIRST, 0, model_elements[1], 1);
	if (!r)
		r = all_call(actors, 2, zero_commit, NULL);
	if (!r)
		return 0;
	cr_assert_eq(r, -EIO, "%s", actors[0].text.chars);
	cr_assert(actors[0].is_broken);
	cr_assert_not_null(strstr(actors[1].broken_text.chars, "optimizer state of unit 'h.0'"),
	                   "%s", actors[1].broken_text.chars);
	return r;
}

/* Each read and write of the call in turn fails. */
static void fail_each(const char *what, uint32_t at_least)
{
	float *values = malloc(model_elements[1] * sizeof(*values));
	static char backend[64], incarnation[16];
	uint32_t k = 0;

	test_values(values, 77, model_elements[1]);
	start(&places[2]);
	for (bool is_sound = false; !is_sound;) {
		cr_assert_lt(++k, 50);
		(void)snprintf(backend, sizeof(backend), "faulty:over=threads,%s=%u", what, k);
		(void)snprintf(incarnation, sizeof(incarnation), "bad %u", k);
		restart_with(backend, &places[2], incarnation);
		is_sound = try_write(values) == 0;
		if (is_sound)
			memcpy(plain.exp_avg[1], values, model_elements[1] * 4);
		(void)snprintf(incarnation, sizeof(incarnation), "good %u", k);
		restart_with("threads", &places[2], incarnation);
		expect_plain(&actors[0]);
	}
	cr_assert_gt(k, at_least, "every request was met: %u", k);
	free(values);
	go_on(2, 2);
	finish();
}

/* Blocks of 1 MiB; the window's range has three subgroups. */
Test(zero_state_end, every_failed_write_leaves_the_committed_state)
{
	fail_each("write_eio_at", 3);
}

/* Reads of the parameters come first, at materialize: they are met there by other tests. */
Test(zero_state_end, a_failed_read_of_state_is_reported_with_its_place)
{
	start(&places[4]);
	restart_with("faulty:over=threads,read_eio_at=1", &places[4], "bad");
	refused(&actors[0], -EIO, "reading optimizer state of unit 'h.0', subgroup 0, at offset",
	        range_of(&actors[0], 1, ZI_STATE_FIRST, 0, 5));
	cr_assert_eq(range_of(&actors[0], 1, ZI_STATE_FIRST, 0, 5), 0, "once more");
	restart_with("faulty:over=threads,read_eio_at=2", &places[4], "worse");
	cr_assert_eq(write_range(1, ZI_STATE_FIRST, 0, 600000 % 530000, 0), -EIO);
	cr_assert(actors[0].is_broken);
	restart_with("threads", &places[4], "good");
	finish();
}

Test(zero_state_end, memory_of_windows_is_given_back)
{
	uint64_t used_bytes;

	start(&places[2]);
	used_bytes = node.cpu.used_bytes;
	expect_plain(&actors[0]);
	cr_assert_eq(node.cpu.used_bytes, used_bytes, "no scratch stays");
	end(2);
}
