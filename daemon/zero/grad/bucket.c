/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nothing is ever moved, since ranks and device threads have addresses in it: what lies between two
 * buckets may be too short for a third. So runs keep to one side of the seam (room.c): of two
 * halves one is whole as soon as the units of the other half are all that is under way.
 */
#include "daemon/zero/grad/bucket.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/wire/grads.h"
#include "daemon/zero/param/room.h"

static_assert(sizeof(struct zero_run) == ZI_BUCKET_RUN_BYTES, "what is charged for one");
static_assert(sizeof(*((struct zero_buckets *)0)->firsts) == ZI_BUCKET_SLOT_BYTES, "likewise");

/* Return: 0; -ENOMEM. */
int buckets_init(struct zero_buckets *buckets, uint32_t slot_count, uint32_t largest,
                 uint32_t second, uint32_t unit_count)
{
	/* Each bucket takes the lowest place, and is freed without any other: it may lie above. */
	bool is_uneven;

	assert(largest > 0);
	assert(largest <= slot_count);
	*buckets = (struct zero_buckets){
		.slot_count = slot_count,
		.unit_count = unit_count,
		/* Each takes a slot at least. */
		.runs = calloc(ZI_MIN(unit_count, slot_count), sizeof(*buckets->runs)),
		.firsts = malloc(unit_count * sizeof(*buckets->firsts)),
	};
	buckets->seam = room_seam(slot_count, largest, second, &is_uneven);
	if (!buckets->runs || !buckets->firsts) {
		buckets_deinit(buckets);
		return err_origin(-ENOMEM);
	}
	memset(buckets->firsts, 0xff, unit_count * sizeof(*buckets->firsts));
	return 0;
}

/* Twice is once. */
void buckets_deinit(struct zero_buckets *buckets)
{
	free(buckets->runs);
	free(buckets->firsts);
	*buckets = (struct zero_buckets){ 0 };
}

static bool find(const struct zero_buckets *buckets, uint32_t count, struct zero_room *ret_room)
{
	return room_choose(&(struct zero_shelf){ .runs = buckets->runs,
	                                         .run_count = buckets->run_count,
	                                         .slot_count = buckets->slot_count,
	                                         .seam = buckets->seam },
	                   count, 0, ret_room);
}

/* See bucket.h. The lowest place: what is short gathers there. */
bool buckets_take(struct zero_buckets *buckets, uint32_t unit, uint32_t count)
{
	struct zero_room room;
	struct zero_run *run;

	assert(unit < buckets->unit_count);
	assert(!buckets_have(buckets, unit));
	for (uint32_t i = 0; i < buckets->run_count; i++)
		buckets->runs[i].is_fixed = true;
	if (!find(buckets, count, &room))
		return false;
	assert(room.run_first == room.run_last);
	run = &buckets->runs[room.run_first];
	memmove(run + 1, run, (buckets->run_count - room.run_first) * sizeof(*run));
	buckets->run_count++;
	*run = (struct zero_run){ .unit = unit, .first = room.first, .count = count };
	buckets->firsts[unit] = room.first;
	return true;
}

/* The unit has one. */
void buckets_give(struct zero_buckets *buckets, uint32_t unit)
{
	struct zero_run *run = buckets->runs;

	assert(buckets_have(buckets, unit));
	while (run->unit != unit)
		run++;
	buckets->run_count--;
	memmove(run, run + 1, (size_t)(&buckets->runs[buckets->run_count] - run) * sizeof(*run));
	buckets->firsts[unit] = BUCKET_NONE;
}

/* The free slots from @begin to @end, of which no run lies across the seam. */
static uint32_t gap_room(uint32_t seam, uint32_t begin, uint32_t end)
{
	if (begin < seam && seam < end)
		return ZI_MAX(seam - begin, end - seam);
	return end - begin;
}

/* See bucket.h. One sweep: it is asked for each rank that waits. */
uint32_t buckets_room(const struct zero_buckets *buckets,
                      bool (*stays)(const void *arg, uint32_t unit), const void *arg)
{
	uint32_t begin = 0;
	uint32_t longest = 0;

	for (uint32_t i = 0; i < buckets->run_count; i++) {
		const struct zero_run *run = &buckets->runs[i];

		if (!stays(arg, run->unit))
			continue;
		longest = ZI_MAX(longest, gap_room(buckets->seam, begin, run->first));
		begin = run->first + run->count;
	}
	return ZI_MAX(longest, gap_room(buckets->seam, begin, buckets->slot_count));
}
