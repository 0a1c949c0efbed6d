/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever the disk does to a tensor, its ticket says so, where and why, and others go on;
 * what is cancelled or late ends at once for who waits, and its memory and space stay taken until
 * the disk has given them back; a rank that dies in between leaves nothing. Method: the engine's
 * faulty backend, and a disk whose answers are held back by the test.
 */
#include "daemon/tier/stripe.h"
#include "tests/unit/zero/flip.h"
#include "tests/unit/zero/tensors.h"

#define BYTES (64u << 10)

static void turn(void)
{
	for (int i = 0; i < 50; i++)
		node_turn(&node);
}

/* The tensor alone is on the store, and one other in memory. */
static void spill(uint64_t id)
{
	put_tensor(id, BYTES);
	put_tensor(id + 1000, BYTES);
	cr_assert_not(is_resident(id));
}

static const struct zero_tensor *entry_of(uint64_t id)
{
	const struct zero_tensors *tensors = RANK->rank->tensors;

	for (uint32_t i = 0; i < ZERO_TENSORS_MAX; i++)
		if (tensors->entries[i].stage && tensors->entries[i].id == id)
			return &tensors->entries[i];
	return NULL;
}

Test(zero_tensor_fault, damage_is_found_and_named)
{
	const struct zero_tensor *tensor;
	char words[128];
	uint64_t offset;

	start(3 * BYTES);
	put_tensor(1, 3 * BYTES);
	put_tensor(2, 3 * BYTES);
	tensor = entry_of(1);
	offset = tensor->extent.offset_bytes + BYTES + 77;
	flip(node.store_path, offset);
	cr_assert_eq(call(zero_tensor_get, 1, 0), -EBADMSG);
	expect_words("tensor 1 of rank 0 is damaged: 65536 bytes from its byte 65536 on");
	(void)snprintf(words, sizeof(words), "at offset %llu of %s",
	               (unsigned long long)(tensor->extent.offset_bytes + BYTES), node.store_path);
	expect_words(words);
	cr_assert_eq(call(zero_tensor_prefetch, 1, 0), -EBADMSG, "again");
	expect_tensor(2, 3 * BYTES);
	flip(node.store_path, offset);
	expect_tensor(1, 3 * BYTES);
	end();
}

Test(zero_tensor_fault, a_failed_write_is_told_and_the_tensor_may_be_put_again)
{
	uint64_t free_bytes;

	start_with("faulty:over=threads,write_eio_at=1", 0);
	cr_assert_eq(tensors_open(BYTES), 0);
	free_bytes = tier_extent_free_bytes(&node.nvme);
	cr_assert_eq(alloc_filled(1, BYTES), 0);
	cr_assert_eq(call(zero_tensor_put, 1, BYTES), -EIO);
	expect_words("job 'train': writing tensor 1 of rank 0 at offset");
	expect_words(node.store_path);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes);
	expect_tensor(1, BYTES); /* it is in memory, and must stay there */
	cr_assert_eq(call(zero_tensor_alloc, 2, BYTES), -ENOSPC);
	expect_words("64 KiB not stored");
	cr_assert_eq(call(zero_tensor_put, 1, BYTES), 0, "%s", RANK->text.chars);
	put_tensor(2, BYTES);
	expect_tensor(1, BYTES);
	end();
}

Test(zero_tensor_fault, a_write_that_fails_goes_to_another_path)
{
	node_init(&node);
	node.store_count = 3;
	/* The second path takes nothing any more, and what it had taken stays to be read. */
	start_with("faulty:over=threads,path=t1,write_eio_from=2", 0);
	cr_assert_eq(tensors_open(2 * BYTES), 0);
	for (uint64_t id = 1; id <= 8; id++)
		put_tensor(id, BYTES);
	cr_assert_eq(node.nvme.members[1].state, TIER_MEMBER_FAILED);
	cr_assert_eq(node.nvme.members[1].error_count, 1);
	for (uint64_t id = 1; id <= 8; id++)
		expect_tensor(id, BYTES);
	cr_assert_eq(tier_member_used_bytes(&node.nvme.members[1]), BYTES, "the first of them");
	for (uint64_t id = 1; id <= 8; id++)
		cr_assert_eq(call(zero_tensor_free, id, 0), 0, "%s", RANK->text.chars);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(tier_member_used_bytes(&node.nvme.members[i]), 0);
	end();
}

