/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ranks are on which node; see meet.h. Floor 3, of zinf-net.
 *
 * The n-th opening of each node is the others' n-th, and fails on all or on none. A store is for
 * one opening, that of the node of rank 0, and says for which. Who fails there says so, and nobody
 * meets there any more. Who comes from an earlier opening has that one's error at once; who comes
 * for a later one tells the others theirs, and waits for the next store.
 */
#include "daemon/worker/net/meet.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/worker/net/end.h"
#include "daemon/worker/net/way.h"
#include "daemon/worker/store_alive.h"

/* Between two looks whether a former run's store has gone. */
#define MEET_AGAIN_NS (50 * ZI_NS_PER_MS)
/* That of another job, or of a run that goes on, ends so soon after its last rank, if at all. */
#define MEET_OTHER_NS (5 * ZI_NS_PER_S)
static_assert(STORE_SILENT_NS < MEET_OTHER_NS, "a run whose node was lost is known as such");
/* A daemon whose worker has ended says why in a store of a new one so soon, if at all. */
#define MEET_WHY_NS (3 * ZI_NS_PER_S)
/* The end of a connection is noticed so soon. */
#define MEET_CLAIM_NS (500 * ZI_NS_PER_MS)
/* Which opening the node of rank 0, whose store it is, is at. */
#define MEET_OPENING_KEY "opening"

/* The store is of an opening that has failed before, or goes: there will be another. It has gone
 * while ranks were waited for: the next one may say why. */
enum { _MEET_E_SUCCESS, MEET_E_FORMER, MEET_E_LOST };

/* What a node says of itself. */
struct meet_card {
	uint64_t ranks;
	uint64_t arena_bytes, asked_bytes;
	uint32_t world_size, pid;
	char host[ZI_NAME_BYTES];
};

struct meet_key {
	char chars[ZI_NAME_BYTES];
};

static struct meet_key key_of(uint32_t rank)
{
	struct meet_key key;

	(void)snprintf(key.chars, sizeof(key.chars), "rank/%u", rank); /* Fits. */
	return key;
}

static void pause_a_moment(void)
{
	struct timespec moment = { .tv_nsec = (long)MEET_AGAIN_NS };

	(void)nanosleep(&moment, NULL); /* Sooner is as good. */
}

/* A store of the same place may be that of the run before, or of the job before, whose node has not
 * seen its end yet. One that goes on there is told soon: the place is wrong, or this job is another
 * one of that name. */
static int open_client(const struct net_meet *meet, uint64_t deadline_ns, struct zi_text *text,
                       struct store_client **ret_client)
{
	uint64_t other_ns = ZI_MIN(zi_clock_deadline_ns(MEET_OTHER_NS), deadline_ns);
	char name[ZI_NAME_BYTES];
	int r;

	(void)snprintf(name, sizeof(name), "%.36s (ranks %.16s)", way_own_host().chars,
	               way_say_ranks(meet->ranks).chars); /* For people: cut. */
	for (;;) {
		r = way_open(&meet->way, name, deadline_ns, text, ret_client);
		if ((r != -ESTALE && r != -EEXIST) ||
		    zi_clock_now_ns() >= (r == -ESTALE ? deadline_ns : other_ns))
			break;
		pause_a_moment();
	}
	if (r == -ETIMEDOUT) {
		struct zi_text why = *text;

		return err_origin(zi_text_error(text, r, "the node of rank 0 was not found: %.200s",
		                                why.chars));
	}
	return err_trace(r);
}

/* Until it is ours: that of a node that has just ended is free in a moment. */
static int claim_one(struct store_client *client, const struct net_meet *meet,
                     const struct meet_card *own, uint32_t rank, uint64_t deadline_ns,
                     struct zi_text *text)
{
	uint64_t patience_ns = ZI_MIN(zi_clock_deadline_ns(MEET_CLAIM_NS), deadline_ns);
	struct meet_key key = key_of(rank);
	struct meet_card other = { .host = "another node" };
	bool is_present;
	uint32_t bytes;
	int r;

	for (;;) {
		r = store_client_claim(client, key.chars, own, sizeof(*own), deadline_ns, text,
		                       &is_present);
		if (r || !is_present)
			return err_trace(r);
		if (zi_clock_now_ns() >= patience_ns)
			break;
		pause_a_moment();
	}
	r = store_client_get(client, key.chars, &other, sizeof(other), deadline_ns, text, &bytes);
	if (r && r != -ENOENT)
		return err_trace(r);
	other.host[sizeof(other.host) - 1] = '\0';
	return err_origin(zi_text_error(text, -EEXIST,
	                                "rank %u of job '%s' is here (%s) and on %s, which has "
	                                "ranks %s: another job of that name, or a wrong RANK",
	                                rank, meet->way.job, own->host, other.host,
	                                way_say_ranks(other.ranks).chars));
}

