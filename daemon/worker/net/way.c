/* SPDX-License-Identifier: Apache-2.0 */
/* The way to a job's store; see way.h. Floor 3, of zinf-net. Any thread. */
#include "daemon/worker/net/way.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/worker/store.h"

#define WAY_CAUSE_NS (500 * ZI_NS_PER_MS)

/* Documented in the header, as are the others. */
int way_open(const struct net_way *way, const char *name, uint64_t deadline_ns,
             struct zi_text *text, struct store_client **ret_client)
{
	return err_trace(
		store_client_open(&(struct store_client_options){ .host = way->place.host,
	                                                          .port = way->place.port,
	                                                          .job = way->job,
	                                                          .incarnation = way->incarnation,
	                                                          .run = way->run,
	                                                          .token = way->token,
	                                                          .name = name },
	                          deadline_ns, text, ret_client));
}

static bool is_string(const char *chars, size_t capacity)
{
	return memchr(chars, '\0', capacity) != NULL;
}

bool way_is_whole(const struct net_way *way)
{
	return is_string(way->job, sizeof(way->job)) &&
	       is_string(way->incarnation, sizeof(way->incarnation)) &&
	       is_string(way->token, sizeof(way->token)) &&
	       is_string(way->interface, sizeof(way->interface)) &&
	       is_string(way->place.host, sizeof(way->place.host));
}

struct way_host way_own_host(void)
{
	struct way_host host = { "?" };

	(void)gethostname(host.chars, sizeof(host.chars) - 1); /* For people: "?" then. */
	return host;
}

/* Return: whether the store has @key. */
static bool take_cause(struct store_client *client, const char *key, struct zi_text *cause)
{
	struct zi_text text = { "" };
	uint32_t bytes;

	if (store_client_get(client, key, text.chars, sizeof(text.chars) - 1,
	                     zi_clock_deadline_ns(WAY_CAUSE_NS), NULL, &bytes))
		return false;
	zi_text_set(cause, "%s", text.chars);
	return true;
}

struct zi_text way_say_why_missing(struct store_client *client)
{
	struct zi_text cause = { "is zinfd running there, and are its ranks started?" };

	/* The refused client is the better cause: it named itself. */
	if (!take_cause(client, STORE_REFUSED_KEY, &cause))
		(void)take_cause(client, STORE_STRANGERS_KEY, &cause); /* Else the question. */
	return cause;
}

struct zi_text way_say_ranks(uint64_t ranks)
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
