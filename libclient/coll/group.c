/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of ranks: made by all ranks together, left by each member; see collective.h. Floor 2. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/wire/region.h"
#include "libclient/coll/collective.h"
#include "libclient/sized.h"

/* Going by NUMA nodes costs a sum one or two meetings more, of a microsecond each between sockets,
 * and spares between some and most of its bytes on the link: half of 256 KiB take 6 us at 20 GB/s.
 * An estimate: there was no machine to measure it on. */
#define GROUP_LEVELS_BYTES (256ull << 10)

int zi_client_group_find(struct zinf *zinf, zinf_group number, struct zi_client_group **ret_group)
{
	if (number == ZINF_GROUP_NONE)
		return zi_client_error(zinf, -EPERM,
		                       "rank %u is not a member of that group (ZINF_GROUP_NONE)",
		                       zinf->attach.rank);
	if (number >= ZI_GROUPS_MAX || !zinf->coll->groups[number])
		return zi_client_error(zinf, -EINVAL,
		                       "group %u was never made, or has been freed: "
		                       "zinf_coll_group() makes one",
		                       number);
	*ret_group = zinf->coll->groups[number];
	return 0;
}

/* What the engine has to know. */
static void fill_node(struct zinf *zinf, struct zi_client_group *group, const uint32_t *ranks,
                      uint32_t member_count)
{
	struct zi_client_coll *coll = zinf->coll;
	struct zi_node_group *node = &group->node;
	uint8_t places[ZI_WORLD_MAX];
	uint64_t staging_offset_bytes;

	for (uint32_t i = 0; i < member_count; i++)
		group->ranks[i] = ranks[i];
	node->meet = (struct zi_meet){
		.members = group->board,
		.verdict = &coll->verdicts->groups[group->number],
		.spin_us = &coll->verdicts->spin_us,
		.beside_us = &coll->verdicts->beside_us,
		.look = zi_client_coll_look,
		.look_arg = zinf,
		.member_count = member_count,
	};
	for (uint32_t i = 0; i < member_count; i++)
		if (ranks[i] == zinf->attach.rank)
			node->meet.self = i;
	node->arenas = coll->arenas;
	node->arenas_bytes = coll->arenas_bytes;
	node->own = coll->own;
	node->own_bytes = coll->arena_bytes;
	zi_node_staging(group->number, &staging_offset_bytes, &node->staging_bytes);
	node->staging = coll->own + staging_offset_bytes;
	node->streaming_bytes = coll->streaming_bytes;
	node->levels_bytes = GROUP_LEVELS_BYTES;
	node->cma.from_bytes = zinf->coll_cma_bytes;
	for (uint32_t i = 0; i < member_count; i++)
		places[i] = coll->verdicts->numa[ranks[i]];
	zi_numa_init(&node->numa, places, member_count);
	node->number = group->number;
	/* In the group of all ranks they are the members' numbers. */
	node->ranks = group->number == ZI_GROUP_WORLD ? NULL : group->ranks;
}

/* Members on several nodes: on the board are those of this one, and behind them the worker. */
static int fill_far(struct zinf *zinf, struct zi_client_group *group, int slab_fd,
                    uint64_t slab_bytes)
{
	const struct zi_client_coll *coll = zinf->coll;
	struct zi_node_group *node = &group->node;
	struct zi_far_group *far = &group->far;
	uint32_t members = node->meet.member_count, order = 0;
	uint8_t nodes[ZI_WORLD_MAX], numbers[ZI_WORLD_MAX];
	void *slab;
	int r;

	/* The group's nodes are those that have members, in the order of the job's. */
	for (uint32_t i = 0; i < coll->node_count; i++) {
		bool has_member = false;

		for (uint32_t k = 0; k < members; k++)
			has_member |= coll->nodes[group->ranks[k]] == i;
		numbers[i] = (uint8_t)order;
		order += has_member;
	}
	for (uint32_t i = 0; i < members; i++)
		nodes[i] = numbers[coll->nodes[group->ranks[i]]];
	r = zi_region_map(slab_fd, slab_bytes, true, &slab);
	if (r)
		return err_trace(r);
	far->slab = slab;
	far->slab_bytes = slab_bytes;
	far->self = node->meet.self;
	zi_far_shape_init(&far->shape, nodes, members, order, numbers[coll->node]);
	zi_mail_init(&far->mail, &far->shape, far->slab, slab_bytes);
	node->meet.self = zi_far_local(&far->shape, far->self);
	node->meet.member_count = far->shape.self_count + 1;
	node->far = far;
	return 0;
}

