/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of a job's incarnations, so that an older one is known as such, also by the next daemon.
 * Floor 5, shard thread. The catalog's thread reads copies: a newer incarnation may come while it
 * is asked to store this one.
 */
#include "daemon/zero/job/history.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/job/job.h"

/* Room for one more name. Return: 0; -ENOMEM. */
int history_reserve(struct zero_history *history)
{
	uint32_t capacity = history->capacity ? history->capacity * 2 : 8;
	struct catalog_incarnation *names;

	if (history->count < history->capacity || history->capacity == CATALOG_INCARNATIONS_MAX)
		return 0;
	capacity = ZI_MIN(capacity, CATALOG_INCARNATIONS_MAX);
	names = reallocarray(history->names, capacity, sizeof(*names));
	if (!names)
		return err_origin(-ENOMEM);
	history->names = names;
	history->capacity = capacity;
	return 0;
}

/* The newest. Precondition: history_reserve(). The oldest gives way. */
void history_add(struct zero_history *history, uint64_t number, const char *name)
{
	struct catalog_incarnation *newest;

	assert(name[0]);
	assert(history->capacity > 0);
	assert(!history->count || history->names[history->count - 1].number < number);
	if (history->count == CATALOG_INCARNATIONS_MAX) {
		history->count--;
		memmove(history->names, history->names + 1,
		        history->count * sizeof(*history->names));
	}
	assert(history->count < history->capacity);
	newest = &history->names[history->count++];
	newest->number = number;
	(void)zi_copy_name(newest->name, sizeof(newest->name), name); /* Of the same size. */
}

/* Return: whether @name is among those that are remembered. */
bool history_has(const struct zero_history *history, const char *name)
{
	for (uint32_t i = 0; i < history->count; i++)
		if (strcmp(history->names[i].name, name) == 0)
			return true;
	return false;
}

/* Copies the names newer than @stored_number for the catalog, which nobody asks at present.
 * Return: 0; -ENOMEM. */
int history_record(struct zero_history *history, uint64_t stored_number)
{
	uint32_t first = history->count;

	while (first > 0 && history->names[first - 1].number > stored_number)
		first--;
	free(history->record);
	history->record = NULL;
	history->record_count = 0;
	if (first == history->count)
		return 0;
	history->record = calloc(history->count - first, sizeof(*history->record));
	if (!history->record)
		return err_origin(-ENOMEM);
	history->record_count = history->count - first;
	memcpy(history->record, &history->names[first],
	       history->record_count * sizeof(*history->record));
	return 0;
}

/* Empties @history. */
void history_free(struct zero_history *history)
{
	free(history->names);
	free(history->record);
	*history = (struct zero_history){ 0 };
}
