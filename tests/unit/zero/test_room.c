/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what must go for a unit is what is used last (Belady), and a window of the pool is the best
 * one there is. Method: drawn orders beside a brute-force model: for units of one size, the fewest
 * misses that any choice of evictions can have (all sets of units, by dynamic programming); for
 * windows, every place of the pool looked at.
 */
#include <criterion/criterion.h>

#include "daemon/zero/param/room.h"
#include "tests/unit/base/order.h"

#define UNITS_MAX 6u
#define USES_MAX  12u
#define STEPS     4u

/* The fewest misses that any choice can have: misses[set of units that are there]. */
static uint32_t fewest_misses(const uint32_t *uses, uint32_t count, uint32_t slots)
{
	uint32_t misses[1u << UNITS_MAX], next[1u << UNITS_MAX];
	uint32_t fewest = UINT32_MAX;

	memset(misses, 0xff, sizeof(misses));
	misses[0] = 0;
	for (uint32_t i = 0; i < STEPS * count; i++) {
		uint32_t bit = 1u << uses[i % count];

		memset(next, 0xff, sizeof(next));
		for (uint32_t set = 0; set < 1u << UNITS_MAX; set++) {
			if (misses[set] == UINT32_MAX)
				continue;
			if (set & bit) {
				next[set] = ZI_MIN(next[set], misses[set]);
				continue;
			}
			if ((uint32_t)__builtin_popcount(set) < slots)
				next[set | bit] = ZI_MIN(next[set | bit], misses[set] + 1);
			for (uint32_t k = 0; k < UNITS_MAX; k++) {
				uint32_t with = (set & ~(1u << k)) | bit;

				if (set >> k & 1)
					next[with] = ZI_MIN(next[with], misses[set] + 1);
			}
		}
		memcpy(misses, next, sizeof(misses));
	}
	for (uint32_t set = 0; set < 1u << UNITS_MAX; set++)
		fewest = ZI_MIN(fewest, misses[set]);
	return fewest;
}

/* As residency does it: on demand, with a known order. */
static uint32_t our_misses(const uint32_t *uses, uint32_t count, uint32_t slots)
{
	struct zero_run runs[UNITS_MAX];
	struct zi_order order;
	uint32_t run_count = 0, place = 0, misses = 0;

	cr_assert_eq(zi_order_init(&order, UNITS_MAX), 0);
	for (uint32_t i = 0; i < count; i++)
		zi_order_use(&order, uses[i], true, &place);
	zi_order_step(&order, true, &place);
	for (uint32_t i = 0; i < STEPS * count; i++) {
		uint32_t unit = uses[i % count];
		struct zero_room room;
		bool is_here = false;

		for (uint32_t k = 0; k < run_count; k++) {
			is_here |= runs[k].unit == unit;
			runs[k].distance = zi_order_distance(&order, runs[k].unit, place);
		}
		if (!is_here) {
			misses++;
			cr_assert(room_choose(&(struct zero_shelf){ .runs = runs,
			                                            .run_count = run_count,
			                                            .slot_count = slots },
			                      1, 0, &room));
			cr_assert_leq(room.run_last - room.run_first, 1);
			if (room.run_last == room.run_first) {
				memmove(&runs[room.run_first + 1], &runs[room.run_first],
				        (run_count - room.run_first) * sizeof(runs[0]));
				run_count++;
			}
			runs[room.run_first] =
				(struct zero_run){ .unit = unit, .first = room.first, .count = 1 };
		}
		zi_order_use(&order, unit, true, &place);
		if ((i + 1) % count == 0)
			zi_order_step(&order, true, &place);
	}
	zi_order_deinit(&order);
	return misses;
}

Test(zero_room, eviction_of_equal_units_is_as_good_as_any_can_be)
{
	for (uint32_t round = 0; round < 400; round++) {
		uint32_t uses[USES_MAX];
		uint32_t count = 1 + draw(USES_MAX);
		uint32_t slots = 1 + draw(UNITS_MAX - 1);

		for (uint32_t i = 0; i < count; i++)
			uses[i] = draw(UNITS_MAX);
		cr_assert_eq(our_misses(uses, count, slots), fewest_misses(uses, count, slots),
		             "round %u: %u uses, %u slots", round, count, slots);
	}
}

