/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One operation of one size on all sides of suite `coll`; see coll_suite.h. Each side has as many
 * calls in a sample as its own first calls say; of Open MPI the transport and the variant that were
 * faster there take part. Then the sides take turns.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/coll_suite.h"
#include "common/base/assert.h"
#include "common/base/cleanup.h"

#define ITERATIONS_MAX 100000.0
#define FIRST_CALLS    2u
/* Ours, Gloo, DeepSpeed, and each transport of Open MPI, in two variants. */
#define CANDIDATES_MAX (2 * (3 + COLL_TRANSPORTS))
/* Peers that say what they are: Gloo and DeepSpeed, of some releases. */
#define NAMES_MAX 8u
/* Less lies in the caches, whose bandwidth is no bound of the memory's. */
#define BOUND_BYTES_MIN (16u << 20)
/* Of less the round trip is the most, and a stream waits for none. */
#define STREAM_BYTES_MIN (1u << 20)

/* Who takes turns. */
enum turn {
	TURN_IN_PLACE, /* ours */
	TURN_STAGED,   /* ours */
	TURN_MPI,
	TURN_GLOO,
	TURN_DEEPSPEED,
	TURN_BOUND, /* the memory's, or between nodes the network's */
	_TURN_COUNT,
};

/* One way in which a turn could be taken. */
struct candidate {
	enum turn turn;
	struct coll_side *side;
	enum coll_variant variant;
	const char *words;
	double seconds; /* for a call */
};

struct contest {
	struct coll_match *match;
	struct coll_order order; /* what is common */
	struct candidate candidates[CANDIDATES_MAX];
	unsigned candidate_count;
	struct {
		struct coll_side *side; /* NULL: takes no part; or the bound */
		enum coll_variant variant;
		uint32_t iterations;
		double seconds[BENCH_RUNS_MAX];
		double cpu_seconds[BENCH_RUNS_MAX]; /* of all processes of the side */
		const char *words;
	} turns[_TURN_COUNT];
};

/* ---- before: who, and how often ---- */

static uint32_t iterations_for(const struct coll_match *match, double seconds)
{
	double iterations = match->sample_seconds / (seconds > 1e-9 ? seconds : 1e-9);

	return (uint32_t)ZI_MAX(1.0, ZI_MIN(iterations, ITERATIONS_MAX));
}

/* Seconds for a call, of few; 0: no such operation; negative: failed. */
static double try_side(const struct contest *contest, struct coll_side *side,
                       enum coll_variant variant)
{
	struct coll_order order = contest->order;
	double best = 0;

	order.variant = variant;
	for (unsigned i = 0; i < FIRST_CALLS; i++) {
		double seconds;

		order.iterations = i ? iterations_for(contest->match, best * 4) : 1;
		seconds = coll_side_seconds(side, &order);
		if (seconds <= 0)
			return seconds;
		best = i ? ZI_MIN(best, seconds) : seconds;
	}
	return best;
}

/* A rank failed. Without a peer the suite goes on, without us it does not: -1. */
static int give_up(struct contest *contest, struct coll_side *side)
{
	printf("skipped from here on: %s: a rank failed in %s of %llu bytes\n", side->name,
	       coll_operation_name(contest->order.operation),
	       (unsigned long long)contest->order.bytes);
	if (side == &contest->match->own)
		return -1;
	for (int turn = 0; turn < _TURN_COUNT; turn++)
		if (contest->turns[turn].side == side)
			contest->turns[turn].words = NULL;
	coll_side_stop(side);
	return 0;
}

static int consider(struct contest *contest, enum turn turn, struct coll_side *side,
                    enum coll_variant variant, const char *words)
{
	double seconds;

	if (!side->is_ready)
		return 0;
	seconds = try_side(contest, side, variant);
	if (seconds < 0)
		return give_up(contest, side);
	assert(contest->candidate_count < CANDIDATES_MAX);
	if (seconds > 0)
		contest->candidates[contest->candidate_count++] =
			(struct candidate){ turn, side, variant, words, seconds };
	return 0;
}

