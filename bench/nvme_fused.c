/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suite `nvme`, part `fused`: the pass over memory that a step makes while the disk is busy, over a
 * STREAM-like probe of the same bytes; with clipping, with checksums; and over the same step in
 * DeepSpeed's three sweeps.
 *
 *   plain      N gradients → sum → unscale → AdamW → bf16 and remainder: 28 B (N = 2)
 *   clipping   a pass that sums and takes the norm, then the step on the sum: + 2N + 2 B
 *   checksums  the same pass also hashes each tile of state as it was, which is compared, and tiles
 *              of state and parameters as they are now: no bytes more
 *   sweeps     DeepSpeed's step beside a GPU (stage 3, CPU Adam): gradients in fp32 are unscaled in
 *              place, Adam in fp32, the parameter narrowed to bf16: 8 + 28 + 6 B. Rebuilt from our
 *              kernels, so what is compared is the order of work, not the arithmetic. Both sides
 *              step the same elements: one rank's gradient, in its own format
 *
 * The probe is the best of three: triad with plain and with non-temporal stores, and the update in
 * place a[i] += s × b[i]. Bytes are those that the program reads and writes.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bench/adam.h"
#include "bench/nvme_suite.h"
#include "bench/team.h"
#include "bench/triad.h"
#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "kernels/cast.h"
#include "kernels/hash.h"
#include "kernels/norm.h"
#include "kernels/reduce.h"

#define PAIRS           15u
#define RANKS           2u
#define NORM_TILE_COUNT (ZI_TILE_ELEMENTS / ZI_BLOCK_ELEMENTS)

static_assert(PAIRS >= BENCH_RUNS_MIN, "a median of enough runs");

struct fused {
	struct team *team;
	unsigned member_count;
	struct adam_work work;
	struct adam_case reduced_kind; /* of the second pass with clipping */
	struct adam_work reduced;
	float *triad; /* three arrays of ADAM_ELEMENTS */
	/* of three sweeps, planes: fp32 parameter and gradient, and bf16 parameter */
	struct adam_work wide;
	uint16_t *narrow;
	triad_fn probe;
	double *norm_blocks;
	uint64_t *state_hashes, *param_hashes; /* (ADAM_TILES,) */
	bool is_damaged;
};

/* ---- what is measured ---- */

static void probe_member(void *arg, unsigned member, unsigned member_count)
{
	const struct fused *fused = arg;
	uint64_t begin = adam_share(ADAM_TILES, member, member_count) * ZI_TILE_ELEMENTS;
	uint64_t end = adam_share(ADAM_TILES, member + 1, member_count) * ZI_TILE_ELEMENTS;

	fused->probe(fused->triad + begin, fused->triad + ADAM_ELEMENTS + begin,
	             fused->triad + 2 * ADAM_ELEMENTS + begin, 0.5f, end - begin);
}

static void plain_member(void *arg, unsigned member, unsigned member_count)
{
	struct fused *fused = arg;

	adam_member(&fused->work, member, member_count);
}

static void sum_tile(const struct fused *fused, uint64_t tile)
{
	const struct adam_work *work = &fused->work;
	uint64_t offset = adam_plane_offset(work, tile);
	const void *sources[RANKS] = { work->grads[0] + offset, work->grads[1] + offset };
	struct kern_reduce_options options = { .dtype = work->kind->dtype, .average = 0.5f };

	kern_reduce(work->grads[0] + offset, sources, RANKS, ZI_TILE_ELEMENTS, &options);
	kern_norm_blocks(fused->norm_blocks + tile * NORM_TILE_COUNT, sources[0], ZI_TILE_ELEMENTS,
	                 1.0f, work->kind->dtype);
}

static void sum_member(void *arg, unsigned member, unsigned member_count)
{
	for (uint64_t tile = adam_share(ADAM_TILES, member, member_count);
	     tile < adam_share(ADAM_TILES, member + 1, member_count); tile++)
		sum_tile(arg, tile);
}

static void reduced_member(void *arg, unsigned member, unsigned member_count)
{
	struct fused *fused = arg;

	adam_member(&fused->reduced, member, member_count);
}

static void hash_tile(struct fused *fused, uint64_t tile)
{
	const struct adam_work *work = &fused->work;

	uint64_t state_bytes = adam_state_tile_bytes(work->kind);
	uint32_t width = zi_dtype_bytes(work->kind->dtype);

	fused->state_hashes[tile] = kern_hash_tile(adam_state_tile(work, tile), state_bytes,
	                                           (uint32_t)(state_bytes / ZI_TILE_ELEMENTS));
	fused->param_hashes[tile] = kern_hash_tile(work->param + adam_plane_offset(work, tile),
	                                           (uint64_t)ZI_TILE_ELEMENTS * width, width);
}

