/* SPDX-License-Identifier: Apache-2.0 */
/* Fixture of tests about parameters on NVMe: a job whose pool holds what the test grants, beside
 * the plain computation. Of the model's units, in slots of 4096 bytes: embed 2, h.0 260, head 10.
 * */
#pragma once

#include "daemon/zero/param/residency.h"
#include "tests/unit/zero/plain.h"

#define SLOT  4096ull
#define EMBED 0u
#define H0    1u
#define HEAD  2u

static struct node node;
static struct actor actors[4];
static struct plain plain;
static struct zi_job_config config;

static inline struct zi_job_config pool_config(uint64_t budget_bytes)
{
	struct zi_job_config made = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	made.offload_param = ZI_OFFLOAD_NVME;
	made.param_budget_bytes = budget_bytes;
	made.staging_bytes = 10 * MIB;
	return made;
}

static inline void pool_attach(uint32_t world, uint64_t timeout_ns)
{
	model_attach(&node, actors, world,
	             &(struct attach_options){ .config = config, .timeout_ns = timeout_ns });
	cr_assert_eq(model_materialize(actors, world), 0, "%s", actors[0].text.chars);
}

static inline void pool_begin(uint32_t world, uint64_t budget_bytes, uint64_t timeout_ns)
{
	config = pool_config(budget_bytes);
	node_init(&node);
	node_start(&node);
	plain_init(&plain, &config, world);
	pool_attach(world, timeout_ns);
	model_write(actors, world);
}

static inline void pool_end(uint32_t world)
{
	actors_leave(actors, world, true);
	plain_deinit(&plain);
	node_deinit(&node);
}

static inline const struct zero_residency *pool_of(void)
{
	return node_job(&node, "train")->residency;
}

static inline bool pool_has(uint32_t unit)
{
	return pool_of()->units[unit].presence == ZERO_RESIDENT;
}

static inline void expect_refused(struct actor *actor, int error, const char *word, int got)
{
	cr_assert_eq(got, error, "%d: %s", got, actor->text.chars);
	cr_assert_not_null(strstr(actor->text.chars, word), "'%s'", actor->text.chars);
}

static inline void unshard(struct actor *actor, uint32_t unit)
{
	cr_assert_eq(actor_unit(actor, zero_unshard, unit), 0, "%s", actor->text.chars);
}

static inline void reshard(struct actor *actor, uint32_t unit)
{
	cr_assert_eq(actor_unit(actor, zero_reshard, unit), 0, "%s", actor->text.chars);
}