Test(zero_tensor_fault, where_every_path_fails_the_last_one_is_named)
{
	node_init(&node);
	node.store_count = 2;
	start_with("faulty:over=threads,write_eio_from=1", 0);
	cr_assert_eq(tensors_open(BYTES), 0);
	cr_assert_eq(alloc_filled(1, BYTES), 0);
	cr_assert_eq(call(zero_tensor_put, 1, BYTES), -EIO);
	expect_words("job 'train': writing tensor 1 of rank 0 at offset");
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(node.nvme.members[i].state, TIER_MEMBER_FAILED);
		cr_assert_eq(tier_member_used_bytes(&node.nvme.members[i]), 0);
	}
	expect_tensor(1, BYTES); /* it is in memory */
	end();
}

Test(zero_tensor_fault, a_failed_read_is_told_and_may_be_tried_again)
{
	start_with("faulty:over=threads,read_eio_at=1", 0);
	cr_assert_eq(tensors_open(BYTES), 0);
	spill(1);
	cr_assert_eq(call(zero_tensor_get, 1, 0), -EIO);
	expect_words("reading tensor 1 of rank 0 at offset");
	expect_tensor(1, BYTES);
	end();
}

static int cancel(uint64_t ticket)
{
	return call(zero_cancel, ticket, 0);
}

Test(zero_tensor_fault, a_put_is_cancelled_in_flight)
{
	start(2 * BYTES);
	node.is_disk_held = true;
	begin_put(1, 1, BYTES, 11);
	turn();
	cr_assert(entry_of(1)->is_moving);
	cr_assert_eq(cancel(11), 0, "%s", RANK->text.chars);
	cr_assert(RANK->calls[1].is_done);
	cr_assert_eq(RANK->calls[1].op.result, -ECANCELED);
	cr_assert_eq(cancel(11), -EALREADY);
	cr_assert(entry_of(1)->extent.bytes, "the disk may still write there");
	node.is_disk_held = false;
	node_settle(&node);
	expect_tensor(1, BYTES);
	cr_assert_eq(call(zero_tensor_free, 1, 0), 0);
	end();
}

Test(zero_tensor_fault, puts_are_cancelled_before_they_begin)
{
	start(16 * BYTES);
	node.is_disk_held = true;
	for (uint32_t i = 1; i <= 5; i++) /* one more than the disk is given at once */
		begin_put(i, i, BYTES, 10 + i);
	turn();
	cr_assert_eq(entry_of(5)->stage, ZERO_TENSOR_STORING);
	cr_assert_not(entry_of(5)->is_moving, "queued");
	cr_assert_eq(cancel(15), 0);
	cr_assert_eq(RANK->calls[5].op.result, -ECANCELED);
	cr_assert_eq(entry_of(5)->extent.bytes, 0, "nothing was begun");
	begin_put(6, 6, BYTES, 16); /* cancelled while its checksums are taken */
	cr_assert_eq(entry_of(6)->stage, ZERO_TENSOR_HASHING);
	cr_assert_eq(cancel(16), 0);
	node.is_disk_held = false;
	for (uint32_t i = 1; i <= 4; i++)
		cr_assert_eq(actor_wait(RANK, i), 0);
	node_settle(&node);
	cr_assert_not(entry_of(6)->is_stored);
	for (uint64_t id = 1; id <= 6; id++)
		expect_tensor(id, BYTES);
	cr_assert_eq(call(zero_tensor_put, 5, BYTES), 0);
	end();
}

Test(zero_tensor_fault, an_alloc_and_a_get_are_cancelled)
{
	start(BYTES);
	spill(1);
	node.is_disk_held = true;
	actor_start(RANK, 1, zero_tensor_get, &(struct zero_op){ .id = 1, .ticket = 11 });
	actor_start(RANK, 2, zero_tensor_alloc,
	            &(struct zero_op){ .id = 2, .bytes = BYTES, .ticket = 12 });
	cr_assert_eq(cancel(12), 0);
	cr_assert_eq(cancel(11), 0);
	cr_assert_eq(RANK->calls[1].op.result, -ECANCELED);
	cr_assert_eq(RANK->calls[2].op.result, -ECANCELED);
	/* Who comes while it is being given up begins anew. */
	actor_start(RANK, 3, zero_tensor_get, &(struct zero_op){ .id = 1 });
	node.is_disk_held = false;
	cr_assert_eq(actor_wait(RANK, 3), 0, "%s", RANK->text.chars);
	cr_assert(is_tensor(place_of(3), 1, BYTES));
	actor_start(RANK, 1, zero_barrier, &(struct zero_op){ .ticket = 0 });
	cr_assert_eq(actor_wait(RANK, 1), 0);
	end();
}

