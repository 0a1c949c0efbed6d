/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fixture of tests about a job whose ranks come back otherwise than they were: the same model,
 * trained on beside the plain computation, which goes on with as many ranks.
 */
#pragma once

#include "daemon/tier/stripe.h"
#include "daemon/zero/across/across_private.h"
#include "tests/unit/zero/across_train.h"
#include "tests/unit/zero/kept.h"

static inline struct zero_job *job_at(uint32_t place)
{
	return node_job(&net.nodes[place], "train");
}

/* The next start is at @places: nodes that were none yet begin. */
static inline void move_to(const char *places, uint32_t strategy, uint32_t shard_size)
{
	train.places = places;
	train.training.strategy = strategy;
	train.training.shard_size = shard_size;
	plain.world = (uint32_t)strlen(places);
	for (; net.count < train_node_count(); net.count++) {
		node_init(&net.nodes[net.count]);
		node_start(&net.nodes[net.count]);
	}
}

/* They go on at @step, with its bits; the first @blob_count of them with what they gave then. */
static inline void gone_on(int64_t step, uint32_t blob_count)
{
	cr_assert_eq(train_come(), 0, "%s", ranks.actors[0].text.chars);
	cr_assert_eq(train_committed(), step);
	train_check(step);
	for (uint32_t i = 0; i < blob_count; i++)
		check_blob(i, step);
}

/* Their start is refused, and each of them hears @word of it. */
static inline void come_refused(int error, const char *word)
{
	cr_assert_eq(train_come(), error, "%s", ranks.actors[0].text.chars);
	for (uint32_t i = 0; i < ranks.world; i++)
		cr_expect_not_null(strstr(ranks.actors[i].text.chars, word), "%s",
		                   ranks.actors[i].text.chars);
	train_leave(true);
}

/* All ranks materialize; after a drawn number of turns somebody is lost. */
static inline void lose_while_coming(uint64_t seed, uint32_t turns)
{
	train_come_start();
	for (uint32_t i = 0; i < turns; i++)
		nodes_turn();
	lose((enum loss)(seed % _LOSS_COUNT), ranks.places[net_draw(ranks.world)]);
	nodes_leave(&ranks, false);
	nodes_settle();
}

/* All daemons end and start again, and find what is theirs and no more. */
static inline void restart_nodes(void)
{
	for (uint32_t i = 0; i < net.count; i++) {
		node_settle(&net.nodes[i]);
		node_stop(&net.nodes[i]);
		node_start(&net.nodes[i]);
		if (job_at(i))
			cr_assert_eq(job_at(i)->refusal, 0, "%s", job_at(i)->refusal_text.chars);
	}
}

/* A node's disk is gone, and what replaces it is empty: its ranks come back there. */
static inline void replace_node(uint32_t place)
{
	struct node *node = &net.nodes[place];

	node_settle(node);
	node_stop(node);
	train_shell("rm -rf ./*", node->directory);
	node_start(node);
	cr_assert_null(job_at(place));
}

/* At rest a node holds what it committed last, once, and nothing else lies on its store. */
static inline void check_held(uint32_t place)
{
	const struct zero_job *job = job_at(place);

	for (uint32_t i = 0; job && i < job->subgroup_count; i++)
		for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++) {
			const struct zero_place *held = &job->subgroups[i].places[plane];

			cr_assert_eq(held->kept_is, ZERO_KEPT_NONE);
			cr_assert(job_keeps(&job->subgroups[i], plane) || !held->extent.bytes);
			cr_assert(plane != ZERO_PLANE_PARAM || !job->subgroups[i].is_kept ||
			          held->extent.bytes);
		}
	node_check_space(&net.nodes[place]);
}

static inline void check_all_held(void)
{
	nodes_settle();
	for (uint32_t i = 0; i < net.count; i++)
		check_held(i);
}
