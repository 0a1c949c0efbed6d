/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: through a real zinfd, two ranks read and write optimizer state of whole parameters,
 * whatever the tier: what is written and committed is what the next processes read, also after
 * kill -9 of the daemon; what is not committed is void; parameters that are written with their
 * state kept train on as if nothing else had changed.
 * Method: rounds of two processes over one job. A parameter is longer than the daemon's window, and
 * another one begins amid a subgroup.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/harness/harness.h"
#include "tests/system/system.h"
#include "zinf/zinf.h"

TestSuite(state, .timeout = 120);

#define WORLD 2
#define SHORT 1000u
#define LONG  1100000u /* more than a window of 2^20 */

struct tier_case {
	enum zinf_dtype dtype;
	enum zinf_offload state, param;
	uint64_t resident_bytes;
};

/* What a round of processes does, and what rank 0 saw: shared memory. */
struct round {
	char socket_path[512];
	struct tier_case tier;
	int (*play)(struct zinf *zinf, struct round *round);
	char words[WORLD][256];
	float exp_avg[LONG], master[LONG];
};

static int fail(const struct zinf *zinf, struct round *round, const char *call, int r)
{
	(void)snprintf(round->words[zinf_rank(zinf)], sizeof(round->words[0]), "%s: %d: %.200s",
	               call, r, zinf_error_text(zinf));
	return 1;
}

#define MUST(call)                                            \
	do {                                                  \
		int got = (call);                             \
		if (got)                                      \
			return fail(zinf, round, #call, got); \
	} while (0)
#define CHECK(condition)                                         \
	do {                                                     \
		if (!(condition))                                \
			return fail(zinf, round, #condition, 0); \
	} while (0)

static float value_of(uint32_t index)
{
	return ldexpf((float)(index % 251) - 125, -8);
}

static void put(void *target, uint32_t index, float value, enum zinf_dtype dtype)
{
	uint32_t bits;

	if (dtype == ZINF_F32) {
		((float *)target)[index] = value;
		return;
	}
	memcpy(&bits, &value, sizeof(bits)); /* All values of value_of() are exact in bf16. */
	((uint16_t *)target)[index] = (uint16_t)(bits >> 16);
}

static int attach(struct round *round, int rank, struct zinf **ret_zinf)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	uint32_t unit, param;
	struct zinf *zinf;
	int r;

	options.socket_path = round->socket_path;
	options.job = "state";
	options.rank = rank;
	options.world_size = WORLD;
	options.timeout_ms = 20000;
	options.param_dtype = options.grad_dtype = round->tier.dtype;
	options.offload_optimizer = round->tier.state;
	options.offload_param = round->tier.param;
	options.resident_bytes = round->tier.resident_bytes;
	r = zinf_attach(&options, &zinf);
	if (r) {
		(void)snprintf(round->words[rank], sizeof(round->words[0]), "%s",
		               zinf_attach_error());
		return 1;
	}
	*ret_zinf = zinf;
	MUST(zinf_unit_add(zinf, "u", &unit));
	MUST(zinf_param_add(zinf, "short", 1, (uint64_t[]){ SHORT }, &param));
	MUST(zinf_param_add(zinf, "long", 2, (uint64_t[]){ 1100, 1000 }, &param));
	MUST(zinf_materialize(zinf));
	return 0;
}

static int write_params(struct zinf *zinf, struct round *round, float factor, bool keeps)
{
	if (zinf_rank(zinf) == 0) {
		MUST(zinf_param_write_begin(zinf, 0));
		for (uint32_t i = 0; i < SHORT + LONG; i++)
			put((void *)(uintptr_t)zinf_param_data(zinf, 0), i, factor * value_of(i),
			    round->tier.dtype);
	}
	MUST(keeps ? zinf_param_write_keep(zinf, 0, 0) : zinf_param_write_end(zinf, 0, 0));
	return 0;
}

static int step(struct zinf *zinf, struct round *round)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	zinf_ticket ticket;

	options.lr = 0.01;
	options.beta1 = 0.9;
	options.beta2 = 0.99;
	options.eps = 1e-8;
	MUST(zinf_step_begin(zinf, &options));
	MUST(zinf_grad_acquire(zinf, 0));
	for (uint32_t i = 0; i < SHORT + LONG; i++)
		put(zinf_grad_data(zinf, 0), i, value_of(i * 7 + 1), round->tier.dtype);
	MUST(zinf_reduce(zinf, 0));
	MUST(zinf_step(zinf, NULL, 0, &ticket));
	MUST(zinf_wait(zinf, ticket, NULL));
	return 0;
}

