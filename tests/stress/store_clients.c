/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the store under many clients in threads that set, get, add, wait, delete, leave wills and
 * are broken off by other threads: no race (under TSan), no lost wake-up, nothing left behind.
 * Method: each round every client adds to its key and waits for all the others' keys of that round;
 * a wake-up that is lost shows as a deadline. Beside them one client waits for what never comes,
 * and is cancelled, over and over.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/thread.h"
#include "daemon/worker/store_client.h"
#include "daemon/worker/store_server.h"

#define CLIENTS 6u
#define ROUNDS  200u
#define TIME_NS (120 * ZI_NS_PER_S)

static struct zi_loop *loop;
static struct store_server *server;

#define must(condition)                                                                           \
	do {                                                                                      \
		if (!(condition)) {                                                               \
			fprintf(stderr, "store_clients: line %d: %s: %s\n", __LINE__, #condition, \
			        text.chars);                                                      \
			exit(1);                                                                  \
		}                                                                                 \
	} while (0)

static int serve(void *arg)
{
	(void)arg;
	return zi_loop_run(loop);
}

static struct store_client *join(void)
{
	struct store_client *client = NULL;
	struct zi_text text = { "" };

	must(!store_client_open(&(struct store_client_options){ .host = "127.0.0.1",
	                                                        .port = store_server_port(server),
	                                                        .job = "stress",
	                                                        .incarnation = "0",
	                                                        .name = "client" },
	                        zi_clock_deadline_ns(TIME_NS), &text, &client));
	return client;
}

struct client {
	struct zi_thread thread;
	uint32_t number;
};

static int client_main(void *arg)
{
	const struct client *self = arg;
	struct store_client *client = join();
	struct zi_text text = { "" };
	char names[CLIENTS][32];
	const char *keys[CLIENTS];

	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint64_t deadline_ns = zi_clock_deadline_ns(TIME_NS);
		int64_t sum;

		for (uint32_t i = 0; i < CLIENTS; i++) {
			(void)snprintf(names[i], sizeof(names[i]), "%u/%u", round, i);
			keys[i] = names[i];
		}
		if (round % 7 == self->number) {
			/* Says it by its end. */
			must(!store_client_will(client, keys[self->number], "w", 1, deadline_ns,
			                        &text));
			client = store_client_close(client);
			client = join();
		} else {
			must(!store_client_set(client, keys[self->number], "s", 1, deadline_ns,
			                       &text));
		}
		must(!store_client_wait(client, keys, CLIENTS, deadline_ns, &text));
		must(!store_client_add(client, "sum", 1, deadline_ns, &text, &sum));
		/* Nobody waits for these any more. */
		if (round >= 2) {
			(void)snprintf(names[0], sizeof(names[0]), "%u/%u", round - 2,
			               self->number);
			must(!store_client_delete(client, names[0], deadline_ns, &text));
		}
	}
	store_client_close(client);
	return 0;
}

struct waiter {
	struct zi_thread thread;
	struct store_client *client;
	int result;
};

static int waiter_main(void *arg)
{
	struct waiter *waiter = arg;

	waiter->result = store_client_wait(waiter->client, (const char *[]){ "never" }, 1,
	                                   ZI_DEADLINE_NEVER, NULL);
	return 0;
}

static void cancel_again_and_again(void)
{
	struct zi_text text = { "" };

	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct waiter waiter = { .client = join() };

		must(!zi_thread_start(&waiter.thread, "waiter", waiter_main, &waiter));
		store_client_cancel(waiter.client);
		(void)zi_thread_join(&waiter.thread);
		must(waiter.result == -ECANCELED);
		store_client_close(waiter.client);
	}
}

int main(void)
{
	struct client clients[CLIENTS];
	struct zi_thread thread = { .is_started = false };
	struct store_client *last;
	struct zi_text text = { "" };
	int64_t sum = 0;

	must(!zi_loop_new(&loop));
	must(!store_server_open(loop,
	                        &(struct store_server_options){
					.host = "127.0.0.1", .job = "stress", .incarnation = "0" },
	                        &text, &server));
	must(!zi_thread_start(&thread, "store", serve, NULL));
	for (uint32_t i = 0; i < CLIENTS; i++) {
		clients[i] = (struct client){ .number = i };
		must(!zi_thread_start(&clients[i].thread, "client", client_main, &clients[i]));
	}
	cancel_again_and_again();
	for (uint32_t i = 0; i < CLIENTS; i++)
		(void)zi_thread_join(&clients[i].thread);
	last = join();
	must(!store_client_add(last, "sum", 0, zi_clock_deadline_ns(TIME_NS), &text, &sum));
	must(sum == CLIENTS * ROUNDS);
	store_client_close(last);
	zi_loop_stop(loop);
	must(!zi_thread_join(&thread));
	server = store_server_close(server);
	loop = zi_loop_free(loop);
	printf("store_clients: %u clients, %u rounds\n", CLIENTS, ROUNDS);
	return 0;
}
