/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: each path of a tier takes its share by weight, neighbours lie on different ones, and one
 * that is full, slow, draining or failed takes no more than it should. Method: stores on paper;
 * weights and sizes also at random, against a bound.
 */
#include "daemon/tier/drain.h"
#include "tests/unit/tier/stripe.h"

static const uint64_t large[] = { 1024 * MIB, 1024 * MIB, 1024 * MIB, 1024 * MIB };

Test(stripe, neighbours_lie_on_different_paths)
{
	struct stripe stripe;
	const struct tier_member *former = NULL;

	stripe_init(&stripe, 2, large);
	for (uint32_t i = 0; i < 100; i++) {
		const struct tier_member *member = stripe_take(&stripe, 1, 2 * MIB, NULL);

		cr_assert_neq(member, former);
		former = member;
	}
	stripe_deinit(&stripe);
}

Test(stripe, lanes_are_spread_each_by_itself)
{
	/* As large as each other and in turns: without lanes, each would have a path for itself. */
	struct stripe stripe;
	uint32_t counts[TIER_LANES][2] = { { 0 } };

	stripe_init(&stripe, 2, large);
	for (uint32_t i = 0; i < 100; i++)
		for (uint32_t lane = 0; lane < TIER_LANES; lane++)
			counts[lane][stripe_take(&stripe, lane, MIB, NULL) - stripe.tier.members]++;
	for (uint32_t lane = 0; lane < TIER_LANES; lane++)
		cr_assert_eq(counts[lane][0], 50);
	stripe_deinit(&stripe);
}

Test(stripe, shares_follow_what_was_measured)
{
	struct stripe stripe;
	uint64_t bytes[3] = { 0 };

	stripe_init(&stripe, 3, large);
	stripe_tune(&stripe, 0, 3000 * MIB);
	stripe_tune(&stripe, 1, 1000 * MIB);
	/* The third was never measured: as the mean of the others. */
	for (uint32_t i = 0; i < 600; i++)
		bytes[stripe_take(&stripe, 1, MIB, NULL) - stripe.tier.members] += MIB;
	cr_assert_eq(bytes[0], 300 * MIB);
	cr_assert_eq(bytes[1], 100 * MIB);
	cr_assert_eq(bytes[2], 200 * MIB);
	stripe_deinit(&stripe);
}

Test(stripe, reading_and_writing_count_alike_in_a_weight)
{
	/* 1 GB/s and 4 GB/s: half of each takes 0.625 s per GB, as a store of 1.6 GB/s would. */
	struct stripe stripe;

	stripe_init(&stripe, 2, large);
	stripe.stores[0].tuning = (struct nvme_tuning){ .read_bytes_per_s = 4000000000,
		                                        .write_bytes_per_s = 1000000000 };
	stripe_tune(&stripe, 1, 1600000000);
	tier_stripe_weigh(&stripe.tier);
	cr_assert_float_eq(stripe.tier.members[0].weight, stripe.tier.members[1].weight, 1.0);
	stripe_deinit(&stripe);
}

static uint64_t next(uint64_t *state)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return *state >> 33;
}

/* No path is further from its share than one extent for each other path. */
static void check_bound(uint64_t seed)
{
	uint64_t state = seed;
	uint32_t count = 2 + (uint32_t)(next(&state) % 3);
	uint64_t largest = (1 + next(&state) % 640) * 4096;
	double weights[4], sum = 0, given[4] = { 0 }, total = 0;
	struct stripe stripe;

	stripe_init(&stripe, count, large);
	for (uint32_t i = 0; i < count; i++) {
		stripe_tune(&stripe, i, 1 + next(&state) % 1000);
		weights[i] = (double)stripe.stores[i].tuning.read_bytes_per_s;
		sum += weights[i];
	}
	for (uint32_t turn = 0; turn < 500; turn++) {
		uint64_t bytes = (1 + next(&state) % (largest / 4096)) * 4096;

		given[stripe_take(&stripe, 0, bytes, NULL) - stripe.tier.members] += (double)bytes;
		total += (double)bytes;
		for (uint32_t i = 0; i < count; i++) {
			double off = given[i] - total * weights[i] / sum;

			cr_assert(off <= (double)largest + 1 &&
			                  off >= -(double)((count - 1) * largest) - 1,
			          "seed %llu, turn %u: path %u is %.0f bytes off, extents have at "
			          "most %llu",
			          (unsigned long long)seed, turn, i, off,
			          (unsigned long long)largest);
		}
	}
	stripe_deinit(&stripe);
}