/* Says that this node has its ranks. */
static int claim(struct store_client *client, const struct net_meet *meet,
                 const struct meet_card *own, uint64_t deadline_ns, struct zi_text *text)
{
	int r = 0;

	for (uint64_t left = meet->ranks; left && !r; left &= left - 1)
		r = claim_one(client, meet, own, (uint32_t)__builtin_ctzll(left), deadline_ns,
		              text);
	return err_trace(r);
}

/* Who has not come, when all others have waited. */
static int name_missing(struct store_client *client, const struct net_meet *meet,
                        const char *const *names, struct zi_text *text)
{
	uint64_t missing = 0;

	for (uint32_t i = 0; i < meet->world_size; i++) {
		int r = store_client_wait(client, &names[i], 1, 0, text);

		if (r && (r != -ETIMEDOUT || !store_client_is_connected(client)))
			return err_trace(r); /* That says nothing of who has come. */
		missing |= (uint64_t)(r != 0) << i;
	}
	if (!missing)
		return err_origin(zi_text_error(text, -ETIMEDOUT,
		                                "the last ranks of job '%s' came when %.4g s were "
		                                "over",
		                                meet->way.job, (double)meet->timeout_ms / 1e3));
	return err_origin(zi_text_error(
		text, -ETIMEDOUT, "ranks %s of job '%s' did not come on any node within %.4g s: %s",
		way_say_ranks(missing).chars, meet->way.job, (double)meet->timeout_ms / 1e3,
		way_say_why_missing(client).chars));
}

/* Another node cannot, or could not. Return: MEET_E_FORMER, that was before; its error. */
static int heed(const struct net_meet *meet, const struct nodes_end *end, struct zi_text *text)
{
	if (end->opening < meet->opening)
		return MEET_E_FORMER;
	return err_origin(zi_text_error(text, end->error, "%s", end->text.chars));
}

/* Until every rank is somewhere. Return: 0, MEET_E_FORMER, or an error: another node's perhaps. */
static int await_ranks(struct store_client *client, const struct net_meet *meet,
                       uint64_t deadline_ns, struct zi_text *text)
{
	struct meet_key keys[ZI_WORLD_MAX];
	const char *names[ZI_WORLD_MAX];
	struct nodes_end end;
	char value[sizeof(end)];
	uint32_t bytes = 0;
	bool has_ended;
	int r;

	static_assert(ZI_WORLD_MAX < STORE_WAIT_KEYS_MAX, "all are waited for at once");
	for (uint32_t i = 0; i < meet->world_size; i++) {
		keys[i] = key_of(i);
		names[i] = keys[i].chars;
	}
	r = store_client_wait_unless(client, STORE_ENDED_KEY, names, meet->world_size, value,
	                             sizeof(value), deadline_ns, text, &bytes, &has_ended);
	if (r == -ETIMEDOUT && store_client_is_connected(client))
		return err_trace(name_missing(client, meet, names, text));
	if (r || !has_ended)
		return err_trace(r);
	r = nodes_end_take(value, bytes, STORE_ENDED_KEY, text, &end);
	return r ? err_trace(r) : heed(meet, &end, text);
}

/* What must be alike on all nodes. */
static int compare(const struct net_meet *meet, const struct meet_card *own, uint32_t rank,
                   uint32_t bytes, const struct meet_card *card, struct zi_text *text)
{
	uint32_t own_rank = (uint32_t)__builtin_ctzll(own->ranks);

	if (bytes != sizeof(*card) || !(card->ranks >> rank & 1) ||
	    card->world_size != meet->world_size)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"rank %u is on %s, where the job has %u ranks: here it has %u", rank,
			card->host, card->world_size, meet->world_size));
	if (card->arena_bytes == own->arena_bytes)
		return 0;
	return err_origin(zi_text_error(
		text, -EINVAL,
		"collectives: rank %u (on %.40s) asks for an arena of %llu bytes, rank %u (on "
		"%.40s) for %llu: all ranks must ask for the same",
		rank, card->host, (unsigned long long)card->asked_bytes, own_rank, own->host,
		(unsigned long long)own->asked_bytes));
}

