/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever the disk does, a job stands at its committed step, bit by bit, and the ranks hear
 * what failed and where. Nothing is trusted that was not verified. Method: the engine's faulty
 * backend fails the k-th read or write of a small job, for every k, then the job is read anew by a
 * sound engine. Bits are turned on the store by hand, and in flight.
 */
#include "daemon/tier/stripe.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/step/step.h"
#include "tests/unit/zero/disk.h"
#include "tests/unit/zero/flip.h"

static char backend[64];
static uint32_t flags; /* of every step */

/* Materialise and one step; false when either failed. Counts committed steps in @committed. */
static bool attempt(uint64_t *committed)
{
	struct zi_step_options options = model_options();
	uint64_t free_bytes = tier_extent_free_bytes(&node.nvme);
	int r;

	options.flags = flags;
	r = model_materialize(actors, 1);

	if (r) {
		cr_assert_eq(r, -EIO, "%s", actors[0].text.chars);
		cr_assert_not(actors[0].is_broken);
		cr_assert_not_null(strstr(actors[0].text.chars, "reading"));
		return false;
	}
	cr_assert_eq(actors[0].memory.committed_step, (int64_t)*committed);
	r = actor_call(&actors[0], zero_step_begin, &(struct zero_op){ .options = options });
	for (uint32_t unit = 0; unit < UNITS && !r; unit++) {
		model_fill_grad(&actors[0], *committed + 1, 0, unit);
		r = actor_unit(&actors[0], zero_reduce, unit);
		if (flags) /* Errors come early, too. */
			node_settle(&node);
	}
	if (!r)
		r = actor_call(&actors[0], zero_step, NULL);
	if (!r) {
		plain_step(&plain, ++*committed, &options);
		return true;
	}
	cr_assert_eq(r, -EIO, "%s", actors[0].text.chars);
	cr_assert(actors[0].is_broken);
	cr_assert_eq(actors[0].broken_error, -EIO);
	cr_assert_eq(actors[0].broken_culprit, UINT32_MAX);
	cr_assert_not_null(strstr(actors[0].broken_text.chars, "job 'train'"), "%s",
	                   actors[0].broken_text.chars);
	node_settle(&node);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes, "nothing stays reserved");
	return false;
}

static void fail_each(const char *what, uint64_t resident_bytes, uint32_t at_least)
{
	uint64_t committed = 0;
	uint32_t k = 1;

	begin(resident_bytes);
	sound(committed);
	committed++;
	for (bool is_sound = false; !is_sound; k++) {
		cr_assert_lt(k, 100);
		(void)snprintf(backend, sizeof(backend), "faulty:over=threads,%s=%u", what, k);
		restart(backend);
		is_sound = attempt(&committed);
		if (!is_sound) {
			/* The same incarnation of the daemon, another of the job: read anew. */
			actor_leave(&actors[0], true);
			model_attach(&node, actors, 1,
			             &(struct attach_options){ .config = config });
			cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
			cr_assert(plain_equals(&plain, &actors[0]), "k = %u", k);
		}
		sound(committed);
		committed++;
	}
	cr_assert_gt(k, at_least, "every request was met: %u", k);
	end();
}

Test(zero_fault, every_failed_read_leaves_the_committed_step)
{
	/* 5 subgroups of parameters at materialize, 5 of state; blocks of 1 MiB. */
	fail_each("read_eio_at", 0, 11);
}

Test(zero_fault, every_failed_write_leaves_the_committed_step)
{
	fail_each("write_eio_at", 0, 11);
}

Test(zero_fault, every_failed_read_leaves_the_committed_step_with_resident_state)
{
	fail_each("read_eio_at", 64 * MIB, 11);
}

Test(zero_fault, every_failed_write_leaves_the_committed_step_with_resident_state)
{
	fail_each("write_eio_at", 3 * MIB, 11);
}

Test(zero_fault, every_failed_read_of_an_early_update_leaves_the_committed_step)
{
	flags = ZI_STEP_UPDATE_EARLY;
	fail_each("read_eio_at", 3 * MIB, 10);
}

