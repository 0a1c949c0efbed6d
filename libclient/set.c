/* SPDX-License-Identifier: Apache-2.0 */
/* Sets: which ranks train which units together. Floor 2. */
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/wire/check.h"
#include "libclient/client.h"

static_assert(ZINF_DP_GROUPS_MAX == ZI_SETS_MAX, "the same limit");

/* @ranks: NULL: all. *@ret_members untouched on failure. */
static int read_ranks(struct zinf *zinf, const char *name, const uint32_t *ranks,
                      uint32_t rank_count, uint64_t *ret_members)
{
	uint32_t world_size = (uint32_t)zinf_world_size(zinf);
	uint64_t members = 0;

	for (uint32_t i = 0; i < rank_count && ranks; i++) {
		if (ranks[i] >= world_size)
			return zi_client_error(
				zinf, -EINVAL,
				"data-parallel group '%s' names rank %u: the job has %u ranks",
				name, ranks[i], world_size);
		if (members >> ranks[i] & 1)
			return zi_client_error(zinf, -EINVAL,
			                       "data-parallel group '%s' names rank %u twice", name,
			                       ranks[i]);
		members |= 1ull << ranks[i];
	}
	if (!ranks && rank_count)
		return zi_client_error(
			zinf, -EINVAL,
			"data-parallel group '%s': rank_count is %u, but ranks is NULL", name,
			rank_count);
	if (!ranks)
		members = world_size == 64 ? UINT64_MAX : (1ull << world_size) - 1;
	*ret_members = members;
	return 0;
}

/* The one that is called so. Return: its number; set_count: there is none. */
static uint32_t find_set(const struct zinf *zinf, const char *name)
{
	for (uint32_t i = 0; i < zinf->set_count; i++)
		if (strcmp(zinf->sets[i].entry.name, name) == 0)
			return i;
	return zinf->set_count;
}

static int check_new(struct zinf *zinf, const struct zi_layout_entry *entry)
{
	if (!zinf->set_count && zinf->unit_count)
		return zi_client_error(
			zinf, -EINVAL,
			"call zinf_dp_group_add() for '%s' before the first unit: unit '%s' has no "
			"data-parallel group",
			entry->name, zinf->units[0].name);
	if (zinf->set_count == ZI_SETS_MAX)
		return zi_client_error(zinf, -E2BIG,
		                       "data-parallel group '%s' is one too many: %u are allowed",
		                       entry->name, ZI_SETS_MAX);
	if (!(zinf->features & ZI_FEATURE_SETS))
		return zi_client_error(zinf, -EOPNOTSUPP,
		                       "this zinfd is older and has no data-parallel groups: '%s'",
		                       entry->name);
	return 0;
}

int zinf_dp_group_add(struct zinf *zinf, const char *name, const uint32_t *ranks,
                      uint32_t rank_count, uint32_t *ret_set)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, name, name);
	ZI_CLIENT_NEED(zinf, ret_set, ret_set);
	struct zi_layout_entry entry = { .kind = ZI_LAYOUT_SET, .dim_count = 1 };
	uint32_t set;
	int r;

	r = zi_client_enter_forming(zinf, __func__);
	if (!r)
		r = zi_client_put_name(zinf, entry.name, name);
	if (!r)
		r = read_ranks(zinf, entry.name, ranks, rank_count, &entry.shape[0]);
	if (!r)
		r = zi_check_layout_entry(&entry, &zinf->text);
	if (r)
		return err_trace(r);
	set = find_set(zinf, entry.name);
	if (set < zinf->set_count && zinf->sets[set].entry.shape[0] != entry.shape[0])
		return zi_client_error(zinf, -EINVAL,
		                       "data-parallel group '%s' exists with other ranks",
		                       entry.name);
	if (set == zinf->set_count) {
		r = check_new(zinf, &entry);
		if (r)
			return err_trace(r);
		if (!zinf->sets)
			zinf->sets = calloc(ZI_SETS_MAX, sizeof(*zinf->sets));
		if (!zinf->sets)
			return zi_client_error(zinf, -ENOMEM, "no memory for data-parallel groups");
		zinf->sets[zinf->set_count++].entry = entry;
	}
	zinf->set = set;
	*ret_set = set;
	return 0;
}

bool zi_client_is_member(const struct zinf *zinf, const struct zi_client_unit *unit)
{
	return !zinf->set_count || zinf->sets[unit->set].entry.shape[0] >> zinf->attach.rank & 1;
}

bool zi_client_trains(const struct zinf *zinf, const struct zi_client_unit *unit)
{
	return !unit->is_frozen && zi_client_is_member(zinf, unit);
}

int zi_client_check_trains(struct zinf *zinf, const struct zi_client_unit *unit)
{
	if (unit->is_frozen)
		return zi_client_error(
			zinf, -EPERM,
			"all parameters of unit '%.60s' are frozen: it has no gradient",
			unit->name);
	if (zi_client_is_member(zinf, unit))
		return 0;
	return zi_client_error(
		zinf, -EPERM,
		"unit '%.60s' belongs to data-parallel group '%.60s', and rank %u does "
		"not: it has no gradient there",
		unit->name, zinf->sets[unit->set].entry.name, zinf->attach.rank);
}