/* The best window by looking at every place: its soonest next use, how many runs go. */
static bool best_window(const struct zero_shelf *shelf, uint32_t wanted, uint64_t soonest,
                        uint64_t *ret_distance, uint32_t *ret_count)
{
	const struct zero_run *runs = shelf->runs;
	bool is_found = false;

	for (uint32_t first = 0; first + wanted <= shelf->slot_count; first++) {
		uint64_t distance = ZI_DISTANCE_NEVER;
		uint32_t count = 0;
		bool is_free = first >= shelf->seam || first + wanted <= shelf->seam;

		for (uint32_t i = 0; i < shelf->run_count; i++) {
			if (runs[i].first >= first + wanted ||
			    runs[i].first + runs[i].count <= first)
				continue;
			count++;
			is_free &= !runs[i].is_fixed;
			distance = ZI_MIN(distance, runs[i].distance);
		}
		if (!is_free || distance < soonest)
			continue;
		if (is_found && (distance < *ret_distance ||
		                 (distance == *ret_distance && count >= *ret_count)))
			continue;
		is_found = true;
		*ret_distance = distance;
		*ret_count = count;
	}
	return is_found;
}

Test(zero_room, chosen_window_is_the_best_of_all)
{
	uint32_t found_count = 0;

	for (uint32_t round = 0; round < 20000; round++) {
		struct zero_run runs[16];
		uint32_t run_count = 0, slots = 1 + draw(24), end = draw(4), count = 0;
		uint32_t wanted = 1 + draw(slots);
		uint64_t soonest = draw(3) ? 0 : draw(8), distance = 0, chosen = ZI_DISTANCE_NEVER;
		struct zero_shelf shelf = { .runs = runs,
			                    .slot_count = slots,
			                    .seam = draw(2) ? draw(slots) : 0 };
		struct zero_room room = { 0 };
		bool is_found;

		while (end < slots && run_count < 16) {
			struct zero_run run = { .first = end,
				                .count = 1 + draw(ZI_MIN(slots - end, 6u)),
				                .distance = draw(8),
				                .is_fixed = draw(6) == 0 };

			runs[run_count++] = run;
			end = run.first + run.count + (draw(2) ? draw(4) : 0);
		}
		shelf.run_count = run_count;
		is_found = best_window(&shelf, wanted, soonest, &distance, &count);
		cr_assert_eq(room_choose(&shelf, wanted, soonest, &room), is_found, "round %u",
		             round);
		if (!is_found)
			continue;
		found_count++;
		cr_assert_leq(room.first + wanted, slots);
		cr_assert(room.first >= shelf.seam || room.first + wanted <= shelf.seam);
		for (uint32_t i = 0; i < run_count; i++) {
			bool lies_within = runs[i].first < room.first + wanted &&
			                   runs[i].first + runs[i].count > room.first;

			cr_assert_eq(lies_within, i >= room.run_first && i < room.run_last);
			if (lies_within)
				chosen = ZI_MIN(chosen, runs[i].distance);
			cr_assert(!lies_within || !runs[i].is_fixed);
		}
		cr_assert_eq(chosen, distance, "round %u", round);
		cr_assert_eq(room.run_last - room.run_first, count, "round %u", round);
	}
	cr_assert_gt(found_count, 5000);
}

/* Takes the room for @unit: what lies there goes. */
static void put_run(struct zero_run *runs, uint32_t *run_count, const struct zero_room *room,
                    uint32_t unit, uint32_t count)
{
	memmove(&runs[room->run_first + 1], &runs[room->run_last],
	        (*run_count - room->run_last) * sizeof(runs[0]));
	*run_count -= room->run_last - room->run_first;
	++*run_count;
	runs[room->run_first] =
		(struct zero_run){ .unit = unit, .first = room->first, .count = count };
}

