/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a rank's tensors come back byte by byte however little memory they are granted; what must
 * go for others goes in the promised order; nothing that a rank says reaches memory that is not its
 * own; every refusal has its figures; and nothing stays behind. Method: one rank calls zero as a
 * session would, on a real store.
 */
#include "daemon/tier/stripe.h"
#include "tests/unit/zero/tensors.h"

Test(zero_tensor, four_times_the_budget_comes_back_in_reverse)
{
	enum { COUNT = 32 };
	uint64_t free_bytes;

	node.thread_count = 0;
	start(MIB);
	free_bytes = tier_extent_free_bytes(&node.nvme);
	/* Of several lengths, most no multiple of a block. */
	for (uint64_t id = 0; id < COUNT; id++)
		put_tensor(id, 100000 + id * 2000 + id);
	cr_assert_lt(RANK->rank->tensors->run_count, (uint32_t)COUNT, "some had to go");
	for (uint64_t id = COUNT; id-- > 0;) {
		if (id)
			actor_start(RANK, 1, zero_tensor_prefetch,
			            &(struct zero_op){ .id = id - 1 });
		expect_tensor(id, 100000 + id * 2000 + id);
		cr_assert_eq(call(zero_tensor_free, id, 0), 0, "%s", RANK->text.chars);
		if (id)
			cr_assert_eq(actor_wait(RANK, 1), 0, "%s", RANK->text.chars);
	}
	cr_assert_eq(RANK->rank->tensors->count, 0);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes);
	cr_assert_eq(node.nvme.used_bytes, 0);
	end();
}

Test(zero_tensor, what_is_moved_counts_to_job_and_uid)
{
	const struct tier_tally *job_tally, *store_tally;

	start(MIB);
	job_tally = &RANK->rank->job->account->tally;
	store_tally = &node.nvme.members[0].tally;
	for (uint64_t id = 1; id <= 8; id++)
		put_tensor(id, 256 << 10);
	for (uint64_t id = 1; id <= 8; id++)
		expect_tensor(id, 256 << 10);
	node_settle(&node);
	cr_assert_eq(job_tally->write_bytes, 8 * (256 << 10));
	cr_assert_geq(job_tally->read_bytes, 4 * (256 << 10));
	cr_assert_eq(job_tally->write_bytes, store_tally->write_bytes);
	cr_assert_eq(job_tally->read_bytes, store_tally->read_bytes);
	/* Since the daemon started it is the same. */
	cr_assert_eq(RANK->rank->job->write_bytes, job_tally->write_bytes);
	cr_assert_eq(RANK->rank->job->read_bytes, job_tally->read_bytes);
	cr_assert_eq(job_tally->parent->write_bytes, job_tally->write_bytes);
	cr_assert_eq(job_tally->parent->read_bytes, job_tally->read_bytes);
	end();
}

Test(zero_tensor, oldest_put_goes_first_and_what_was_prefetched_last)
{
	const uint64_t bytes = 64 << 10;

	start(4 * bytes);
	for (uint64_t id = 1; id <= 5; id++)
		put_tensor(id, bytes);
	cr_assert(!is_resident(1) && is_resident(2) && is_resident(3), "the oldest is gone");
	/* 2 goes for 1; then 3, older than 4 and 5, for 6: 1 was put first, but is wanted. */
	cr_assert_eq(call(zero_tensor_prefetch, 1, 0), 0);
	cr_assert(is_resident(1) && !is_resident(2));
	put_tensor(6, bytes);
	put_tensor(7, bytes);
	cr_assert(is_resident(1) && !is_resident(3) && !is_resident(4) && is_resident(5));
	/* Once it was used it is the oldest. */
	expect_tensor(1, bytes);
	put_tensor(8, bytes);
	cr_assert(!is_resident(1) && is_resident(5));
	end();
}

Test(zero_tensor, prefetch_does_not_push_out_what_was_prefetched)
{
	const uint64_t bytes = 64 << 10;

	start(2 * bytes);
	for (uint64_t id = 1; id <= 4; id++)
		put_tensor(id, bytes);
	cr_assert_eq(call(zero_tensor_prefetch, 1, 0), 0);
	cr_assert_eq(call(zero_tensor_prefetch, 2, 0), 0);
	actor_start(RANK, 1, zero_tensor_prefetch, &(struct zero_op){ .id = 3 });
	node_settle(&node);
	cr_assert_not(RANK->calls[1].is_done, "it waits");
	cr_assert(is_resident(1) && is_resident(2));
	expect_tensor(2, bytes); /* used: it may go, and does as soon as it is released */
	cr_assert_eq(actor_wait(RANK, 1), 0, "%s", RANK->text.chars);
	cr_assert(is_resident(1) && is_resident(3));
	end();
}

