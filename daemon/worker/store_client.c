/* SPDX-License-Identifier: Apache-2.0 */
/* What a node asks of the store; see store_client.h. Floor 3. One thread at a time. */
#include "daemon/worker/store_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/wire/control.h"
#include "daemon/worker/store.h"
#include "daemon/worker/store_link.h"

/* A server that answers a wait at its deadline needs a moment to tell of it. */
#define STORE_GRACE_NS (500 * ZI_NS_PER_MS)

struct store_client {
	struct store_link link;
	char place[ZI_TEXT_BYTES / 2]; /* "host, port n", for people */
	uint32_t run;
	/* The message that goes out, the reply that comes in. */
	struct store_header header;
	char payload[STORE_MESSAGE_BYTES_MAX + 1];
};

struct request {
	enum store_type type;
	uint16_t flags;
	int64_t number;
	const char *key; /* NULL: the payload is in place, of payload_bytes */
	const void *value;
	uint32_t value_bytes, payload_bytes;
	uint64_t deadline_ns;
};

/* The connection is of no more use. */
static int give_up(struct store_client *client, int error)
{
	client->link.fd = zi_close(client->link.fd);
	return err_origin(error);
}

static int explain(const struct store_client *client, int error, struct zi_text *text)
{
	if (error == -ETIMEDOUT)
		return zi_text_error(text, error, "the store at %s does not answer", client->place);
	if (error == -EPIPE)
		return zi_text_error(text, error,
		                     "the store at %s is gone: zinf-net of the first node ended",
		                     client->place);
	if (error == -ECANCELED)
		return zi_text_error(text, error, "waiting for the store was broken off");
	return zi_text_error(text, error, "the store at %s: %s", client->place, strerror(-error));
}

/* Return: 0, or -EINVAL with @text; else the payload is in place. */
static int put_payload(struct store_client *client, struct request *request, struct zi_text *text)
{
	size_t key_bytes;

	if (!request->key)
		return 0;
	key_bytes = strlen(request->key) + 1;
	if (key_bytes < 2 || key_bytes > STORE_KEY_BYTES ||
	    request->value_bytes > STORE_VALUE_BYTES_MAX)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"a key of %zu characters (1 to %u) with a value of %u bytes (at most %u)",
			key_bytes - 1, STORE_KEY_BYTES - 1, request->value_bytes,
			STORE_VALUE_BYTES_MAX));
	memcpy(client->payload, request->key, key_bytes);
	if (request->value_bytes)
		memcpy(client->payload + key_bytes, request->value, request->value_bytes);
	request->payload_bytes = (uint32_t)key_bytes + request->value_bytes;
	return 0;
}

/* Sends what is in place and takes the reply in. Return: as the link's; -EPROTO: none of ours. */
static int exchange(struct store_client *client, const struct request *request,
                    uint64_t deadline_ns)
{
	struct store_header *header = &client->header;
	int r;

	*header = (struct store_header){ .magic = STORE_MAGIC,
		                         .type = (uint16_t)request->type,
		                         .flags = request->flags,
		                         .bytes = request->payload_bytes,
		                         .number = request->number };
	r = store_link_send(&client->link, header, sizeof(*header), client->payload, header->bytes,
	                    deadline_ns);
	/* Whoever refused us may have closed before it took all in: its reply says why. */
	if (r && r != -EPIPE)
		return err_trace(r);
	r = store_link_receive(&client->link, header, sizeof(*header), deadline_ns);
	if (r)
		return err_trace(r);
	if (header->magic != STORE_MAGIC || header->type != STORE_REPLY || header->error > 0 ||
	    header->bytes > STORE_MESSAGE_BYTES_MAX)
		return err_origin(-EPROTO);
	r = store_link_receive(&client->link, client->payload, header->bytes, deadline_ns);
	if (r)
		return err_trace(r);
	client->payload[header->bytes] = '\0';
	return 0;
}

/* Whether the connection lives on after the server answered @error. */
static bool is_harmless(int error)
{
	return error == -ENOENT || error == -EINVAL || error == -ERANGE || error == -ENOSPC ||
	       error == -ETIMEDOUT || error == -ENOMEM;
}