Test(stripe, no_path_is_far_from_its_share_whatever_the_weights_and_sizes)
{
	for (uint64_t seed = 1; seed <= 200; seed++)
		check_bound(seed);
}

Test(stripe, no_path_is_given_more_than_half_of_itself)
{
	/* One set of all jobs' extents is 96 MiB: equal shares would be 48 MiB, of which the small
	 * path cannot hold the former and the next. */
	const uint64_t bytes[] = { 64 * MIB, 1024 * MIB };
	struct tier_extent extents[2][96];
	struct stripe stripe;

	stripe_init(&stripe, 2, bytes);
	stripe.tier.used_bytes = 192 * MIB;
	for (uint32_t step = 0; step < 4; step++) {
		tier_stripe_weigh(&stripe.tier);
		for (uint32_t i = 0; i < 96; i++)
			cr_assert_not_null(stripe_take(&stripe, 1, MIB, &extents[step % 2][i]));
		cr_assert_eq(stripe.tier.members[0].state, TIER_MEMBER_HEALTHY, "step %u", step);
		for (uint32_t i = 0; i < 96 && step; i++)
			tier_extent_release(&extents[(step + 1) % 2][i]);
		cr_assert_eq(tier_member_used_bytes(&stripe.tier.members[0]), 32 * MIB);
	}
	stripe_deinit(&stripe);
}

Test(stripe, full_path_is_passed_over_until_something_of_it_is_free)
{
	const uint64_t bytes[] = { 4 * MIB, 64 * MIB };
	struct stripe stripe;
	struct tier_extent extents[20];
	struct tier_extent *first = NULL;

	stripe_init(&stripe, 2, bytes);
	for (uint32_t i = 0; i < 20; i++) {
		const struct tier_member *member = stripe_take(&stripe, 0, MIB, &extents[i]);

		cr_assert_not_null(member);
		if (member == &stripe.tier.members[0])
			first = &extents[i];
	}
	cr_assert_eq(stripe.tier.members[0].state, TIER_MEMBER_FULL);
	cr_assert_not_null(strstr(stripe.tier.members[0].reason.chars, "no run of 1 MiB"), "%s",
	                   stripe.tier.members[0].reason.chars);
	cr_assert_eq(stripe.changed_count, 1, "told once");
	cr_assert_eq(tier_member_used_bytes(&stripe.tier.members[0]), 4 * MIB);
	tier_stripe_weigh(&stripe.tier);
	cr_assert_eq(stripe.tier.members[0].state, TIER_MEMBER_FULL, "nothing was freed");
	tier_extent_release(first);
	tier_stripe_weigh(&stripe.tier);
	cr_assert_eq(stripe.tier.members[0].state, TIER_MEMBER_HEALTHY);
	cr_assert_eq(stripe.tier.members[0].reason.chars[0], '\0');
	cr_assert_eq(stripe.changed_count, 2);
	stripe_deinit(&stripe);
}

Test(stripe, full_is_all_of_them_together)
{
	const uint64_t bytes[] = { 2 * MIB, 3 * MIB };
	struct stripe stripe;
	struct tier_extent extent;

	stripe_init(&stripe, 2, bytes);
	for (uint32_t i = 0; i < 5; i++)
		cr_assert_not_null(stripe_take(&stripe, 0, MIB, &extent));
	cr_assert_null(stripe_take(&stripe, 0, MIB, &extent));
	stripe_deinit(&stripe);
}

Test(stripe, draining_and_failed_paths_take_nothing)
{
	struct stripe stripe;
	struct zi_text text = { "" };

	stripe_init(&stripe, 3, large);
	cr_assert_eq(tier_member_drain(&stripe.tier.members[0], true, &text), 0);
	cr_assert_eq(stripe.told, TIER_MEMBER_DRAINING);
	cr_assert_eq(stripe.tier.members[0].weight, 0, "shown at once");
	cr_assert_gt(stripe.tier.members[2].weight, 0);
	tier_member_fail(&stripe.tier.members[1], -EIO, "writing");
	cr_assert_eq(stripe.told, TIER_MEMBER_FAILED);
	cr_assert_str_eq(stripe.tier.members[1].reason.chars, "writing failed: EIO");
	cr_assert_eq(stripe.tier.capacity_bytes, 1024 * MIB);
	for (uint32_t i = 0; i < 10; i++)
		cr_assert_eq(stripe_take(&stripe, 0, MIB, NULL), &stripe.tier.members[2]);
	tier_member_fail(&stripe.tier.members[1], -ENODEV, "reading");
	cr_assert_str_eq(stripe.tier.members[1].reason.chars, "writing failed: EIO",
	                 "the first error stands");
	cr_assert_eq(stripe.tier.members[1].error_count, 2);
	cr_assert_eq(stripe.changed_count, 2);
	cr_assert_eq(tier_member_drain(&stripe.tier.members[0], false, &text), 0);
	cr_assert_gt(stripe.tier.members[0].weight, 0);
	cr_assert_eq(tier_member_drain(&stripe.tier.members[1], false, &text), 0);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(stripe.tier.members[i].state, TIER_MEMBER_HEALTHY);
	cr_assert_neq(stripe_take(&stripe, 0, MIB, NULL), stripe_take(&stripe, 0, MIB, NULL));
	stripe_deinit(&stripe);
}