bool zi_client_group_spans(const struct zinf *zinf, const uint32_t *ranks, uint32_t member_count)
{
	for (uint32_t i = 1; i < member_count; i++)
		if (zinf->coll->nodes[ranks[i]] != zinf->coll->nodes[ranks[0]])
			return true;
	return false;
}

/* Parts of a board: of a group that spans nodes for those that are here, and the worker's two. */
static uint32_t board_members(const struct zinf *zinf, const uint32_t *ranks, uint32_t member_count)
{
	uint32_t count = 0;

	if (!zi_client_group_spans(zinf, ranks, member_count))
		return member_count;
	for (uint32_t i = 0; i < member_count; i++)
		count += zinf->coll->nodes[ranks[i]] == zinf->coll->node;
	return count + 2;
}

int zi_client_group_new(struct zinf *zinf, uint32_t number, const int *fds, uint64_t board_bytes,
                        uint64_t slab_bytes, const uint32_t *ranks, uint32_t member_count,
                        struct zi_client_group **ret_group)
{
	bool spans = zi_client_group_spans(zinf, ranks, member_count);
	struct zi_client_group *group;
	int r;

	assert(!zinf->coll->groups[number]);
	if (board_bytes < zi_board_bytes(board_members(zinf, ranks, member_count)) ||
	    (spans && slab_bytes < ZI_FAR_GROUP_BYTES))
		return err_origin(-EPROTO);
	group = calloc(1, sizeof(*group));
	if (!group)
		return err_origin(-ENOMEM);
	r = zi_region_map(fds[0], board_bytes, true, &group->board);
	if (r) {
		free(group);
		return err_trace(r);
	}
	group->number = number;
	group->timeout_ms = zinf->coll_timeout_ms;
	group->board_bytes = board_bytes;
	fill_node(zinf, group, ranks, member_count);
	r = spans ? fill_far(zinf, group, fds[1], slab_bytes) : 0;
	if (r) {
		(void)zi_client_group_free(group);
		return err_trace(r);
	}
	zi_cma_offer(&group->node);
	*ret_group = zinf->coll->groups[number] = group;
	return 0;
}

struct zi_client_group *zi_client_group_free(struct zi_client_group *group)
{
	if (!group)
		return NULL;
	zi_cma_withdraw(&group->node);
	(void)zi_region_unmap(group->board, group->board_bytes); /* Asserts inside. */
	if (group->far.slab)
		(void)zi_region_unmap(group->far.slab, group->far.slab_bytes); /* So. */
	free(group);
	return NULL;
}

/* ---- making one ---- */

static int check_ranks(struct zinf *zinf, const uint32_t *ranks, uint32_t rank_count,
                       uint64_t *ret_mask)
{
	uint32_t world = zinf->attach.world_size;
	uint64_t mask = 0;

	if (!ranks && rank_count)
		return zi_client_error(zinf, -EINVAL, "a group of %u ranks: ranks is NULL",
		                       rank_count);
	if (!rank_count || rank_count > world)
		return zi_client_error(zinf, -EINVAL, "a group of %u ranks: 1 to %u are there",
		                       ranks ? rank_count : 0, world);
	for (uint32_t i = 0; i < rank_count; i++) {
		if (ranks[i] >= world)
			return zi_client_error(zinf, -EINVAL,
			                       "ranks[%u] is %u: the job has ranks 0 to %u", i,
			                       ranks[i], world - 1);
		if (mask >> ranks[i] & 1)
			return zi_client_error(zinf, -EINVAL, "ranks[%u]: rank %u is named twice",
			                       i, ranks[i]);
		mask |= 1ull << ranks[i];
	}
	*ret_mask = mask;
	return 0;
}

/* The ranks of @mask in ascending order. Return: how many. */
static uint32_t list_ranks(uint64_t mask, uint32_t *ranks)
{
	uint32_t count = 0;

	for (; mask; mask &= mask - 1)
		ranks[count++] = (uint32_t)__builtin_ctzll(mask);
	return count;
}

