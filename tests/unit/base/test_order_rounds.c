/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: where nothing says when a round of uses begins anew, it is found, whatever repeats within
 * it and whatever came before, and followed across its end until it changes. Method: rounds by hand
 * and drawn ones, each until it goes as recorded, and then what comes next at every place.
 */
#include <criterion/criterion.h>

#include "tests/unit/base/order.h"

/* Uses of @units again and again, until one goes as recorded from wherever in it the record begins.
 * Return: rounds that it took before; 100: more. */
static uint32_t find_round_of(struct zi_order *order, const char *units, uint32_t *place)
{
	for (uint32_t round = 0; round < 100; round++) {
		uint64_t change_count = order->change_count;
		bool was_recording = order->is_recording;

		use_all(order, units, true, place);
		if (!was_recording && order->change_count == change_count)
			return round;
	}
	return 100;
}

/* What is used next is known from then on, at every place. */
static void expect_followed(struct zi_order *order, const char *units, uint32_t *place)
{
	uint64_t change_count = order->change_count;
	uint32_t count = (uint32_t)strlen(units);

	for (uint32_t i = 0; i < 7 * count; i++) {
		uint32_t unit = (uint32_t)(units[i % count] - 'a');

		cr_assert_eq(zi_order_distance(order, unit, *place), 0, "%s at %u", units, i);
		for (uint32_t ahead = 0; ahead < order->count; ahead++)
			cr_assert_eq(zi_order_ahead(order, *place, ahead),
			             (uint32_t)(units[(i + ahead) % count] - 'a'));
		zi_order_use(order, unit, true, place);
	}
	cr_assert_eq(order->change_count, change_count, "%s", units);
}

Test(order_rounds, rounds_are_found_whatever_repeats_within_them)
{
	static const char *const rounds[] = { "a",      "ab",         "abcdef", "abcda",
		                              "aab",    "aaab",       "abab",   "aabb",
		                              "abac",   "abaabaab",   "aabaab", "aaabbbc",
		                              "abcabd", "aaaaaaaaaab" };

	for (size_t i = 0; i < ZI_COUNT_OF(rounds); i++) {
		struct zi_order order;
		uint32_t place = 0;

		cr_assert_eq(zi_order_init(&order, 6), 0);
		cr_assert_eq(zi_order_cycle(&order), 0);
		cr_assert_lt(find_round_of(&order, rounds[i], &place), 20, "%s", rounds[i]);
		expect_followed(&order, rounds[i], &place);
		zi_order_deinit(&order);
	}
}

/* Two rounds show what one is, where it has no beginning that comes twice. */
Test(order_rounds, a_plain_round_is_known_after_the_second)
{
	struct zi_order order;
	uint32_t place = 0;

	cr_assert_eq(zi_order_init(&order, 6), 0);
	cr_assert_eq(zi_order_cycle(&order), 0);
	use_all(&order, "abcda", true, &place);
	cr_assert_eq(zi_order_ahead(&order, place, 0), UINT32_MAX, "nothing is known yet");
	use_all(&order, "abcda", true, &place);
	cr_assert_eq(find_round_of(&order, "abcda", &place), 0);
	expect_order(&order, "abcda");
	cr_assert_eq(order.change_count, 0);
	zi_order_deinit(&order);
}

Test(order_rounds, another_round_is_found_when_it_comes)
{
	struct zi_order order;
	uint32_t place = 0;

	cr_assert_eq(zi_order_init(&order, 6), 0);
	cr_assert_eq(zi_order_cycle(&order), 0);
	for (uint32_t i = 0; i < 50; i++) {
		const char *round = i % 2 ? "abcdefe" : "cab";

		cr_assert_lt(find_round_of(&order, round, &place), 12, "%s", round);
		expect_followed(&order, round, &place);
		use_all(&order, "abf", true, &place); /* And something that comes once. */
	}
	zi_order_deinit(&order);
}

Test(order_rounds, rounds_of_any_kind_are_found)
{
	for (uint32_t i = 0; i < 3000; i++) {
		char round[13] = "";
		struct zi_order order;
		uint32_t place = 0, count = 1 + draw(12), units = 1 + draw(5);

		for (uint32_t k = 0; k < count; k++)
			round[k] = (char)('a' + draw(units));
		cr_assert_eq(zi_order_init(&order, 6), 0);
		cr_assert_eq(zi_order_cycle(&order), 0);
		cr_assert_lt(find_round_of(&order, round, &place), 20, "%s", round);
		expect_followed(&order, round, &place);
		zi_order_deinit(&order);
	}
}

/* Uses that have no round are recorded over and over, and cost nothing more. */
Test(order_rounds, what_has_no_round_is_forgotten_and_a_round_is_seen_behind_it)
{
	struct zi_order order;
	uint32_t place = 0;

	cr_assert_eq(zi_order_init(&order, 6), 0);
	cr_assert_eq(zi_order_cycle(&order), 0);
	for (uint32_t i = 0; i < 20 * order.capacity; i++) {
		zi_order_use(&order, draw(6), true, &place);
		cr_assert_leq(order.count, order.capacity);
	}
	cr_assert_lt(find_round_of(&order, "abcdef", &place), 100);
	expect_followed(&order, "abcdef", &place);
	zi_order_deinit(&order);
}

Test(order_rounds, other_ranks_come_around_as_well)
{
	struct zi_order order;
	uint32_t lead = 0, other = 0;

	cr_assert_eq(zi_order_init(&order, 4), 0);
	cr_assert_eq(zi_order_cycle(&order), 0);
	use_all(&order, "abcdabcdabcdabcdabcdabcd", true, &lead);
	use_all(&order, "abcdabcdab", false, &other);
	cr_assert_eq(other, 2);
	cr_assert_eq(zi_order_ahead(&order, other, 2), 0, "behind the end is the beginning");
	use_all(&order, "b", false, &other);
	cr_assert_eq(other, 2, "where it comes next");
	/* The order becomes shorter than the place of one that lags behind. */
	use_all(&order, "c", false, &other);
	cr_assert_eq(other, 3);
	use_all(&order, "ababab", true, &lead);
	expect_order(&order, "ab");
	cr_assert_eq(zi_order_ahead(&order, 3, 0), 1);
	use_all(&order, "a", false, &other);
	cr_assert_eq(other, 1);
	use_all(&order, "b", false, &other);
	cr_assert_eq(other, 0);
	zi_order_deinit(&order);
}
