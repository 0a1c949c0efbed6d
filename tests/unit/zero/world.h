/* SPDX-License-Identifier: Apache-2.0 */
/* Fixture of tests about calls: a job of some ranks, materialised and with first values, beside the
 * plain computation. */
#pragma once

#include "tests/unit/zero/plain.h"

static struct node node;
static struct actor actors[4];
static struct plain plain;

static inline void begin_staged(uint32_t world, const struct zi_job_config *config,
                                uint64_t staging_bytes)
{
	node_init(&node);
	if (staging_bytes)
		node.staging_bytes = staging_bytes;
	node_start(&node);
	plain_init(&plain, config, world);
	model_begin(&node, actors, world, &(struct attach_options){ .config = *config });
}

static inline void begin_with(uint32_t world, const struct zi_job_config *config)
{
	begin_staged(world, config, 0);
}

static inline void begin(uint32_t world, uint32_t offload, uint32_t schedule)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, offload);

	config.schedule = schedule;
	begin_with(world, &config);
}

static inline void end(uint32_t world)
{
	actors_leave(actors, world, true);
	plain_deinit(&plain);
	node_deinit(&node);
}

static inline void refused(struct actor *actor, int error, const char *word, int got)
{
	cr_assert_eq(got, error, "%d: %s", got, actor->text.chars);
	cr_assert_not_null(strstr(actor->text.chars, word), "'%s'", actor->text.chars);
}

static inline int step_begin(struct actor *actor, struct zi_step_options options)
{
	return actor_call(actor, zero_step_begin, &(struct zero_op){ .options = options });
}
