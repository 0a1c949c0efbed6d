/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the store share: a server on a loop in a thread of its own, and clients of it. */
#pragma once

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/thread.h"
#include "daemon/worker/store.h"
#include "daemon/worker/store_client.h"
#include "daemon/worker/store_server.h"

/* Long enough for a crowded machine; what is waited for comes by itself. */
#define STORE_TEST_NS (60 * ZI_NS_PER_S)

struct store_fixture {
	struct zi_loop *loop;
	struct store_server *server;
	struct zi_thread thread;
	struct zi_text text;
};

static inline int store_loop_main(void *arg)
{
	return zi_loop_run(((struct store_fixture *)arg)->loop);
}

static inline void store_start(struct store_fixture *store,
                               const struct store_server_options *options)
{
	*store = (struct store_fixture){ .loop = NULL };
	cr_assert_eq(zi_loop_new(&store->loop), 0);
	cr_assert_eq(store_server_open(store->loop, options, &store->text, &store->server), 0, "%s",
	             store->text.chars);
	cr_assert_eq(zi_thread_start(&store->thread, "store", store_loop_main, store), 0);
}

static inline void store_stop(struct store_fixture *store)
{
	zi_loop_stop(store->loop);
	cr_assert_eq(zi_thread_join(&store->thread), 0);
	store->server = store_server_close(store->server);
	store->loop = zi_loop_free(store->loop);
}

static inline struct store_server_options store_options(void)
{
	return (struct store_server_options){ .host = "127.0.0.1",
		                              .job = "gpt",
		                              .incarnation = "run.0" };
}

static inline int store_join(const struct store_fixture *store, const char *job,
                             const char *incarnation, const char *token, struct zi_text *text,
                             struct store_client **ret_client)
{
	return store_client_open(
		&(struct store_client_options){ .host = "127.0.0.1",
	                                        .port = store_server_port(store->server),
	                                        .job = job,
	                                        .incarnation = incarnation,
	                                        .token = token,
	                                        .name = "test" },
		zi_clock_deadline_ns(STORE_TEST_NS), text, ret_client);
}

static inline struct store_client *store_client_of(const struct store_fixture *store)
{
	struct store_client *client = NULL;
	struct zi_text text = { "" };

	cr_assert_eq(store_join(store, "gpt", "run.0", NULL, &text, &client), 0, "%s", text.chars);
	return client;
}

static inline uint64_t soon_ns(uint64_t ms)
{
	return zi_clock_deadline_ns(ms * ZI_NS_PER_MS);
}

/* A connection without a client behind it. */
static inline int store_raw(const struct store_fixture *store)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		                       .sin_port = htons(store_server_port(store->server)),
		                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert_geq(fd, 0);
	cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

/* Until the other side closes. Return: bytes it sent before. */
static inline size_t drain(int fd, char *bytes, size_t capacity)
{
	size_t count = 0;
	ssize_t r;

	while ((r = recv(fd, bytes + count, capacity - count, 0)) > 0)
		count += (size_t)r;
	return count;
}