/* One request and its reply, which is then in header and payload. */
static int call(struct store_client *client, struct request *request, struct zi_text *text)
{
	uint64_t deadline_ns = request->deadline_ns;
	int r;

	if (client->link.fd < 0)
		return err_origin(zi_text_error(text, -ENOTCONN,
		                                "the connection to the store at %s was given up",
		                                client->place));
	r = put_payload(client, request, text);
	if (r)
		return err_trace(r);
	if (request->type == STORE_WAIT && deadline_ns < ZI_DEADLINE_NEVER - STORE_GRACE_NS)
		deadline_ns = ZI_MAX(deadline_ns, zi_clock_now_ns()) + STORE_GRACE_NS;
	r = exchange(client, request, deadline_ns);
	if (r == -EPROTO)
		(void)zi_text_error(text, r,
		                    "the program at %s is no store of zinf: set ZINF_PORT to a "
		                    "free port on all nodes",
		                    client->place);
	else if (r)
		(void)explain(client, r, text);
	if (r)
		return give_up(client, r);
	if (!client->header.error)
		return 0;
	r = client->header.error;
	zi_text_set(text, "%s", client->payload);
	return is_harmless(r) ? err_origin(r) : give_up(client, r);
}

static int greet(struct store_client *client, const struct store_client_options *options,
                 uint64_t deadline_ns, struct zi_text *text)
{
	struct store_hello hello = { .version = STORE_VERSION,
		                     .run = options->run,
		                     .coll_version = ZI_COLL_VERSION };
	struct request request = { .type = STORE_HELLO,
		                   .payload_bytes = sizeof(hello),
		                   .deadline_ns = deadline_ns };
	int r;

	r = zi_copy_name(hello.job, sizeof(hello.job), options->job);
	r = r ? r
	      : zi_copy_name(hello.incarnation, sizeof(hello.incarnation), options->incarnation);
	r = r ? r : zi_copy_name(hello.name, sizeof(hello.name), options->name);
	if (!r && options->token)
		r = zi_copy_name(hello.token, sizeof(hello.token), options->token);
	if (r)
		return err_origin(zi_text_error(text, r,
		                                "a name or the token has more than %u characters",
		                                ZI_NAME_BYTES - 1));
	memcpy(client->payload, &hello, sizeof(hello));
	explicit_bzero(&hello, sizeof(hello));
	r = call(client, &request, text);
	explicit_bzero(client->payload, sizeof(hello)); /* A token is nobody's to find. */
	if (r)
		return err_trace(r);
	client->run = (uint32_t)client->header.number;
	return 0;
}

/* Full, or about to end: the store, or what comes after it, may take us the next time. */
static bool is_worth_another(int error)
{
	return error == -EBUSY || error == -EPIPE;
}

/* Connects and greets until the deadline. Return: 0; the last error; with @text, whatever happened
 * to the attempt that the deadline cut short: -EBUSY the store turned us away, -EPIPE it only
 * closed our connections. */
static int open_in_time(struct store_client *client, const struct store_client_options *options,
                        uint64_t deadline_ns, struct zi_text *text)
{
	struct zi_text why = { "" };
	uint32_t busy_count = 0, cut_count = 0;
	bool is_connected;
	int r;

	do {
		r = store_link_connect(&client->link, options->host, options->port, deadline_ns,
		                       text);
		is_connected = !r;
		r = r ? r : greet(client, options, deadline_ns, text);
		if (r == -EBUSY) {
			why = *text;
			busy_count++;
		}
		cut_count += r == -EPIPE;
	} while (is_worth_another(r) && !store_link_pause(&client->link, deadline_ns));
	if (busy_count && (r == -ETIMEDOUT || is_worth_another(r)))
		return err_origin(zi_text_error(
			text, -EBUSY, "the store at %s turned this node away %u times: %.150s",
			client->place, busy_count + cut_count, why.chars));
	if (cut_count && (r == -EPIPE || (r == -ETIMEDOUT && is_connected)))
		return err_origin(zi_text_error(
			text, -EPIPE,
			"the store at %s closed %u connections of this node without an answer: "
			"other programs take its places, or the first node's worker ended",
			client->place, cut_count));
	if (r == -ETIMEDOUT && is_connected)
		return err_trace(
			zi_text_error(text, r,
		                      "the program at %s does not answer as a store of zinf: check "
		                      "MASTER_ADDR, and set ZINF_PORT to a free port on all nodes",
		                      client->place));
	return err_trace(r);
}