Test(zero_fault, every_failed_write_of_an_early_update_leaves_the_committed_step)
{
	flags = ZI_STEP_UPDATE_EARLY;
	fail_each("write_eio_at", 3 * MIB, 11);
}

Test(zero_fault, damaged_parameters_are_named_and_never_returned)
{
	uint64_t offset;

	begin(0);
	offset =
		node_job(&node, "train")->subgroups[2].places[ZERO_PLANE_PARAM].extent.offset_bytes;
	actor_leave(&actors[0], true);
	node_stop(&node);
	flip(node.store_path, offset + 40000);
	start("threads");
	cr_assert_eq(model_materialize(actors, 1), -EBADMSG);
	cr_assert_not_null(strstr(actors[0].text.chars, "parameters of unit 'h.0' are damaged"),
	                   "%s", actors[0].text.chars);
	cr_assert_not_null(strstr(actors[0].text.chars, node.store_path));
	flip(node.store_path, offset + 40000);
	cr_assert_eq(actor_call(&actors[0], zero_materialize, NULL), 0, "it may be mended");
	sound(0);
	end();
}

static void damaged_state(uint64_t resident_bytes)
{
	struct zi_step_options options = model_options();
	uint64_t offset;

	begin(resident_bytes);
	cr_assert_eq(model_step(actors, 1, 1, &options), 0);
	plain_step(&plain, 1, &options);
	offset =
		node_job(&node, "train")->subgroups[4].places[ZERO_PLANE_STATE].extent.offset_bytes;
	actor_leave(&actors[0], true);
	node_settle(&node);
	flip(node.store_path, offset + 170000);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	if (resident_bytes) {
		cr_assert_eq(model_materialize(actors, 1), -EBADMSG);
	} else {
		cr_assert_eq(model_materialize(actors, 1), 0);
		cr_assert_eq(actor_call(&actors[0], zero_step_begin,
		                        &(struct zero_op){ .options = options }),
		             0);
		for (uint32_t unit = 0; unit < UNITS; unit++) {
			model_fill_grad(&actors[0], 2, 0, unit);
			cr_assert_eq(actor_unit(&actors[0], zero_reduce, unit), 0);
		}
		cr_assert_eq(actor_call(&actors[0], zero_step, NULL), -EBADMSG);
		cr_assert(actors[0].is_broken);
	}
	cr_assert_not_null(
		strstr(actors[0].text.chars, "optimizer state of unit 'head' is damaged"), "%s",
		actors[0].text.chars);
	flip(node.store_path, offset + 170000);
	sound(1);
	end();
}

Test(zero_fault, damaged_state_is_named_and_never_committed)
{
	damaged_state(0);
}

/* Verifying and computing are one pass: what is in memory by then must not stay there. */
static void damage_met(uint32_t step_flags)
{
	struct zi_step_options options = model_options();
	uint64_t free_bytes, offset;
	int r;

	begin(0);
	cr_assert_eq(model_step(actors, 1, 1, &options), 0);
	plain_step(&plain, 1, &options);
	free_bytes = tier_extent_free_bytes(&node.nvme);
	offset =
		node_job(&node, "train")->subgroups[4].places[ZERO_PLANE_STATE].extent.offset_bytes;
	actor_leave(&actors[0], true);
	node_settle(&node);
	flip(node.store_path, offset + 170000);
	options.flags = step_flags;
	/* The second time finds what the first one left. */
	for (unsigned i = 0; i < 2; i++) {
		model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
		cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
		cr_assert_eq(actors[0].memory.committed_step, 1);
		cr_assert(plain_equals(&plain, &actors[0]), "parameters as committed");
		r = actor_call(&actors[0], zero_step_begin,
		               &(struct zero_op){ .options = options });
		for (uint32_t unit = 0; unit < UNITS && !r; unit++) {
			model_fill_grad(&actors[0], 2, 0, unit);
			r = actor_unit(&actors[0], zero_reduce, unit);
			node_settle(&node);
		}
		if (!r)
			r = actor_call(&actors[0], zero_step, NULL);
		cr_assert_eq(r, -EBADMSG, "%s", actors[0].text.chars);
		cr_assert(actors[0].is_broken);
		actor_leave(&actors[0], true);
		node_settle(&node);
		cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes);
	}
	flip(node.store_path, offset + 170000);
	sound(1);
	end();
}