/* Nodes in the order of their first ranks. */
static int number_nodes(struct store_client *client, const struct net_meet *meet,
                        const struct meet_card *own, uint64_t deadline_ns, struct zi_text *text,
                        struct meet_result *result)
{
	uint64_t masks[ZI_WORLD_MAX], seen = 0;

	*result = (struct meet_result){ .node_count = 0 };
	for (uint32_t i = 0; i < meet->world_size; i++) {
		struct meet_key key = key_of(i);
		struct meet_card card = { .host = "?" };
		uint32_t bytes, node = 0;
		int r = store_client_get(client, key.chars, &card, sizeof(card), deadline_ns, text,
		                         &bytes);

		if (r)
			return err_trace(r);
		card.host[sizeof(card.host) - 1] = '\0';
		r = compare(meet, own, i, bytes, &card, text);
		if (r)
			return err_trace(r);
		if (seen >> i & 1) {
			while (!(masks[node] >> i & 1))
				node++;
		} else {
			node = result->node_count++;
			masks[node] = card.ranks;
			seen |= card.ranks;
		}
		result->nodes[i] = (uint8_t)node;
		if (meet->ranks >> i & 1)
			result->node = node;
	}
	return 0;
}

/* ---- telling ---- */

/* Where this is not the host that it happened on, the text says so already. */
static struct zi_text say_where(const struct zi_text *text)
{
	struct way_host host = way_own_host();
	struct zi_text told = *text;

	if (!strstr(text->chars, " (on "))
		zi_text_set(&told, "%.*s (on %.40s)", (int)(sizeof(told.chars) - 50), text->chars,
		            host.chars);
	return told;
}

/* The others hear why opening @opening has failed, unless one has said so before. */
static void tell_end(struct store_client *client, uint32_t opening, int error,
                     const struct zi_text *text)
{
	struct nodes_end end = { .error = error,
		                 .culprit = NET_CULPRIT_NONE,
		                 .done = NODES_DONE_UNKNOWN,
		                 .opening = opening,
		                 .text = say_where(text) };
	bool is_present;

	/* Where it cannot be said they have their deadlines. */
	(void)nodes_end_tell(client, STORE_ENDED_KEY, &end, zi_clock_deadline_ns(MEET_CLAIM_NS),
	                     NULL, &is_present);
}

/* Which opening the store is for, and why the one before failed. The node of rank 0 says so. */
static int take_opening(struct store_client *client, const struct net_meet *meet,
                        uint64_t deadline_ns, struct zi_text *text, struct nodes_end *ret_opening)
{
	struct nodes_end own = { .error = meet->error ? meet->error : -ESTALE,
		                 .culprit = NET_CULPRIT_NONE,
		                 .opening = meet->opening,
		                 .text = say_where(&meet->text) };
	const char *keys[] = { MEET_OPENING_KEY };
	bool is_present;
	int r = 0;

	if (meet->ranks & 1)
		r = nodes_end_tell(client, keys[0], &own, deadline_ns, text, &is_present);
	r = r ? r : store_client_wait(client, keys, 1, deadline_ns, text);
	return r ? err_trace(r)
	         : err_trace(nodes_end_read(client, keys[0], deadline_ns, text, ret_opening));
}

/* In each store in which somebody may wait for what this node does not come to. */
static int tell_all(const struct net_meet *meet, uint64_t deadline_ns, struct zi_text *text)
{
	const char *never[] = { "none sets this" };
	struct nodes_end opening;
	int r;

	do {
		_cleanup_(store_client_closep) struct store_client *client = NULL;

		r = open_client(meet, deadline_ns, text, &client);
		r = r ? r : take_opening(client, meet, deadline_ns, text, &opening);
		if (!r && opening.opening > meet->opening)
			return 0; /* There they know that it is over. */
		if (!r) {
			tell_end(client, meet->opening, meet->error, &meet->text);
			r = store_client_wait(client, never, 1, deadline_ns, text);
		}
	} while (r == -EPIPE && zi_clock_now_ns() < deadline_ns);
	return r == -ETIMEDOUT ? 0 : err_trace(r);
}

/* ---- meeting ---- */

/* Whether this store is for this opening. Return: 0; MEET_E_FORMER; -errno as it has failed. */
static int check_opening(struct store_client *client, const struct net_meet *meet,
                         uint64_t deadline_ns, struct zi_text *text)
{
	struct nodes_end end;
	int r = take_opening(client, meet, deadline_ns, text, &end);

	if (!r && end.opening < meet->opening)
		tell_end(client, meet->failed, meet->error, &meet->text);
	if (!r && end.opening != meet->opening)
		return heed(meet, &end, text);
	r = r ? r : nodes_end_read(client, STORE_ENDED_KEY, deadline_ns, text, &end);
	return r == -ENOENT ? 0 : r ? err_trace(r) : heed(meet, &end, text);
}