static void hash_member(void *arg, unsigned member, unsigned member_count)
{
	for (uint64_t tile = adam_share(ADAM_TILES, member, member_count);
	     tile < adam_share(ADAM_TILES, member + 1, member_count); tile++)
		hash_tile(arg, tile);
}

static void checked_member(void *arg, unsigned member, unsigned member_count)
{
	struct fused *fused = arg;
	const struct adam_work *work = &fused->work;

	for (uint64_t tile = adam_share(ADAM_TILES, member, member_count);
	     tile < adam_share(ADAM_TILES, member + 1, member_count); tile++) {
		struct kern_optim_hashes hashes;

		adam_tile(work, tile, &hashes);
		if (hashes.state_before != fused->state_hashes[tile])
			fused->is_damaged = true;
		fused->state_hashes[tile] = hashes.state;
		fused->param_hashes[tile] = hashes.param;
	}
}

/* A sweep each: nothing of a tile is in the cache when the next one comes to it. */
static void unscale_member(void *arg, unsigned member, unsigned member_count)
{
	const struct fused *fused = arg;
	struct kern_reduce_options options = { .dtype = ZI_DTYPE_F32, .average = 1.0f };

	for (uint64_t tile = adam_share(ADAM_TILES, member, member_count);
	     tile < adam_share(ADAM_TILES, member + 1, member_count); tile++) {
		char *grad = fused->wide.grads[0] + adam_plane_offset(&fused->wide, tile);
		const void *source = grad;

		kern_reduce(grad, &source, 1, ZI_TILE_ELEMENTS, &options);
	}
}

static void wide_member(void *arg, unsigned member, unsigned member_count)
{
	struct fused *fused = arg;

	adam_member(&fused->wide, member, member_count);
}

static void narrow_member(void *arg, unsigned member, unsigned member_count)
{
	const struct fused *fused = arg;
	uint64_t begin = adam_share(ADAM_TILES, member, member_count) * ZI_TILE_ELEMENTS;
	uint64_t end = adam_share(ADAM_TILES, member + 1, member_count) * ZI_TILE_ELEMENTS;

	kern_narrow(fused->narrow + begin, (const float *)(const void *)fused->wide.param + begin,
	            end - begin, ZI_DTYPE_BF16);
}

/* ---- rounds ---- */

static double seconds(struct fused *fused, team_fn function)
{
	return (double)team_run(fused->team, function, fused, fused->member_count) / 1e9;
}

/* Seconds that the best probe takes for @bytes. */
static double probe_seconds(struct fused *fused, uint64_t bytes)
{
	const triad_fn probes[] = { triad_plain(kern_isa_best()), triad_stream(kern_isa_best()),
		                    triad_update(kern_isa_best()) };
	double best = 0;

	for (size_t i = 0; i < ZI_COUNT_OF(probes); i++) {
		double s;

		fused->probe = probes[i];
		s = seconds(fused, probe_member);
		if (i == 0 || s < best)
			best = s;
	}
	return best * (double)bytes / (double)(ADAM_ELEMENTS * TRIAD_ELEMENT_BYTES);
}

static double plain_seconds(struct fused *fused)
{
	return seconds(fused, plain_member);
}

static double clip_seconds(struct fused *fused)
{
	uint64_t block_count = ADAM_ELEMENTS / ZI_BLOCK_ELEMENTS;
	double s = seconds(fused, sum_member);

	(void)kern_norm_join(fused->norm_blocks, block_count);
	return s + seconds(fused, reduced_member);
}

static double checked_seconds(struct fused *fused)
{
	return seconds(fused, checked_member);
}

static double sweeps_seconds(struct fused *fused)
{
	return seconds(fused, unscale_member) + seconds(fused, wide_member) +
	       seconds(fused, narrow_member);
}

struct measurement {
	const char *name, *peer_name;
	double (*own)(struct fused *fused);
	double (*peer)(struct fused *fused); /* NULL: the probe */
	uint64_t element_bytes;
	double target;
};

static void measure(struct bench_report *report, struct fused *fused,
                    const struct measurement *measurement)
{
	uint64_t bytes = ADAM_ELEMENTS * measurement->element_bytes;
	double own[PAIRS], peer[PAIRS];

	(void)measurement->own(fused); /* warm: page tables, clocks */
	for (unsigned i = 0; i < PAIRS; i++) {
		peer[i] =
			measurement->peer ? measurement->peer(fused) : probe_seconds(fused, bytes);
		own[i] = measurement->own(fused);
	}
	(void)bench_report_add_turns(report,
	                             &(struct bench_row){ .name = measurement->name,
	                                                  .unit = "s",
	                                                  .peer_name = measurement->peer_name,
	                                                  .target = measurement->target,
	                                                  .runs = PAIRS },
	                             BENCH_TIME, own, peer);
}

