/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where tensors lie in their rank's segment: runs of slots, each in one piece. Floor 5, shard
 * thread.
 *
 * What is stored gives way, the oldest put first; what was prefetched and not yet used yields last,
 * since somebody has said that it is used soon: of those the newest first, as uses follow
 * prefetches in order.
 */
#include "daemon/zero/tensor/tensor_room.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/param/room.h"

/* Distances, for room_choose(): from here on nothing was prefetched. */
#define TENSOR_DISTANCE_PUT (1ull << 62)

static uint64_t distance_of(const struct zero_tensor *tensor)
{
	if (tensor->is_prefetched)
		return tensor->prefetch_number;
	return TENSOR_DISTANCE_PUT + (TENSOR_DISTANCE_PUT - tensor->put_number);
}

/* It could go now. */
static bool may_go(const struct zero_tensor *tensor)
{
	return tensor->stage == ZERO_TENSOR_KEPT && tensor->is_stored && !tensor->pin_count;
}

/* It stays until its rank does something about it. */
bool tensor_is_held(const struct zero_tensor *tensor)
{
	return tensor->pin_count || tensor->stage == ZERO_TENSOR_OPEN ||
	       (tensor->stage == ZERO_TENSOR_KEPT && !tensor->is_stored);
}

uint64_t tensor_slots(uint64_t bytes)
{
	return bytes / ZI_STORE_ALIGN_BYTES + (bytes % ZI_STORE_ALIGN_BYTES != 0);
}

void *tensor_place(const struct zero_tensor *tensor)
{
	assert(tensor->is_resident);
	return (char *)tensor->tensors->segment->region.base + tensor_offset(tensor);
}

/* @is_patient: what is in flight now may go once it is back. */
static bool find_room(struct zero_tensors *tensors, uint64_t slots, uint64_t soonest,
                      bool is_patient, struct zero_room *ret_room)
{
	for (uint32_t i = 0; i < tensors->run_count; i++) {
		struct zero_run *run = &tensors->runs[i];
		const struct zero_tensor *tensor = &tensors->entries[run->unit];

		run->distance = distance_of(tensor);
		run->is_fixed = is_patient ? tensor_is_held(tensor) : !may_go(tensor);
	}
	if (slots > tensors->slot_count)
		return false;
	return room_choose(&(struct zero_shelf){ .runs = tensors->runs,
	                                         .run_count = tensors->run_count,
	                                         .slot_count = tensors->slot_count },
	                   (uint32_t)slots, soonest, ret_room);
}

/* Would there be room for @bytes once all that is in flight is back? */
bool tensor_has_hope(struct zero_tensors *tensors, uint64_t bytes)
{
	struct zero_room room;

	return find_room(tensors, tensor_slots(bytes), 0, true, &room);
}

static void run_remove(struct zero_tensors *tensors, uint32_t index)
{
	struct zero_run *run = &tensors->runs[index];

	tensors->entries[run->unit].is_resident = false;
	tensors->run_count--;
	memmove(run, run + 1, (tensors->run_count - index) * sizeof(*run));
}

/*
 * tensor_settle_in() - room for a tensor that is not resident
 * @is_modest: what was prefetched does not go for it
 *
 * Return: false when there is none now, and nothing has changed.
 */
bool tensor_settle_in(struct zero_tensor *tensor, bool is_modest)
{
	struct zero_tensors *tensors = tensor->tensors;
	uint64_t slots = tensor_slots(tensor->bytes);
	struct zero_room room;
	struct zero_run *run;

	assert(!tensor->is_resident);
	if (!find_room(tensors, slots, is_modest ? TENSOR_DISTANCE_PUT : 0, false, &room))
		return false;
	for (uint32_t i = room.run_first; i < room.run_last; i++) {
		tensors->evicted_count++;
		run_remove(tensors, room.run_first);
	}
	run = &tensors->runs[room.run_first];
	memmove(run + 1, run, (tensors->run_count - room.run_first) * sizeof(*run));
	tensors->run_count++;
	tensor->slot_first = room.first;
	tensor->slot_count = (uint32_t)slots;
	tensor->is_resident = true;
	*run = (struct zero_run){ .unit = (uint32_t)(tensor - tensors->entries),
		                  .first = room.first,
		                  .count = (uint32_t)slots };
	return true;
}

/* Nothing is in flight on it. */
void tensor_move_out(struct zero_tensor *tensor)
{
	struct zero_tensors *tensors = tensor->tensors;
	uint32_t index = (uint32_t)(tensor - tensors->entries);

	if (!tensor->is_resident)
		return;
	for (uint32_t i = 0; i < tensors->run_count; i++)
		if (tensors->runs[i].unit == index) {
			run_remove(tensors, i);
			return;
		}
	assert(false);
}
