/* SPDX-License-Identifier: Apache-2.0 */
/* Streams that bound a collective; see coll_bound.h. */
#include "bench/coll_bound.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "bench/team.h"
#include "common/base/cleanup.h"

/* Far beyond any cache; longer calls are scaled from it. */
#define FOOTPRINT_BYTES_MAX (512ull << 20)
#define STREAMS_MAX         8u
#define TRIES               2u
#define AHEAD_BYTES         2048u
#define LINE_BYTES          64u

struct way {
	const char *name;
	bool is_streaming, is_ahead, is_in_place;
};

static const struct way ways[] = {
	{ "plain stores in place", false, false, true },
	{ "plain stores in place, prefetched", false, true, true },
	{ "streaming stores in place", true, false, true },
	{ "streaming stores in place, prefetched", true, true, true },
	{ "plain stores", false, false, false },
	{ "plain stores, prefetched", false, true, false },
	{ "streaming stores", true, false, false },
	{ "streaming stores, prefetched", true, true, false },
};

struct coll_bound {
	struct team *team;
	char *memory;
	unsigned world;
	/* what was chosen */
	unsigned sources, targets;
	uint64_t stream_bytes;
	double scale; /* of the call's streams over these */
	const struct way *way;
};

struct coll_bound *coll_bound_new(unsigned world)
{
	struct coll_bound *bound = calloc(1, sizeof *bound);

	if (bound)
		bound->team = team_new();
	if (bound && bound->team)
		bound->memory = coll_rank_memory(FOOTPRINT_BYTES_MAX);
	if (!bound || !bound->memory) {
		fprintf(stderr, "bench: no memory for the bound\n");
		return coll_bound_free(bound);
	}
	bound->world = world;
	return bound;
}

struct coll_bound *coll_bound_free(struct coll_bound *bound)
{
	if (!bound)
		return NULL;
	if (bound->team)
		(void)team_free(bound->team);
	if (bound->memory)
		(void)munmap(bound->memory, FOOTPRINT_BYTES_MAX);
	free(bound);
	return NULL;
}

/* ---- the streams ---- */

struct streams {
	const char *sources[STREAMS_MAX];
	char *targets[STREAMS_MAX];
};

#if defined(__x86_64__)
#include <immintrin.h>

#define LOOP_TARGET       "avx512f"
#define LOOP_NAME(x)      x##_avx512
#define LOOP_VECTOR       __m512
#define LOOP_VECTOR_BYTES 64u
#define LOOP_LOAD         _mm512_load_ps
#define LOOP_ADD          _mm512_add_ps
#define LOOP_STORE        _mm512_store_ps
#define LOOP_STREAM       _mm512_stream_ps
#include "bench/coll_bound_loop.h"

#define LOOP_TARGET       "avx2"
#define LOOP_NAME(x)      x##_avx2
#define LOOP_VECTOR       __m256
#define LOOP_VECTOR_BYTES 32u
#define LOOP_LOAD         _mm256_load_ps
#define LOOP_ADD          _mm256_add_ps
#define LOOP_STORE        _mm256_store_ps
#define LOOP_STREAM       _mm256_stream_ps
#include "bench/coll_bound_loop.h"
#endif

/* What the compiler makes of it, on other machines. It stores and fetches in one way alone. */
static void run_plain(const struct streams *streams, uint64_t begin, uint64_t end, unsigned sources,
                      unsigned targets, const struct way *way)
{
	(void)way;
	for (uint64_t i = begin; i < end; i += sizeof(float)) {
		float x = 0;

		for (unsigned s = 0; s < sources; s++)
			x += *(const float *)(streams->sources[s] + i);
		for (unsigned t = 0; t < targets; t++)
			*(float *)(streams->targets[t] + i) = x;
	}
}

typedef void (*run_fn)(const struct streams *streams, uint64_t begin, uint64_t end,
                       unsigned sources, unsigned targets, const struct way *way);

static run_fn runner(void)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512f"))
		return run_avx512;
	if (__builtin_cpu_supports("avx2"))
		return run_avx2;
#endif
	return run_plain;
}

/* See coll_bound.h. */
bool coll_bound_is_tight(void)
{
	return runner() != run_plain;
}

static void run_share(void *work, unsigned member, unsigned member_count)
{
	const struct coll_bound *bound = work;
	uint64_t lines = bound->stream_bytes / LINE_BYTES;
	uint64_t begin = lines * member / member_count * LINE_BYTES;
	uint64_t end = lines * (member + 1) / member_count * LINE_BYTES;
	struct streams streams = { 0 };
	char *place = bound->memory;

	for (unsigned i = 0; i < bound->sources; i++, place += bound->stream_bytes)
		streams.sources[i] = place;
	if (bound->way->is_in_place)
		place = bound->memory;
	for (unsigned i = 0; i < bound->targets; i++, place += bound->stream_bytes)
		streams.targets[i] = place;
	runner()(&streams, begin, end, bound->sources, bound->targets, bound->way);
}

/* ---- which ---- */

static bool is_possible(const struct coll_bound *bound, const struct way *way)
{
	if (!coll_bound_is_tight() && (way->is_streaming || way->is_ahead))
		return false;
	/* In place something is computed; a copy would be to itself. */
	return !way->is_in_place || (bound->sources > 1 && bound->sources >= bound->targets);
}

void coll_bound_choose(struct coll_bound *bound, enum coll_operation operation, uint64_t bytes)
{
	bool is_joined = operation == COLL_ALL_REDUCE || operation == COLL_REDUCE_SCATTER;
	uint64_t total = operation == COLL_ALL_TO_ALL ? bytes * bound->world : bytes;
	double best = 0;
	const struct way *best_way = &ways[ZI_COUNT_OF(ways) - 1];
	uint64_t fitting;

	bound->sources = is_joined ? bound->world : 1;
	bound->targets = operation == COLL_ALL_REDUCE                ? bound->world
	                 : is_joined || operation == COLL_ALL_TO_ALL ? 1
	                                                             : bound->world - 1;
	fitting = FOOTPRINT_BYTES_MAX / (bound->sources + bound->targets) / 4096 * 4096;
	bound->stream_bytes = ZI_MIN(total, fitting);
	bound->scale = (double)total / (double)bound->stream_bytes;
	for (size_t i = 0; i < ZI_COUNT_OF(ways); i++) {
		bound->way = &ways[i];
		if (!is_possible(bound, bound->way))
			continue;
		for (unsigned try = 0; try < TRIES; try++) {
			double seconds = coll_bound_seconds(bound);

			if (best == 0 || seconds < best) {
				best = seconds;
				best_way = bound->way;
			}
		}
	}
	bound->way = best_way;
}

double coll_bound_seconds(struct coll_bound *bound)
{
	return (double)team_run(bound->team, run_share, bound, team_member_count(bound->team)) /
	       1e9 * bound->scale;
}

const char *coll_bound_way(const struct coll_bound *bound)
{
	if (!coll_bound_is_tight())
		return bound->way->is_in_place ? "a plain loop in place, no AVX2"
		                               : "a plain loop, no AVX2";
	return bound->way->name;
}