/* Each turn is the fastest candidate's, of those whose ranks all live still. */
static void settle(struct contest *contest)
{
	double best[_TURN_COUNT] = { 0 };

	for (unsigned i = 0; i < contest->candidate_count; i++) {
		const struct candidate *one = &contest->candidates[i];

		if (!one->side->is_ready ||
		    (best[one->turn] > 0 && best[one->turn] <= one->seconds))
			continue;
		best[one->turn] = one->seconds;
		contest->turns[one->turn].side = one->side;
		contest->turns[one->turn].variant = one->variant;
		contest->turns[one->turn].iterations = iterations_for(contest->match, one->seconds);
		contest->turns[one->turn].words = one->words;
	}
}

/* "KIND, what the side says that it is". Rows keep the text: it lives as long as the program. */
static const char *named(const struct coll_side *side, const char *kind)
{
	static char names[NAMES_MAX][COLL_PACKET_BYTES + 32];
	char name[sizeof(names[0])];

	(void)snprintf(name, sizeof(name), "%s, %s", kind, side->words); /* Fits. */
	for (size_t i = 0; i < NAMES_MAX; i++) {
		if (!names[i][0])
			memcpy(names[i], name, sizeof(name));
		if (strcmp(names[i], name) == 0)
			return names[i];
	}
	return kind;
}

static int choose(struct contest *contest)
{
	struct coll_match *match = contest->match;
	bool has_data = contest->order.operation != COLL_BARRIER;

	if (consider(contest, TURN_IN_PLACE, &match->own, COLL_IN_PLACE, "in place") ||
	    (has_data && consider(contest, TURN_STAGED, &match->own, COLL_APART, "staged")))
		return -1;
	for (unsigned i = 0; i < COLL_TRANSPORTS; i++)
		if (consider(contest, TURN_MPI, &match->mpi[i], COLL_IN_PLACE,
		             i ? "Open MPI, ucx, in place" : "Open MPI, vader, in place") ||
		    (has_data && consider(contest, TURN_MPI, &match->mpi[i], COLL_APART,
		                          i ? "Open MPI, ucx" : "Open MPI, vader")))
			return -1;
	if (consider(contest, TURN_GLOO, &match->gloo, COLL_IN_PLACE,
	             named(&match->gloo, "Gloo")) ||
	    (contest->order.operation == COLL_ALL_REDUCE &&
	     consider(contest, TURN_DEEPSPEED, &match->deepspeed, COLL_IN_PLACE,
	              named(&match->deepspeed, "shared memory"))))
		return -1;
	settle(contest);
	if (match->bound && contest->order.bytes >= BOUND_BYTES_MIN) {
		coll_bound_choose(match->bound, contest->order.operation, contest->order.bytes);
		contest->turns[TURN_BOUND].words = coll_bound_way(match->bound);
	}
	if (match->stream && contest->order.bytes >= STREAM_BYTES_MIN) {
		coll_stream_choose(match->stream, contest->order.operation, contest->order.bytes);
		contest->turns[TURN_BOUND].words = "a plain TCP connection";
	}
	return 0;
}

/* ---- rounds ---- */

static bool takes_part(const struct contest *contest, enum turn turn)
{
	return contest->turns[turn].words != NULL;
}

static int play(struct contest *contest)
{
	struct coll_match *match = contest->match;

	for (unsigned round = 0; round < match->rounds; round++)
		for (int i = 0; i < _TURN_COUNT; i++) {
			/* Turns are reversed in every second round. */
			int turn = round % 2 ? _TURN_COUNT - 1 - i : i;
			struct coll_order order = contest->order;
			struct coll_side *side;
			double seconds;

			if (!takes_part(contest, (enum turn)turn))
				continue;
			order.iterations = contest->turns[turn].iterations;
			order.variant = contest->turns[turn].variant;
			side = contest->turns[turn].side;
			seconds = side            ? coll_side_seconds(side, &order)
			          : match->stream ? coll_stream_seconds(match->stream)
			                          : coll_bound_seconds(match->bound);
			if (seconds <= 0 && (!side || give_up(contest, side)))
				return -1;
			contest->turns[turn].seconds[round] = seconds;
			contest->turns[turn].cpu_seconds[round] = side ? side->cpu_seconds : 0;
		}
	return 0;
}

