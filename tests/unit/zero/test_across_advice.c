/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: where nodes divide planes, a refusal of one node's memory names what the job takes there,
 * and the nearest setting that fits, which then works. Method: nodes in one process, of which one
 * has just too little.
 */
#include "tests/unit/zero/across_train.h"

TestSuite(across_advice, .timeout = 120);

#define LARGE_UNITS 16u

/* Units of a subgroup each. Return: what materialize says. */
static int come(const struct zi_job_config *config, const struct zi_job_training *training)
{
	nodes_attach(&ranks, "01",
	             &(struct attach_options){ .config = *config, .training = *training });
	for (uint32_t rank = 0; rank < ranks.world; rank++)
		for (uint32_t i = 0; i < LARGE_UNITS; i++) {
			char name[16];

			(void)snprintf(name, sizeof(name), "u.%u", i);
			layout_unit(&ranks.actors[rank], name);
			(void)snprintf(name, sizeof(name), "p.%u", i);
			layout_param(&ranks.actors[rank], name, ZI_SUBGROUP_ELEMENTS, 0);
		}
	return nodes_materialize(&ranks);
}

/* 16 MiB are what nodes talk through, 8 each parameters and gradients; 20 of state are on each. */
static void take_advice(uint32_t strategy, uint64_t cpu_bytes)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	const struct zi_job_training training = { .strategy = strategy };
	const char *words = "; it fits with resident_bytes ", *advice;

	config.resident_bytes = 16 * MIB;
	config.staging_bytes = 8 * MIB;
	nodes_init(2, 5);
	for (uint32_t i = 0; i < 2; i++)
		net.nodes[i].store_bytes = 128 * MIB;
	net.nodes[1].cpu_bytes = cpu_bytes;
	nodes_start();
	cr_assert_eq(come(&config, &training), -ENOSPC, "%u", strategy);
	for (uint32_t i = 0; i < 2; i++) {
		advice = strstr(ranks.actors[i].text.chars, words);
		cr_assert_not_null(advice, "%s", ranks.actors[i].text.chars);
		cr_expect_not_null(strstr(ranks.actors[i].text.chars, "; in all "), "%s",
		                   ranks.actors[i].text.chars);
	}
	config.resident_bytes = strtoull(advice + strlen(words), NULL, 10);
	cr_assert_lt(config.resident_bytes, 16 * MIB);
	nodes_leave(&ranks, true);
	nodes_settle();
	cr_expect_eq(come(&config, &training), 0, "%s", ranks.actors[1].text.chars);
	nodes_leave(&ranks, true);
	nodes_settle();
	nodes_deinit();
}

Test(across_advice, a_node_without_room_says_what_fits_there)
{
	take_advice(ZI_STRATEGY_ZERO1, 48 * MIB);
	take_advice(ZI_STRATEGY_ZERO2, 44 * MIB);
	take_advice(ZI_STRATEGY_ZERO3, 40 * MIB);
}

/* Words go to the other node as a vote: what would be cut there is left out. */
Test(across_advice, where_nothing_fits_no_figure_is_cut)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	const struct zi_job_training training = { .strategy = ZI_STRATEGY_ZERO3 };

	config.resident_bytes = 16 * MIB;
	nodes_init(2, 6);
	for (uint32_t i = 0; i < 2; i++)
		net.nodes[i].store_bytes = 128 * MIB;
	net.nodes[1].cpu_bytes = 24 * MIB;
	nodes_start();
	cr_assert_eq(come(&config, &training), -ENOSPC);
	for (uint32_t i = 0; i < 2; i++) {
		const char *text = ranks.actors[i].text.chars, *figure = strstr(text, "; in all ");

		cr_assert_not_null(figure, "%s", text);
		cr_expect_str_eq(text + strlen(text) - 4, " MiB", "%s", text);
	}
	nodes_leave(&ranks, true);
	nodes_settle();
	nodes_deinit();
}