/* A step of exp_avg from zero: 0.1 × gradient. */
static int begin(struct zinf *zinf, struct round *round)
{
	static float seen[LONG];

	MUST(write_params(zinf, round, 1, false));
	MUST(zinf_commit(zinf, NULL, 0));
	MUST(step(zinf, round));
	MUST(zinf_state_read(zinf, 1, ZINF_STATE_EXP_AVG, seen, LONG));
	for (uint32_t i = 0; i < LONG; i++)
		CHECK(fabsf(seen[i] - 0.1f * value_of((i + SHORT) * 7 + 1)) < 1e-6f);
	if (zinf_rank(zinf) == 0)
		memcpy(round->exp_avg, seen, sizeof(seen));
	MUST(zinf_state_read(zinf, 1, ZINF_STATE_MASTER, seen, LONG));
	for (uint32_t i = 0; i < LONG; i++)
		CHECK(fabsf(seen[i] - value_of(i + SHORT)) < 0.011f);
	if (zinf_rank(zinf) == 0)
		memcpy(round->master, seen, sizeof(seen));
	return 0;
}

static int expect(struct zinf *zinf, struct round *round)
{
	static float seen[LONG];

	MUST(zinf_state_read(zinf, 1, ZINF_STATE_EXP_AVG, seen, LONG));
	CHECK(!memcmp(seen, round->exp_avg, sizeof(seen)));
	MUST(zinf_state_read(zinf, 1, ZINF_STATE_MASTER, seen, LONG));
	CHECK(!memcmp(seen, round->master, sizeof(seen)));
	return 0;
}

static int write_uncommitted(struct zinf *zinf, struct round *round)
{
	static float values[LONG];

	MUST(expect(zinf, round));
	MUST(zinf_state_write(zinf, 1, ZINF_STATE_EXP_AVG, values, LONG, 1));
	MUST(zinf_update_count_set(zinf, 99, 0.9, 0.99));
	MUST(zinf_state_read(zinf, 1, ZINF_STATE_EXP_AVG, values, LONG));
	CHECK(values[77] == 0);
	(void)zinf_barrier(zinf); /* The other one has read, too; it may be gone already. */
	_exit(0);                 /* Without a word to the daemon. */
}

/* Rank 1 has the values; the first parameter stays. */
static int write_committed(struct zinf *zinf, struct round *round)
{
	static float values[LONG], others[SHORT], seen[SHORT];

	MUST(expect(zinf, round));
	CHECK(zinf_update_count(zinf) == 1);
	MUST(zinf_state_read(zinf, 0, ZINF_STATE_EXP_AVG, others, SHORT));
	for (uint32_t i = 0; i < LONG; i++)
		values[i] = (float)i;
	MUST(zinf_state_write(zinf, 1, ZINF_STATE_EXP_AVG, zinf_rank(zinf) ? values : NULL, LONG,
	                      1));
	MUST(zinf_update_count_set(zinf, 99, 0.9, 0.99));
	MUST(zinf_commit(zinf, NULL, 0));
	MUST(zinf_state_read(zinf, 0, ZINF_STATE_EXP_AVG, seen, SHORT));
	CHECK(!memcmp(seen, others, sizeof(seen)));
	if (zinf_rank(zinf) == 0)
		memcpy(round->exp_avg, values, sizeof(values));
	return 0;
}

