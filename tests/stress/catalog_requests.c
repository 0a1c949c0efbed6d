/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the commit thread and its queue have no data race and end each request once, in order of
 * submission, on its own loop. Method: several threads with a loop each keep requests in flight on
 * one catalog, whose results they check in plain memory; it is closed with requests queued. Meant
 * for TSan; a plain main, because a Criterion binary does not start under it. Exits 0, or aborts.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/thread.h"
#include "daemon/catalog/catalog.h"
#include "tests/guard/guard.h"

#define LOOPS     3u
#define IN_FLIGHT 4u
#define ROUNDS    400u /* requests per loop */

struct client {
	struct zi_thread thread;
	struct zi_loop *loop;
	struct catalog *catalog;
	uint32_t submitted_count;
	uint32_t done_count;
};

struct work {
	struct catalog_request request;
	struct catalog_job job;
	struct client *client;
	uint32_t index; /* of the submission */
};

/* A failed check must stop NDEBUG builds too. */
static void check(int is_true, const char *what)
{
	if (is_true)
		return;
	(void)fprintf(stderr, "catalog_requests: %s\n", what);
	abort();
}

static void work_submit(struct work *work)
{
	work->index = work->client->submitted_count++;
	work->job.incarnation_number = work->index;
	catalog_submit(work->client->catalog, &work->request);
}

static void work_done(struct catalog_request *request)
{
	struct work *work = container_of(request, struct work, request);
	struct client *client = work->client;

	check(zi_loop_is_owner(client->loop), "done on another loop's thread");
	check(request->result == -ENOENT, "there is no such job");
	check(strstr(request->text.chars, "'absent'") != NULL, "the sentence names it");
	check(work->index == client->done_count++, "out of order, or twice");
	if (client->submitted_count < ROUNDS)
		work_submit(work);
	else if (client->done_count == client->submitted_count)
		zi_loop_stop(client->loop);
}

static void client_begin(struct client *client, struct work *work)
{
	for (uint32_t i = 0; i < IN_FLIGHT; i++) {
		work[i] = (struct work){ .client = client, .job = { .name = "absent" } };
		work[i].request = (struct catalog_request){
			.kind = CATALOG_JOB_INCARNATION,
			.job = &work[i].job,
			.done = work_done,
			.loop = client->loop,
		};
		work_submit(&work[i]);
	}
}

static int client_main(void *arg)
{
	struct client *client = arg;
	struct work work[IN_FLIGHT];

	client_begin(client, work);
	return zi_loop_run(client->loop);
}

/* Closed with requests queued: all must still come back. */
static struct catalog *close_in_flight(struct catalog *catalog)
{
	static struct work work[IN_FLIGHT];
	struct client client = { .catalog = catalog };

	client.submitted_count = ROUNDS - IN_FLIGHT;
	client.done_count = client.submitted_count;
	check(zi_loop_new(&client.loop) == 0, "zi_loop_new");
	client_begin(&client, work);
	catalog = catalog_close(catalog);
	check(zi_loop_run(client.loop) == 0, "zi_loop_run");
	check(client.done_count == ROUNDS, "requests were lost");
	client.loop = zi_loop_free(client.loop);
	return catalog;
}

int main(void)
{
	char directory[64];
	char file[sizeof(directory) + sizeof("/catalog.db-mark")];
	struct client clients[LOOPS];
	struct catalog *catalog = NULL;

	memset(clients, 0, sizeof(clients));
	check(mkdtemp(guard_path(directory, sizeof(directory), "stress")) != NULL, "mkdtemp");
	check(catalog_open(directory, NULL, &catalog) == 0, "catalog_open");
	check(catalog_start(catalog) == 0, "catalog_start");
	for (uint32_t i = 0; i < LOOPS; i++) {
		clients[i].catalog = catalog;
		check(zi_loop_new(&clients[i].loop) == 0, "zi_loop_new");
		check(zi_thread_start(&clients[i].thread, "client", client_main, &clients[i]) == 0,
		      "zi_thread_start");
	}
	for (uint32_t i = 0; i < LOOPS; i++) {
		check(zi_thread_join(&clients[i].thread) == 0, "a loop failed");
		check(clients[i].done_count == ROUNDS, "requests were lost");
	}
	catalog = close_in_flight(catalog);
	for (uint32_t i = 0; i < LOOPS; i++)
		clients[i].loop = zi_loop_free(clients[i].loop);
	(void)snprintf(file, sizeof(file), "%s/catalog.db", directory); /* Fits. */
	(void)unlink(file);
	(void)snprintf(file, sizeof(file), "%s/catalog.db-mark", directory); /* Fits. */
	(void)unlink(file);
	check(rmdir(directory) == 0, "something was left in the directory");
	(void)printf("catalog_requests: %u requests of %u loops\n", (LOOPS * ROUNDS) + IN_FLIGHT,
	             LOOPS);
	return 0;
}
