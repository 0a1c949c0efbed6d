/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the store does what a rendezvous needs (set, get, add, wait, delete, wills), each within
 * its deadline, and tells strangers, other jobs and older runs apart by name. Method: a server on a
 * loop of its own, clients in threads.
 */
#include <stdio.h>
#include <sys/resource.h>

#include "daemon/worker/net/agree.h"
#include "daemon/worker/subtree.h"
#include "tests/unit/worker/store_fixture.h"

#define CLIENTS 8u

Test(store, what_is_set_is_what_others_get)
{
	struct store_server_options options = store_options();
	struct store_client *one, *other;
	struct store_fixture store;
	struct zi_text text;
	static char value[STORE_VALUE_BYTES_MAX], got[STORE_VALUE_BYTES_MAX];
	uint32_t bytes;

	store_start(&store, &options);
	one = store_client_of(&store);
	other = store_client_of(&store);
	for (uint32_t i = 0; i < sizeof(value); i++)
		value[i] = (char)(i * 7);
	cr_expect_eq(store_client_get(other, "a", got, sizeof(got), soon_ns(60000), &text, &bytes),
	             -ENOENT);
	cr_expect(strstr(text.chars, "no key 'a'"), "%s", text.chars);
	cr_expect_eq(store_client_set(one, "a", value, sizeof(value), soon_ns(60000), &text), 0);
	cr_expect_eq(store_client_get(other, "a", got, sizeof(got), soon_ns(60000), &text, &bytes),
	             0);
	cr_expect_eq(bytes, sizeof(value));
	cr_expect_eq(memcmp(value, got, sizeof(value)), 0);
	cr_expect_eq(store_client_get(other, "a", got, 100, soon_ns(60000), &text, &bytes),
	             -ENOSPC);
	cr_expect_eq(store_client_set(other, "a", NULL, 0, soon_ns(60000), &text), 0);
	cr_expect_eq(store_client_get(one, "a", got, sizeof(got), soon_ns(60000), &text, &bytes),
	             0);
	cr_expect_eq(bytes, 0);
	cr_expect_eq(store_client_delete(one, "a", soon_ns(60000), &text), 0);
	cr_expect_eq(store_client_delete(one, "a", soon_ns(60000), &text), -ENOENT);
	store_client_close(one);
	store_client_close(other);
	store_stop(&store);
}

Test(store, only_the_first_of_two_sets_anew)
{
	struct store_server_options options = store_options();
	struct store_client *client;
	struct store_fixture store;
	struct zi_text text;
	bool is_present = true;
	char got[8];
	uint32_t bytes;

	store_start(&store, &options);
	client = store_client_of(&store);
	cr_expect_eq(
		store_client_set_new(client, "k", "first", 5, soon_ns(60000), &text, &is_present),
		0);
	cr_expect_not(is_present);
	cr_expect_eq(
		store_client_set_new(client, "k", "second", 6, soon_ns(60000), &text, &is_present),
		0);
	cr_expect(is_present);
	cr_expect_eq(store_client_get(client, "k", got, sizeof(got), soon_ns(60000), &text, &bytes),
	             0);
	cr_expect_eq(bytes, 5);
	store_client_close(client);
	store_stop(&store);
}

struct adder {
	struct zi_thread thread;
	const struct store_fixture *store;
	int64_t last;
};

static int adder_main(void *arg)
{
	struct adder *adder = arg;
	struct store_client *client = store_client_of(adder->store);
	struct zi_text text;

	for (uint32_t i = 0; i < 100; i++)
		cr_assert_eq(store_client_add(client, "n", 3, soon_ns(60000), &text, &adder->last),
		             0);
	store_client_close(client);
	return 0;
}

Test(store, additions_of_many_clients_all_count)
{
	struct store_server_options options = store_options();
	struct adder adders[CLIENTS];
	struct store_client *client;
	struct store_fixture store;
	struct zi_text text;
	int64_t sum, max = 0;

	store_start(&store, &options);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		adders[i] = (struct adder){ .store = &store };
		cr_assert_eq(zi_thread_start(&adders[i].thread, "adder", adder_main, &adders[i]),
		             0);
	}
	for (uint32_t i = 0; i < CLIENTS; i++) {
		(void)zi_thread_join(&adders[i].thread);
		max = ZI_MAX(max, adders[i].last);
	}
	client = store_client_of(&store);
	cr_expect_eq(store_client_add(client, "n", -1, soon_ns(60000), &text, &sum), 0);
	cr_expect_eq(sum, CLIENTS * 300 - 1);
	cr_expect_eq(max, CLIENTS * 300);
	cr_expect_eq(store_client_add(client, "n", INT64_MAX, soon_ns(60000), &text, &sum),
	             -ERANGE);
	cr_expect_eq(store_client_set(client, "n", "text", 4, soon_ns(60000), &text), 0);
	cr_expect_eq(store_client_add(client, "n", 1, soon_ns(60000), &text, &sum), -EINVAL);
	cr_expect(strstr(text.chars, "'n' holds 4 bytes"), "%s", text.chars);
	store_client_close(client);
	store_stop(&store);
}