/* Parameters change and the moments stay; the master of 16-bit parameters follows. */
static int swap(struct zinf *zinf, struct round *round)
{
	static float values[LONG];

	MUST(expect(zinf, round));
	CHECK(zinf_update_count(zinf) == 99);
	CHECK(zinf_committed_step(zinf) == 1);
	MUST(write_params(zinf, round, 2, true));
	MUST(zinf_state_read(zinf, 1, ZINF_STATE_EXP_AVG, values, LONG));
	CHECK(!memcmp(values, round->exp_avg, sizeof(values)));
	MUST(zinf_state_read(zinf, 1, ZINF_STATE_MASTER, values, LONG));
	for (uint32_t i = 0; i < LONG; i++)
		CHECK(values[i] == 2 * value_of(i + SHORT));
	if (round->tier.dtype != ZINF_F32) { /* A master that rounds to the parameter. */
		values[5] = nextafterf(values[5], 100);
		MUST(zinf_state_write(zinf, 1, ZINF_STATE_MASTER, values, LONG, 0));
	}
	MUST(zinf_commit(zinf, NULL, 0));
	MUST(step(zinf, round));
	CHECK(zinf_update_count(zinf) == 100);
	return 0;
}

static int rank_body(void *arg)
{
	struct round *round = ((struct round **)arg)[0];
	int rank = (int)((uintptr_t *)arg)[1];
	struct zinf *zinf = NULL;
	int r = attach(round, rank, &zinf);

	if (!r)
		r = round->play(zinf, round);
	if (!r)
		zinf_detach(zinf);
	return r;
}

static void play(struct round *round, int (*body)(struct zinf *zinf, struct round *round))
{
	pid_t pids[WORLD];

	round->play = body;
	memset(round->words, 0, sizeof(round->words));
	for (uintptr_t rank = 0; rank < WORLD; rank++)
		pids[rank] = harness_fork(rank_body, (uintptr_t[]){ (uintptr_t)round, rank });
	for (uint32_t rank = 0; rank < WORLD; rank++)
		cr_expect_eq(harness_wait(pids[rank], 60000), 0, "rank %u: %s", rank,
		             round->words[rank]);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		cr_assert_eq(round->words[rank][0], '\0');
}

static void run(struct tier_case tier)
{
	struct round *round = mmap(NULL, sizeof(*round), PROT_READ | PROT_WRITE,
	                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct harness harness;

	cr_assert_neq(round, MAP_FAILED);
	system_start(&harness, &(struct harness_options){ .nvme_size = "192M" });
	(void)snprintf(round->socket_path, sizeof(round->socket_path), "%s", harness.socket_path);
	round->tier = tier;
	play(round, begin);
	if (tier.state == ZINF_OFFLOAD_NVME) {
		play(round, write_uncommitted);
		play(round, write_committed);
		harness_kill(&harness);
		cr_assert_eq(harness_restart(&harness), 0);
	} else {
		play(round, write_committed);
	}
	play(round, swap);
	cr_assert_eq(harness_stop(&harness), 0);
	(void)munmap(round, sizeof(*round));
}

Test(state, in_memory)
{
	run((struct tier_case){ .dtype = ZINF_BF16, .state = ZINF_OFFLOAD_CPU });
}

Test(state, on_nvme)
{
	run((struct tier_case){ .dtype = ZINF_BF16, .state = ZINF_OFFLOAD_NVME });
}

Test(state, on_nvme_and_resident)
{
	run((struct tier_case){
		.dtype = ZINF_F32, .state = ZINF_OFFLOAD_NVME, .resident_bytes = 8 << 20 });
}

Test(state, all_on_nvme)
{
	run((struct tier_case){
		.dtype = ZINF_BF16, .state = ZINF_OFFLOAD_NVME, .param = ZINF_OFFLOAD_NVME });
}
