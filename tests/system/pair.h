/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks attached from the threads of a test, for mistakes that are made by hand. */
#pragma once

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness/ranks.h"
#include "tests/system/system.h"

static struct harness harness;

static inline void start(const char *extra)
{
	system_start(&harness, &(struct harness_options){ .nvme_size = "16M", .extra = extra });
}

static inline void stop(void)
{
	cr_assert_eq(harness_stop(&harness), 0);
}

static inline struct zinf_options options_of(int32_t rank, int32_t world)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;

	options.socket_path = harness.socket_path;
	options.job = "mistaken";
	options.incarnation = "first";
	options.rank = rank;
	options.world_size = world;
	options.timeout_ms = 20000;
	return options;
}

static inline void expect_refused(const struct zinf_options *options, int error, const char *part)
{
	struct zinf *zinf = NULL;

	cr_assert_eq(zinf_attach(options, &zinf), error, "%s", zinf_attach_error());
	cr_assert_null(zinf);
	system_expect_text(zinf_attach_error(), part);
}

static inline struct zinf *attach(const struct zinf_options *options)
{
	struct zinf *zinf = NULL;

	cr_assert_eq(zinf_attach(options, &zinf), 0, "%s", zinf_attach_error());
	return zinf;
}

/* One unit of @elements, and one of 10. */
static inline void lay_out(struct zinf *zinf, uint64_t rows, uint64_t columns)
{
	const uint64_t shape[2] = { rows, columns }, ten = 10;
	uint32_t index;

	cr_assert_eq(zinf_unit_add(zinf, "body", &index), 0);
	cr_assert_eq(zinf_param_add(zinf, "body.weight", 2, shape, &index), 0);
	cr_assert_eq(zinf_unit_add(zinf, "head", &index), 0);
	cr_assert_eq(zinf_param_add(zinf, "head.bias", 1, &ten, &index), 0);
}

/* ---- two ranks at once ---- */

typedef int (*call_fn)(struct zinf *zinf);
struct peer {
	struct zinf *zinf;
	call_fn call;
	int result;
};

static inline void *run_peer(void *arg)
{
	struct peer *peer = arg;

	peer->result = peer->call(peer->zinf);
	return NULL;
}

/* Both call; rank 1's result to @ret_other. */
static inline int both(struct zinf *const zinf[2], call_fn call, int *ret_other)
{
	struct peer peer = { zinf[1], call, 0 };
	pthread_t thread;
	int r;

	cr_assert_eq(pthread_create(&thread, NULL, run_peer, &peer), 0);
	r = call(zinf[0]);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	*ret_other = peer.result;
	return r;
}

static inline int commit(struct zinf *zinf)
{
	return zinf_commit(zinf, NULL, 0);
}

static inline int step_and_wait(struct zinf *zinf)
{
	zinf_ticket ticket;
	int r = zinf_step(zinf, NULL, 0, &ticket);

	return r ? r : zinf_wait(zinf, ticket, NULL);
}

/* A job of two ranks that stands at step 0. */
static inline void make_pair(struct zinf *zinf[2])
{
	int other;

	for (int32_t rank = 0; rank < 2; rank++) {
		struct zinf_options options = options_of(rank, 2);

		zinf[rank] = attach(&options);
		lay_out(zinf[rank], 30, 40);
	}
	cr_assert_eq(both(zinf, zinf_materialize, &other), 0, "%s", zinf_error_text(zinf[0]));
	cr_assert_eq(other, 0);
	cr_assert_eq(both(zinf, commit, &other), 0, "%s", zinf_error_text(zinf[0]));
	cr_assert_eq(other, 0);
}

static inline void end_pair(struct zinf *zinf[2])
{
	zinf_detach(zinf[1]);
	zinf_detach(zinf[0]);
}
