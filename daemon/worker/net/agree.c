/* SPDX-License-Identifier: Apache-2.0 */
/* Whether all nodes would make the same group; see agree.h. Floor 3, of zinf-net. */
#include "daemon/worker/net/agree.h"

#include <stdio.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/worker/net/end.h"
#include "daemon/worker/net/way.h"

/* Of the time that is given, so much at most is for telling those who have not come: a part of it.
 */
#define AGREE_TELL_NS   (200 * ZI_NS_PER_MS)
#define AGREE_TELL_PART 4u

/* What a node says. */
struct agree_card {
	int32_t error;
	uint32_t reserved;
	uint64_t members;
	struct way_host host;
	struct zi_text text; /* of the error */
};

struct agree_key {
	char chars[ZI_NAME_BYTES];
};

struct agreement {
	const struct net_agree *agree;
	struct store_client *client;
	uint64_t deadline_ns, wait_ns; /* wait_ns: others are waited for so long */
	struct zi_text *text;
};

static struct agree_key key_of(const struct agreement *agreement, uint32_t node)
{
	struct agree_key key;

	(void)snprintf(key.chars, sizeof(key.chars), "%lu/agree/%u",
	               (unsigned long)agreement->agree->epoch, node); /* Fits. */
	return key;
}

static uint64_t ranks_of(const struct net_agree *agree, uint32_t node)
{
	uint64_t ranks = 0;

	for (uint32_t i = 0; i < agree->world_size; i++)
		if (agree->nodes[i] == node)
			ranks |= 1ull << i;
	return ranks;
}

/* Unless somebody has answered for that node. */
static int publish(const struct agreement *agreement, uint32_t node, const struct agree_card *card)
{
	bool is_present;

	return err_trace(store_client_set_new(agreement->client, key_of(agreement, node).chars,
	                                      card, sizeof(*card), agreement->deadline_ns,
	                                      agreement->text, &is_present));
}

/* Where this node said before that it would make the group, others may be on their way to join it:
 * they look there (nodes.h). */
static int publish_end(const struct agreement *agreement)
{
	/* Nodes of a group have numbers of their own. */
	struct nodes_end end = { .error = agreement->agree->error,
		                 .culprit = NET_CULPRIT_NONE,
		                 .done = NODES_DONE_UNKNOWN,
		                 .text = agreement->agree->text };
	char key[ZI_NAME_BYTES];
	bool is_present;

	(void)snprintf(key, sizeof(key), "%lu/abort",
	               (unsigned long)agreement->agree->epoch); /* Fits. */
	return err_trace(nodes_end_tell(agreement->client, key, &end, agreement->deadline_ns,
	                                agreement->text, &is_present));
}

/* Return: 0; -ENOENT, it has not come. */
static int read_card(const struct agreement *agreement, uint32_t node, struct agree_card *ret_card)
{
	uint32_t bytes;
	int r = store_client_get(agreement->client, key_of(agreement, node).chars, ret_card,
	                         sizeof(*ret_card), agreement->deadline_ns, agreement->text,
	                         &bytes);

	if (r)
		return err_trace(r);
	if (bytes != sizeof(*ret_card) || ret_card->error > 0)
		return err_origin(zi_text_error(agreement->text, -EPROTO,
		                                "node %u says nothing of a group", node));
	ret_card->host.chars[sizeof(ret_card->host.chars) - 1] = '\0';
	ret_card->text.chars[sizeof(ret_card->text.chars) - 1] = '\0';
	return 0;
}

/* Pure, of what is the same for everyone. Return: 0, or why these two make no group. */
static int compare(const struct net_agree *agree, uint32_t a, const struct agree_card *first,
                   uint32_t b, const struct agree_card *second, struct zi_text *text)
{
	if (first->error)
		return zi_text_error(text, first->error, "%s", first->text.chars);
	if (second->error)
		return zi_text_error(text, second->error, "%s", second->text.chars);
	if (first->members == second->members)
		return 0;
	return zi_text_error(text, -EINVAL,
	                     "a group of ranks %.48s say ranks %.32s (%.24s), of ranks %.48s "
	                     "ranks %.32s (%.24s): all ranks must name the same members",
	                     way_say_ranks(first->members).chars,
	                     way_say_ranks(ranks_of(agree, a)).chars, first->host.chars,
	                     way_say_ranks(second->members).chars,
	                     way_say_ranks(ranks_of(agree, b)).chars, second->host.chars);
}

/* At all that have come. Return: 0, or the first difference. @ret_is_missing: some have not. */
static int look(const struct agreement *agreement, bool *ret_is_missing)
{
	const struct net_agree *agree = agreement->agree;
	struct agree_card first = { .error = 0 }, card;
	uint32_t first_node = UINT32_MAX;
	int r;

	*ret_is_missing = false;
	for (uint32_t i = 0; i < agree->node_count; i++) {
		r = read_card(agreement, i, &card);
		if (r == -ENOENT) {
			*ret_is_missing = true;
			continue;
		}
		if (r)
			return err_trace(r);
		if (first_node == UINT32_MAX) {
			first = card;
			first_node = i;
		}
		r = compare(agree, first_node, &first, i, &card, agreement->text);
		if (r)
			return r;
	}
	return 0;
}

