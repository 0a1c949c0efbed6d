/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks are on which node; see meet.h. Floor 3, of zinf-net. */
#include "daemon/worker/net/meet.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/worker/store_client.h"

/* Between two looks whether a former run's store has gone. */
#define MEET_AGAIN_NS (50 * ZI_NS_PER_MS)

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

/* "2, 3", at most as many as fit. */
static struct zi_text say_ranks(uint64_t ranks)
{
	struct zi_text text = { "" };
	size_t used = 0;

	for (; ranks && used < 60; ranks &= ranks - 1)
		used += (size_t)snprintf(text.chars + used, sizeof(text.chars) - used, "%s%d",
		                         used ? ", " : "", __builtin_ctzll(ranks)); /* Fits. */
	if (ranks)
		(void)snprintf(text.chars + used, sizeof(text.chars) - used, ", …"); /* Fits. */
	return text;
}

static void pause_a_moment(void)
{
	struct timespec moment = { .tv_nsec = (long)MEET_AGAIN_NS };

	(void)nanosleep(&moment, NULL); /* Sooner is as good. */
}

/* A store of the same place may be that of the run before, whose node has not seen its end yet. */
static int open_client(const struct net_meet *meet, uint64_t deadline_ns, struct zi_text *text,
                       struct store_client **ret_client)
{
	struct store_client_options options = { .host = meet->place.host,
		                                .port = meet->place.port,
		                                .job = meet->job,
		                                .incarnation = meet->incarnation,
		                                .token = meet->token,
		                                .name = "a node that joins" };
	int r;

	for (;;) {
		r = store_client_open(&options, deadline_ns, text, ret_client);
		if (r != -ESTALE || zi_clock_now_ns() >= deadline_ns)
			break;
		pause_a_moment();
	}
	if (r == -ETIMEDOUT) {
		struct zi_text why = *text;

		return err_origin(zi_text_error(
			text, r,
			"the node of rank 0 was not found: %.120s: is MASTER_ADDR its address, "
			"and are its ranks started?",
			why.chars));
	}
	return err_trace(r);
}

/* Says that this node has its ranks. */
static int claim(struct store_client *client, const struct net_meet *meet,
                 const struct meet_card *own, uint64_t deadline_ns, struct zi_text *text)
{
	for (uint64_t left = meet->ranks; left; left &= left - 1) {
		uint32_t rank = (uint32_t)__builtin_ctzll(left), bytes;
		struct meet_key key = key_of(rank);
		struct meet_card other;
		bool is_present;
		int r = store_client_set_new(client, key.chars, own, sizeof(*own), deadline_ns,
		                             text, &is_present);

		if (r)
			return err_trace(r);
		if (!is_present)
			continue;
		r = store_client_get(client, key.chars, &other, sizeof(other), deadline_ns, text,
		                     &bytes);
		if (r)
			return err_trace(r);
		other.host[sizeof(other.host) - 1] = '\0';
		return err_origin(zi_text_error(
			text, -EEXIST,
			"rank %u of job '%s' is here (%s) and on %s, which has ranks %s: another "
			"job of that name, or a wrong RANK",
			rank, meet->job, own->host, other.host, say_ranks(other.ranks).chars));
	}
	return 0;
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
		"there, and are they started?",
		say_ranks(missing).chars, meet->job, (double)meet->timeout_ms / 1e3));
}

/* Nodes in the order of their first ranks. */
static int number_nodes(struct store_client *client, const struct net_meet *meet,
                        uint64_t deadline_ns, struct zi_text *text, struct meet_result *result)
{
	uint64_t masks[ZI_WORLD_MAX], seen = 0;

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
int meet_all(const struct net_meet *meet, struct zi_text *text, struct meet_result *ret_result)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(meet->timeout_ms * ZI_NS_PER_MS);
	_cleanup_(store_client_closep) struct store_client *client = NULL;
	struct meet_result result = { .node_count = 0 };
	struct meet_card own;
	int r;

	memset(&own, 0, sizeof(own)); /* All of it is sent. */
	own.ranks = meet->ranks;
	own.world_size = meet->world_size;
	own.pid = (uint32_t)getpid();
	(void)gethostname(own.host, sizeof(own.host) - 1); /* For people: "" then. */
	r = open_client(meet, deadline_ns, text, &client);
	r = r ? r : claim(client, meet, &own, deadline_ns, text);
	r = r ? r : await_ranks(client, meet, deadline_ns, text);
	r = r ? r : number_nodes(client, meet, deadline_ns, text, &result);
	if (r)
		return err_trace(r);
	*ret_result = result;
	return 0;
}