Test(zero_tensor, alloc_waits_until_what_was_put_is_stored)
{
	const uint64_t bytes = MIB;

	start(2 * bytes);
	node.is_disk_held = true;
	begin_put(1, 1, bytes, 0);
	begin_put(2, 2, bytes, 0);
	actor_start(RANK, 3, zero_tensor_alloc, &(struct zero_op){ .id = 3, .bytes = bytes });
	for (int i = 0; i < 50; i++)
		node_turn(&node);
	cr_assert_not(RANK->calls[1].is_done);
	cr_assert_not(RANK->calls[3].is_done, "no room yet");
	node.is_disk_held = false;
	cr_assert_eq(actor_wait(RANK, 3), 0, "%s", RANK->text.chars);
	cr_assert_eq(actor_wait(RANK, 1), 0);
	cr_assert_eq(actor_wait(RANK, 2), 0);
	fill_tensor(place_of(3), 3, bytes);
	cr_assert_eq(call(zero_tensor_put, 3, bytes), 0);
	for (uint64_t id = 1; id <= 3; id++)
		expect_tensor(id, bytes);
	end();
}

Test(zero_tensor, what_can_never_have_room_is_refused_with_figures)
{
	const uint64_t bytes = 64 << 10;

	start(4 * bytes);
	cr_assert_eq(call(zero_tensor_alloc, 1, 5 * bytes), -ENOSPC);
	expect_words("tensor 1 of 320 KiB has no room in the budget of 256 KiB");
	put_tensor(1, bytes);
	cr_assert_eq(call(zero_tensor_get, 1, 0), 0);
	cr_assert_eq(call(zero_tensor_alloc, 2, bytes), 0);
	cr_assert_eq(call(zero_tensor_alloc, 3, 4 * bytes), -ENOSPC);
	expect_words("64 KiB mapped or being got, 64 KiB allocated and not put");
	end();
}

Test(zero_tensor, without_a_store_all_stays_in_memory)
{
	const uint64_t bytes = 64 << 10;

	node_init(&node);
	node.is_dumb = true;
	start(2 * bytes);
	put_tensor(1, bytes);
	put_tensor(2, bytes);
	cr_assert_eq(call(zero_tensor_alloc, 3, bytes), -ENOSPC);
	expect_words("128 KiB not stored (the daemon has no nvme tier)");
	expect_tensor(1, bytes);
	cr_assert_eq(call(zero_tensor_prefetch, 2, 0), 0);
	cr_assert_eq(call(zero_tensor_free, 1, 0), 0);
	put_tensor(3, bytes);
	expect_tensor(2, bytes);
	expect_tensor(3, bytes);
	end();
}

Test(zero_tensor, quota_and_full_store_are_told_with_figures)
{
	node_init(&node);
	node.uid_nvme_bytes = 3 * MIB;
	start(4 * MIB);
	put_tensor(1, 2 * MIB);
	cr_assert_eq(call(zero_tensor_alloc, 2, 2 * MIB), -EDQUOT);
	expect_words("quota.uid_nvme");
	cr_assert_eq(RANK->rank->tensors->count, 1, "nothing of it is left");
	put_tensor(2, MIB);
	expect_tensor(1, 2 * MIB);
	end();
	memset(&node, 0, sizeof(node));
	node_init(&node);
	node.store_bytes = 4 * MIB;
	start(4 * MIB);
	put_tensor(1, 2 * MIB);
	cr_assert_eq(call(zero_tensor_alloc, 2, 3 * MIB), -ENOSPC);
	expect_words("nvme:t");
	end();
}

Test(zero_tensor, memory_is_charged_and_refused_with_figures)
{
	uint64_t before_bytes;

	node_init(&node);
	start_with("threads", 0);
	before_bytes = node.cpu.used_bytes;
	cr_assert_eq(tensors_open(1ull << 40), -ENOSPC);
	expect_words("1 TiB asked for on cpu:0");
	cr_assert_eq(tensors_open(0), -EINVAL);
	cr_assert_eq(tensors_open(5000), 0, "%s", RANK->text.chars);
	cr_assert_eq(node.cpu.used_bytes, before_bytes + 8192);
	cr_assert_eq(tensors_open(5000), -EALREADY);
	end();
}