/* What the daemon says of a new group. */
static int join_group(struct zinf *zinf, const struct zi_coll_grouped *grouped, uint64_t mask,
                      const int *fds, uint32_t timeout_ms)
{
	uint32_t ranks[ZI_WORLD_MAX];
	uint32_t count = list_ranks(mask, ranks);
	struct zi_client_group *group;
	int r;

	if (grouped->group >= ZI_GROUPS_MAX || zinf->coll->groups[grouped->group] ||
	    grouped->member_count != count || grouped->self >= count ||
	    ranks[grouped->self] != zinf->attach.rank)
		return err_trace(zi_client_breach(zinf, "a group that was not asked for"));
	r = zi_client_group_new(zinf, grouped->group, fds, grouped->board_bytes,
	                        grouped->slab_bytes, ranks, count, &group);
	if (r == -EPROTO || r == -EACCES)
		return err_trace(zi_client_breach(
			zinf, "a board that is not sealed, too short, or read-only"));
	if (r)
		return zi_client_error(zinf, r, "mapping the board of a group: %s", strerror(-r));
	if (timeout_ms)
		group->timeout_ms = timeout_ms;
	return 0;
}

/* The board of a group cannot be had here: leaves it again. */
static void give_up(struct zinf *zinf, uint32_t number)
{
	struct zi_coll_group_free request = { .group = number };
	const struct zi_message_header *reply;
	struct zi_text text = zinf->text;

	if (zinf->over)
		return;
	zi_client_coll_stay_out(zinf, number);
	/* A session that ended leaves as well. */
	(void)zi_client_coll_request(zinf, &request.header, ZI_MESSAGE_COLL_GROUP_FREE,
	                             sizeof(request), ZI_MESSAGE_DONE, &reply);
	zinf->text = text;
}

/* 0; -EINVAL with the text. Then it is in @request. */
static int check_name(struct zinf *zinf, const char *name, struct zi_coll_group *request)
{
	size_t bytes = strnlen(name, sizeof(request->name));

	if (!bytes)
		return zi_client_error(zinf, -EINVAL, "a group with an empty name");
	if (bytes == sizeof(request->name))
		return zi_client_error(zinf, -EINVAL,
		                       "the group's name '%.40s' is longer than %u bytes", name,
		                       ZI_GROUP_NAME_BYTES - 1);
	memcpy(request->name, name, bytes);
	return 0;
}

/* @name: NULL, all ranks make the group; else its members. */
static int make_group(struct zinf *zinf, const char *name, const uint32_t *ranks,
                      uint32_t rank_count, const struct zinf_group_options *options,
                      zinf_group *ret_group)
{
	static const struct zi_sized sized = { "options", "ZINF_GROUP_OPTIONS_INIT",
		                               sizeof(*options),
		                               offsetof(struct zinf_group_options, reserved) };
	const struct zinf_group_options none = ZINF_GROUP_OPTIONS_INIT;
	const struct zi_message_header *reply;
	struct zi_coll_group request = { 0 };
	uint64_t mask = 0;
	uint32_t number, fd_count = 0, ranks_of[ZI_WORLD_MAX];
	bool is_member;
	int fds[ZI_MESSAGE_FDS_MAX];
	int r = zi_client_coll_enter(zinf);

	if (!r)
		r = zi_client_enter(zinf); /* All ranks are needed. */
	if (!r && name)
		r = check_name(zinf, name, &request);
	if (r)
		return err_trace(r);
	r = check_ranks(zinf, ranks, rank_count, &mask);
	if (!r)
		r = zi_client_check_sized(&sized, options ? options : &none, &zinf->text);
	is_member = mask >> zinf->attach.rank & 1;
	if (!r && name && !is_member)
		r = zi_client_error(zinf, -EINVAL,
		                    "group '%s' does not name this rank, %u: only members make it",
		                    name, zinf->attach.rank);
	if (r)
		return err_trace(zi_client_coll_refuse(zinf, &request.header, ZI_MESSAGE_COLL_GROUP,
		                                       sizeof(request), r, &request.error,
		                                       request.reason));
	if (is_member)
		fd_count =
			zi_client_group_spans(zinf, ranks_of, list_ranks(mask, ranks_of)) ? 2 : 1;
	request.members[0] = mask;
	request.timeout_ms = options ? options->timeout_ms : 0;
	r = zi_client_request(zinf, &request.header, ZI_MESSAGE_COLL_GROUP, sizeof(request),
	                      ZI_MESSAGE_COLL_GROUPED, &reply, is_member ? fds : NULL, fd_count);
	if (r)
		return err_trace(r);
	if (!is_member) {
		*ret_group = ZINF_GROUP_NONE;
		return 0;
	}
	number = ((const struct zi_coll_grouped *)reply)
	                 ->group; /* the reply's place is used again */
	r = join_group(zinf, (const struct zi_coll_grouped *)reply, mask, fds, request.timeout_ms);
	for (uint32_t i = 0; i < fd_count; i++)
		(void)zi_close(fds[i]); /* The mappings are enough. */
	if (r) {
		give_up(zinf, number);
		return err_trace(r);
	}
	*ret_group = number;
	return 0;
}

