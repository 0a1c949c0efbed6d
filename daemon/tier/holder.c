/* SPDX-License-Identifier: Apache-2.0 */
/* Holders: ranks whose process received segments; see holder.h. Floor 4, shard thread. */
#include "daemon/tier/holder.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/list.h"

struct tier_holder {
	struct tier_holders *holders;
	struct zi_list holders_link;
	pid_t pid;
	struct tier_segment **segments; /* (segment_count,) a reference each */
	uint32_t segment_count;
};

struct tier_holders {
	struct zi_list list;
};

/* @ret_holders: the caller's, tier_holders_free(). Return: 0; -ENOMEM. */
int tier_holders_new(struct tier_holders **ret_holders)
{
	struct tier_holders *holders;

	holders = calloc(1, sizeof(*holders));
	if (!holders)
		return err_origin(-ENOMEM);
	zi_list_init(&holders->list);
	*ret_holders = holders;
	return 0;
}

/* NULL-safe. Return: NULL. */
struct tier_holders *tier_holders_free(struct tier_holders *holders)
{
	if (!holders)
		return NULL;
	assert(zi_list_is_empty(&holders->list));
	free(holders);
	return NULL;
}

/**
 * tier_holder_new() - a rank that holds nothing yet
 * @holders: all of them; outlives the holder
 * @pid: of its process, for people
 * @ret_holder: the caller's, tier_holder_free()
 *
 * Return: 0; -ENOMEM. Context: shard thread.
 */
int tier_holder_new(struct tier_holders *holders, pid_t pid, struct tier_holder **ret_holder)
{
	struct tier_holder *holder;

	holder = calloc(1, sizeof(*holder));
	if (!holder)
		return err_origin(-ENOMEM);
	holder->holders = holders;
	holder->pid = pid;
	zi_list_init(&holder->holders_link);
	zi_list_push_back(&holders->list, &holder->holders_link);
	*ret_holder = holder;
	return 0;
}

struct tier_holder *tier_holder_free(struct tier_holder *holder)
{
	if (!holder)
		return NULL;
	for (uint32_t i = 0; i < holder->segment_count; i++) {
		assert(holder->segments[i]->holder_count > 0);
		holder->segments[i]->holder_count--;
		(void)tier_segment_unref(holder->segments[i]); /* Always NULL. */
	}
	zi_list_remove(&holder->holders_link);
	free(holder->segments);
	free(holder);
	return NULL;
}

static bool holder_has(const struct tier_holder *holder, const struct tier_segment *segment)
{
	for (uint32_t i = 0; i < holder->segment_count; i++)
		if (holder->segments[i] == segment)
			return true;
	return false;
}

/**
 * tier_holder_add() - a rank receives a segment
 * @segment: referenced until the rank leaves
 *
 * Return: 0, also when the rank received it before; -ENOMEM. Context: shard thread.
 */
int tier_holder_add(struct tier_holder *holder, struct tier_segment *segment)
{
	struct tier_segment **segments;

	if (holder_has(holder, segment))
		return 0;
	segments = reallocarray(holder->segments, holder->segment_count + 1, sizeof(*segments));
	if (!segments)
		return err_origin(-ENOMEM);
	holder->segments = segments;
	segments[holder->segment_count++] = tier_segment_ref(segment);
	segment->holder_count++;
	return 0;
}

/* Return: ranks that hold anything. */
uint32_t tier_holders_count(const struct tier_holders *holders)
{
	uint32_t count = 0;

	zi_list_for_each(link, &holders->list)
		count += container_of(link, struct tier_holder, holders_link)->segment_count > 0;
	return count;
}

static uint64_t holder_lingering_bytes(const struct tier_holder *holder, const struct tier *tier)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < holder->segment_count; i++) {
		const struct tier_segment *segment = holder->segments[i];

		if (segment->ref_count == segment->holder_count)
			bytes += tier_segment_bytes_on(segment, tier) / segment->holder_count;
	}
	return bytes;
}

/* Shared among several holders, a segment counts in equal parts, so that the sum is right (but for
 * the division's remainder). @ret_pid: who holds most, may be NULL. */
uint64_t tier_holders_lingering_bytes(const struct tier_holders *holders, const struct tier *tier,
                                      pid_t *ret_pid)
{
	uint64_t total_bytes = 0;
	uint64_t most_bytes = 0;

	zi_list_for_each(link, &holders->list) {
		const struct tier_holder *holder =
			container_of(link, struct tier_holder, holders_link);
		uint64_t bytes = holder_lingering_bytes(holder, tier);

		total_bytes += bytes;
		if (bytes > most_bytes) {
			most_bytes = bytes;
			if (ret_pid)
				*ret_pid = holder->pid;
		}
	}
	return total_bytes;
}

static uint64_t count_lingering(const void *arg, const struct tier *tier, pid_t *ret_pid)
{
	return tier_holders_lingering_bytes(arg, tier, ret_pid);
}

/* Refusals of @tier name who still holds its memory. @holders: outlives that; NULL: no more. */
void tier_holders_watch(const struct tier_holders *holders, struct tier *tier)
{
	tier->lingering_bytes = holders ? count_lingering : NULL;
	tier->lingering_arg = holders;
}
