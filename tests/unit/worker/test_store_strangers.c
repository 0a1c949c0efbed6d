/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: connections that do not greet are few, and keep no member out. Method: silent sockets from
 * several addresses of loopback against the store, and clients beside them.
 */
#include <sched.h>

#include "daemon/worker/strangers.h"
#include "tests/unit/worker/store_fixture.h"

/* A silent connection from 127.0.0.@host. */
static int silent_from(const struct store_fixture *store, uint8_t host)
{
	struct sockaddr_in own = { .sin_family = AF_INET,
		                   .sin_addr.s_addr = htonl((INADDR_LOOPBACK & ~0xffu) | host) };
	struct sockaddr_in address = { .sin_family = AF_INET,
		                       .sin_port = htons(store_server_port(store->server)),
		                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert_eq(bind(fd, (struct sockaddr *)&own, sizeof(own)), 0);
	cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static void expect_displaced(int fd)
{
	char reply[512] = "";

	cr_expect_gt(drain(fd, reply, sizeof(reply) - 1), sizeof(struct store_header));
	cr_expect(strstr(reply + sizeof(struct store_header), "without a greeting"), "%s",
	          reply + sizeof(struct store_header));
	zi_close(fd);
}

static bool is_open(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static void patient_start(struct store_fixture *store)
{
	struct store_server_options options = store_options();

	options.stall_ns = options.hello_ns = STORE_TEST_NS;
	store_start(store, &options);
}

Test(store_strangers, the_oldest_silent_connection_of_an_address_makes_room_for_a_new_one)
{
	int fds[STRANGERS_HERE_MAX], other;
	char told[ZI_TEXT_BYTES] = "";
	struct store_client *client;
	struct store_fixture store;
	struct zi_text why;
	uint32_t bytes;

	patient_start(&store);
	other = silent_from(&store, 2);
	for (uint32_t i = 0; i < STRANGERS_HERE_MAX; i++)
		fds[i] = silent_from(&store, 3);
	zi_close(silent_from(&store, 3));
	expect_displaced(fds[0]);
	client = store_client_of(&store);
	cr_expect(is_open(other), "an address displaces its own connections");
	for (uint32_t i = 1; i < STRANGERS_HERE_MAX; i++) {
		cr_expect(is_open(fds[i]), "%u", i);
		zi_close(fds[i]);
	}
	cr_assert_eq(store_client_get(client, STORE_STRANGERS_KEY, told, sizeof(told) - 1,
	                              soon_ns(60000), &why, &bytes),
	             0, "%s", why.chars);
	cr_expect(strstr(told, "1 connections to port"), "%s", told);
	cr_expect(strstr(told, "the last one from 127.0.0.3"), "%s", told);
	zi_close(other);
	store_client_close(client);
	store_stop(&store);
}

Test(store_strangers, the_oldest_silent_connection_of_all_makes_room_for_a_member)
{
	int fds[STRANGERS_MAX];
	struct store_client *client;
	struct store_fixture store;

	patient_start(&store);
	for (uint32_t i = 0; i < STRANGERS_MAX; i++)
		fds[i] = silent_from(&store, (uint8_t)(2 + i / STRANGERS_HERE_MAX));
	client = store_client_of(&store);
	cr_expect_eq(store_client_set(client, "alive", NULL, 0, soon_ns(60000), NULL), 0);
	expect_displaced(fds[0]);
	for (uint32_t i = 1; i < STRANGERS_MAX; i++) {
		cr_expect(is_open(fds[i]), "%u", i);
		zi_close(fds[i]);
	}
	store_client_close(client);
	store_stop(&store);
}

/* A client that was refused keeps its place until it closes, as a stranger does. */
Test(store_strangers, a_stranger_has_a_second_to_greet_and_as_long_to_leave)
{
	struct {
		struct store_header header;
		struct store_hello hello;
	} other = { .header = { .magic = STORE_MAGIC,
		                .type = STORE_HELLO,
		                .bytes = sizeof(struct store_hello) },
		    .hello = { .version = STORE_VERSION + 1 } };
	struct store_server_options options = store_options();
	struct store_fixture store;
	char bytes[512];
	int silent, refused;

	options.hello_ns = 50 * ZI_NS_PER_MS;
	options.stall_ns = STORE_TEST_NS * 10;
	store_start(&store, &options);
	silent = store_raw(&store);
	refused = store_raw(&store);
	cr_assert_eq(send(refused, &other, sizeof(other), MSG_NOSIGNAL), sizeof(other));
	cr_expect_eq(drain(silent, bytes, sizeof(bytes)), 0);
	(void)drain(refused, bytes, sizeof(bytes));
	while (store_server_connection_count(store.server))
		(void)sched_yield(); /* The refused connection's time is the server's to see. */
	zi_close(silent);
	zi_close(refused);
	store_stop(&store);
}

Test(store_strangers, a_client_that_is_turned_away_until_its_deadline_says_so)
{
	struct store_server_options options = store_options();
	struct store_client *client, *other = NULL;
	struct zi_text text = { "" };
	struct store_fixture store;

	options.connections_max = 1;
	store_start(&store, &options);
	client = store_client_of(&store);
	cr_expect_eq(store_client_open(&(struct store_client_options){ .host = "127.0.0.1",
	                                                               .port = store_server_port(
									       store.server),
	                                                               .job = "gpt",
	                                                               .incarnation = "run.0",
	                                                               .name = "n" },
	                               soon_ns(300), &text, &other),
	             -EBUSY);
	cr_expect(strstr(text.chars, "turned this node away"), "%s", text.chars);
	cr_expect(strstr(text.chars, "has 1 connections"), "%s", text.chars);
	store_client_close(client);
	store_stop(&store);
}
