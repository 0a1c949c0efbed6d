/* SPDX-License-Identifier: Apache-2.0 */
/* Crossovers of collectives; see coll_cross.h. */
#include "bench/coll_cross.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/team.h"
#include "common/base/cleanup.h"
#include "common/wire/board.h"
#include "kernels/copy.h"
#include "libclient/coll/cache.h"

#define POST_ITERATIONS 5000u
#define CMA_BYTES       (48ull << 20)  /* that a rank takes from another for a figure, at least */
#define CMA_BYTES_MIN   (64ull << 10)  /* of a block, so */
#define COPY_BYTES_MAX  (128ull << 20) /* of all buffers of a copy */
#define COPY_GAIN       1.05           /* less is taken for noise */

static void add_row(struct bench_report *report, const char *name, const char *peer_name,
                    const double *owns, const double *peers, unsigned rounds)
{
	char *kept = strdup(name); /* as long as the report, that is, as the program */

	if (!kept)
		abort();
	(void)bench_report_add_turns(
		report,
		&(struct bench_row){
			.name = kept, .unit = "us", .peer_name = peer_name, .runs = rounds },
		BENCH_TIME, owns, peers);
}

/* ---- posts or arenas ---- */

int coll_cross_posts(struct coll_match *match)
{
	static const enum coll_operation operations[] = { COLL_ALL_REDUCE, COLL_ALL_GATHER,
		                                          COLL_BROADCAST };

	for (size_t i = 0; i < ZI_COUNT_OF(operations); i++) {
		struct coll_order order = { .operation = operations[i],
			                    .iterations = POST_ITERATIONS,
			                    .variant = COLL_IN_PLACE };
		/* Of an all_gather a rank gives its block. */
		uint64_t blocks = operations[i] == COLL_ALL_GATHER ? match->world : 1;
		double seconds[2][BENCH_RUNS_MAX];
		char name[96];

		for (unsigned round = 0; round < match->rounds; round++)
			for (unsigned k = 0; k < 2; k++) {
				order.bytes = blocks * (ZI_BOARD_INLINE_BYTES + k * ZI_LINE_BYTES);
				seconds[k][round] = coll_side_seconds(&match->own, &order) * 1e6;
				if (seconds[k][round] <= 0)
					return -1;
			}
		(void)snprintf(name, sizeof name, "%s by posts of %u B, %u ranks",
		               coll_operation_name(operations[i]), ZI_BOARD_INLINE_BYTES,
		               match->world);
		add_row(match->report, name, "a line more, in arenas", seconds[0], seconds[1],
		        match->rounds);
	}
	return 0;
}

/* ---- read or staged ---- */

int coll_cross_cma(struct coll_match *match, struct coll_side *staged)
{
	static const enum coll_operation operations[] = { COLL_ALL_GATHER, COLL_ALL_TO_ALL };
	struct coll_side *sides[2] = { &match->own, staged };

	for (uint64_t block = CMA_BYTES_MIN; block <= COLL_CROSS_CMA_MAX; block *= 2)
		for (size_t i = 0; i < ZI_COUNT_OF(operations); i++) {
			struct coll_order order = {
				.operation = operations[i],
				.bytes = match->world * block,
				.iterations = (uint32_t)(CMA_BYTES / block) + 1,
				.variant = COLL_APART,
			};
			double seconds[2][BENCH_RUNS_MAX];
			char name[96];

			for (unsigned turn = 0; turn < 2 * match->rounds; turn++) {
				double *figure = &seconds[turn % 2][turn / 2];

				*figure = coll_side_seconds(sides[turn % 2], &order) * 1e6;
				if (*figure <= 0)
					return -1;
			}
			(void)snprintf(name, sizeof name,
			               "%s of blocks of %llu KiB, read, %u ranks",
			               coll_operation_name(operations[i]),
			               (unsigned long long)(block >> 10), match->world);
			add_row(match->report, name, "staged", seconds[0], seconds[1],
			        match->rounds);
		}
	return 0;
}

/* ---- plain or streaming stores ---- */

struct copies {
	char *source, *target;
	uint64_t bytes;
	bool is_streaming;
};

static void copy_share(void *work, unsigned member, unsigned member_count)
{
	const struct copies *copies = work;
	uint64_t lines = copies->bytes / ZI_LINE_BYTES;
	uint64_t begin = lines * member / member_count * ZI_LINE_BYTES;
	uint64_t end = lines * (member + 1) / member_count * ZI_LINE_BYTES;
	void *target = copies->target + begin;

	kern_copy(&target, 1, copies->source + begin, end - begin, copies->is_streaming);
}

/* As long as there is something to tell apart, each copy several times. */
static double seconds_of(struct team *team, struct copies *copies)
{
	unsigned repeats = (unsigned)(COPY_BYTES_MAX / (2 * copies->bytes));
	uint64_t ns = 0;

	for (unsigned i = 0; i < repeats; i++)
		ns += team_run(team, copy_share, copies, team_member_count(team));
	return (double)ns * 1e-9 / repeats;
}

static int measure_streaming(struct bench_report *report, struct team *team, struct copies *copies,
                             unsigned rounds)
{
	uint64_t built = zi_client_streaming_bytes(), wanted = UINT64_MAX;

	for (uint64_t all = 4ull << 20; all <= COPY_BYTES_MAX; all *= 2) {
		double seconds[2][BENCH_RUNS_MAX], streaming = 0, plain = 0;
		char name[96];

		copies->bytes = all / 2;
		for (unsigned round = 0; round < rounds; round++)
			for (unsigned k = 0; k < 2; k++) {
				copies->is_streaming = !k;
				seconds[k][round] = seconds_of(team, copies) * 1e6;
			}
		(void)snprintf(name, sizeof name, "copy within %llu MiB, streaming stores",
		               (unsigned long long)(all >> 20));
		add_row(report, name, "plain stores", seconds[0], seconds[1], rounds);
		for (unsigned round = 0; round < rounds; round++) {
			streaming += seconds[0][round];
			plain += seconds[1][round];
		}
		if (plain <= COPY_GAIN * streaming)
			wanted = UINT64_MAX;
		else if (wanted == UINT64_MAX)
			wanted = all;
	}
	if (wanted == UINT64_MAX)
		printf("streaming stores: not faster up to %llu MiB; built in: from %llu on\n",
		       COPY_BYTES_MAX >> 20, (unsigned long long)(built >> 20));
	else
		printf("streaming stores: faster from %llu MiB on; built in: from %llu MiB on\n",
		       (unsigned long long)(wanted >> 20), (unsigned long long)(built >> 20));
	return 0;
}

int coll_cross_streaming(struct bench_report *report, unsigned rounds)
{
	struct copies copies = { .source = coll_rank_memory(COPY_BYTES_MAX / 2),
		                 .target = coll_rank_memory(COPY_BYTES_MAX / 2) };
	struct team *team = team_new();
	int r = -1;

	if (team && copies.source && copies.target)
		r = measure_streaming(report, team, &copies, rounds);
	else
		fprintf(stderr, "bench: no memory, or no threads, for the crossover\n");
	if (team)
		(void)team_free(team);
	if (copies.source)
		(void)munmap(copies.source, COPY_BYTES_MAX / 2);
	if (copies.target)
		(void)munmap(copies.target, COPY_BYTES_MAX / 2);
	return r;
}