/* Documented in the header, as are the others below. */
int store_client_open(const struct store_client_options *options, uint64_t deadline_ns,
                      struct zi_text *text, struct store_client **ret_client)
{
	_cleanup_(store_client_closep) struct store_client *client = calloc(1, sizeof(*client));
	struct zi_text unwanted;
	int r;

	if (!client)
		return err_origin(-ENOMEM);
	text = text ? text : &unwanted;
	(void)snprintf(client->place, sizeof(client->place), "%s, port %u", options->host,
	               options->port); /* For people: cut where it is too long. */
	r = store_link_init(&client->link);
	if (r)
		return err_trace(r);
	r = open_in_time(client, options, deadline_ns, text);
	if (r)
		return err_trace(r);
	*ret_client = zi_steal(client);
	return 0;
}

struct store_client *store_client_close(struct store_client *client)
{
	if (!client)
		return NULL;
	store_link_deinit(&client->link);
	free(client);
	return NULL;
}

uint32_t store_client_run(const struct store_client *client)
{
	return client->run;
}

bool store_client_is_connected(const struct store_client *client)
{
	return client->link.fd >= 0;
}

int store_client_set(struct store_client *client, const char *key, const void *value,
                     uint32_t value_bytes, uint64_t deadline_ns, struct zi_text *text)
{
	return err_trace(call(client,
	                      &(struct request){ .type = STORE_SET,
	                                         .key = key,
	                                         .value = value,
	                                         .value_bytes = value_bytes,
	                                         .deadline_ns = deadline_ns },
	                      text));
}

static int set_new(struct store_client *client, uint16_t flags, const char *key, const void *value,
                   uint32_t value_bytes, uint64_t deadline_ns, struct zi_text *text,
                   bool *ret_present)
{
	int r = call(client,
	             &(struct request){ .type = STORE_SET,
	                                .flags = STORE_NEW | flags,
	                                .key = key,
	                                .value = value,
	                                .value_bytes = value_bytes,
	                                .deadline_ns = deadline_ns },
	             text);

	if (r)
		return err_trace(r);
	*ret_present = client->header.number != 0;
	return 0;
}

int store_client_set_new(struct store_client *client, const char *key, const void *value,
                         uint32_t value_bytes, uint64_t deadline_ns, struct zi_text *text,
                         bool *ret_present)
{
	return err_trace(
		set_new(client, 0, key, value, value_bytes, deadline_ns, text, ret_present));
}

int store_client_claim(struct store_client *client, const char *key, const void *value,
                       uint32_t value_bytes, uint64_t deadline_ns, struct zi_text *text,
                       bool *ret_present)
{
	return err_trace(set_new(client, STORE_OWNED, key, value, value_bytes, deadline_ns, text,
	                         ret_present));
}

/* The value that came, for who asked for @key's. */
static int take_value(const struct store_client *client, const char *key, void *value,
                      uint32_t capacity, struct zi_text *text, uint32_t *ret_value_bytes)
{
	if (client->header.bytes > capacity)
		return err_origin(zi_text_error(text, -ENOSPC,
		                                "'%s' holds %u bytes; there is room for %u", key,
		                                client->header.bytes, capacity));
	memcpy(value, client->payload, client->header.bytes);
	*ret_value_bytes = client->header.bytes;
	return 0;
}

int store_client_get(struct store_client *client, const char *key, void *value, uint32_t capacity,
                     uint64_t deadline_ns, struct zi_text *text, uint32_t *ret_value_bytes)
{
	int r = call(client,
	             &(struct request){ .type = STORE_GET, .key = key, .deadline_ns = deadline_ns },
	             text);

	if (r)
		return err_trace(r);
	return err_trace(take_value(client, key, value, capacity, text, ret_value_bytes));
}

int store_client_add(struct store_client *client, const char *key, int64_t number,
                     uint64_t deadline_ns, struct zi_text *text, int64_t *ret_sum)
{
	int r = call(client,
	             &(struct request){ .type = STORE_ADD,
	                                .number = number,
	                                .key = key,
	                                .deadline_ns = deadline_ns },
	             text);

	if (r)
		return err_trace(r);
	*ret_sum = client->header.number;
	return 0;
}