Test(zero_fault, nothing_of_a_step_that_met_damage_stays_in_memory)
{
	damage_met(0);
}

Test(zero_fault, nothing_of_an_early_update_that_met_damage_stays_in_memory)
{
	damage_met(ZI_STEP_UPDATE_EARLY);
}

Test(zero_fault, damaged_resident_state_is_named_at_materialize)
{
	damaged_state(64 * MIB);
}

Test(zero_fault, bit_turned_in_flight_is_noticed)
{
	struct zi_step_options options = model_options();

	begin(0);
	cr_assert_eq(model_step(actors, 1, 1, &options), 0);
	plain_step(&plain, 1, &options);
	restart("faulty:over=threads,bitflip_at=3,seed=7");
	cr_assert_eq(model_materialize(actors, 1), -EBADMSG, "%s", actors[0].text.chars);
	sound(1);
	end();
}

Test(zero_fault, write_that_was_lost_is_noticed_when_it_is_read)
{
	struct zi_step_options options = model_options();

	begin(0);
	restart("faulty:over=threads,write_lost_at=2");
	cr_assert_eq(model_materialize(actors, 1), 0);
	cr_assert_eq(model_step(actors, 1, 1, &options), 0, "the disk said that all is well");
	restart("threads");
	int r = model_materialize(actors, 1);

	if (!r)
		r = model_step(actors, 1, 2, &options);
	cr_assert_eq(r, -EBADMSG, "%s", actors[0].text.chars);
	end();
}

Test(zero_fault, short_reads_and_writes_are_completed)
{
	struct zi_step_options options = model_options();

	begin(0);
	restart("faulty:over=threads,read_short_every=2,write_short_every=3,eagain_every=5,"
	        "reorder=1");
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	cr_assert_eq(model_step(actors, 1, 1, &options), 0, "%s", actors[0].text.chars);
	plain_step(&plain, 1, &options);
	cr_assert(plain_equals(&plain, &actors[0]));
	sound(1);
	end();
}

Test(zero_fault, failed_commit_of_written_parameters_commits_nothing_and_may_be_called_again)
{
	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	node_init(&node);
	plain_init(&plain, &config, 1);
	start("faulty:over=threads,write_eio_at=2");
	cr_assert_eq(model_materialize(actors, 1), 0);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		model_write_unit(actors, 1, unit, 900);
	cr_assert_eq(actor_call(&actors[0], zero_commit, NULL), -EIO);
	cr_assert_not_null(strstr(actors[0].text.chars, "writing parameters of unit"), "%s",
	                   actors[0].text.chars);
	cr_assert_eq(node_job(&node, "train")->committed_step, -1);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), node.nvme.capacity_bytes);
	cr_assert_eq(actor_call(&actors[0], zero_commit, NULL), 0, "%s", actors[0].text.chars);
	sound(0);
	end();
}

Test(zero_fault, store_without_room_refuses_the_step_before_anything_changed)
{
	struct zi_step_options options = model_options();
	struct zi_extent taken;
	uint64_t free_bytes;

	begin(0);
	cr_assert_eq(model_step(actors, 1, 1, &options), 0);
	plain_step(&plain, 1, &options);
	/* Somebody else's extents, in spite of all charges. */
	cr_assert_eq(nvme_space_allocate(node.nvme.members[0].space, 12 * MIB, &taken), 0);
	free_bytes = tier_extent_free_bytes(&node.nvme);
	cr_assert_eq(
		actor_call(&actors[0], zero_step_begin, &(struct zero_op){ .options = options }),
		-ENOSPC);
	cr_assert_not_null(strstr(actors[0].text.chars, "a step of job 'train' needs 6.4 MiB"),
	                   "%s", actors[0].text.chars);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes);
	nvme_space_release(node.nvme.members[0].space, &taken);
	cr_assert_eq(model_step(actors, 1, 2, &options), 0, "%s", actors[0].text.chars);
	plain_step(&plain, 2, &options);
	cr_assert(plain_equals(&plain, &actors[0]));
	end();
}