struct waiter {
	struct zi_thread thread;
	struct store_client *client;
	struct zi_text text;
	uint64_t deadline_ns;
	int result;
};

static int waiter_main(void *arg)
{
	static const char *const keys[] = { "x", "y", "z" };
	struct waiter *waiter = arg;

	waiter->result =
		store_client_wait(waiter->client, keys, 3, waiter->deadline_ns, &waiter->text);
	return 0;
}

Test(store, a_wait_for_several_keys_ends_when_the_last_is_there)
{
	struct store_server_options options = store_options();
	struct waiter waiter = { .deadline_ns = soon_ns(60000) };
	struct store_client *client;
	struct store_fixture store;
	struct zi_text text;
	int64_t sum;

	store_start(&store, &options);
	client = store_client_of(&store);
	waiter.client = store_client_of(&store);
	cr_assert_eq(zi_thread_start(&waiter.thread, "waiter", waiter_main, &waiter), 0);
	cr_expect_eq(store_client_set(client, "y", "", 0, soon_ns(60000), &text), 0);
	cr_expect_eq(store_client_add(client, "x", 1, soon_ns(60000), &text, &sum), 0);
	cr_expect_eq(store_client_will(client, "z", "gone", 4, soon_ns(60000), &text), 0);
	store_client_close(client); /* Its will is the last. */
	cr_assert_eq(zi_thread_join(&waiter.thread), 0);
	cr_expect_eq(waiter.result, 0, "%s", waiter.text.chars);
	store_client_close(waiter.client);
	store_stop(&store);
}

static int any_waiter_main(void *arg)
{
	static const char *const keys[] = { "x", "y", "z" };
	struct waiter *waiter = arg;

	waiter->result =
		store_client_wait_any(waiter->client, keys, 3, waiter->deadline_ns, &waiter->text);
	return 0;
}

Test(store, a_wait_for_any_of_several_keys_ends_when_the_first_is_there)
{
	struct store_server_options options = store_options();
	struct waiter waiter = { .deadline_ns = soon_ns(60000) };
	struct store_client *client;
	struct store_fixture store;
	struct zi_text text;

	store_start(&store, &options);
	client = store_client_of(&store);
	waiter.client = store_client_of(&store);
	cr_assert_eq(zi_thread_start(&waiter.thread, "waiter", any_waiter_main, &waiter), 0);
	cr_expect_eq(store_client_set(client, "w", "", 0, soon_ns(60000), &text), 0);
	cr_expect_eq(store_client_set(client, "y", "", 0, soon_ns(60000), &text), 0);
	cr_assert_eq(zi_thread_join(&waiter.thread), 0);
	cr_expect_eq(waiter.result, 0, "%s", waiter.text.chars);
	(void)any_waiter_main(&waiter); /* What is there already is not waited for. */
	cr_expect_eq(waiter.result, 0, "%s", waiter.text.chars);
	cr_expect_eq(store_client_delete(client, "y", soon_ns(60000), &text), 0);
	waiter.deadline_ns = soon_ns(20);
	(void)any_waiter_main(&waiter);
	cr_expect_eq(waiter.result, -ETIMEDOUT);
	cr_expect(strstr(waiter.text.chars, "'x', and others"), "%s", waiter.text.chars);
	store_client_close(client);
	store_client_close(waiter.client);
	store_stop(&store);
}

static int unless_waiter_main(void *arg)
{
	static const char *const keys[] = { "x", "y" };
	struct waiter *waiter = arg;
	char value[4] = "";
	uint32_t bytes = 0;
	bool has_ended = false;

	waiter->result =
		store_client_wait_unless(waiter->client, "end", keys, 2, value, sizeof(value),
	                                 waiter->deadline_ns, &waiter->text, &bytes, &has_ended);
	if (!waiter->result && has_ended)
		waiter->result = bytes == 3 && !memcmp(value, "why", 3) ? 1 : 2;
	return 0;
}

