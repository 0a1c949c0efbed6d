/* SPDX-License-Identifier: Apache-2.0 */
/* Where models differ; see search.h. Floor 5, shard thread. */
#include "daemon/zero/across/agree/search.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "daemon/catalog/catalog.h"
#include "daemon/zero/job/layout.h"
#include "kernels/hash.h"

enum search_kind { SEARCH_NONE, SEARCH_SET, SEARCH_UNIT, SEARCH_PARAM };

struct search_entry {
	uint32_t kind;                     /* enum search_kind; NONE: this model ends before */
	uint32_t word;                     /* a unit's set, a parameter's unit */
	uint32_t dim_count, group;         /* of a parameter */
	uint64_t shape[ZI_PARAM_DIMS_MAX]; /* of a set: its members */
	char name[ZI_PARAM_NAME_BYTES];
};
static_assert(sizeof(struct search_entry) <= TALK_DATA_BYTES, "one vote");
static_assert(SEARCH_PARTS * sizeof(uint64_t) <= TALK_DATA_BYTES, "one vote");

static uint64_t total_of(const struct search_sizes *sizes)
{
	return (uint64_t)sizes->set_count + sizes->unit_count + sizes->param_count;
}

static void take_param(const struct catalog_param *param, struct search_entry *entry)
{
	entry->kind = SEARCH_PARAM;
	entry->word = param->unit;
	entry->dim_count = param->dim_count;
	entry->group = param->group;
	memcpy(entry->shape, param->shape, param->dim_count * sizeof(*param->shape));
	memcpy(entry->name, param->name, strlen(param->name));
}

/* What @layout has at @index of a line of @sizes. */
static void take_entry(const struct zero_layout *layout, const struct search_sizes *sizes,
                       uint64_t index, struct search_entry *entry)
{
	memset(entry, 0, sizeof(*entry)); /* All of it is compared. */
	if (index < sizes->set_count) {
		if (index >= layout->set_count)
			return;
		entry->kind = SEARCH_SET;
		entry->shape[0] = layout->sets[index].members;
		memcpy(entry->name, layout->sets[index].name, strlen(layout->sets[index].name));
		return;
	}
	index -= sizes->set_count;
	if (index < sizes->unit_count) {
		if (index >= layout->unit_count)
			return;
		entry->kind = SEARCH_UNIT;
		entry->word = layout->units[index].member_set;
		memcpy(entry->name, layout->units[index].name, strlen(layout->units[index].name));
		return;
	}
	index -= sizes->unit_count;
	if (index < layout->param_count)
		take_param(&layout->params[index], entry);
}

static uint64_t digest_of(const struct zero_layout *layout, const struct search_sizes *sizes,
                          uint64_t begin, uint64_t end)
{
	uint64_t digests[2] = { 0 };
	struct search_entry entry;

	for (uint64_t i = begin; i < end; i++) {
		take_entry(layout, sizes, i, &entry);
		digests[1] = kern_hash(&entry, sizeof(entry));
		digests[0] = kern_hash(digests, sizeof(digests));
	}
	return digests[0];
}

/* Documented in the header, as are all others. */
uint64_t search_digest(const struct zero_layout *layout, struct search_sizes *ret_sizes)
{
	*ret_sizes =
		(struct search_sizes){ layout->set_count, layout->unit_count, layout->param_count };
	return digest_of(layout, ret_sizes, 0, total_of(ret_sizes));
}

void search_widen(struct search_sizes *sizes, const struct search_sizes *other)
{
	/* What others say is bounded: somebody has to count so far. */
	sizes->set_count = ZI_MAX(sizes->set_count, ZI_MIN(other->set_count, SEARCH_MAX));
	sizes->unit_count = ZI_MAX(sizes->unit_count, ZI_MIN(other->unit_count, SEARCH_MAX));
	sizes->param_count = ZI_MAX(sizes->param_count, ZI_MIN(other->param_count, SEARCH_MAX));
}

void search_begin(struct search *search, const struct search_sizes *sizes)
{
	*search = (struct search){ .sizes = *sizes, .count = total_of(sizes) };
}