Test(stripe, draining_is_refused_where_the_rest_does_not_suffice)
{
	const uint64_t bytes[] = { 64 * MIB, 32 * MIB };
	struct stripe stripe;
	struct zi_text text = { "" };
	uint8_t uuid[16] = { 77 };

	stripe_init(&stripe, 1, bytes);
	cr_assert_eq(tier_member_drain(&stripe.tier.members[0], true, &text), -EBUSY);
	cr_assert_not_null(strstr(text.chars, "only path of nvme:fast"), "%s", text.chars);
	stripe_deinit(&stripe);

	stripe_init(&stripe, 2, bytes);
	cr_assert_eq(tier_member_add(&stripe.tier, &(struct tier_member_options){ .name = "gone",
	                                                                          .path = "/gone",
	                                                                          .uuid = uuid }),
	             0);
	stripe.tier.used_bytes = 40 * MIB;
	cr_assert_eq(tier_member_drain(&stripe.tier.members[0], true, &text), -ENOSPC);
	cr_assert_not_null(strstr(text.chars, "40 MiB"), "%s", text.chars);
	cr_assert_not_null(strstr(text.chars, "32 MiB"), "%s", text.chars);
	cr_assert_eq(stripe.tier.members[0].state, TIER_MEMBER_HEALTHY);
	cr_assert_eq(tier_member_drain(&stripe.tier.members[1], true, &text), 0);
	cr_assert_eq(tier_member_drain(&stripe.tier.members[2], true, &text), -ENODEV);
	cr_assert_not_null(strstr(text.chars, "/gone"), "%s", text.chars);
	stripe_deinit(&stripe);
}

Test(stripe, missing_path_takes_nothing_and_is_found_by_its_identity)
{
	struct stripe stripe;
	uint8_t uuid[16] = { 77 };
	struct tier_extent extent = { .offset_bytes = 8192, .bytes = 4096 };
	struct zi_text text;

	stripe_init(&stripe, 1, large);
	cr_assert_eq(tier_member_add(&stripe.tier, &(struct tier_member_options){ .name = "gone",
	                                                                          .path = "/gone",
	                                                                          .uuid = uuid }),
	             0);
	extent.member = tier_member_find(&stripe.tier, uuid);
	cr_assert_eq(extent.member, &stripe.tier.members[1]);
	cr_assert_eq(extent.member->state, TIER_MEMBER_MISSING);
	cr_assert_eq(tier_extent_claim(&extent), -ENODEV);
	for (uint32_t i = 0; i < 4; i++)
		cr_assert_eq(stripe_take(&stripe, 0, MIB, NULL), &stripe.tier.members[0]);
	text = tier_paths(&stripe.tier);
	cr_assert_str_eq(text.chars,
	                 "/path/0, /gone (missing: was not there when the daemon started)");
	stripe_deinit(&stripe);
}

Test(stripe, only_path_is_used_whatever_happened_to_it)
{
	struct stripe stripe;

	stripe_init(&stripe, 1, large);
	tier_member_begin(&stripe.tier.members[0], 0);
	stripe_end(&stripe.tier.members[0], true, -EIO, 0, MIB, 10);
	cr_assert_eq(stripe.tier.members[0].state, TIER_MEMBER_FAILED);
	cr_assert_eq(stripe.tier.capacity_bytes, 1024 * MIB);
	cr_assert_not_null(stripe_take(&stripe, 0, MIB, NULL));
	tier_member_begin(&stripe.tier.members[0], 20);
	stripe_end(&stripe.tier.members[0], true, 0, 0, MIB, 30);
	cr_assert_eq(stripe.tier.members[0].state, TIER_MEMBER_HEALTHY);
	cr_assert_eq(stripe.tier.members[0].error_count, 1);
	stripe_deinit(&stripe);
}