Test(zero_tensor, what_a_rank_says_wrongly_is_refused_by_name)
{
	start_with("threads", 0);
	cr_assert_eq(call(zero_tensor_alloc, 1, 100), -EINVAL);
	expect_words("no budget for tensors was opened");
	cr_assert_null(zero_tensor_segment(RANK->rank));
	cr_assert_eq(tensors_open(MIB), 0);
	cr_assert_eq(call(zero_tensor_put, 1, 100), -ENOENT);
	cr_assert_eq(call(zero_tensor_get, 1, 0), -ENOENT);
	cr_assert_eq(call(zero_tensor_prefetch, 1, 0), -ENOENT);
	cr_assert_eq(call(zero_tensor_release, 1, 0), -ENOENT);
	cr_assert_eq(call(zero_tensor_free, 1, 0), -ENOENT);
	cr_assert_eq(call(zero_tensor_alloc, 1, 0), -EINVAL);
	cr_assert_eq(call(zero_tensor_alloc, 1, UINT64_MAX), -ENOSPC);
	cr_assert_eq(alloc_filled(1, 5000), 0);
	cr_assert_eq(call(zero_tensor_alloc, 1, 100), -EEXIST);
	cr_assert_eq(call(zero_tensor_get, 1, 0), -EINVAL);
	expect_words("not yet put");
	cr_assert_eq(call(zero_tensor_put, 1, 5001), -EINVAL);
	expect_words("has 5000 bytes, put says 5001");
	cr_assert_eq(call(zero_tensor_put, 1, 5000), 0);
	cr_assert_eq(call(zero_tensor_put, 1, 5000), -EALREADY);
	cr_assert_eq(call(zero_tensor_release, 1, 0), -EINVAL);
	expect_words("tensor 1 is not mapped");
	cr_assert_eq(call(zero_tensor_get, 1, 0), 0);
	cr_assert_eq(call(zero_tensor_free, 1, 0), -EBUSY);
	expect_words("it is mapped");
	cr_assert_eq(call(zero_tensor_release, 1, 0), 0);
	cr_assert_eq(call(zero_tensor_free, 1, 0), 0);
	cr_assert_eq(call(zero_tensor_free, 1, 0), -ENOENT);
	end();
}

Test(zero_tensor, more_than_a_rank_may_have_are_refused)
{
	node_init(&node);
	node.store_bytes = 64 * MIB;
	start(32 * MIB);
	for (uint64_t id = 0; id < ZERO_TENSORS_MAX; id++)
		cr_assert_eq(call(zero_tensor_alloc, id * 4096, 1), 0, "%s", RANK->text.chars);
	cr_assert_eq(call(zero_tensor_alloc, 7, 1), -E2BIG);
	expect_words("4096 tensors");
	cr_assert_eq(call(zero_tensor_free, 4096 * 17, 0), 0);
	cr_assert_eq(call(zero_tensor_alloc, 7, 1), 0, "%s", RANK->text.chars);
	end();
}

Test(zero_tensor, a_tensor_in_use_is_not_freed)
{
	const uint64_t bytes = 64 << 10;

	start(bytes);
	put_tensor(1, bytes);
	put_tensor(2, bytes);
	node.is_disk_held = true;
	actor_start(RANK, 1, zero_tensor_get, &(struct zero_op){ .id = 1 });
	cr_assert_eq(call(zero_tensor_free, 1, 0), -EBUSY);
	expect_words("wait for its tickets");
	node.is_disk_held = false;
	cr_assert_eq(actor_wait(RANK, 1), 0);
	cr_assert(is_tensor(place_of(1), 1, bytes));
	end();
}

/* Random calls against what a table says; each get compares every byte. */
Test(zero_tensor, random_calls_keep_every_byte)
{
	enum { IDS = 24 };
	uint64_t bytes_of[IDS] = { 0 };
	uint64_t state = 12345;

	start(512 << 10);
	for (int i = 0; i < 600; i++) {
		uint64_t id = (state = test_noise(state + 1)) % IDS;

		if (!bytes_of[id]) {
			bytes_of[id] = 1 + test_noise(state) % (150 << 10);
			put_tensor(id, bytes_of[id]);
		} else if (test_noise(state) % 4 == 0) {
			cr_assert_eq(call(zero_tensor_free, id, 0), 0, "%s", RANK->text.chars);
			bytes_of[id] = 0;
		} else {
			expect_tensor(id, bytes_of[id]);
		}
	}
	end();
}
