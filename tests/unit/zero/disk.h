/* SPDX-License-Identifier: Apache-2.0 */
/* Fixture of tests about disks that fail: one rank's job on NVMe, begun and read anew through an
 * engine of the test's choice, beside the plain computation. */
#pragma once

#include "tests/unit/zero/plain.h"

static struct node node;
static struct actor actors[2];
static struct plain plain;
static struct zi_job_config config;

static void start(const char *with)
{
	node.backend = with;
	node_start(&node);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
}

static void restart(const char *with)
{
	if (actors[0].rank)
		actor_leave(&actors[0], false);
	node_stop(&node);
	start(with);
}

static void begin(uint64_t resident_bytes)
{
	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	config.resident_bytes = resident_bytes;
	node_init(&node);
	plain_init(&plain, &config, 1);
	start("threads");
	cr_assert_eq(model_materialize(actors, 1), 0);
	model_write(actors, 1);
}

static void end(void)
{
	if (actors[0].rank)
		actor_leave(&actors[0], true);
	plain_deinit(&plain);
	node_deinit(&node);
}

/* Trains one step on a sound disk from wherever the job stands; it must be where @plain is. */
static void sound(uint64_t committed)
{
	struct zi_step_options options = model_options();

	restart("threads");
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actors[0].memory.committed_step, (int64_t)committed);
	cr_assert(plain_equals(&plain, &actors[0]), "parameters as committed");
	cr_assert_eq(model_step(actors, 1, committed + 1, &options), 0, "%s", actors[0].text.chars);
	plain_step(&plain, committed + 1, &options);
	cr_assert(plain_equals(&plain, &actors[0]), "optimizer state as committed");
}
