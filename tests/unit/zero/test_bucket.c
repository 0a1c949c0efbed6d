/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: buckets never overlap, never lie across the seam, and stay where they are; room that is
 * there is found; ranks that go through their units in one order always get on in memory for one of
 * the largest, in two orders in memory for two. Method: models, orders and turns drawn from a seed,
 * beside a map of slots kept by hand.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "common/base/cleanup.h"
#include "daemon/zero/grad/bucket.h"
#include "daemon/zero/param/room.h"

#define CASES      300u
#define UNIT_MAX   12u
#define LENGTH_MAX 9u
#define SLOT_MAX   (3 * LENGTH_MAX)
#define RANK_MAX   4u

static uint64_t random_state;

static uint32_t draw(uint32_t below)
{
	uint64_t x = random_state += 0x9e3779b97f4a7c15ull;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return (uint32_t)((x ^ (x >> 31)) % below);
}

/* A model, and who has which slot. */
struct drawn {
	uint32_t unit_count, slot_count, largest, second;
	uint32_t lengths[UNIT_MAX];
	struct zero_buckets buckets;
	uint32_t map[SLOT_MAX]; /* unit + 1; 0: nobody */
};

static void draw_case(struct drawn *drawn, uint64_t seed)
{
	random_state = seed;
	*drawn = (struct drawn){ .unit_count = 1 + draw(UNIT_MAX) };
	for (uint32_t i = 0; i < drawn->unit_count; i++) {
		drawn->lengths[i] = 1 + draw(LENGTH_MAX);
		room_note_longest(drawn->lengths[i], &drawn->largest, &drawn->second);
	}
	drawn->slot_count = drawn->largest + draw(SLOT_MAX - drawn->largest + 1);
	cr_assert_eq(buckets_init(&drawn->buckets, drawn->slot_count, drawn->largest, drawn->second,
	                          drawn->unit_count),
	             0);
}

/* Slots [@first, + @count) belong to nobody, on one side of the seam. */
static bool is_free(const struct drawn *drawn, uint32_t first, uint32_t count)
{
	uint32_t seam = drawn->buckets.seam;

	if (first + count > drawn->slot_count || (first < seam && seam < first + count))
		return false;
	for (uint32_t i = 0; i < count; i++)
		if (drawn->map[first + i])
			return false;
	return true;
}

static bool has_room(const struct drawn *drawn, uint32_t count)
{
	for (uint32_t first = 0; first < drawn->slot_count; first++)
		if (is_free(drawn, first, count))
			return true;
	return false;
}

static bool stays_all(const void *arg, uint32_t unit)
{
	(void)arg;
	(void)unit;
	return true;
}

static bool stays_none(const void *arg, uint32_t unit)
{
	(void)arg;
	(void)unit;
	return false;
}

static bool stays_and_counts(const void *arg, uint32_t unit)
{
	++*(uint32_t *)(uintptr_t)arg;
	return unit & 1;
}

/* A rank has as many buckets as it likes, and all of them are looked at for whoever waits. */
Test(zero_bucket, each_bucket_is_looked_at_once)
{
	struct zero_buckets buckets;
	uint32_t count = 0;

	cr_assert_eq(buckets_init(&buckets, 20000, 8192, 0, 20000), 0);
	for (uint32_t unit = 0; unit < 20000; unit++)
		cr_assert(buckets_take(&buckets, unit, 1));
	cr_assert_eq(buckets_room(&buckets, stays_and_counts, &count), 1);
	cr_assert_eq(count, 20000);
	buckets_deinit(&buckets);
}

static void take(struct drawn *drawn, uint32_t unit)
{
	struct zero_buckets *buckets = &drawn->buckets;
	uint32_t count = drawn->lengths[unit];
	bool is_room = has_room(drawn, count);

	cr_assert_eq(buckets_room(buckets, stays_all, NULL) >= count, is_room);
	cr_assert_geq(buckets_room(buckets, stays_none, NULL), count, "the longest fits alone");
	cr_assert_eq(buckets_take(buckets, unit, count), is_room);
	cr_assert_eq(buckets_have(buckets, unit), is_room);
	if (!is_room)
		return;
	cr_assert(is_free(drawn, buckets->firsts[unit], count));
	for (uint32_t i = 0; i < count; i++)
		drawn->map[buckets->firsts[unit] + i] = unit + 1;
}