Test(store, a_wait_for_all_keys_ends_with_the_value_of_one_that_is_not_waited_for)
{
	struct store_server_options options = store_options();
	struct waiter waiter = { .deadline_ns = soon_ns(60000) };
	struct store_client *client;
	struct store_fixture store;
	struct zi_text text;

	store_start(&store, &options);
	client = store_client_of(&store);
	waiter.client = store_client_of(&store);
	cr_assert_eq(zi_thread_start(&waiter.thread, "waiter", unless_waiter_main, &waiter), 0);
	cr_expect_eq(store_client_set(client, "x", "", 0, soon_ns(60000), &text), 0);
	cr_expect_eq(store_client_set(client, "end", "why", 3, soon_ns(60000), &text), 0);
	cr_assert_eq(zi_thread_join(&waiter.thread), 0);
	cr_expect_eq(waiter.result, 1, "%d: %s", waiter.result, waiter.text.chars);
	(void)unless_waiter_main(&waiter); /* It is there already. */
	cr_expect_eq(waiter.result, 1);
	cr_expect_eq(store_client_set(client, "end", "longer", 6, soon_ns(60000), &text), 0);
	(void)unless_waiter_main(&waiter);
	cr_expect_eq(waiter.result, -ENOSPC);
	cr_expect_eq(store_client_delete(client, "end", soon_ns(60000), &text), 0);
	waiter.deadline_ns = soon_ns(20);
	(void)unless_waiter_main(&waiter);
	cr_expect_eq(waiter.result, -ETIMEDOUT);
	cr_expect(strstr(waiter.text.chars, "'y'"), "%s", waiter.text.chars);
	cr_expect_eq(store_client_set(client, "y", "", 0, soon_ns(60000), &text), 0);
	(void)unless_waiter_main(&waiter);
	cr_expect_eq(waiter.result, 0, "%s", waiter.text.chars);
	store_client_close(client);
	store_client_close(waiter.client);
	store_stop(&store);
}

Test(store, a_wait_that_ends_by_its_deadline_names_the_key_and_the_client_lives_on)
{
	struct store_server_options options = store_options();
	struct store_fixture store;
	struct waiter waiter = { .deadline_ns = 0 };
	char got[8];
	uint32_t bytes;

	store_start(&store, &options);
	waiter.client = store_client_of(&store);
	cr_assert_eq(store_client_set(waiter.client, "x", "1", 1, soon_ns(60000), NULL), 0);
	waiter.deadline_ns = soon_ns(20);
	(void)waiter_main(&waiter);
	cr_expect_eq(waiter.result, -ETIMEDOUT);
	cr_expect(strstr(waiter.text.chars, "'y', and others"), "%s", waiter.text.chars);
	cr_expect_eq(store_client_get(waiter.client, "x", got, 8, soon_ns(60000), NULL, &bytes), 0);
	store_client_close(waiter.client);
	store_stop(&store);
}

Test(store, a_wait_is_broken_off_from_another_thread)
{
	struct store_server_options options = store_options();
	struct waiter waiter = { .deadline_ns = ZI_DEADLINE_NEVER };
	struct store_fixture store;

	store_start(&store, &options);
	waiter.client = store_client_of(&store);
	cr_assert_eq(zi_thread_start(&waiter.thread, "waiter", waiter_main, &waiter), 0);
	store_client_cancel(waiter.client);
	cr_assert_eq(zi_thread_join(&waiter.thread), 0);
	cr_expect_eq(waiter.result, -ECANCELED);
	(void)waiter_main(&waiter);
	cr_expect_eq(waiter.result, -ENOTCONN);
	store_client_close(waiter.client);
	store_stop(&store);
}

Test(store, a_will_that_was_taken_back_is_not_run)
{
	struct store_server_options options = store_options();
	struct store_client *client;
	struct store_fixture store;
	char got[8];
	uint32_t bytes;

	store_start(&store, &options);
	client = store_client_of(&store);
	cr_expect_eq(store_client_will(client, "w", "1", 1, soon_ns(60000), NULL), 0);
	cr_expect_eq(store_client_will(client, NULL, NULL, 0, soon_ns(60000), NULL), 0);
	store_client_close(client);
	client = store_client_of(&store);
	cr_expect_eq(store_client_get(client, "w", got, sizeof(got), soon_ns(60000), NULL, &bytes),
	             -ENOENT);
	store_client_close(client);
	store_stop(&store);
}

