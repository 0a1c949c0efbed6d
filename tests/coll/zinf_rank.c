/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of a case over zinf.h; see zinf_rank.h. */
#include "tests/coll/zinf_rank.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "libclient/client.h"
#include "libclient/coll/collective.h"
#include "tests/coll/messages.h"
#include "tests/unit/node/past.h"

/* ---- the link of a rank ---- */

static int call_messages(struct zinf_rank *rank, const struct script *script,
                         const struct script_call *call, const struct rank_buffers *buffers,
                         const struct zinf_coll_options *options)
{
	uint32_t members = script_member_count(script, call);
	uint32_t self = script_member_of(script, call, rank->link.rank);
	struct message messages[MESSAGES_MAX];
	struct zinf_coll_p2p p2ps[MESSAGES_MAX];
	uint32_t count = messages_of(call, members, self, buffers, messages);
	enum zinf_dtype dtype = (enum zinf_dtype)call->dtype;

	if (call->operation == SCRIPT_SEND && messages[0].is_send)
		return zinf_coll_send(rank->zinf, messages[0].data, messages[0].element_count,
		                      dtype, messages[0].peer, options);
	if (call->operation == SCRIPT_SEND)
		return zinf_coll_recv(rank->zinf, messages[0].data, messages[0].element_count,
		                      dtype, messages[0].peer, options);
	for (uint32_t i = 0; i < count; i++)
		p2ps[i] = (struct zinf_coll_p2p){
			.is_send = messages[i].is_send,
			.peer = messages[i].peer,
			.data = messages[i].data,
			.count = messages[i].element_count,
			.dtype = dtype,
		};
	return zinf_coll_batch(rank->zinf, p2ps, count, options);
}

static int call_one(struct zinf_rank *rank, const struct script *script,
                    const struct script_call *call, const struct rank_buffers *buffers,
                    const struct zinf_coll_options *options)
{
	struct zinf *zinf = rank->zinf;
	void *source = buffers->source, *target = buffers->target;
	enum zinf_dtype dtype = (enum zinf_dtype)call->dtype;
	enum zinf_reduce_op op = (enum zinf_reduce_op)call->reduce_op;
	uint64_t count = call->element_count;

	switch (call->operation) {
	case SCRIPT_BARRIER:
		return zinf_coll_barrier(zinf, options);
	case SCRIPT_ALL_REDUCE:
		return zinf_coll_all_reduce(zinf, source, target, count, dtype, op, options);
	case SCRIPT_REDUCE:
		return zinf_coll_reduce(zinf, source, target, count, dtype, op, call->root,
		                        options);
	case SCRIPT_REDUCE_SCATTER:
		return zinf_coll_reduce_scatter(zinf, source, target, count, dtype, op, options);
	case SCRIPT_ALL_GATHER:
		return zinf_coll_all_gather(zinf, source, target, count, dtype, options);
	case SCRIPT_BROADCAST:
		return zinf_coll_broadcast(zinf, source ? source : target, count, dtype, call->root,
		                           options);
	case SCRIPT_GATHER:
		return zinf_coll_gather(zinf, source, target, count, dtype, call->root, options);
	case SCRIPT_SCATTER:
		return zinf_coll_scatter(zinf, source, target, count, dtype, call->root, options);
	case SCRIPT_ALL_TO_ALL:
		return zinf_coll_all_to_all(zinf, source, target, count, dtype, options);
	case SCRIPT_ALL_TO_ALLV:
		return zinf_coll_all_to_allv(zinf, source, buffers->source_counts, target,
		                             buffers->target_counts, dtype, options);
	default:
		return call_messages(rank, script, call, buffers, options);
	}
}

static int note(struct zinf_rank *rank, int r)
{
	if (r)
		(void)snprintf(rank->words, sizeof rank->words, "%s", zinf_error_text(rank->zinf));
	return r;
}

static int rank_call(struct rank_link *link, const struct script *script,
                     const struct script_call *call, const struct rank_buffers *buffers,
                     uint32_t slot)
{
	struct zinf_rank *rank = container_of(link, struct zinf_rank, link);
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;

	options.group = rank->groups[call->group];
	options.timeout_ms = rank->call_timeout_ms;
	if (call->is_async)
		options.ret_ticket = &rank->tickets[slot];
	return note(rank, call_one(rank, script, call, buffers, &options));
}

