/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks are on which node; see meet.h. Floor 3, of zinf-net. */
#include "daemon/worker/net/meet.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/worker/net/way.h"
#include "daemon/worker/store_alive.h"

/* Between two looks whether a former run's store has gone. */
#define MEET_AGAIN_NS (50 * ZI_NS_PER_MS)
/* That of another job, or of a run that goes on, ends so soon after its last rank, if at all. */
#define MEET_OTHER_NS (5 * ZI_NS_PER_S)
static_assert(STORE_SILENT_NS < MEET_OTHER_NS, "a run whose node was lost is known as such");
/* The end of a connection is noticed so soon. */
#define MEET_CLAIM_NS (500 * ZI_NS_PER_MS)

/* What a node says of itself. */
struct meet_card {
	uint64_t ranks;
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

/* Who came and was refused, perhaps one of those who are missing: "; …", or "". */
static struct zi_text say_refused(struct store_client *client)
{
	struct zi_text text = { "; " };
	uint32_t bytes;

	if (store_client_get(client, STORE_REFUSED_KEY, text.chars + 2, sizeof(text.chars) - 3,
	                     zi_clock_deadline_ns(MEET_CLAIM_NS), NULL, &bytes))
		bytes = 0;
	text.chars[bytes ? bytes + 2 : 0] = '\0';
	return text;
}

/* Until every rank is somewhere. */
static int await_ranks(struct store_client *client, const struct net_meet *meet,
                       uint64_t deadline_ns, struct zi_text *text)
{
	struct meet_key keys[ZI_WORLD_MAX];
	const char *names[ZI_WORLD_MAX];
	uint64_t missing = 0;
	int r;

	static_assert(ZI_WORLD_MAX <= STORE_WAIT_KEYS_MAX, "all are waited for at once");
	for (uint32_t i = 0; i < meet->world_size; i++) {
		keys[i] = key_of(i);
		names[i] = keys[i].chars;
	}
	r = store_client_wait(client, names, meet->world_size, deadline_ns, text);
	if (r != -ETIMEDOUT)
		return err_trace(r);
	for (uint32_t i = 0; i < meet->world_size; i++)
		if (store_client_wait(client, &names[i], 1, 0, NULL))
			missing |= 1ull << i;
	return err_origin(zi_text_error(
		text, r,
		"ranks %s of job '%s' did not come on any node within %.4g s: is zinfd running "
		"there, and are they started?%s",
		way_say_ranks(missing).chars, meet->way.job, (double)meet->timeout_ms / 1e3,
		say_refused(client).chars));
}

/* Nodes in the order of their first ranks. */
static int number_nodes(struct store_client *client, const struct net_meet *meet,
                        uint64_t deadline_ns, struct zi_text *text, struct meet_result *result)
{
	uint64_t masks[ZI_WORLD_MAX], seen = 0;

	*result = (struct meet_result){ .node_count = 0 };
	for (uint32_t i = 0; i < meet->world_size; i++) {
		struct meet_key key = key_of(i);
		struct meet_card card;
		uint32_t bytes, node = 0;
		int r = store_client_get(client, key.chars, &card, sizeof(card), deadline_ns, text,
		                         &bytes);

		if (r)
			return err_trace(r);
		card.host[sizeof(card.host) - 1] = '\0';
		if (bytes != sizeof(card) || !(card.ranks >> i & 1) ||
		    card.world_size != meet->world_size)
			return err_origin(zi_text_error(
				text, -EINVAL,
				"rank %u is on %s, where the job has %u ranks: here it has %u", i,
				card.host, card.world_size, meet->world_size));
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

/* Documented in the header. */
int meet_all(const struct net_meet *meet, struct zi_text *text, struct meet_result *ret_result,
             struct store_client **ret_client)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(meet->timeout_ms * ZI_NS_PER_MS);
	_cleanup_(store_client_closep) struct store_client *client = NULL;
	struct meet_result result;
	struct meet_card own;
	int r;

	memset(&own, 0, sizeof(own)); /* All of it is sent. */
	own.ranks = meet->ranks;
	own.world_size = meet->world_size;
	own.pid = (uint32_t)getpid();
	static_assert(sizeof(own.host) == sizeof(struct way_host), "it fits");
	memcpy(own.host, way_own_host().chars, sizeof(own.host));
	r = open_client(meet, deadline_ns, text, &client);
	r = r ? r : claim(client, meet, &own, deadline_ns, text);
	while (!r) {
		r = await_ranks(client, meet, deadline_ns, text);
		r = r ? r : number_nodes(client, meet, deadline_ns, text, &result);
		if (r != -ENOENT)
			break;
		r = 0; /* One has gone meanwhile: it may come anew. */
	}
	if (!r)
		r = store_client_set(client, STORE_MET_KEY, NULL, 0, deadline_ns, text);
	if (r)
		return err_trace(r);
	result.run = store_client_run(client);
	*ret_result = result;
	*ret_client = zi_steal(client);
	return 0;
}