Test(store, too_many_keys_and_bytes_are_refused_with_figures)
{
	static char value[STORE_VALUE_BYTES_MAX + 1];
	struct store_server_options options = store_options();
	struct store_client *client;
	struct store_fixture store;
	struct zi_text text = { "" };
	char key[200] = "k";
	int r = 0;

	store_start(&store, &options);
	client = store_client_of(&store);
	for (uint32_t i = 0; !r && i <= STORE_KEYS_MAX; i++) {
		(void)snprintf(key, sizeof(key), "key/%u", i);
		r = store_client_set(client, key, "", 0, soon_ns(60000), &text);
	}
	cr_expect_eq(r, -ENOSPC);
	cr_expect(strstr(text.chars, "8192 keys"), "%s", text.chars);
	for (uint32_t i = 0; i < STORE_KEYS_MAX; i++) {
		(void)snprintf(key, sizeof(key), "key/%u", i);
		r = store_client_set(client, key, value, STORE_VALUE_BYTES_MAX, soon_ns(60000),
		                     &text);
		if (r)
			break;
	}
	cr_expect_eq(r, -ENOSPC);
	cr_expect(strstr(text.chars, "at most 16 MiB"), "%s", text.chars);
	cr_expect_eq(store_client_set(client, key, value, sizeof(value), soon_ns(60000), &text),
	             -EINVAL);
	cr_expect(strstr(text.chars, "65537 bytes (at most 65536)"), "%s", text.chars);
	memset(key, 'k', sizeof(key) - 1);
	cr_expect_eq(store_client_delete(client, key, soon_ns(60000), &text), -EINVAL);
	cr_expect_eq(store_client_delete(client, "", soon_ns(60000), &text), -EINVAL);
	cr_expect_eq(store_client_wait(client, NULL, 0, soon_ns(60000), &text), -EINVAL);
	cr_expect_eq(
		store_client_wait(client, (const char *const[]){ key }, 1, soon_ns(60000), &text),
		-EINVAL);
	store_client_close(client);
	store_stop(&store);
}

/* Two for each of 64 groups on each of four nodes, and then some. */
Test(store, nodes_with_as_many_groups_as_there_may_be_have_their_connections)
{
	static struct store_client *clients[4 * 64 * 2 + 8];
	struct store_server_options options = store_options();
	struct rlimit files;
	struct store_fixture store;

	/* Both ends of each are in this process. */
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
	if (files.rlim_max < 3 * ZI_COUNT_OF(clients)) {
		cr_skip_test("RLIMIT_NOFILE is too low");
		return;
	}
	files.rlim_cur = ZI_MAX(files.rlim_cur, 3 * ZI_COUNT_OF(clients));
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
	store_start(&store, &options);
	for (uint32_t i = 0; i < ZI_COUNT_OF(clients); i++)
		clients[i] = store_client_of(&store);
	for (uint32_t i = 0; i < ZI_COUNT_OF(clients); i++)
		clients[i] = store_client_close(clients[i]);
	store_stop(&store);
}

/* What nodes say of groups that are made over and over never fills the store. */
Test(store, epochs_that_are_kept_have_room)
{
	for (uint32_t nodes = 2; nodes <= SUBTREE_NODES_MAX; nodes++) {
		uint64_t kept = agree_epochs_kept(nodes);

		/* Others may still be at the one before. */
		cr_expect_geq(kept, 4, "%u nodes", nodes);
		cr_expect_leq(kept * AGREE_EPOCH_KEYS(nodes), STORE_KEYS_MAX / 2, "%u", nodes);
		cr_expect_leq(kept * AGREE_EPOCH_BYTES(nodes), STORE_TABLE_BYTES_MAX / 2, "%u",
		              nodes);
	}
	cr_expect_eq(agree_epochs_kept(2), AGREE_EPOCHS_MAX);
}