static int rank_wait(struct rank_link *link, uint32_t slot)
{
	struct zinf_rank *rank = container_of(link, struct zinf_rank, link);

	return note(rank, zinf_wait(rank->zinf, rank->tickets[slot], NULL));
}

static const char *rank_words(const struct rank_link *link)
{
	return container_of(link, struct zinf_rank, link)->words;
}

/* ---- a rank ---- */

static int open_groups(struct zinf_rank *rank, const struct script *script)
{
	int r = 0;

	rank->groups[0] = ZINF_GROUP_WORLD;
	for (uint32_t i = 1; i < script->group_count && !r; i++) {
		uint32_t members[SCRIPT_RANKS_MAX], count = 0;

		/* Named from behind: members are in the order of their ranks all the same. */
		for (uint32_t k = script->ranks; k-- > 0;)
			if (script->groups[i] >> k & 1u)
				members[count++] = k;
		r = zinf_coll_group(rank->zinf, members, count, NULL, &rank->groups[i]);
	}
	return r;
}

/* A group that is made has all ranks behind this, who may call nothing before. */
static int open_past(struct zinf_rank *rank, const struct script *script, uint32_t past)
{
	uint32_t ranks[SCRIPT_RANKS_MAX];
	zinf_group met;
	int r;

	for (uint32_t i = 0; i < script->group_count; i++)
		if (script->groups[i] >> rank->link.rank & 1u)
			past_of(&rank->zinf->coll->groups[rank->groups[i]]->node, past);
	for (uint32_t i = 0; i < script->ranks; i++)
		ranks[i] = i;
	r = zinf_coll_group(rank->zinf, ranks, script->ranks, NULL, &met);
	return r ? r : zinf_coll_group_free(rank->zinf, met);
}

static int attach(struct zinf_rank *rank, const struct zinf_rank_options *wanted)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	int r;

	options.socket_path = wanted->socket_path;
	options.job = wanted->job;
	options.incarnation = wanted->incarnation;
	options.rank = (int32_t)wanted->rank;
	options.world_size = (int32_t)wanted->script->ranks;
	options.timeout_ms = wanted->timeout_ms;
	r = zinf_attach(&options, &rank->zinf);
	if (r)
		(void)snprintf(rank->words, sizeof rank->words, "%s", zinf_attach_error());
	return r;
}

/* What a launcher sets, of several nodes. */
static void set_variables(const struct zinf_rank_options *options)
{
	char text[16];

	(void)snprintf(text, sizeof text, "%u", options->local_count);
	(void)setenv("LOCAL_WORLD_SIZE", text, 1); /* Memory is there. */
	(void)snprintf(text, sizeof text, "%u", options->port);
	(void)setenv("ZINF_PORT", text, 1);
	(void)setenv("MASTER_ADDR", "127.0.0.1", 1);
}

int zinf_rank_open(struct zinf_rank *rank, const struct zinf_rank_options *options)
{
	const struct script *script = options->script;
	int r;

	*rank = (struct zinf_rank){
		.link = { .rank = options->rank,
		          .arena_bytes = script->arena_bytes,
		          .call = rank_call,
		          .wait = rank_wait,
		          .words = rank_words },
		.call_timeout_ms = options->call_timeout_ms,
	};
	if (options->port)
		set_variables(options);
	r = attach(rank, options);
	if (r)
		return r;
	/* Memory is there. */
	(void)setenv("ZINF_COLL_CMA_BYTES", script_has_cma(script, options->rank) ? "1" : "0", 1);
	r = zinf_coll_open(rank->zinf, script->arena_bytes);
	if (!r)
		r = zinf_coll_alloc(rank->zinf, script->arena_bytes, (void **)&rank->link.arena);
	if (!r)
		r = open_groups(rank, script);
	if (!r && options->past)
		r = open_past(rank, script, options->past);
	return note(rank, r);
}

void zinf_rank_close(struct zinf_rank *rank)
{
	zinf_detach(rank->zinf);
	rank->zinf = NULL;
}