/* In the store that @client has found. Return: 0, MEET_E_FORMER, MEET_E_LOST with @text, or an
 * error, which is told. */
static int meet_there(struct store_client *client, const struct net_meet *meet,
                      const struct meet_card *own, uint64_t deadline_ns, struct zi_text *text,
                      struct meet_result *result)
{
	int r = check_opening(client, meet, deadline_ns, text);
	bool is_for_this = !r;

	r = r ? r : claim(client, meet, own, deadline_ns, text);
	/* Another node may have told of an end by the same number. */
	if (r == -EPIPE && !store_client_is_connected(client))
		return MEET_E_FORMER; /* It was about to go. */
	while (!r) {
		r = await_ranks(client, meet, deadline_ns, text);
		r = r ? r : number_nodes(client, meet, own, deadline_ns, text, result);
		if (r != -ENOENT)
			break;
		r = 0; /* One has gone meanwhile: it may come anew. */
	}
	if (!r)
		r = store_client_set(client, STORE_MET_KEY, NULL, 0, deadline_ns, text);
	if (r == -EPIPE && !store_client_is_connected(client))
		return MEET_E_LOST;
	/* A store that is for a later opening is not ended by this one. */
	if (r < 0 && is_for_this && store_client_is_connected(client))
		tell_end(client, meet->opening, r, text);
	return r;
}

/* Nobody serves a store any more. @lost: why the last one went, or "". Return: an error. */
static int say_alone(const struct net_meet *meet, const struct zi_text *lost, struct zi_text *text)
{
	if (lost->chars[0])
		return err_origin(zi_text_error(text, -EPIPE, "%s", lost->chars));
	return err_origin(zi_text_error(
		text, -ETIMEDOUT,
		"the ranks of the first node did not come again within %.4g s: the store of job "
		"'%s' there is that of an opening that failed",
		(double)meet->timeout_ms / 1e3, meet->way.job));
}

/* In the first store that is for this opening. */
static int meet_somewhere(const struct net_meet *meet, const struct meet_card *own,
                          uint64_t deadline_ns, struct zi_text *text,
                          struct meet_result *ret_result, struct store_client **ret_client)
{
	uint64_t open_ns = deadline_ns;
	struct zi_text lost = { "" };
	struct meet_result result;
	bool was_former = false;
	int r;

	for (;;) {
		_cleanup_(store_client_closep) struct store_client *client = NULL;

		r = open_client(meet, open_ns, text, &client);
		r = r ? r : meet_there(client, meet, own, deadline_ns, text, &result);
		if (r == -ETIMEDOUT && was_former &&
		    (!client || !store_client_is_connected(client)))
			return err_trace(say_alone(meet, &lost, text));
		if (!r) {
			result.run = store_client_run(client);
			*ret_result = result;
			*ret_client = zi_steal(client);
		}
		if (r != MEET_E_FORMER && r != MEET_E_LOST)
			return err_trace(r);
		was_former = true;
		if (r == MEET_E_LOST && !lost.chars[0]) {
			lost = *text;
			open_ns = ZI_MIN(zi_clock_deadline_ns(MEET_WHY_NS), deadline_ns);
		}
		if (lost.chars[0] && zi_clock_now_ns() >= open_ns)
			return err_trace(say_alone(meet, &lost, text));
		pause_a_moment();
	}
}

/* Documented in the header. */
int meet_all(const struct net_meet *meet, struct zi_text *text, struct meet_result *ret_result,
             struct store_client **ret_client)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(meet->timeout_ms * ZI_NS_PER_MS);
	struct meet_card own;
	int r;

	if (meet->failed == meet->opening) {
		r = tell_all(meet, deadline_ns, text);
		return r ? err_trace(r)
		         : err_origin(zi_text_error(text, meet->error, "%s", meet->text.chars));
	}
	memset(&own, 0, sizeof(own)); /* All of it is sent. */
	own.ranks = meet->ranks;
	own.arena_bytes = meet->arena_bytes;
	own.asked_bytes = meet->asked_bytes;
	own.world_size = meet->world_size;
	own.pid = (uint32_t)getpid();
	static_assert(sizeof(own.host) == sizeof(struct way_host), "it fits");
	memcpy(own.host, way_own_host().chars, sizeof(own.host));
	return err_trace(meet_somewhere(meet, &own, deadline_ns, text, ret_result, ret_client));
}
