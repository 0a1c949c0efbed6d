/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: when the catalog fails in a commit and cannot be mended, nobody knows whether that commit
 * is in force; so both what it names and what it replaces stay as they are until the restart, which
 * finds one of the two whole. Nothing begins that would commit, what is in memory can be read.
 * Method: in one commit SQLite's disk dies with the sync of its log (fault_vfs.h); then the node
 * stops in order, or as if it were killed (its log as it was).
 */
#include "daemon/tier/stripe.h"
#include "tests/unit/catalog/fault_vfs.h"
#include "tests/unit/zero/plain.h"

static struct node node;
static struct actor actors[2]; /* "train", "other" */
static struct plain plain;
static struct zi_job_config config;

static void attach(uint32_t index, const char *job)
{
	model_attach(&node, &actors[index], 1,
	             &(struct attach_options){ .job = job, .config = config });
	cr_assert_eq(model_materialize(&actors[index], 1), 0, "%s", actors[index].text.chars);
}

/* Two jobs of durability power, one step each. */
static void begin(void)
{
	struct zi_step_options options = model_options();

	fault_install();
	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	config.durability = ZI_DURABILITY_POWER;
	node_init(&node);
	node.store_bytes = 48 * MIB;
	node_start(&node);
	plain_init(&plain, &config, 1);
	for (uint32_t i = 0; i < 2; i++) {
		attach(i, i ? "other" : "train");
		model_write(&actors[i], 1);
		cr_assert_eq(model_step(&actors[i], 1, 1, &options), 0, "%s", actors[i].text.chars);
	}
	plain_step(&plain, 1, &options);
}

static void end(void)
{
	actors_leave(actors, 2, true);
	plain_deinit(&plain);
	node_deinit(&node);
}

/* Step 2 of "train" ends in a catalog whose commit and fence fail. */
static void break_catalog(void)
{
	struct zi_step_options options = model_options();

	fail_next(OP_SYNC, true, SQLITE_IOERR_FSYNC);
	fault.is_dying = true;
	cr_assert_eq(model_step(actors, 1, 2, &options), -EIO, "%s", actors[0].text.chars);
	cr_assert_geq(fault.failed_count, 2, "the commit and the fence");
	fault.is_dead = false;
}

/* What is on the disk at this moment, as a kill leaves it, put back after the orderly end. */
static void keep_catalog(bool is_kept)
{
	char command[256];

	(void)snprintf(command, sizeof(command),
	               is_kept ? "cd %s && cp catalog.db kept.db && cp catalog.db-wal kept.db-wal"
	                       : "cd %s && mv kept.db catalog.db && mv kept.db-wal catalog.db-wal"
	                         " && rm catalog.db-mark",
	               node.directory);
	cr_assert_eq(system(command), 0);
}

static void refused(struct actor *actor, int r)
{
	cr_assert_eq(r, -EIO, "%d: %s", r, actor->text.chars);
	cr_assert_not_null(strstr(actor->text.chars, "until zinfd is restarted"), "%s",
	                   actor->text.chars);
}

Test(zero_frozen, broken_catalog_gives_no_extent_away_and_refuses_to_begin)
{
	struct zi_step_options options = model_options();
	uint64_t free_bytes;

	begin();
	cr_assert_null(zero_frozen(node.zero));
	free_bytes = tier_extent_free_bytes(&node.nvme);
	break_catalog();
	cr_assert_not_null(zero_frozen(node.zero));
	cr_assert_lt(tier_extent_free_bytes(&node.nvme), free_bytes,
	             "what the failed commit may have named is kept, beside the former");
	/* The job whose commit failed, and the one that did nothing. */
	actor_leave(&actors[0], true);
	refused(&actors[0], actor_attach(&node, &actors[0],
	                                 &(struct attach_options){ .world = 1, .config = config }));
	cr_assert_eq(actor_unit(&actors[1], zero_unshard, 0), 0, "reading is possible");
	cr_assert(plain_equals(&plain, &actors[1]));
	cr_assert_eq(actor_unit(&actors[1], zero_reshard, 0), 0);
	refused(&actors[1],
	        actor_call(&actors[1], zero_step_begin, &(struct zero_op){ .options = options }));
	refused(&actors[1], actor_call(&actors[1], zero_commit, NULL));
	cr_assert_eq(actor_call(&actors[1], zero_job_destroy, NULL), -EIO);
	actor_leave(&actors[1], true);
	node_settle(&node);
	cr_assert_lt(tier_extent_free_bytes(&node.nvme), free_bytes);
	node_stop(&node);
	node_start(&node);
	cr_assert_null(zero_frozen(node.zero));
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes,
	             "what no commit names is free");
	attach(0, "train");
	attach(1, "other");
	cr_assert_eq(actors[0].memory.committed_step, 1, "in order: the failed commit is void");
	cr_assert(plain_equals(&plain, &actors[0]));
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(model_step(&actors[i], 1, 2, &options), 0, "%s", actors[i].text.chars);
	plain_step(&plain, 2, &options);
	cr_assert(plain_equals(&plain, &actors[0]));
	cr_assert(plain_equals(&plain, &actors[1]));
	end();
}

/* The log holds the whole commit: a daemon that is killed now comes back with it. */
Test(zero_frozen, failed_commit_that_is_in_force_after_a_kill_has_its_data)
{
	struct zi_step_options options = model_options();

	begin();
	break_catalog();
	keep_catalog(true);
	/* Whoever is left may do what is still allowed. */
	actor_leave(&actors[0], false);
	cr_assert_eq(
		actor_call(&actors[1], zero_step_begin, &(struct zero_op){ .options = options }),
		-EIO);
	actor_leave(&actors[1], false);
	node_stop(&node);
	keep_catalog(false);
	node_start(&node);
	attach(0, "train");
	cr_assert_eq(actors[0].memory.committed_step, 2, "in force, though reported as failed");
	plain_step(&plain, 2, &options);
	cr_assert(plain_equals(&plain, &actors[0]));
	cr_assert_eq(model_step(&actors[0], 1, 3, &options), 0, "%s", actors[0].text.chars);
	plain_step(&plain, 3, &options);
	cr_assert(plain_equals(&plain, &actors[0]), "the optimizer state as well");
	end();
}