/* ---- memory ---- */

static const struct adam_case two_ranks = { ZI_DTYPE_BF16, RANKS, false, false };
static const struct adam_case one_rank = { ZI_DTYPE_BF16, 1, false, false };
static const struct adam_case wide = { ZI_DTYPE_F32, 1, true, false };

/* The second pass of clipping reads the sum, which lies where the first gradient was. */
static void work_set(struct fused *fused, const struct adam_case *kind, char *memory)
{
	adam_work_init(&fused->work, kind, memory);
	fused->reduced = fused->work;
	fused->reduced_kind = *kind;
	fused->reduced_kind.rank_count = 1;
	fused->reduced_kind.is_reduced = true;
	fused->reduced.kind = &fused->reduced_kind;
	(void)team_run(fused->team, adam_fill_member, &fused->work, fused->member_count);
	(void)seconds(fused, hash_member);
}

static void probe_fill_member(void *arg, unsigned member, unsigned member_count)
{
	const struct fused *fused = arg;
	uint64_t begin = adam_share(ADAM_TILES, member, member_count) * ZI_TILE_ELEMENTS;
	uint64_t end = adam_share(ADAM_TILES, member + 1, member_count) * ZI_TILE_ELEMENTS;

	for (uint64_t plane = 0; plane < 3; plane++)
		for (uint64_t i = begin; i < end; i++)
			fused->triad[plane * ADAM_ELEMENTS + i] = (float)plane;
}

static int allocate(struct fused *fused, char **ret_memory, char **ret_wide)
{
	*ret_memory = adam_map_huge(ADAM_BYTES);
	*ret_wide = adam_map_huge(ADAM_BYTES);
	fused->triad = adam_map_huge(ADAM_ELEMENTS * TRIAD_ELEMENT_BYTES);
	fused->narrow = adam_map_huge(ADAM_ELEMENTS * sizeof(*fused->narrow));
	fused->norm_blocks =
		adam_map_huge(ADAM_ELEMENTS / ZI_BLOCK_ELEMENTS * sizeof(*fused->norm_blocks));
	fused->state_hashes = adam_map_huge(2 * ADAM_TILES * sizeof(*fused->state_hashes));
	fused->team = team_new();
	if (!*ret_memory || !*ret_wide || !fused->triad || !fused->narrow || !fused->norm_blocks ||
	    !fused->state_hashes || !fused->team) {
		fprintf(stderr, "bench nvme: memory or threads are missing: %s\n", strerror(errno));
		return -1;
	}
	fused->param_hashes = fused->state_hashes + ADAM_TILES;
	fused->member_count = team_member_count(fused->team);
	return 0;
}

int nvme_fused_rows(struct bench_report *report)
{
	static const char probe_name[] = "STREAM-like probe, the best of three";
	static struct fused fused;
	uint64_t bytes = adam_element_bytes(&two_ranks);
	uint64_t sum_bytes = (RANKS + 1) * sizeof(uint16_t);
	char *memory, *wide_memory;

	if (allocate(&fused, &memory, &wide_memory))
		return -1;
	(void)team_run(fused.team, probe_fill_member, &fused, fused.member_count);
	adam_work_init(&fused.wide, &wide, wide_memory);
	(void)team_run(fused.team, adam_fill_member, &fused.wide, fused.member_count);
	(void)seconds(&fused, narrow_member);
	work_set(&fused, &two_ranks, memory);
	measure(report, &fused,
	        &(struct measurement){ "fused pass, bf16, 2 ranks", probe_name, plain_seconds, NULL,
	                               bytes, 0.90 });
	/* The second pass reads one gradient where the plain one reads RANKS. */
	measure(report, &fused,
	        &(struct measurement){ "with clipping, two passes", probe_name, clip_seconds, NULL,
	                               bytes - (RANKS - 1) * sizeof(uint16_t) + sum_bytes, 0.90 });
	work_set(&fused, &two_ranks, memory);
	measure(report, &fused,
	        &(struct measurement){ "with checksums of stored tiles", probe_name,
	                               checked_seconds, NULL, bytes, 0.75 });
	work_set(&fused, &one_rank, memory);
	measure(report, &fused,
	        &(struct measurement){ "fused pass over three sweeps, 1 rank",
	                               "unscale, Adam, narrow in fp32", plain_seconds,
	                               sweeps_seconds, adam_element_bytes(&one_rank), 1.5 });
	fused.team = team_free(fused.team);
	if (fused.is_damaged) {
		fprintf(stderr, "bench nvme: a tile's checksum is not the one it was given\n");
		return -1;
	}
	return 0;
}