/* Entries of a part; the last ones may be shorter, or empty. */
static uint64_t part_count(const struct search *search)
{
	return (search->count + SEARCH_PARTS - 1) / SEARCH_PARTS;
}

void search_vote(const struct search *search, const struct zero_layout *layout,
                 struct round_vote *ret_vote)
{
	uint64_t end = search->begin + search->count, part = part_count(search);
	struct search_entry entry;
	uint64_t digests[SEARCH_PARTS];

	*ret_vote = (struct round_vote){ .error = 0 };
	if (search->count <= 1) {
		take_entry(layout, &search->sizes, search->begin, &entry);
		ret_vote->data_bytes = sizeof(entry);
		memcpy(ret_vote->data, &entry, sizeof(entry));
		return;
	}
	for (uint32_t i = 0; i < SEARCH_PARTS; i++)
		digests[i] =
			digest_of(layout, &search->sizes, ZI_MIN(search->begin + i * part, end),
		                  ZI_MIN(search->begin + (i + 1) * part, end));
	ret_vote->data_bytes = sizeof(digests);
	memcpy(ret_vote->data, digests, sizeof(digests));
}

bool search_narrow(struct search *search, const struct round *round, uint32_t node_count)
{
	uint64_t first[SEARCH_PARTS], other[SEARCH_PARTS], part = part_count(search);
	uint64_t end = search->begin + search->count;
	uint32_t i = 0;

	search->odd = round_odd_one(round, node_count) % node_count;
	if (search->count <= 1)
		return false;
	memcpy(first, round->votes[0].data, sizeof(first));
	memcpy(other, round->votes[search->odd].data, sizeof(other));
	while (i + 1 < SEARCH_PARTS && first[i] == other[i])
		i++;
	/* A node that says one thing now and another then ends the search soon all the same. */
	search->begin = ZI_MIN(search->begin + i * part, end);
	search->count = ZI_MIN(part, end - search->begin);
	return true;
}

static void say_entry(const struct search_entry *entry, struct zi_text *text)
{
	if (entry->kind == SEARCH_NONE) {
		zi_text_append(text, "missing");
		return;
	}
	zi_text_append(text, "'%.40s'", entry->name);
	if (entry->kind == SEARCH_UNIT && entry->word)
		zi_text_append(text, " of data-parallel group %u", entry->word);
	if (entry->kind == SEARCH_SET)
		zi_text_append(text, " of ranks %#llx", (unsigned long long)entry->shape[0]);
	if (entry->kind != SEARCH_PARAM)
		return;
	for (uint32_t i = 0; i < ZI_MIN(entry->dim_count, ZI_PARAM_DIMS_MAX); i++)
		zi_text_append(text, "%s%llu", i ? "," : " (", (unsigned long long)entry->shape[i]);
	zi_text_append(text, ") of unit %u", entry->word);
	if (entry->group == ZI_LAYOUT_FROZEN)
		zi_text_append(text, ", frozen");
	else if (entry->group)
		zi_text_append(text, ", group %u", entry->group);
}

void search_say(const struct search *search, const struct round *round, struct zi_text *text)
{
	const struct search_sizes *sizes = &search->sizes;
	struct search_entry first, other;
	uint64_t index = search->begin;
	const char *what = "set";

	memcpy(&first, round->votes[0].data, sizeof(first));
	memcpy(&other, round->votes[search->odd].data, sizeof(other));
	first.name[sizeof(first.name) - 1] = other.name[sizeof(other.name) - 1] = '\0';
	if (index >= (uint64_t)sizes->set_count + sizes->unit_count) {
		what = "parameter";
		index -= (uint64_t)sizes->set_count + sizes->unit_count;
	} else if (index >= sizes->set_count) {
		what = "unit";
		index -= sizes->set_count;
	}
	zi_text_set(text, "%s %llu is ", what, (unsigned long long)index);
	say_entry(&first, text);
	zi_text_append(text, " in node 0, but ");
	say_entry(&other, text);
}