/* Those who have not come hear of it when they do, and those who wait for them now. */
static void answer_for_missing(const struct agreement *agreement, int error)
{
	struct zi_text why = *agreement->text;
	struct agree_card card;

	memset(&card, 0, sizeof(card)); /* All of it is sent. */
	card.error = error;
	card.text = why;
	for (uint32_t i = 0; i < agreement->agree->node_count; i++)
		if (publish(agreement, i, &card))
			break; /* They have their deadline. */
	*agreement->text = why;
}

static int await_all(const struct agreement *agreement)
{
	const struct net_agree *agree = agreement->agree;
	struct agree_key keys[SUBTREE_NODES_MAX];
	const char *names[SUBTREE_NODES_MAX];
	int r;

	static_assert(SUBTREE_NODES_MAX <= STORE_WAIT_KEYS_MAX, "all are waited for at once");
	for (uint32_t i = 0; i < agree->node_count; i++) {
		keys[i] = key_of(agreement, i);
		names[i] = keys[i].chars;
	}
	r = store_client_wait(agreement->client, names, agree->node_count, agreement->wait_ns,
	                      agreement->text);
	if (r != -ETIMEDOUT || !store_client_is_connected(agreement->client))
		return err_trace(r);
	for (uint32_t i = 0; i < agree->node_count; i++) {
		int missing =
			store_client_wait(agreement->client, &names[i], 1, 0, agreement->text);

		if (!missing)
			continue;
		/* What a lost link does not tell is no node's fault. */
		if (missing != -ETIMEDOUT || !store_client_is_connected(agreement->client))
			return err_trace(missing);
		return err_origin(zi_text_error(
			agreement->text, r,
			"ranks %s (node %u) did not %scome to make a group of ranks %s within "
			"%.4g s",
			way_say_ranks(ranks_of(agree, i)).chars, i,
			__builtin_popcountll(ranks_of(agree, i)) > 1 ? "all " : "",
			way_say_ranks(agree->members).chars, (double)agree->timeout_ms / 1e3));
	}
	return err_trace(r); /* It came a moment too late. */
}

static int agree_on(const struct agreement *agreement)
{
	const struct net_agree *agree = agreement->agree;
	struct agree_card own;
	bool is_missing;
	int r, settled;

	memset(&own, 0, sizeof(own)); /* All of it is sent. */
	own.error = agree->error;
	own.members = agree->members;
	own.host = way_own_host();
	own.text = agree->text;
	/* Each tells before it looks: so whoever comes last of two that differ sees it. */
	r = publish(agreement, agree->node, &own);
	if (!r && agree->error)
		r = publish_end(agreement);
	if (r)
		return err_trace(r);
	r = look(agreement, &is_missing);
	if (!r && !is_missing && !agree->error)
		return 0;
	if (!r && agree->error) /* Where this node answered before, and thought better of it. */
		r = zi_text_error(agreement->text, agree->error, "%s", agree->text.chars);
	if (!r)
		r = await_all(agreement);
	if (r && !store_client_is_connected(agreement->client))
		return err_trace(r); /* Nothing can be told, or be heard of the others. */
	if (r)
		answer_for_missing(agreement, r);
	if (r && (r != -ETIMEDOUT || agree->error))
		return err_trace(r);
	/* Whoever came meanwhile stands. All answers are there now: each node comes to the same. */
	settled = look(agreement, &is_missing);
	return settled || !is_missing ? err_trace(settled) : err_trace(r);
}

/* What was said of the epoch so long ago. */
static int forget(const struct agreement *agreement, uint64_t age)
{
	uint64_t epoch = agreement->agree->epoch;
	char prefix[ZI_NAME_BYTES];

	if (epoch <= age)
		return 0;
	(void)snprintf(prefix, sizeof(prefix), "%lu/", (unsigned long)(epoch - age)); /* Fits. */
	return err_trace(store_client_forget(agreement->client, prefix, agreement->deadline_ns,
	                                     agreement->text));
}

/* Documented in the header. */
int agree_all(const struct net_agree *agree, struct zi_text *text)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(agree->timeout_ms * ZI_NS_PER_MS);
	_cleanup_(store_client_closep) struct store_client *client = NULL;
	struct agreement agreement = { .agree = agree, .deadline_ns = deadline_ns, .text = text };
	char name[ZI_NAME_BYTES];
	int r;

	(void)snprintf(name, sizeof(name), "node %u (%.40s)", agree->node,
	               way_own_host().chars); /* Fits. */
	r = way_open(&agree->way, name, deadline_ns, text, &client);
	if (r)
		return err_trace(r);
	agreement.client = client;
	agreement.wait_ns = deadline_ns - ZI_MIN(agree->timeout_ms * ZI_NS_PER_MS / AGREE_TELL_PART,
	                                         AGREE_TELL_NS);
	if (agree->node == 0)
		r = forget(&agreement, agree_epochs_kept(agree->node_count));
	/* Why groups ended that lived on. */
	if (!r && agree->node == 0)
		r = forget(&agreement, AGREE_EPOCHS_MAX);
	return r ? err_trace(r) : err_trace(agree_on(&agreement));
}