static void read_fails(struct tier_member *member, int error, uint64_t offset_bytes)
{
	tier_member_begin(member, 0);
	stripe_end(member, false, error, offset_bytes, MIB, 10);
}

Test(stripe, bad_sector_is_counted_and_several_of_them_fail_the_path)
{
	static const int errors[] = { -EIO, -ENODATA, -EILSEQ };
	struct stripe stripe;
	struct tier_member *member;
	struct zi_text text;

	stripe_init(&stripe, 2, large);
	member = &stripe.tier.members[1];
	for (uint32_t i = 0; i + 1 < TIER_DAMAGE_PLACES_MAX; i++)
		read_fails(member, errors[i % ZI_COUNT_OF(errors)], i * MIB);
	/* The same places again, and what overlaps with them. */
	for (uint32_t i = 0; i < 20; i++)
		read_fails(member, -EIO, i * MIB / 10);
	cr_assert_eq(member->damage.place_count, TIER_DAMAGE_PLACES_MAX - 1);
	cr_assert_eq(member->damage.read_count, TIER_DAMAGE_PLACES_MAX + 19);
	cr_assert_eq(member->error_count, TIER_DAMAGE_PLACES_MAX + 19);
	cr_assert_eq(member->state, TIER_MEMBER_HEALTHY);
	cr_assert_eq(stripe.changed_count, 0);
	cr_assert_neq(stripe_take(&stripe, 0, MIB, NULL), stripe_take(&stripe, 0, MIB, NULL),
	              "it takes its share");

	read_fails(member, -ENODATA, 100 * MIB);
	cr_assert_eq(member->state, TIER_MEMBER_FAILED);
	cr_assert_str_eq(member->reason.chars,
	                 "reading 4 different places failed, the last with ENODATA");
	cr_assert_eq(member->error_count, TIER_DAMAGE_PLACES_MAX + 20);
	for (uint32_t i = 0; i < 10; i++)
		cr_assert_eq(stripe_take(&stripe, 0, MIB, NULL), &stripe.tier.members[0]);
	cr_assert_eq(tier_member_drain(member, false, &text), 0);
	cr_assert_eq(member->state, TIER_MEMBER_HEALTHY);
	cr_assert_eq(member->damage.place_count, 0, "said to be repaired");
	stripe_deinit(&stripe);
}

Test(stripe, path_that_reads_find_gone_or_that_stalls_fails_at_once)
{
	static const int errors[] = { -ENODEV, -ENXIO, -ETIMEDOUT, -EREMOTEIO };

	for (uint32_t i = 0; i < ZI_COUNT_OF(errors); i++) {
		struct stripe stripe;

		stripe_init(&stripe, 2, large);
		read_fails(&stripe.tier.members[1], errors[i], 0);
		cr_assert_eq(stripe.tier.members[1].state, TIER_MEMBER_FAILED);
		cr_assert_eq(strncmp(stripe.tier.members[1].reason.chars, "reading failed: E", 17),
		             0, "%s", stripe.tier.members[1].reason.chars);
		cr_assert_eq(stripe.tier.members[1].damage.read_count, 0);
		stripe_deinit(&stripe);
	}
}

Test(stripe, only_path_with_many_bad_sectors_is_well_again_after_a_write)
{
	struct stripe stripe;
	struct tier_member *member;

	stripe_init(&stripe, 1, large);
	member = &stripe.tier.members[0];
	for (uint32_t i = 0; i < TIER_DAMAGE_PLACES_MAX; i++)
		read_fails(member, -EIO, i * MIB);
	cr_assert_eq(member->state, TIER_MEMBER_FAILED);
	cr_assert_not_null(stripe_take(&stripe, 0, MIB, NULL));
	tier_member_begin(member, 20);
	stripe_end(member, true, 0, 0, MIB, 30);
	cr_assert_eq(member->state, TIER_MEMBER_HEALTHY);
	cr_assert_eq(member->damage.place_count, 0);
	stripe_deinit(&stripe);
}

Test(stripe, what_was_called_off_says_nothing_of_a_path)
{
	struct stripe stripe;

	stripe_init(&stripe, 2, large);
	tier_member_begin(&stripe.tier.members[0], 0);
	stripe_end(&stripe.tier.members[0], true, -ECANCELED, 0, MIB, 10);
	cr_assert_eq(stripe.tier.members[0].state, TIER_MEMBER_HEALTHY);
	stripe_deinit(&stripe);
}

