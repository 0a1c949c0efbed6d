/* SPDX-License-Identifier: Apache-2.0 */
/* Fixture of tests about jobs that span nodes: ranks on drawn places, and what all of them hear. */
#pragma once

#include "tests/unit/zero/nodes.h"

static struct nodes_ranks ranks;

static inline void begin(uint32_t count, uint64_t seed, const char *places)
{
	nodes_init(count, seed);
	nodes_start();
	nodes_attach(
		&ranks, places,
		&(struct attach_options){ .incarnation = "run.0",
	                                  .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU) });
}

static inline void end(bool is_clean)
{
	nodes_leave(&ranks, is_clean);
	nodes_settle();
	nodes_deinit();
}

static inline void made(uint32_t count, uint64_t seed, const char *places)
{
	begin(count, seed, places);
	nodes_layout(&ranks);
	cr_assert_eq(nodes_materialize(&ranks), 0, "%s", ranks.actors[0].text.chars);
}

/* All ranks hear it, in the same words but for where they hear it. */
static inline void all_hear(int error, const char *words)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);

	for (uint32_t i = 0; i < ranks.world; i++) {
		const struct actor *actor = &ranks.actors[i];

		while (actor->rank && !actor->is_broken) {
			nodes_turn();
			cr_assert_lt(zi_clock_now_ns(), deadline_ns, "rank %u hears nothing", i);
		}
		if (!actor->rank)
			continue;
		cr_expect_eq(actor->broken_error, error, "rank %u: %d", i, actor->broken_error);
		cr_expect_not_null(strstr(actor->broken_text.chars, words), "rank %u: '%s'", i,
		                   actor->broken_text.chars);
	}
}

/* Up to the commit of step 0; parameters are zero. */
static inline void trained(uint32_t count, uint64_t seed, const char *places)
{
	made(count, seed, places);
	cr_assert_eq(nodes_all(&ranks, zero_commit, NULL), 0, "%s", ranks.actors[0].text.chars);
}
