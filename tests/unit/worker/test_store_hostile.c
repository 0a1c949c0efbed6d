/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what strangers and broken clients send harms nobody else, and is bounded in memory and
 * time; and a client bears a server that is none. Method: raw sockets against the store, beside a
 * client that must go on being served; raw servers against the client.
 */
#include <stdio.h>

#include "common/wire/control.h"
#include "tests/kernels/data.h"
#include "tests/unit/worker/store_fixture.h"

/* A rank on a busy machine greets, and ends its message, within it. */
#define STALL_MS 1000u

struct hello_message {
	struct store_header header;
	struct store_hello hello;
};

static struct hello_message hello_of(uint32_t coll_version)
{
	return (struct hello_message){ .header = { .magic = STORE_MAGIC,
		                                   .type = STORE_HELLO,
		                                   .bytes = sizeof(struct store_hello) },
		                       .hello = { .version = STORE_VERSION,
		                                  .coll_version = coll_version,
		                                  .job = "gpt",
		                                  .incarnation = "run.0",
		                                  .name = "node 5" } };
}

static void hello_send(int fd)
{
	struct hello_message message = hello_of(ZI_COLL_VERSION);
	struct store_header reply;

	cr_assert_eq(send(fd, &message, sizeof(message), 0), sizeof(message));
	cr_assert_eq(recv(fd, &reply, sizeof(reply), MSG_WAITALL), sizeof(reply));
	cr_assert_eq(reply.error, 0);
}

static void expect_served(struct store_client *client)
{
	struct zi_text text;
	int64_t sum;

	cr_expect_eq(store_client_add(client, "alive", 1, soon_ns(60000), &text, &sum), 0, "%s",
	             text.chars);
}