/* Steps in which each path moves as many bytes as a second of it, by @paces in MiB/s. */
static void run(struct stripe *stripe, uint32_t count, const uint64_t *paces, uint32_t steps)
{
	for (uint32_t step = 0; step < steps; step++) {
		for (uint32_t i = 0; i < count; i++)
			stripe_move(stripe, i, paces[i] * MIB, ZI_NS_PER_S);
		tier_stripe_weigh(&stripe->tier);
	}
}

Test(stripe, path_that_falls_behind_is_told_and_loses_weight_until_it_keeps_up)
{
	static const uint64_t equal[] = { 400, 400 }, throttled[] = { 400, 40 };
	struct stripe stripe;
	const struct tier_member *slow;

	stripe_init(&stripe, 2, large);
	slow = &stripe.tier.members[1];
	run(&stripe, 2, equal, 8);
	cr_assert_eq(stripe.changed_count, 0);
	run(&stripe, 2, throttled, 2);
	cr_assert_eq(slow->state, TIER_MEMBER_HEALTHY, "not at once");
	run(&stripe, 2, throttled, 20);
	cr_assert_eq(slow->state, TIER_MEMBER_SLOW);
	cr_assert_not_null(strstr(slow->reason.chars, "400 MiB/s"), "%s", slow->reason.chars);
	cr_assert_eq(stripe.changed_count, 1, "told once");
	cr_assert_float_eq(slow->weight / stripe.tier.members[0].weight, 0.1, 0.02);
	run(&stripe, 2, equal, 30);
	cr_assert_eq(slow->state, TIER_MEMBER_HEALTHY);
	cr_assert_eq(slow->weight, stripe.tier.members[0].weight);
	cr_assert_eq(stripe.changed_count, 2);
	stripe_deinit(&stripe);
}

Test(stripe, what_is_slow_by_measure_is_not_slow_by_weight)
{
	static const uint64_t paces[] = { 400, 40 };
	struct stripe stripe;

	stripe_init(&stripe, 2, large);
	stripe_tune(&stripe, 0, 4000 * MIB);
	stripe_tune(&stripe, 1, 400 * MIB);
	run(&stripe, 2, paces, 20);
	cr_assert_eq(stripe.changed_count, 0);
	stripe_deinit(&stripe);
}

Test(stripe, slow_path_goes_on_being_given_something)
{
	static const uint64_t paces[] = { 40000, 10 };
	struct stripe stripe;

	stripe_init(&stripe, 2, large);
	run(&stripe, 2, paces, 40);
	cr_assert_eq(stripe.tier.members[1].state, TIER_MEMBER_SLOW);
	cr_assert_float_eq(stripe.tier.members[1].weight / stripe.tier.members[0].weight, 1.0 / 64,
	                   0.001);
	stripe_deinit(&stripe);
}

Test(stripe, busy_time_is_counted_once_however_much_is_in_flight)
{
	struct stripe stripe;
	struct tier_member *member;

	stripe_init(&stripe, 2, large);
	member = &stripe.tier.members[0];
	for (uint32_t i = 0; i < 10; i++)
		tier_member_begin(member, 100);
	for (uint32_t i = 0; i < 10; i++)
		stripe_end(member, false, 0, 0, 10 * MIB, 100 + (i + 1) * ZI_NS_PER_S / 10);
	tier_stripe_weigh(&stripe.tier);
	cr_assert_eq(member->pace.bytes_per_s, 100 * MIB);
	cr_assert_eq(member->read_bytes, 100 * MIB);
	cr_assert_eq(stripe.tier.read_bytes, 100 * MIB);
	stripe_deinit(&stripe);
}

Test(stripe, more_paths_than_there_is_room_for_are_refused)
{
	uint64_t bytes[TIER_MEMBERS_MAX];
	struct stripe stripe;
	struct nvme_store tiny = { .bytes = NVME_SUPERBLOCK_BYTES, .name = "tiny", .path = NULL };

	for (uint32_t i = 0; i < TIER_MEMBERS_MAX; i++)
		bytes[i] = MIB;
	stripe_init(&stripe, TIER_MEMBERS_MAX, bytes);
	cr_assert_eq(tier_member_add_store(&stripe.tier, &stripe.stores[0]), -ENOSPC);
	stripe_deinit(&stripe);
	stripe_init(&stripe, 1, bytes);
	cr_assert_eq(tier_member_add_store(&stripe.tier, &tiny), -EINVAL);
	cr_assert_eq(stripe.tier.member_count, 1);
	stripe_deinit(&stripe);
}