Test(store, a_client_comes_before_its_server)
{
	struct store_server_options options = store_options();
	struct store_fixture store;
	struct store_client *client = NULL;
	struct zi_text text;
	uint16_t port;

	store_start(&store, &options); /* A port that is free when it is stopped again. */
	port = store_server_port(store.server);
	store_stop(&store);
	cr_expect_eq(store_client_open(&(struct store_client_options){ .host = "127.0.0.1",
	                                                               .port = port,
	                                                               .job = "gpt",
	                                                               .incarnation = "run.0",
	                                                               .name = "n" },
	                               soon_ns(120), &text, &client),
	             -ETIMEDOUT);
	cr_expect(strstr(text.chars, "Connection refused"), "%s", text.chars);
	options.port = port;
	store_start(&store, &options);
	client = store_client_of(&store);
	store_client_close(client);
	store_stop(&store);
}

Test(store, a_port_in_use_and_a_foreign_address_are_named)
{
	struct store_server_options options = store_options(), second = options;
	struct store_server *server = NULL;
	struct store_fixture store;
	struct zi_text text;

	store_start(&store, &options);
	second.port = store_server_port(store.server);
	cr_expect_eq(store_server_open(store.loop, &second, &text, &server), -EADDRINUSE);
	cr_expect(strstr(text.chars, "set ZINF_PORT"), "%s", text.chars);
	second.host = NULL;
	cr_expect_eq(store_server_open(store.loop, &second, &text, &server), -EADDRINUSE);
	second.host = "192.0.2.1"; /* of documentation, RFC 5737: nobody's */
	cr_expect_eq(store_server_open(store.loop, &second, &text, &server), -EADDRNOTAVAIL);
	cr_expect(strstr(text.chars, "MASTER_ADDR"), "%s", text.chars);
	second.host = "no.such.name.invalid";
	cr_expect_eq(store_server_open(store.loop, &second, &text, &server), -ENOENT);
	cr_expect(strstr(text.chars, "not resolved"), "%s", text.chars);
	store_stop(&store);
}

Test(store, any_address_serves_both_families)
{
	struct store_server_options options = store_options();
	struct store_client *client = NULL;
	struct store_fixture store;
	struct zi_text text;
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in6 loopback = { .sin6_family = AF_INET6,
		                         .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	bool has_ipv6 = fd >= 0 && !bind(fd, (struct sockaddr *)&loopback, sizeof(loopback));

	zi_close(fd);
	options.host = NULL;
	store_start(&store, &options);
	store_client_close(store_client_of(&store));
	if (!has_ipv6)
		cr_log_warn("no ::1 on this machine: IPv6 is not tried");
	else
		cr_expect_eq(
			store_client_open(&(struct store_client_options){ .host = "::1",
		                                                          .port = store_server_port(
										  store.server),
		                                                          .job = "gpt",
		                                                          .incarnation = "run.0",
		                                                          .name = "n" },
		                          soon_ns(60000), &text, &client),
			0, "%s", text.chars);
	store_client_close(client);
	store_stop(&store);
}

/* ---- a port that closes every connection ---- */

static int listen_fd;
static uint32_t is_over;

static int close_all(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
		struct pollfd ready = { .fd = listen_fd, .events = POLLIN };

		if (poll(&ready, 1, 10) > 0)
			(void)zi_close(accept(listen_fd, NULL, NULL)); /* Always -1. */
	}
	return 0;
}

Test(store, connections_that_are_closed_without_an_answer_are_counted, .timeout = 300)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct store_client_options options = {
		.host = "127.0.0.1", .job = "gpt", .incarnation = "run.0", .name = "test"
	};
	struct zi_thread thread = { .is_started = false };
	socklen_t bytes = sizeof(address);
	struct store_client *client = NULL;
	struct zi_text text = { "" };
	int r = 0;

	listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(listen_fd, (struct sockaddr *)&address, sizeof(address)), 0);
	cr_assert_eq(listen(listen_fd, 64), 0);
	cr_assert_eq(getsockname(listen_fd, (struct sockaddr *)&address, &bytes), 0);
	options.port = ntohs(address.sin_port);
	cr_assert_eq(zi_thread_start(&thread, "closes", close_all, NULL), 0);
	/* A crowded machine has the time that it needs. */
	for (uint64_t ns = ZI_NS_PER_S / 4; r != -EPIPE && ns < STORE_TEST_NS; ns *= 4)
		r = store_client_open(&options, zi_clock_deadline_ns(ns), &text, &client);
	cr_expect_eq(r, -EPIPE, "%d: %s", r, text.chars);
	cr_expect(strstr(text.chars, "connections of this node without an answer"), "%s",
	          text.chars);
	__atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
	cr_assert_eq(zi_thread_join(&thread), 0);
	zi_close(listen_fd);
}
