/* SPDX-License-Identifier: Apache-2.0 */
/* Replicas of a model in one process (zinf/replica.h). Floor 2; each replica's thread its own. */
#include "zinf/replica.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "libclient/client.h"
#include "libclient/sized.h"

/* Of the version that first had replicas. */
#define OPTIONS_BYTES_MIN 160u
static_assert(OPTIONS_BYTES_MIN <= sizeof(struct zinf_options), "the struct only grows");

struct replica {
	struct zinf *zinf;
	pthread_t thread;
	uint32_t number;
	bool is_started;
	zinf_replica_fn run;
	void *arg;
	/* of its run */
	int result;
	uint64_t failed_ns;
	struct zi_text text;
};

struct zinf_replicas {
	uint32_t count;
	struct zi_text text;
	struct replica replicas[]; /* (count,) */
};

void zinf_replicas_detach(struct zinf_replicas *replicas)
{
	if (!replicas)
		return;
	for (uint32_t i = 0; i < replicas->count; i++)
		zinf_detach(replicas->replicas[i].zinf);
	free(replicas);
}

/* One after the other: no attach waits for another rank. */
static int attach_all(struct zinf_replicas *replicas, const struct zinf_options *options)
{
	struct zinf_options own = { 0 };

	memcpy(&own, options, ZI_MIN((size_t)options->bytes, sizeof(own)));
	own.bytes = sizeof(own);
	own.strategy = ZINF_DP;
	own.world_size = (int32_t)replicas->count;
	for (uint32_t i = 0; i < replicas->count; i++) {
		int r;

		own.rank = (int32_t)i;
		r = zinf_attach(&own, &replicas->replicas[i].zinf);
		if (r)
			return err_trace(r);
	}
	return 0;
}

int zinf_replicas_attach(const struct zinf_options *options, uint32_t count,
                         struct zinf_replicas **ret_replicas)
{
	ZI_CLIENT_NEED(NULL, options, options);
	ZI_CLIENT_NEED(NULL, ret_replicas, ret_replicas);
	static const struct zi_sized sized = { "options", "ZINF_OPTIONS_INIT", OPTIONS_BYTES_MIN,
		                               sizeof(*options) };
	struct zinf_replicas *replicas;
	struct zi_text text = { "" };
	int r = zi_client_check_sized(&sized, options, &text);

	if (!r && (!count || count > ZINF_WORLD_MAX))
		r = err_origin(zi_text_error(&text, -EINVAL, "%u replicas: 1 to %u are allowed",
		                             count, ZINF_WORLD_MAX));
	if (r) {
		zi_client_set_attach_error(&text);
		return err_trace(r);
	}
	replicas = calloc(1, sizeof(*replicas) + count * sizeof(replicas->replicas[0]));
	if (!replicas) {
		zi_text_set(&text, "no memory");
		zi_client_set_attach_error(&text);
		return err_origin(-ENOMEM);
	}
	replicas->count = count;
	r = attach_all(replicas, options);
	if (r) {
		zinf_replicas_detach(replicas);
		return err_trace(r);
	}
	*ret_replicas = replicas;
	return 0;
}

struct zinf *zinf_replicas_get(const struct zinf_replicas *replicas, uint32_t replica)
{
	if (!replicas)
		return NULL;
	assert(replica < replicas->count);
	return replicas->replicas[replica].zinf;
}

/* Nobody is to wait for it: the daemon sees its session end, as if its process had died. The time
 * comes before that, so that of several the one that began it is the first. */
static void replica_fail(struct replica *replica, int error, const char *text)
{
	replica->result = error;
	replica->failed_ns = zi_clock_now_ns();
	zi_text_set(&replica->text, "%s", text);
	(void)shutdown(replica->zinf->socket_fd, SHUT_RDWR); /* Over already: as well. */
}

/* The handle's newest sentence may be of a failure that was dealt with: of an error that is none of
 * its calls' nothing but the name is known. */
static void *replica_main(void *arg)
{
	struct replica *replica = arg;
	struct zinf *zinf = replica->zinf;
	int r;

	zinf->text_error = 0; /* Of attaching. */
	r = replica->run(zinf, replica->number, replica->arg);
	if (r)
		replica_fail(replica, r, r == zinf->text_error ? zinf_error_text(zinf) : "");
	return NULL;
}

static void replica_start(struct replica *replica)
{
	int error = pthread_create(&replica->thread, NULL, replica_main, replica);

	replica->is_started = !error;
	if (error)
		replica_fail(replica, -error, "starting its thread failed");
}

/* The one whose failure the others had to suffer. NULL: none. */
static const struct replica *first_failed(const struct zinf_replicas *replicas)
{
	const struct replica *first = NULL;

	for (uint32_t i = 0; i < replicas->count; i++) {
		const struct replica *replica = &replicas->replicas[i];

		if (replica->result && (!first || replica->failed_ns < first->failed_ns))
			first = replica;
	}
	return first;
}

int zinf_replicas_run(struct zinf_replicas *replicas, zinf_replica_fn run, void *arg)
{
	ZI_CLIENT_NEED(NULL, replicas, replicas);
	ZI_CLIENT_NEED(NULL, run, run);
	const struct replica *culprit;

	for (uint32_t i = 0; i < replicas->count; i++) {
		struct replica *replica = &replicas->replicas[i];

		*replica = (struct replica){
			.zinf = replica->zinf, .number = i, .run = run, .arg = arg
		};
	}
	for (uint32_t i = 0; i < replicas->count; i++)
		replica_start(&replicas->replicas[i]);
	for (uint32_t i = 0; i < replicas->count; i++)
		if (replicas->replicas[i].is_started)
			(void)pthread_join(replicas->replicas[i].thread, NULL); /* It was made. */
	replicas->text = (struct zi_text){ "" };
	culprit = first_failed(replicas);
	if (!culprit)
		return 0;
	zi_text_set(&replicas->text, "replica %u: %s", culprit->number,
	            culprit->text.chars[0] ? culprit->text.chars : zi_err_name(culprit->result));
	return err_trace(culprit->result);
}

const char *zinf_replicas_error(const struct zinf_replicas *replicas)
{
	return replicas ? replicas->text.chars : zinf_attach_error();
}

void zinf_scatter(uint64_t rows, uint32_t count, uint32_t replica, uint64_t *ret_first,
                  uint64_t *ret_count)
{
	uint64_t length;
	uint64_t first;

	assert(count > 0);
	assert(replica < count);
	length = rows / count + (rows % count > 0);
	/* Where nothing is left, the product would pass the rows, never 2^64. */
	first = length && replica > rows / length ? rows : ZI_MIN(length * replica, rows);
	*ret_first = first;
	*ret_count = ZI_MIN(length, rows - first);
}