int zinf_coll_group(struct zinf *zinf, const uint32_t *ranks, uint32_t rank_count,
                    const struct zinf_group_options *options, zinf_group *ret_group)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, ret_group, ret_group);

	return err_trace(make_group(zinf, NULL, ranks, rank_count, options, ret_group));
}

int zinf_coll_group_named(struct zinf *zinf, const char *name, const uint32_t *ranks,
                          uint32_t rank_count, const struct zinf_group_options *options,
                          zinf_group *ret_group)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, name, name);
	ZI_CLIENT_NEED(zinf, ret_group, ret_group);

	return err_trace(make_group(zinf, name, ranks, rank_count, options, ret_group));
}

/* ---- leaving, asking ---- */

void zi_client_group_settle(struct zi_client_group *group, uint64_t begin_ns)
{
	/* What was not waited for is given up, and the calls before it with that. */
	if (!group->call_count && !group->error)
		zi_node_settle(&group->node, begin_ns);
}

/* A call begins, of group @number. */
static int enter_group(struct zinf *zinf, zinf_group number, struct zi_client_group **ret_group)
{
	int r = zi_client_coll_enter(zinf);

	return err_trace(r ? r : zi_client_group_find(zinf, number, ret_group));
}

int zinf_coll_group_free(struct zinf *zinf, zinf_group number)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	struct zi_coll_group_free request = { .group = number };
	const struct zi_message_header *reply;
	struct zi_client_group *group;
	int r = zi_client_coll_enter(zinf);

	if (r || number == ZINF_GROUP_NONE)
		return err_trace(r);
	if (number == ZINF_GROUP_WORLD)
		return zi_client_error(zinf, -EINVAL,
		                       "the group of all ranks is left by zinf_detach()");
	r = zi_client_group_find(zinf, number, &group);
	if (r)
		return err_trace(r);
	r = zi_client_check_pending(zinf);
	if (!r)
		r = zi_client_call_forget(zinf, group);
	if (r)
		return err_trace(r);
	if (group->call_count)
		return zi_client_error(zinf, -EBUSY,
		                       "%u calls of group %u were not waited for: zinf_wait() them",
		                       group->call_count, number);
	zi_client_group_settle(group, zi_clock_now_ns());
	zinf->coll->groups[number] = zi_client_group_free(group);
	return err_trace(zi_client_coll_request(zinf, &request.header, ZI_MESSAGE_COLL_GROUP_FREE,
	                                        sizeof(request), ZI_MESSAGE_DONE, &reply));
}

int zinf_coll_abort(struct zinf *zinf, zinf_group number, const char *reason)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	struct zi_coll_abort request = { .group = number };
	const struct zi_message_header *reply;
	struct zi_client_group *group;
	int r = enter_group(zinf, number, &group);

	if (r)
		return err_trace(r);
	if (!(zinf->features & ZI_FEATURE_COLL_ABORT))
		return zi_client_error(zinf, -EOPNOTSUPP,
		                       "zinfd at %s knows no COLL_ABORT, use a newer one",
		                       zinf->path);
	zi_client_coll_words(request.reason, sizeof(request.reason), reason ? reason : "");
	return err_trace(zi_client_coll_request(zinf, &request.header, ZI_MESSAGE_COLL_ABORT,
	                                        sizeof(request), ZI_MESSAGE_DONE, &reply));
}

int zinf_coll_group_rank(struct zinf *zinf, zinf_group number, int32_t *ret_member)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, ret_member, ret_member);
	struct zi_client_group *group;
	int r = zi_client_coll_enter(zinf);

	if (!r && number == ZINF_GROUP_NONE) {
		*ret_member = -1;
		return 0;
	}
	if (!r)
		r = zi_client_group_find(zinf, number, &group);
	if (r)
		return err_trace(r);
	*ret_member = (int32_t)zi_node_self(&group->node);
	return 0;
}

int zinf_coll_group_size(struct zinf *zinf, zinf_group number, uint32_t *ret_count)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, ret_count, ret_count);
	struct zi_client_group *group;
	int r = enter_group(zinf, number, &group);

	if (r)
		return err_trace(r);
	*ret_count = zi_node_members(&group->node);
	return 0;
}
