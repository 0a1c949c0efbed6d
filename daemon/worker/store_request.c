/* SPDX-License-Identifier: Apache-2.0 */
/* What the store's clients ask for; see store_server.h. Floor 3. The loop's thread. */
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/wire/control.h"
#include "daemon/worker/store_alive.h"
#include "daemon/worker/store_private.h"

/* A request may wait for a day; "for ever" would be nobody's deadline. */
#define STORE_WAIT_MS_MAX (24 * 3600 * INT64_C(1000))

static void fail(struct store_connection *connection, int error, const struct zi_text *text)
{
	store_answer(connection, error, 0, text->chars, (uint32_t)strlen(text->chars));
}

static void done(struct store_connection *connection)
{
	store_answer(connection, 0, 0, NULL, 0);
}

/* The key at the payload's start. Return: its bytes with the NUL; 0: there is none, or too long. */
static uint32_t key_at(const char *payload, uint32_t bytes)
{
	uint32_t key_bytes = (uint32_t)strnlen(payload, bytes) + 1;

	return key_bytes > 1 && key_bytes <= bytes && key_bytes <= STORE_KEY_BYTES ? key_bytes : 0;
}

/* The key that is not waited for, but ends it: its bytes with the NUL; 0: there is none. */
static uint32_t ender_bytes(const struct store_connection *connection)
{
	return connection->header.flags & STORE_UNLESS ? (uint32_t)strlen(connection->payload) + 1
	                                               : 0;
}

/* The first key of a request that waits which is not there; NULL: all are, or with STORE_ANY one
 * is. */
static const char *first_missing(const struct store_connection *connection,
                                 uint32_t *ret_missing_count)
{
	const char *missing = NULL;
	uint32_t count = 0, value_bytes;

	for (uint32_t at = ender_bytes(connection); at < connection->header.bytes;) {
		const char *key = connection->payload + at;

		if (!store_table_get(&connection->server->table, key, &value_bytes)) {
			missing = missing ? missing : key;
			count++;
		} else if (connection->header.flags & STORE_ANY) {
			return NULL;
		}
		at += (uint32_t)strlen(key) + 1;
	}
	*ret_missing_count = count;
	return missing;
}

/* Return: whether nothing is waited for any more, which is then told. */
static bool end_wait(struct store_connection *connection)
{
	uint32_t missing_count, bytes = 0;
	const void *ender = ender_bytes(connection) ? store_table_get(&connection->server->table,
	                                                              connection->payload, &bytes)
	                                            : NULL;

	if (!ender && first_missing(connection, &missing_count))
		return false;
	zi_loop_disarm(&connection->timer);
	store_answer(connection, 0, ender != NULL, ender, ender ? bytes : 0);
	return true;
}

/* Answers the requests for which nothing is missing any more. */
static void wake_waiting(struct store_server *server)
{
	zi_list_for_each(link, &server->connections) {
		struct store_connection *connection =
			container_of(link, struct store_connection, link);

		if (connection->state == STORE_WAITING && !connection->is_broken)
			(void)end_wait(connection); /* Or it waits on. */
	}
}

/* Documented in store_private.h, as are the other public ones. */
int store_set_key(struct store_server *server, const char *key, const void *value,
                  uint32_t value_bytes, struct zi_text *text)
{
	uint32_t present_bytes;
	bool is_present = store_table_get(&server->table, key, &present_bytes) != NULL;
	int r = store_table_set(&server->table, key, value, value_bytes, text);

	if (!r && !is_present)
		wake_waiting(server);
	return err_trace(r);
}

/* Compares all of it, so that time tells nothing of where the difference lies. */
static bool is_same_token(const char *a, const char *b)
{
	unsigned char difference = 0;

	for (uint32_t i = 0; i < STORE_TOKEN_BYTES; i++)
		difference |= (unsigned char)(a[i] ^ b[i]);
	return !difference;
}

/* Whether all who met here are there, as far as one can see, and do what they met for. */
static bool goes_on_whole(const struct store_server *server)
{
	uint32_t bytes;

	if (server->has_lost || store_table_get(&server->table, STORE_ENDED_KEY, &bytes))
		return false;
	zi_list_for_each(link, &server->connections) {
		const struct store_connection *connection =
			container_of(link, struct store_connection, link);

		if (connection->has_owned && store_alive_is_silent(connection->source.fd))
			return false;
	}
	return true;
}