static void give(struct drawn *drawn, uint32_t unit)
{
	buckets_give(&drawn->buckets, unit);
	for (uint32_t i = 0; i < drawn->slot_count; i++)
		if (drawn->map[i] == unit + 1)
			drawn->map[i] = 0;
}

/* Every unit lies where it was put. */
static void check(const struct drawn *drawn)
{
	for (uint32_t i = 0; i < drawn->unit_count; i++) {
		uint32_t first = drawn->buckets.firsts[i];

		if (!buckets_have(&drawn->buckets, i))
			continue;
		for (uint32_t k = 0; k < drawn->lengths[i]; k++)
			cr_assert_eq(drawn->map[first + k], i + 1);
	}
}

Test(zero_bucket, room_is_found_where_there_is_some_and_nothing_moves)
{
	for (uint64_t seed = 0; seed < CASES; seed++) {
		struct drawn drawn;

		draw_case(&drawn, seed);
		for (uint32_t turn = 0; turn < 100; turn++) {
			uint32_t unit = draw(drawn.unit_count);

			if (buckets_have(&drawn.buckets, unit))
				give(&drawn, unit);
			else
				take(&drawn, unit);
			check(&drawn);
		}
		buckets_deinit(&drawn.buckets);
	}
}

/* Ranks that go through all units, each in its order: a unit's buckets are free when all ranks have
 * handed it over. */
struct walk {
	struct zero_buckets buckets[RANK_MAX];
	uint32_t orders[RANK_MAX][UNIT_MAX];
	uint32_t places[RANK_MAX];
	uint32_t handed_counts[UNIT_MAX];
};

static void hand_over(struct walk *walk, uint32_t world, uint32_t unit)
{
	if (++walk->handed_counts[unit] < world)
		return;
	for (uint32_t rank = 0; rank < world; rank++)
		buckets_give(&walk->buckets[rank], unit);
}

/* Return: somebody got on. */
static bool walk_on(struct walk *walk, const struct drawn *drawn, uint32_t world)
{
	uint32_t first = draw(world);

	for (uint32_t i = 0; i < world; i++) {
		uint32_t rank = (first + i) % world;
		uint32_t unit;

		if (walk->places[rank] == drawn->unit_count)
			continue;
		unit = walk->orders[rank][walk->places[rank]];
		if (!buckets_take(&walk->buckets[rank], unit, drawn->lengths[unit]))
			continue;
		walk->places[rank]++;
		hand_over(walk, world, unit);
		return true;
	}
	return false;
}

/* Each order is the first one but for @swap_count pairs of neighbours. */
static void draw_walk(struct walk *walk, const struct drawn *drawn, uint32_t world,
                      uint32_t slot_count, uint32_t swap_count)
{
	*walk = (struct walk){ 0 };
	for (uint32_t rank = 0; rank < world; rank++) {
		cr_assert_eq(buckets_init(&walk->buckets[rank], slot_count, drawn->largest,
		                          drawn->second, drawn->unit_count),
		             0);
		for (uint32_t i = 0; i < drawn->unit_count; i++)
			walk->orders[rank][i] = i;
		/* Never two pairs that share a unit: at most two are then under way. */
		for (uint32_t i = 0; i + 1 < drawn->unit_count && swap_count; i += 2)
			if (draw(2)) {
				walk->orders[rank][i] = i + 1;
				walk->orders[rank][i + 1] = i;
			}
	}
}

static void walk_through(const struct drawn *drawn, uint32_t slot_count, uint32_t swap_count)
{
	uint32_t world = 1 + draw(RANK_MAX);
	uint32_t turns = 0;
	struct walk walk;

	draw_walk(&walk, drawn, world, slot_count, swap_count);
	while (walk_on(&walk, drawn, world))
		turns++;
	cr_assert_eq(turns, world * drawn->unit_count, "stuck after %u", turns);
	for (uint32_t rank = 0; rank < world; rank++) {
		cr_assert_eq(walk.buckets[rank].run_count, 0);
		buckets_deinit(&walk.buckets[rank]);
	}
}

Test(zero_bucket, ranks_of_one_order_get_on_in_memory_for_one_of_two_in_memory_for_two)
{
	for (uint64_t seed = 0; seed < CASES; seed++) {
		struct drawn drawn;

		draw_case(&drawn, seed);
		walk_through(&drawn, drawn.largest, 0);
		walk_through(&drawn, 2 * drawn.largest, 1);
		buckets_deinit(&drawn.buckets);
	}
}