/* ---- after: rows ---- */

static const char *size_text(uint64_t bytes, char text[static 24])
{
	if (bytes >= 1 << 20)
		(void)snprintf(text, 24, "%llu MiB", (unsigned long long)(bytes >> 20));
	else if (bytes >= 1 << 10)
		(void)snprintf(text, 24, "%llu KiB", (unsigned long long)(bytes >> 10));
	else
		(void)snprintf(text, 24, "%llu B", (unsigned long long)bytes);
	return text;
}

/* What a row compares with. */
struct coll_peer {
	enum turn turn; /* _TURN_COUNT: of no single side */
	const char *kind, *name;
	double target; /* of the ratio; 0: nothing is asked */
};

/* Processor seconds of @turn for 1e9 of the call's bytes; 0: not measured, as inside a node, where
 * ranks spin and every side takes all there is. */
static double cpu_per_gb(const struct contest *contest, enum turn turn)
{
	const struct coll_match *match = contest->match;
	double samples[BENCH_RUNS_MAX];

	if (!match->is_over_nodes || contest->order.bytes < STREAM_BYTES_MIN)
		return 0;
	memcpy(samples, contest->turns[turn].cpu_seconds, sizeof samples);
	return bench_median(samples, match->rounds) * 1e9 / (double)contest->order.bytes;
}

/* @peer: seconds of each round. */
static void add_row(struct contest *contest, enum turn own, const double *peer,
                    const struct coll_peer *is)
{
	const struct coll_order *order = &contest->order;
	const struct coll_match *match = contest->match;
	double owns[BENCH_RUNS_MAX], peers[BENCH_RUNS_MAX];
	const struct bench_row *row;
	double cpu = cpu_per_gb(contest, own);
	double peer_cpu = is->turn < _TURN_COUNT ? cpu_per_gb(contest, is->turn) : 0;
	char name[128], size[24];
	char *kept;

	for (unsigned i = 0; i < match->rounds; i++) {
		owns[i] = contest->turns[own].seconds[i] * 1e6;
		peers[i] = peer[i] * 1e6;
	}
	(void)snprintf(name, sizeof name, "%s %s, %u ranks%s, %s over %s",
	               coll_operation_name(order->operation), size_text(order->bytes, size),
	               match->world, match->is_over_nodes ? " on 2 nodes" : "",
	               contest->turns[own].words, is->kind);
	kept = strdup(name); /* as long as the report, that is, as the program */
	if (!kept)
		abort();
	row = bench_report_add_turns(match->report,
	                             &(struct bench_row){ .name = kept,
	                                                  .unit = "us",
	                                                  .peer_name = is->name,
	                                                  .target = is->target,
	                                                  .runs = match->rounds,
	                                                  .cpu_s_per_gb = cpu,
	                                                  .peer_cpu_s_per_gb = peer_cpu },
	                             BENCH_TIME, owns, peers);
	printf("%-64s %12.2f us, peer %12.2f us, ratio %7.2f [%.2f %.2f]%s  %s", name, row->value,
	       row->peer, row->ratio, row->ratio_low, row->ratio_high,
	       is->target > 0 && row->ratio < is->target ? " MISSED" : "", is->name);
	if (cpu > 0)
		printf("; CPU s/GB %.3f, %.3f", cpu, peer_cpu);
	printf("\n");
	(void)fflush(stdout);
}