/* Return: 0, or why the client is none of this store's: -ESTALE, this run will make place soon, or
 * is newer; -EEXIST, it goes on. */
static int check_hello(const struct store_server *server, const struct store_hello *hello,
                       struct zi_text *text)
{
	bool has_met, goes_on, has_failed;
	uint32_t bytes;

	if (hello->version != STORE_VERSION)
		return zi_text_error(text, -EPROTONOSUPPORT,
		                     "this store speaks version %u, the client %u: use the same "
		                     "zinf on all nodes",
		                     STORE_VERSION, hello->version);
	/* Else nodes would cut alike calls differently, and Gloo would meet other lengths. */
	if (hello->coll_version != ZI_COLL_VERSION)
		return zi_text_error(text, -EPROTONOSUPPORT,
		                     "the store's node has version %u of collectives, the "
		                     "client's has %u: use the same zinf on all nodes",
		                     ZI_COLL_VERSION, hello->coll_version);
	/* The rest of a shorter string is zero on our side: so it must be on theirs. */
	if (!is_same_token(server->token, hello->token))
		return zi_text_error(text, -EACCES,
		                     "the store of job '%s' has another token: set the same "
		                     "ZINF_TOKEN on all nodes, or on none",
		                     server->job);
	has_met = store_table_get(&server->table, STORE_MET_KEY, &bytes);
	goes_on = has_met && goes_on_whole(server);
	has_failed = !has_met && store_table_get(&server->table, STORE_ENDED_KEY, &bytes);
	if (strcmp(server->job, hello->job))
		return zi_text_error(text, has_failed ? -ESTALE : -EEXIST,
		                     "this is the store of job '%s', not of '%s': jobs at one "
		                     "MASTER_ADDR each need a ZINF_PORT of their own",
		                     server->job, hello->job);
	if (strcmp(server->incarnation, hello->incarnation))
		return zi_text_error(text, goes_on ? -EEXIST : -ESTALE,
		                     "job '%s' runs as '%s' here%s, the client as '%s': one of the "
		                     "two is an older run",
		                     server->job, server->incarnation,
		                     goes_on ? ", with all its ranks" : "", hello->incarnation);
	if (hello->run && hello->run != server->run)
		return zi_text_error(text, -ESTALE, "job '%s' was started again meanwhile",
		                     server->job);
	if (!hello->run && has_met)
		return zi_text_error(
			text, goes_on ? -EEXIST : -ESTALE,
			"the ranks of job '%s' have met here (port %u)%s: a second "
			"job of that name needs another one, and a ZINF_PORT of its own",
			server->job, server->port, goes_on ? ", and none has left" : "");
	return 0;
}

struct store_peer store_peer_of(const struct store_connection *connection)
{
	struct store_peer peer = { "?" };
	struct sockaddr_storage address;
	socklen_t bytes = sizeof(address);

	if (!getpeername(connection->source.fd, (struct sockaddr *)&address, &bytes))
		(void)getnameinfo((struct sockaddr *)&address, bytes, peer.chars,
		                  sizeof(peer.chars), NULL, 0, NI_NUMERICHOST); /* Else "?". */
	return peer;
}