Test(store_hostile, garbage_ends_its_own_connection_alone)
{
	struct store_server_options options = store_options();
	struct store_client *client;
	struct store_fixture store;
	char bytes[4096];
	uint64_t state = 9;

	options.stall_ns = STALL_MS * ZI_NS_PER_MS;
	store_start(&store, &options);
	client = store_client_of(&store);
	for (uint32_t round = 0; round < 64; round++) {
		int fd = store_raw(&store);

		if (round % 2)
			hello_send(fd);
		for (uint32_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = (char)data_random(&state);
		(void)send(fd, bytes, 1 + data_random(&state) % sizeof(bytes), MSG_NOSIGNAL);
		(void)drain(fd, bytes, sizeof(bytes));
		zi_close(fd);
		expect_served(client);
	}
	store_client_close(client);
	store_stop(&store);
}

Test(store_hostile, messages_that_no_client_sends_are_refused)
{
	static const struct {
		struct store_header header;
		const char *payload;
	} cases[] = {
		{ { STORE_MAGIC, 0, 0, 0, 0, 0 }, "" },
		{ { STORE_MAGIC, STORE_REPLY, 0, 0, 0, 0 }, "" },
		{ { STORE_MAGIC, STORE_GET, 0, STORE_MESSAGE_BYTES_MAX + 1, 0, 0 }, "" },
		{ { STORE_MAGIC, STORE_GET, STORE_FLAGS + 1, 2, 0, 0 }, "k" },
		{ { STORE_MAGIC, STORE_GET, 0, 2, -1, 0 }, "k" },
		{ { STORE_MAGIC, STORE_GET, 0, 0, 0, 0 }, "" },
		{ { STORE_MAGIC, STORE_GET, 0, 1, 0, 0 }, "k" },
		{ { STORE_MAGIC, STORE_GET, 0, 4, 0, 0 }, "k\0v" },
		{ { STORE_MAGIC, STORE_SET, 0, 1, 0, 0 }, "k" },
		{ { STORE_MAGIC, STORE_SET, 0, 1, 0, 0 }, "" },
		{ { STORE_MAGIC, STORE_WAIT, 0, 0, 0, 0 }, "" },
		{ { STORE_MAGIC, STORE_WAIT, 0, 3, 0, 0 }, "a\0b" },
		{ { STORE_MAGIC, STORE_WAIT, STORE_UNLESS, 3, 0, 0 }, "a\0b" },
		{ { STORE_MAGIC, STORE_WILL, 0, 1, 0, 0 }, "w" },
		{ { STORE_MAGIC, STORE_HELLO, 0, 2, 0, 0 }, "h" },
	};
	struct store_server_options options = store_options();
	struct store_client *client;
	struct store_fixture store;

	store_start(&store, &options);
	client = store_client_of(&store);
	for (uint32_t i = 0; i < ZI_COUNT_OF(cases); i++) {
		struct store_header reply;
		char text[512];
		int fd = store_raw(&store);

		hello_send(fd);
		cr_assert_eq(send(fd, &cases[i].header, sizeof(cases[i].header), 0),
		             sizeof(cases[i].header));
		if (cases[i].header.bytes <= 4)
			(void)send(fd, cases[i].payload, cases[i].header.bytes, MSG_NOSIGNAL);
		cr_expect_eq(recv(fd, &reply, sizeof(reply), MSG_WAITALL), sizeof(reply), "case %u",
		             i);
		cr_expect_eq(reply.error, -EPROTO, "case %u", i);
		cr_expect_eq(drain(fd, text, sizeof(text)), reply.bytes);
		zi_close(fd);
		expect_served(client);
	}
	store_client_close(client);
	store_stop(&store);
}

/* A later zinf may greet in more bytes or fewer: people must hear that it is the version. */
Test(store_hostile, a_greeting_of_another_version_is_told_so_whatever_its_length)
{
	static const uint32_t lengths[] = { sizeof(uint32_t), sizeof(struct store_hello),
		                            sizeof(struct store_hello) + 36 };
	struct store_server_options options = store_options();
	struct store_client *client;
	struct store_fixture store;
	char refused[ZI_TEXT_BYTES] = "";
	struct zi_text why;
	uint32_t bytes;

	store_start(&store, &options);
	client = store_client_of(&store);
	for (uint32_t i = 0; i < ZI_COUNT_OF(lengths); i++) {
		struct {
			struct store_header header;
			uint32_t version;
			char rest[sizeof(struct store_hello) + 32];
		} message = { .header = { .magic = STORE_MAGIC,
			                  .type = STORE_HELLO,
			                  .bytes = lengths[i] },
			      .version = STORE_VERSION + 1 };
		ssize_t length = (ssize_t)(sizeof(message.header) + lengths[i]);
		struct store_header reply;
		char text[512] = "";
		int fd = store_raw(&store);

		cr_assert_eq(send(fd, &message, (size_t)length, MSG_NOSIGNAL), length);
		cr_assert_eq(recv(fd, &reply, sizeof(reply), MSG_WAITALL), sizeof(reply));
		cr_expect_eq(reply.error, -EPROTONOSUPPORT, "%u bytes", lengths[i]);
		cr_expect_eq(drain(fd, text, sizeof(text) - 1), reply.bytes);
		cr_expect(strstr(text, "use the same zinf on all nodes"), "%s", text);
		zi_close(fd);
		cr_assert_eq(store_client_get(client, STORE_REFUSED_KEY, refused,
		                              sizeof(refused) - 1, soon_ns(60000), &why, &bytes),
		             0, "%s", why.chars);
		cr_expect(strstr(refused, "speaks version"), "%s", refused);
		cr_assert_eq(store_client_delete(client, STORE_REFUSED_KEY, soon_ns(60000), &why),
		             0, "%s", why.chars);
	}
	store_client_close(client);
	store_stop(&store);
}

/* In one packet, which the server has taken when it has answered others three times. */
static void send_wait(int fd, const char *key, int64_t timeout_ms)
{
	struct {
		struct store_header header;
		char key[STORE_KEY_BYTES];
	} message = { .header = { .magic = STORE_MAGIC,
		                  .type = STORE_WAIT,
		                  .bytes = (uint32_t)strlen(key) + 1,
		                  .number = timeout_ms } };
	ssize_t bytes = (ssize_t)(sizeof(message.header) + message.header.bytes);

	memcpy(message.key, key, message.header.bytes);
	cr_assert_eq(send(fd, &message, (size_t)bytes, MSG_NOSIGNAL), bytes);
}

/* The server itself sets this key: a wait for it ends with an answer, at once or by its time. */
Test(store_hostile, a_wait_for_the_servers_own_key_is_answered)
{
	struct hello_message stranger = hello_of(ZI_COLL_VERSION + 1);
	struct store_server_options options = store_options();
	struct store_fixture store;
	struct store_client *client;
	struct store_header reply;
	char text[512] = "";
	int patient, hasty, other;

	store_start(&store, &options);
	client = store_client_of(&store);
	patient = store_raw(&store);
	hasty = store_raw(&store);
	hello_send(patient);
	hello_send(hasty);
	send_wait(patient, STORE_REFUSED_KEY, STORE_TEST_NS / ZI_NS_PER_MS);
	send_wait(hasty, STORE_REFUSED_KEY, 300);
	for (uint32_t i = 0; i < 3; i++)
		expect_served(client);
	other = store_raw(&store);
	cr_assert_eq(send(other, &stranger, sizeof(stranger), MSG_NOSIGNAL), sizeof(stranger));
	cr_expect_eq(recv(hasty, &reply, sizeof(reply), MSG_WAITALL), sizeof(reply));
	cr_expect(!reply.error || reply.error == -ETIMEDOUT, "%d", reply.error);
	cr_expect_eq(recv(patient, &reply, sizeof(reply), MSG_WAITALL), sizeof(reply));
	cr_expect_eq(reply.error, 0, "%d: nobody woke it", reply.error);
	expect_served(client);
	(void)drain(other, text, sizeof(text) - 1);
	zi_close(other);
	zi_close(hasty);
	zi_close(patient);
	store_client_close(client);
	store_stop(&store);
}

/* It would cut calls into other pieces than the rest: nodes must not even meet. */
Test(store_hostile, a_node_of_another_version_of_collectives_is_told_both)
{
	struct hello_message message = hello_of(ZI_COLL_VERSION + 70);
	struct store_server_options options = store_options();
	char text[512] = "", says[ZI_TEXT_BYTES], refused[ZI_TEXT_BYTES] = "";
	struct store_client *client;
	struct store_fixture store;
	struct store_header reply;
	struct zi_text why;
	uint32_t bytes;
	int fd;

	store_start(&store, &options);
	client = store_client_of(&store);
	fd = store_raw(&store);
	cr_assert_eq(send(fd, &message, sizeof(message), MSG_NOSIGNAL), sizeof(message));
	cr_assert_eq(recv(fd, &reply, sizeof(reply), MSG_WAITALL), sizeof(reply));
	cr_expect_eq(reply.error, -EPROTONOSUPPORT);
	cr_expect_eq(drain(fd, text, sizeof(text) - 1), reply.bytes);
	zi_close(fd);
	(void)snprintf(says, sizeof(says),
	               "version %u of collectives, the client's has %u: ", ZI_COLL_VERSION,
	               ZI_COLL_VERSION + 70); /* Fits. */
	cr_expect(strstr(text, says), "%s", text);
	/* So do those who wait for it. */
	cr_assert_eq(store_client_get(client, STORE_REFUSED_KEY, refused, sizeof(refused) - 1,
	                              soon_ns(60000), &why, &bytes),
	             0, "%s", why.chars);
	cr_expect(strstr(refused, "node 5 at 127.0.0.1 was refused"), "%s", refused);
	cr_expect(strstr(refused, says), "%s", refused);
	store_client_close(client);
	store_stop(&store);
}

Test(store_hostile, half_a_message_and_silence_end_by_time)
{
	struct store_server_options options = store_options();
	struct store_header header = { STORE_MAGIC, STORE_SET, 0, 1000, 0, 0 };
	struct store_client *client;
	struct store_fixture store;
	char bytes[64];
	int silent, half, headless;

	options.stall_ns = STALL_MS * ZI_NS_PER_MS;
	store_start(&store, &options);
	client = store_client_of(&store);
	silent = store_raw(&store);
	headless = store_raw(&store);
	half = store_raw(&store);
	hello_send(half);
	cr_assert_eq(send(headless, &header, 7, 0), 7);
	cr_assert_eq(send(half, &header, sizeof(header), 0), sizeof(header));
	cr_assert_eq(send(half, "half of it", 10, 0), 10);
	cr_expect_eq(drain(silent, bytes, sizeof(bytes)), 0);
	cr_expect_eq(drain(headless, bytes, sizeof(bytes)), 0);
	cr_expect_eq(drain(half, bytes, sizeof(bytes)), 0);
	expect_served(client); /* One that greeted and is silent since stays. */
	zi_close(silent);
	zi_close(headless);
	zi_close(half);
	store_client_close(client);
	store_stop(&store);
}

Test(store_hostile, one_who_does_not_read_is_left_and_others_are_served)
{
	static char value[STORE_VALUE_BYTES_MAX];
	struct store_server_options options = store_options();
	struct store_header header = { STORE_MAGIC, STORE_GET, 0, 4, 0, 0 };
	struct store_client *client;
	struct store_fixture store;
	char message[sizeof(header) + 4];
	int fd, small = 4096;

	/* The other client, with its large value, must not count as one that stalls. */
	options.stall_ns = STALL_MS * ZI_NS_PER_MS;
	store_start(&store, &options);
	client = store_client_of(&store);
	cr_assert_eq(store_client_set(client, "big", value, sizeof(value), soon_ns(60000), NULL),
	             0);
	fd = store_raw(&store);
	cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
	hello_send(fd);
	memcpy(message, &header, sizeof(header));
	memcpy(message + sizeof(header), "big", 4);
	/* Asks, and never reads: sooner or later the server's end is closed, which a send shows. */
	while (send(fd, message, sizeof(message), MSG_NOSIGNAL) > 0)
		expect_served(client);
	expect_served(client);
	zi_close(fd);
	store_client_close(client);
	store_stop(&store);
}

Test(store_hostile, one_who_talks_while_it_waits_is_left)
{
	struct store_server_options options = store_options();
	struct store_header header = { STORE_MAGIC, STORE_WAIT, 0, 2, 0, 60000 };
	struct store_fixture store;
	char message[sizeof(header) + 2], bytes[64];
	int fd;

	store_start(&store, &options);
	fd = store_raw(&store);
	hello_send(fd);
	memcpy(message, &header, sizeof(header));
	memcpy(message + sizeof(header), "k", 2);
	cr_assert_eq(send(fd, message, sizeof(message), 0), sizeof(message));
	(void)send(fd, "and", 3, MSG_NOSIGNAL);
	cr_expect_eq(drain(fd, bytes, sizeof(bytes)), 0);
	zi_close(fd);
	store_stop(&store);
}

/* ---- servers that are none ---- */

struct impostor {
	int fd;
	uint16_t port;
	struct zi_thread thread;
	const char *says;
	size_t bytes;
	bool closes;
};

/* Says its word to everyone who comes, and waits for their end. */
static int impostor_main(void *arg)
{
	struct impostor *impostor = arg;
	char bytes[1024];
	int fd;

	while ((fd = accept4(impostor->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		(void)send(fd, impostor->says, impostor->bytes, MSG_NOSIGNAL);
		if (!impostor->closes)
			(void)drain(fd, bytes, sizeof(bytes));
		zi_close(fd);
	}
	return 0;
}

static int visit(struct impostor *impostor, uint64_t timeout_ms, struct zi_text *text)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(address);
	struct store_client *client = NULL;
	int r;

	impostor->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(impostor->fd, (struct sockaddr *)&address, sizeof(address)), 0);
	cr_assert_eq(listen(impostor->fd, 8), 0);
	cr_assert_eq(getsockname(impostor->fd, (struct sockaddr *)&address, &bytes), 0);
	cr_assert_eq(zi_thread_start(&impostor->thread, "impostor", impostor_main, impostor), 0);
	r = store_client_open(&(struct store_client_options){ .host = "127.0.0.1",
	                                                      .port = ntohs(address.sin_port),
	                                                      .job = "gpt",
	                                                      .incarnation = "run.0",
	                                                      .name = "n" },
	                      soon_ns(timeout_ms), text, &client);
	cr_assert_null(client);
	(void)shutdown(impostor->fd, SHUT_RDWR);
	cr_assert_eq(zi_thread_join(&impostor->thread), 0);
	zi_close(impostor->fd);
	return r;
}

Test(store_hostile, another_programs_port_is_told_apart)
{
	static const char web[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
	struct impostor impostor = { .says = web, .bytes = sizeof(web) - 1 };
	struct zi_text text = { "" };

	cr_expect_eq(visit(&impostor, 60000, &text), -EPROTO);
	cr_expect(strstr(text.chars, "no store of zinf"), "%s", text.chars);
}

Test(store_hostile, a_reply_longer_than_allowed_is_not_taken_in)
{
	struct store_header header = { STORE_MAGIC, STORE_REPLY, 0, UINT32_MAX, 0, 0 };
	struct impostor impostor = { .says = (const char *)&header, .bytes = sizeof(header) };
	struct zi_text text = { "" };

	cr_expect_eq(visit(&impostor, 60000, &text), -EPROTO);
}

Test(store_hostile, a_server_that_says_nothing_costs_no_more_than_the_deadline)
{
	struct impostor impostor = { .says = "", .bytes = 0 };
	struct zi_text text = { "" };

	cr_expect_eq(visit(&impostor, 100, &text), -ETIMEDOUT);
	cr_expect(strstr(text.chars, "does not answer"), "%s", text.chars);
}

Test(store_hostile, a_server_that_hangs_up_is_tried_until_the_deadline)
{
	struct impostor impostor = { .says = "", .bytes = 0, .closes = true };
	struct zi_text text = { "" };

	int r = visit(&impostor, 200, &text);

	/* The last attempt may meet the deadline before it meets the end. */
	cr_expect(r == -EPIPE || r == -ETIMEDOUT, "%d", r);
	cr_expect(strstr(text.chars, "without an answer") || strstr(text.chars, "is gone") ||
	                  strstr(text.chars, "does not answer"),
	          "%s", text.chars);
}