/* What the ratio of ours over a peer is to reach; 0: nothing is asked. */
static double target_of(const struct contest *contest, enum turn own, enum turn peer)
{
	enum coll_operation operation = contest->order.operation;
	bool is_joined = operation == COLL_ALL_REDUCE || operation == COLL_REDUCE_SCATTER;
	uint64_t mib = contest->order.bytes >> 20;

	if (operation == COLL_BARRIER)
		return 0;
	if (contest->match->is_over_nodes)
		return peer == TURN_GLOO && mib >= 1 ? 0.9 : 0;
	if (peer == TURN_BOUND)
		return mib >= 64 && own == TURN_IN_PLACE && coll_bound_is_tight() &&
		                       (!is_joined || contest->match->world == 2)
		               ? 0.8
		               : 0;
	if (!is_joined)
		return peer == TURN_MPI && own == TURN_IN_PLACE ? 1.0 : 0;
	if (contest->match->world > 2 || mib < 1 || peer == TURN_DEEPSPEED)
		return 0;
	if (own == TURN_STAGED)
		return mib < 16 ? 0 : peer == TURN_MPI ? 2 : 4;
	if (mib < 16)
		return peer == TURN_MPI ? 2 : 5;
	return peer == TURN_MPI ? 5 : 10;
}

/* Ranks outnumber CPUs: within three times of whoever is better. */
static void add_better(struct contest *contest, enum turn own)
{
	double better[BENCH_RUNS_MAX];
	bool has_mpi = takes_part(contest, TURN_MPI), has_gloo = takes_part(contest, TURN_GLOO);

	if (!has_mpi && !has_gloo)
		return;
	for (unsigned i = 0; i < contest->match->rounds; i++) {
		double mpi = contest->turns[TURN_MPI].seconds[i];
		double gloo = contest->turns[TURN_GLOO].seconds[i];

		better[i] = !has_gloo || (has_mpi && mpi < gloo) ? mpi : gloo;
	}
	add_row(contest, own, better,
	        &(struct coll_peer){ _TURN_COUNT, "the better peer",
	                             "the better of Open MPI and Gloo", 1.0 / 3 });
}

static void add_rows(struct contest *contest)
{
	static const char *const kinds[_TURN_COUNT] = { [TURN_MPI] = "Open MPI",
		                                        [TURN_GLOO] = "Gloo",
		                                        [TURN_DEEPSPEED] = "DeepSpeed",
		                                        [TURN_BOUND] = "the bound" };

	for (int own = TURN_IN_PLACE; own <= TURN_STAGED; own++) {
		if (!takes_part(contest, (enum turn)own))
			continue;
		for (int peer = TURN_MPI; peer < _TURN_COUNT; peer++)
			if (takes_part(contest, (enum turn)peer) &&
			    (own == TURN_IN_PLACE || peer != TURN_BOUND))
				add_row(contest, (enum turn)own, contest->turns[peer].seconds,
				        &(struct coll_peer){ (enum turn)peer, kinds[peer],
				                             contest->turns[peer].words,
				                             target_of(contest, (enum turn)own,
				                                       (enum turn)peer) });
		if (contest->match->world > 2 && !contest->match->is_over_nodes)
			add_better(contest, (enum turn)own);
	}
}

/* A barrier and few bytes have a bound of their own: 1 us. */
static void add_latency_row(struct contest *contest)
{
	double bound[BENCH_RUNS_MAX];

	for (unsigned i = 0; i < contest->match->rounds; i++)
		bound[i] = 1e-6;
	add_row(contest, TURN_IN_PLACE, bound,
	        &(struct coll_peer){ _TURN_COUNT, "1 us", "bound 1 us", 1.0 });
}

int coll_match_case(struct coll_match *match, enum coll_operation operation, uint64_t bytes)
{
	struct contest *contest = calloc(1, sizeof *contest);
	int r;

	assert(match->rounds <= BENCH_RUNS_MAX);
	if (!contest)
		abort();
	contest->match = match;
	contest->order = (struct coll_order){ .operation = operation, .bytes = bytes };
	r = choose(contest);
	if (!r)
		r = play(contest);
	if (!r) {
		if (bytes <= 8 && match->world == 2 && !match->is_over_nodes)
			add_latency_row(contest);
		add_rows(contest);
	}
	free(contest);
	return r;
}