Test(zero_room, one_pinned_unit_leaves_room_for_any_other)
{
	uint32_t is_halved[2] = { 0 };

	for (uint32_t round = 0; round < 2000; round++) {
		uint32_t largest = 1 + draw(12), slots = 2 * largest + draw(2 * largest);
		struct zero_run runs[64];
		struct zero_shelf shelf = { .runs = runs, .slot_count = slots };
		struct zero_room room;

		shelf.seam = room_seam(slots, largest, draw(largest), &shelf.is_uneven);
		cr_assert_not(shelf.is_uneven);
		is_halved[shelf.seam != 0]++;
		for (uint32_t unit = 0; unit < 40; unit++) {
			uint32_t count = 1 + draw(largest);

			for (uint32_t i = 0; i < shelf.run_count; i++)
				runs[i].distance = draw(8);
			cr_assert(room_choose(&shelf, count, 0, &room));
			put_run(runs, &shelf.run_count, &room, unit, count);
			for (uint32_t i = 0; i < shelf.run_count; i++) {
				runs[i].is_fixed = true;
				cr_assert(room_choose(&shelf, largest, 0, &room),
				          "round %u: %u slots, largest %u, pinned %u from %u on",
				          round, slots, largest, runs[i].count, runs[i].first);
				runs[i].is_fixed = false;
			}
		}
	}
	cr_assert(is_halved[0] > 500 && is_halved[1] > 500);
}

/* Two small units are pinned at most: a unit that stays, and a block. */
Test(zero_room, an_uneven_pool_keeps_room_for_the_largest_unit)
{
	uint32_t above_count = 0;

	for (uint32_t round = 0; round < 2000; round++) {
		uint32_t second = 1 + draw(6), largest = 3 * second + 1 + draw(20);
		uint32_t slots = largest + 3 * second;
		struct zero_run runs[64];
		struct zero_shelf shelf = { .runs = runs, .slot_count = slots };
		struct zero_room room;

		shelf.seam = room_seam(slots, largest, second, &shelf.is_uneven);
		cr_assert_eq(shelf.seam, 3 * second);
		cr_assert(shelf.is_uneven);
		for (uint32_t unit = 0; unit < 40; unit++) {
			bool is_large = draw(4) == 0;
			uint64_t soonest = draw(2) ? 1 + draw(8) : 0;
			uint32_t count = is_large ? largest : 1 + draw(second);

			for (uint32_t i = 0; i < shelf.run_count; i++) {
				runs[i].distance = draw(8);
				runs[i].is_fixed = false;
			}
			if (shelf.run_count)
				runs[draw(shelf.run_count)].is_fixed = true;
			if (!room_choose(&shelf, count, soonest, &room)) {
				cr_assert(soonest || is_large);
				continue;
			}
			put_run(runs, &shelf.run_count, &room, unit, count);
			cr_assert(is_large == (room.first >= shelf.seam), "round %u", round);
			above_count += room.first >= shelf.seam;
			for (uint32_t i = 0; i < shelf.run_count; i++)
				runs[i].is_fixed = runs[i].count <= second;
			cr_assert(room_choose(&shelf, largest, 0, &room), "round %u", round);
			cr_assert_eq(room.first, shelf.seam);
		}
	}
	cr_assert_gt(above_count, 1000);
}

/* As before: where a shorter unit would not fit below, and where there is none. */
Test(zero_room, a_pool_below_two_of_the_largest_is_whole_for_other_models)
{
	uint32_t largest = 0, second = 0;
	bool is_uneven = true;

	for (uint32_t i = 0; i < 5; i++)
		room_note_longest((const uint32_t[]){ 4, 10, 10, 7, 2 }[i], &largest, &second);
	cr_assert_eq(largest, 10);
	cr_assert_eq(second, 7);
	cr_assert_eq(room_seam(16, 10, second, &is_uneven), 0);
	cr_assert_not(is_uneven);
	cr_assert_eq(room_seam(16, 10, 0, &is_uneven), 0);
	cr_assert_eq(room_seam(18, 10, 3, &is_uneven), 0);
	cr_assert_not(is_uneven);
	cr_assert_eq(room_seam(19, 10, 3, &is_uneven), 9);
	cr_assert(is_uneven);
	cr_assert_eq(room_seam(20, 10, second, &is_uneven), 10);
	cr_assert_not(is_uneven);
}