Test(zero_tensor_fault, what_others_take_part_in_is_not_cancelled)
{
	start_with("threads", 0);
	actor_leave(RANK, true);
	model_attach(
		&node, actors, 2,
		&(struct attach_options){ .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU) });
	cr_assert_eq(model_materialize(actors, 2), 0, "%s", RANK->text.chars);
	actor_start(RANK, 1, zero_barrier, &(struct zero_op){ .ticket = 5 });
	cr_assert_eq(cancel(5), -EBUSY);
	actor_start(&actors[1], 1, zero_barrier, NULL);
	cr_assert_eq(actor_wait(RANK, 1), 0);
	actor_leave(&actors[1], true);
	end();
}

Test(zero_tensor_fault, a_stalled_disk_is_late_for_its_ticket_alone)
{
	start_with("faulty:over=threads,stall_at=1,stall_ms=1500", 300 * ZI_NS_PER_MS);
	cr_assert_eq(tensors_open(8 * BYTES), 0);
	begin_put(1, 1, BYTES, 0);
	cr_assert_eq(actor_wait(RANK, 1), -ETIMEDOUT);
	expect_words("tensor_put timed out after 0.3 s: it is still being stored");
	cr_assert(entry_of(1)->is_moving, "the disk has it");
	put_tensor(2, BYTES);
	expect_tensor(1, BYTES);
	cr_assert_eq(call(zero_tensor_free, 1, 0), 0);
	cr_assert(entry_of(1)->is_dropped, "its room and space are still the disk's");
	/* Its id is free, and means another tensor. */
	put_tensor(1, 2 * BYTES);
	expect_tensor(1, 2 * BYTES);
	node_settle(&node);
	cr_assert_eq(RANK->rank->tensors->count, 2);
	end();
}

Test(zero_tensor_fault, a_rank_that_dies_with_moves_in_flight_leaves_nothing)
{
	uint64_t cpu_bytes, free_bytes;

	start_with("threads", 0);
	cpu_bytes = node.cpu.used_bytes;
	free_bytes = tier_extent_free_bytes(&node.nvme);
	actor_leave(RANK, false);
	node_settle(&node);
	actor_fork(RANK);
	attach(0);
	cr_assert_eq(tensors_open(8 * BYTES), 0);
	put_tensor(20, BYTES);
	node.is_disk_held = true;
	for (uint32_t i = 1; i <= 6; i++)
		begin_put(i, i, BYTES, 0);
	turn();
	cr_assert_eq(node.zero->tensor_busy_count, ZERO_TENSOR_MOVES_MAX);
	actor_kill(RANK);
	actor_leave(RANK, false);
	turn();
	cr_assert_eq(node.zero->tensor_busy_count, ZERO_TENSOR_MOVES_MAX);
	cr_assert_eq(free_bytes - tier_extent_free_bytes(&node.nvme),
	             ZERO_TENSOR_MOVES_MAX * (uint64_t)BYTES, "what the disk has stays taken");
	node.is_disk_held = false;
	node_settle(&node);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes);
	cr_assert_eq(node.nvme.used_bytes, 0);
	cr_assert_leq(node.cpu.used_bytes, cpu_bytes);
	end();
}

Test(zero_tensor_fault, a_stop_waits_for_what_is_in_flight)
{
	start(8 * BYTES);
	node.is_disk_held = true;
	begin_put(1, 1, BYTES, 0);
	turn();
	actor_leave(RANK, true);
	cr_assert_eq(node.zero->tensor_busy_count, 1);
	cr_assert_not(node_is_quiet(&node));
	node.is_disk_held = false;
	end(); /* Asserts that nothing is charged, and nothing in flight. */
}
