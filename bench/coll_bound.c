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

#define LOOP_INLINE __attribute__((target("avx512f"), always_inline)) static inline

LOOP_INLINE void loop(const struct streams *streams, uint64_t begin, uint64_t end, unsigned sources,
                      unsigned targets, bool is_streaming, bool is_ahead)
{
	struct streams own = *streams; /* in registers */

	for (uint64_t i = begin; i < end; i += LINE_BYTES) {
		__m512 x = _mm512_setzero_ps();

		for (unsigned s = 0; s < sources; s++) {
			__m512 y = _mm512_load_ps(own.sources[s] + i);

			if (is_ahead)
				_mm_prefetch(own.sources[s] + i + AHEAD_BYTES, _MM_HINT_T0);
			x = s ? _mm512_add_ps(x, y) : y;
		}
		for (unsigned t = 0; t < targets; t++) {
			if (is_streaming)
				_mm512_stream_ps((float *)(own.targets[t] + i), x);
			else
				_mm512_store_ps(own.targets[t] + i, x);
		}
	}
	_mm_sfence();
}

LOOP_INLINE void loop_way(const struct streams *streams, uint64_t begin, uint64_t end,
                          unsigned sources, unsigned targets, const struct way *way)
{
	if (way->is_streaming && way->is_ahead)
		loop(streams, begin, end, sources, targets, true, true);
	else if (way->is_streaming)
		loop(streams, begin, end, sources, targets, true, false);
	else if (way->is_ahead)
		loop(streams, begin, end, sources, targets, false, true);
	else
		loop(streams, begin, end, sources, targets, false, false);
}

/* Mixes of 2 and 4 ranks are loops of their own. */
__attribute__((target("avx512f"))) static void run_avx512(const struct streams *streams,
                                                          uint64_t begin, uint64_t end,
                                                          unsigned sources, unsigned targets,
                                                          const struct way *way)
{
	if (sources == 1 && targets == 1)
		loop_way(streams, begin, end, 1, 1, way);
	else if (sources == 2 && targets == 1)
		loop_way(streams, begin, end, 2, 1, way);
	else if (sources == 2 && targets == 2)
		loop_way(streams, begin, end, 2, 2, way);
	else if (sources == 1 && targets == 3)
		loop_way(streams, begin, end, 1, 3, way);
	else if (sources == 4 && targets == 1)
		loop_way(streams, begin, end, 4, 1, way);
	else if (sources == 4 && targets == 4)
		loop_way(streams, begin, end, 4, 4, way);
	else
		loop_way(streams, begin, end, sources, targets, way);
}

static bool has_avx512(void)
{
	return __builtin_cpu_supports("avx512f");
}
#else
#define run_avx512 run_plain
static bool has_avx512(void)
{
	return false;
}
#endif

/* See coll_bound.h. */
bool coll_bound_is_tight(void)
{
	return has_avx512();
}

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
	(has_avx512() ? run_avx512 : run_plain)(&streams, begin, end, bound->sources,
	                                        bound->targets, bound->way);
}

/* ---- which ---- */

static bool is_possible(const struct coll_bound *bound, const struct way *way)
{
	if (!has_avx512() && (way->is_streaming || way->is_ahead))
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
	if (!has_avx512())
		return bound->way->is_in_place ? "a plain loop in place, no AVX-512"
		                               : "a plain loop, no AVX-512";
	return bound->way->name;
}