static int wait_for(struct store_client *client, uint16_t flags, const char *const *keys,
                    uint32_t key_count, uint64_t limit_ns, uint64_t deadline_ns,
                    struct zi_text *text)
{
	struct request request = { .type = STORE_WAIT, .flags = flags, .deadline_ns = deadline_ns };
	uint64_t now_ns = zi_clock_now_ns();

	if (!key_count || key_count > STORE_WAIT_KEYS_MAX)
		return err_origin(zi_text_error(text, -EINVAL,
		                                "a wait for %u keys: 1 to %u can be waited for",
		                                key_count, STORE_WAIT_KEYS_MAX));
	for (uint32_t i = 0; i < key_count; i++) {
		size_t bytes = strlen(keys[i]) + 1;

		if (bytes < 2 || bytes > STORE_KEY_BYTES)
			return err_origin(zi_text_error(text, -EINVAL,
			                                "a key of %zu characters (1 to %u)",
			                                bytes - 1, STORE_KEY_BYTES - 1));
		memcpy(client->payload + request.payload_bytes, keys[i], bytes);
		request.payload_bytes += (uint32_t)bytes;
	}
	request.number = limit_ns == ZI_DEADLINE_NEVER ? INT64_MAX
	                 : limit_ns <= now_ns          ? 0
	                                      : (int64_t)((limit_ns - now_ns) / ZI_NS_PER_MS);
	return err_trace(call(client, &request, text));
}

int store_client_wait(struct store_client *client, const char *const *keys, uint32_t key_count,
                      uint64_t deadline_ns, struct zi_text *text)
{
	return err_trace(wait_for(client, 0, keys, key_count, deadline_ns, deadline_ns, text));
}

int store_client_wait_until(struct store_client *client, const char *const *keys,
                            uint32_t key_count, uint64_t limit_ns, uint64_t deadline_ns,
                            struct zi_text *text)
{
	return err_trace(wait_for(client, 0, keys, key_count, limit_ns, deadline_ns, text));
}

int store_client_wait_unless(struct store_client *client, const char *ender,
                             const char *const *keys, uint32_t key_count, void *value,
                             uint32_t capacity, uint64_t deadline_ns, struct zi_text *text,
                             uint32_t *ret_value_bytes, bool *ret_has_ended)
{
	const char *all[STORE_WAIT_KEYS_MAX] = { ender };
	uint32_t count = ZI_MIN(key_count, STORE_WAIT_KEYS_MAX - 1);
	int r;

	assert(count == key_count);
	memcpy(all + 1, keys, count * sizeof(keys[0]));
	r = wait_for(client, STORE_UNLESS, all, count + 1, deadline_ns, deadline_ns, text);
	if (r)
		return err_trace(r);
	if (client->header.number) {
		r = take_value(client, ender, value, capacity, text, ret_value_bytes);
		if (r)
			return err_trace(r);
	}
	*ret_has_ended = client->header.number != 0;
	return 0;
}

int store_client_wait_any(struct store_client *client, const char *const *keys, uint32_t key_count,
                          uint64_t deadline_ns, struct zi_text *text)
{
	return err_trace(
		wait_for(client, STORE_ANY, keys, key_count, deadline_ns, deadline_ns, text));
}

int store_client_delete(struct store_client *client, const char *key, uint64_t deadline_ns,
                        struct zi_text *text)
{
	return err_trace(call(
		client,
		&(struct request){ .type = STORE_DELETE, .key = key, .deadline_ns = deadline_ns },
		text));
}

int store_client_forget(struct store_client *client, const char *prefix, uint64_t deadline_ns,
                        struct zi_text *text)
{
	return err_trace(call(client,
	                      &(struct request){ .type = STORE_DELETE,
	                                         .flags = STORE_PREFIX,
	                                         .key = prefix,
	                                         .deadline_ns = deadline_ns },
	                      text));
}

int store_client_will(struct store_client *client, const char *key, const void *value,
                      uint32_t value_bytes, uint64_t deadline_ns, struct zi_text *text)
{
	return err_trace(call(client,
	                      &(struct request){ .type = STORE_WILL,
	                                         .key = key,
	                                         .value = value,
	                                         .value_bytes = value_bytes,
	                                         .deadline_ns = deadline_ns },
	                      text));
}

void store_client_cancel(struct store_client *client)
{
	store_link_cancel(&client->link);
}
