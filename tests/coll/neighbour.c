/* SPDX-License-Identifier: Apache-2.0 */
/* A job beside the one under test; see neighbour.h. */
#include "tests/coll/neighbour.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "tests/coll/runner.h"
#include "tests/coll/zinf_rank.h"
#include "tests/harness/port.h"

#define HUNG_MS       60000u
#define NEIGHBOUR_LEN 1000u

struct neighbour_shared {
	uint32_t is_over; /* atomic */
	uint32_t calls;   /* of rank 0; atomic */
	char words[NEIGHBOUR_RANKS][400];
};

struct body {
	struct neighbour *neighbour;
	uint32_t rank;
};

static uint32_t load(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* ---- its ranks ---- */

static int add_once(struct zinf *zinf, int64_t *data, uint32_t index, bool *ret_is_over)
{
	int r;

	for (uint32_t i = 0; i < NEIGHBOUR_LEN; i++)
		data[i] = (int64_t)index * (zinf_rank(zinf) + 1) + i;
	r = zinf_coll_all_reduce(zinf, data, data, NEIGHBOUR_LEN, ZINF_I64, ZINF_SUM, NULL);
	if (r)
		return r;
	for (uint32_t i = 0; i < NEIGHBOUR_LEN; i++)
		if (data[i] != (int64_t)index * 3 + 2 * i)
			return -EILSEQ;
	data[0] = *ret_is_over; /* one is enough */
	r = zinf_coll_all_reduce(zinf, data, data, 1, ZINF_I64, ZINF_MAX, NULL);
	*ret_is_over = data[0] != 0;
	return r;
}

static int rank_main(void *arg)
{
	static const struct script scripts[] = {
		{ .ranks = NEIGHBOUR_RANKS,
		  .group_count = 1,
		  .groups = { 3 },
		  .arena_bytes = 2 << 20 },
		{ .ranks = NEIGHBOUR_RANKS,
		  .group_count = 1,
		  .groups = { 3 },
		  .arena_bytes = 2 << 20,
		  .nodes = 1 << 2 },
	};
	const struct body *body = arg;
	const struct neighbour *neighbour = body->neighbour;
	struct neighbour_shared *shared = neighbour->shared;
	struct zinf_rank rank;
	bool is_over = false;
	int r = zinf_rank_open(&rank, &(struct zinf_rank_options){
					      .socket_path = neighbour->socket_paths[body->rank],
					      .job = "neighbour",
					      .incarnation = "1",
					      .script = &scripts[neighbour->port != 0],
					      .rank = body->rank,
					      .timeout_ms = HUNG_MS,
					      .port = neighbour->port,
					      .local_count = neighbour->port != 0,
				      });

	for (uint32_t i = 0; !r && !is_over; i++) {
		is_over = body->rank == 0 && load(&shared->is_over);
		r = add_once(rank.zinf, (int64_t *)rank.link.arena, i, &is_over);
		if (body->rank == 0)
			__atomic_fetch_add(&shared->calls, 1, __ATOMIC_RELEASE);
	}
	if (r)
		(void)snprintf(shared->words[body->rank], sizeof(shared->words[0]), "%s: %s",
		               strerror(-r), rank.zinf ? zinf_error_text(rank.zinf) : rank.words);
	else
		(void)zinf_coll_barrier(rank.zinf, NULL);
	zinf_rank_close(&rank);
	return r != 0;
}

/* ---- the test's side ---- */

bool neighbour_start(struct neighbour *neighbour, const char *program,
                     const char *const socket_paths[NEIGHBOUR_RANKS])
{
	bool spans_nodes = strcmp(socket_paths[0], socket_paths[1]) != 0;

	*neighbour = (struct neighbour){ .program = program,
		                         .port = spans_nodes ? harness_free_port() : 0 };
	neighbour->shared = mmap(NULL, sizeof(*neighbour->shared), PROT_READ | PROT_WRITE,
	                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (neighbour->shared == MAP_FAILED)
		return false;
	for (uint32_t i = 0; i < NEIGHBOUR_RANKS; i++)
		neighbour->socket_paths[i] = socket_paths[i];
	for (uint32_t i = 0; i < NEIGHBOUR_RANKS; i++) {
		struct body body = { .neighbour = neighbour, .rank = i };

		neighbour->pids[i] = harness_fork(rank_main, &body);
	}
	return true;
}

bool neighbour_goes_on(const struct neighbour *neighbour)
{
	const struct neighbour_shared *shared = neighbour->shared;
	uint32_t before = load(&shared->calls);
	uint64_t end_ns = zi_clock_deadline_ns(HUNG_MS * ZI_NS_PER_MS);

	while (load(&shared->calls) - before < 2) {
		if (zi_clock_now_ns() > end_ns || shared->words[0][0] || shared->words[1][0]) {
			printf("%s: the neighbour job stands: '%s' '%s'\n", neighbour->program,
			       shared->words[0], shared->words[1]);
			return false;
		}
		(void)sched_yield();
	}
	return true;
}

uint32_t neighbour_call_count(const struct neighbour *neighbour)
{
	return load(&neighbour->shared->calls);
}

bool neighbour_stop(struct neighbour *neighbour)
{
	bool is_right = true;

	__atomic_store_n(&neighbour->shared->is_over, 1, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < NEIGHBOUR_RANKS; i++) {
		int r = harness_wait(neighbour->pids[i], HUNG_MS);

		if (r)
			printf("%s: neighbour %u ended with %d: %s\n", neighbour->program, i, r,
			       neighbour->shared->words[i]);
		is_right = is_right && !r;
	}
	return is_right;
}