/* Who keeps a secret must hear of those who do not know it. */
static void tell_refusal(struct store_connection *connection, struct store_hello *hello,
                         const struct zi_text *why)
{
	struct store_server *server = connection->server;
	struct zi_text text;

	for (char *c = hello->name; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?'; /* It goes to terminals. */
	zi_text_set(&text, "%.63s at %s was refused: %.150s", hello->name,
	            store_peer_of(connection).chars, why->chars);
	/* Where there is no room for it, it is told here alone. */
	(void)store_set_key(server, STORE_REFUSED_KEY, text.chars, (uint32_t)strlen(text.chars),
	                    NULL);
	if (server->refused)
		server->refused(&text);
}

/* Of another version nothing is known but where it says so: at the start, whatever its length.
 * Return: whether it is a greeting. */
static bool take_hello(const struct store_connection *connection, struct store_hello *ret_hello)
{
	uint32_t bytes = connection->header.bytes;

	*ret_hello = (struct store_hello){ .name = "a client" };
	if (connection->state != STORE_STRANGER || bytes < sizeof(ret_hello->version))
		return false;
	if (bytes != sizeof(*ret_hello)) {
		memcpy(&ret_hello->version, connection->payload, sizeof(ret_hello->version));
		return ret_hello->version != STORE_VERSION;
	}
	memcpy(ret_hello, connection->payload, sizeof(*ret_hello));
	return true;
}

static void handle_hello(struct store_connection *connection)
{
	struct store_hello hello;
	struct zi_text text = { "a second greeting, or one of another length" };
	int r = -EPROTO;

	if (take_hello(connection, &hello)) {
		hello.job[sizeof(hello.job) - 1] = '\0';
		hello.incarnation[sizeof(hello.incarnation) - 1] = '\0';
		hello.name[sizeof(hello.name) - 1] = '\0';
		r = check_hello(connection->server, &hello, &text);
		if (r == -EACCES || r == -EPROTONOSUPPORT)
			tell_refusal(connection, &hello, &text);
		explicit_bzero(hello.token, sizeof(hello.token));
	}
	if (r) {
		store_refuse(connection, r, &text);
		return;
	}
	static_assert(sizeof(connection->name) == sizeof(hello.name), "the name fits");
	memcpy(connection->name, hello.name, sizeof(hello.name));
	strangers_remove(&connection->server->strangers, &connection->stranger);
	connection->state = STORE_READY;
	explicit_bzero(connection->payload, connection->header.bytes);
	store_answer(connection, 0, connection->server->run, NULL, 0);
}

static void handle_set(struct store_connection *connection, const char *key, const char *value,
                       uint32_t value_bytes)
{
	struct store_server *server = connection->server;
	uint32_t present_bytes;
	const void *present = store_table_get(&server->table, key, &present_bytes);
	struct zi_text text;
	int r;

	if (present && connection->header.flags & STORE_NEW) {
		store_answer(connection, 0, 1, present, present_bytes);
		return;
	}
	r = store_set_key(server, key, value, value_bytes, &text);
	if (r) {
		fail(connection, r, &text);
		return;
	}
	if (connection->header.flags & STORE_OWNED) {
		store_table_own(&server->table, key, connection);
		connection->has_owned = true;
	}
	done(connection);
}

static void handle_get(struct store_connection *connection, const char *key)
{
	uint32_t bytes;
	const void *value = store_table_get(&connection->server->table, key, &bytes);
	struct zi_text text;

	if (value) {
		store_answer(connection, 0, 0, value, bytes);
		return;
	}
	zi_text_set(&text, "no key '%s'", key);
	fail(connection, -ENOENT, &text);
}

static void handle_add(struct store_connection *connection, const char *key)
{
	struct store_server *server = connection->server;
	uint32_t bytes;
	const void *value = store_table_get(&server->table, key, &bytes);
	int64_t number = 0;
	struct zi_text text;
	int r;

	if (value && bytes != sizeof(number)) {
		zi_text_set(&text, "'%s' holds %u bytes: no number to add to", key, bytes);
		fail(connection, -EINVAL, &text);
		return;
	}
	if (value)
		memcpy(&number, value, sizeof(number));
	if (__builtin_add_overflow(number, connection->header.number, &number)) {
		zi_text_set(&text, "the sum of '%s' passes 64 bits", key);
		fail(connection, -ERANGE, &text);
		return;
	}
	r = store_set_key(server, key, &number, sizeof(number), &text);
	if (r) {
		fail(connection, r, &text);
		return;
	}
	store_answer(connection, 0, number, NULL, 0);
}

/* Return: whether the payload is a list of keys. */
static bool check_keys(const struct store_connection *connection)
{
	uint32_t count = 0;

	for (uint32_t at = 0; at < connection->header.bytes; count++) {
		uint32_t bytes = key_at(connection->payload + at, connection->header.bytes - at);

		if (!bytes)
			return false;
		at += bytes;
	}
	return count > 0 && count <= STORE_WAIT_KEYS_MAX;
}

/* The time of one that waits is over. */
static void wait_is_over(struct zi_timer *timer)
{
	struct store_connection *connection = container_of(timer, struct store_connection, timer);
	uint32_t missing_count;
	const char *missing;
	struct zi_text text;

	/* Clients decide when keys come: a key that is there is no reason to abort. */
	if (end_wait(connection))
		return;
	missing = first_missing(connection, &missing_count);
	zi_text_set(&text, "not there after %lu ms: '%s'%s",
	            (unsigned long)((zi_clock_now_ns() - connection->asked_ns) / ZI_NS_PER_MS),
	            missing, missing_count > 1 ? ", and others" : "");
	fail(connection, -ETIMEDOUT, &text);
}

static void handle_wait(struct store_connection *connection)
{
	int64_t timeout_ms = connection->header.number;

	if (end_wait(connection))
		return;
	timeout_ms = timeout_ms < 0                   ? 0
	             : timeout_ms > STORE_WAIT_MS_MAX ? STORE_WAIT_MS_MAX
	                                              : timeout_ms;
	connection->state = STORE_WAITING;
	connection->asked_ns = zi_clock_now_ns();
	zi_loop_arm(connection->server->loop, &connection->timer,
	            connection->asked_ns + (uint64_t)timeout_ms * ZI_NS_PER_MS, wait_is_over);
}

static void handle_delete(struct store_connection *connection, const char *key)
{
	struct zi_text text;

	if (connection->header.flags & STORE_PREFIX) {
		store_table_forget(&connection->server->table, key);
		done(connection);
		return;
	}
	if (store_table_delete(&connection->server->table, key)) {
		done(connection);
		return;
	}
	zi_text_set(&text, "no key '%s'", key);
	fail(connection, -ENOENT, &text);
}

/* The payload becomes the will; none takes the former one back. */
static void handle_will(struct store_connection *connection)
{
	free(connection->will);
	connection->will = connection->header.bytes ? zi_steal(connection->payload) : NULL;
	connection->will_bytes = connection->header.bytes;
	done(connection);
}

void store_run_will(struct store_connection *connection)
{
	struct store_server *server = connection->server;
	_cleanup_(zi_freep) char *will = zi_steal(connection->will);
	uint32_t key_bytes, present_bytes;

	/* Whose end this is waits for nothing any more. */
	connection->is_broken = true;
	if (!will || store_table_get(&server->table, will, &present_bytes))
		return;
	key_bytes = (uint32_t)strlen(will) + 1;
	/* A full table has no room for it: then the deadline of those who wait must do. */
	(void)store_set_key(server, will, will + key_bytes, connection->will_bytes - key_bytes,
	                    NULL);
}

void store_handle(struct store_connection *connection)
{
	static const struct zi_text malformed = {
		"the store was asked in a way it does not know: a key has 1 to 127 characters, a "
		"value at most 65536 bytes, a wait 1 to 65 keys"
	};
	uint32_t type = connection->header.type, bytes = connection->header.bytes;
	const char *key = connection->payload;
	uint32_t key_bytes = key_at(key, bytes);
	bool has_value = type == STORE_SET || type == STORE_WILL;

	static_assert(STORE_KEY_BYTES == 128 && STORE_VALUE_BYTES_MAX == 65536 &&
	                      STORE_WAIT_KEYS_MAX == 65,
	              "what the text says");
	if (type == STORE_HELLO)
		handle_hello(connection);
	else if (type == STORE_WAIT && check_keys(connection))
		handle_wait(connection);
	else if (type == STORE_WILL && !bytes)
		handle_will(connection);
	else if (type == STORE_WAIT || !key_bytes || (!has_value && key_bytes != bytes) ||
	         bytes - key_bytes > STORE_VALUE_BYTES_MAX)
		store_refuse(connection, -EPROTO, &malformed);
	else if (type == STORE_SET)
		handle_set(connection, key, key + key_bytes, bytes - key_bytes);
	else if (type == STORE_GET)
		handle_get(connection, key);
	else if (type == STORE_ADD)
		handle_add(connection, key);
	else if (type == STORE_DELETE)
		handle_delete(connection, key);
	else
		handle_will(connection);
}
