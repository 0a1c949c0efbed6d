/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the order of uses is recorded, followed, and noticed when it changes; the next use of a
 * unit is known from every place. Method: orders by hand.
 */
#include <criterion/criterion.h>

#include "tests/unit/base/order.h"

Test(order, first_step_is_recorded_with_repeats_and_followed)
{
	struct zi_order order;
	uint32_t place = 0;

	cr_assert_eq(zi_order_init(&order, 3), 0);
	use_all(&order, "abccba", true, &place);
	cr_assert(order.is_recording);
	zi_order_step(&order, true, &place);
	cr_assert_not(order.is_recording);
	expect_order(&order, "abccba");
	cr_assert_eq(place, 0);
	for (int step = 0; step < 3; step++) {
		use_all(&order, "abccba", true, &place);
		zi_order_step(&order, true, &place);
	}
	expect_order(&order, "abccba");
	cr_assert_eq(order.change_count, 0);
	zi_order_deinit(&order);
}

Test(order, distance_is_counted_in_uses_and_goes_on_into_the_next_step)
{
	struct zi_order order;
	uint32_t place = 0;

	cr_assert_eq(zi_order_init(&order, 4), 0);
	use_all(&order, "abcba", true, &place);
	cr_assert_geq(zi_order_distance(&order, 0, place), ZI_DISTANCE_UNKNOWN, "recording yet");
	zi_order_step(&order, true, &place);
	cr_assert_eq(zi_order_distance(&order, 0, 0), 0);
	cr_assert_eq(zi_order_distance(&order, 2, 0), 2);
	cr_assert_eq(zi_order_distance(&order, 0, 1), 3);
	cr_assert_eq(zi_order_distance(&order, 1, 2), 1);
	cr_assert_eq(zi_order_distance(&order, 1, 4), 2, "one use left, then one more");
	cr_assert_eq(zi_order_distance(&order, 2, 4), 3);
	cr_assert_geq(zi_order_distance(&order, 3, 0), ZI_DISTANCE_UNKNOWN, "never used");
	zi_order_deinit(&order);
}

Test(order, what_is_not_known_goes_by_age)
{
	struct zi_order order;
	uint32_t place = 0;

	cr_assert_eq(zi_order_init(&order, 4), 0);
	use_all(&order, "abc", true, &place);
	cr_assert_gt(zi_order_distance(&order, 0, place), zi_order_distance(&order, 1, place));
	cr_assert_gt(zi_order_distance(&order, 1, place), zi_order_distance(&order, 2, place));
	cr_assert_gt(zi_order_distance(&order, 3, place), zi_order_distance(&order, 0, place));
	zi_order_deinit(&order);
}

Test(order, changed_order_is_noticed_once_and_recorded_anew)
{
	static const char *const changed[] = { "abdcba", "abccbad", "ab", "dcba" };

	for (size_t i = 0; i < ZI_COUNT_OF(changed); i++) {
		struct zi_order order;
		uint32_t place = 0;

		cr_assert_eq(zi_order_init(&order, 4), 0);
		use_all(&order, "abccba", true, &place);
		zi_order_step(&order, true, &place);
		for (int step = 0; step < 3; step++) {
			use_all(&order, changed[i], true, &place);
			zi_order_step(&order, true, &place);
			expect_order(&order, changed[i]);
			cr_assert_eq(order.change_count, 1, "%s", changed[i]);
		}
		zi_order_deinit(&order);
	}
}

Test(order, other_ranks_follow_and_change_nothing)
{
	struct zi_order order;
	uint32_t lead = 0, other = 0;

	cr_assert_eq(zi_order_init(&order, 4), 0);
	use_all(&order, "abccba", true, &lead);
	zi_order_step(&order, true, &lead);
	use_all(&order, "ab", false, &other);
	cr_assert_eq(other, 2);
	use_all(&order, "d", false, &other);
	cr_assert_eq(other, 2, "not in the order: not believed");
	use_all(&order, "b", false, &other);
	cr_assert_eq(other, 5, "found again where it comes next");
	use_all(&order, "c", false, &other);
	cr_assert_eq(other, 5);
	zi_order_step(&order, false, &other);
	cr_assert_eq(other, 0);
	expect_order(&order, "abccba");
	cr_assert_eq(order.change_count, 0);
	zi_order_deinit(&order);
}

Test(order, longer_than_can_be_kept_is_no_change_in_every_step)
{
	struct zi_order order;
	uint32_t place = 0;

	cr_assert_eq(zi_order_init(&order, 1), 0);
	for (int step = 0; step < 3; step++) {
		for (uint32_t i = 0; i < 3 * order.capacity; i++)
			zi_order_use(&order, 0, true, &place);
		zi_order_step(&order, true, &place);
		cr_assert_eq(order.count, order.capacity);
		cr_assert_eq(order.change_count, 0);
	}
	zi_order_deinit(&order);
}
