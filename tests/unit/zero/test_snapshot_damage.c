/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the space of a snapshot that is damaged is given to nobody while it is there, and is free
 * when it is removed; only where rows contradict each other it waits for the next start. Method:
 * the catalog is changed behind the daemon's back, and bytes are counted.
 */
#include "tests/unit/catalog/reseal.h"
#include "tests/unit/zero/kept.h"

static struct node node;
static struct actor actors[1];
static struct plain plain;
static struct kept kept;
static struct zi_job_config config;
static uint64_t free_bytes; /* with all snapshots */

static void train(uint64_t step)
{
	struct zi_step_options options = model_options();

	cr_assert_eq(model_step(actors, 1, step, &options), 0, "%s", actors[0].text.chars);
	plain_step(&plain, step, &options);
}

static void call(kept_fn function, const char *name, int error)
{
	cr_assert_eq(kept_call(&node, &kept, function, "train", name), error, "%s",
	             kept.op.text.chars);
}

static uint64_t free_now(void)
{
	return nvme_space_free_bytes(node.nvme.members[0].space);
}

/* Return: what it holds, once the job has gone on. */
static uint64_t snapshot(const char *name, uint64_t next_step)
{
	uint64_t bytes;

	call(zero_snapshot_create, name, 0);
	bytes = kept.op.held_bytes;
	train(next_step);
	return bytes;
}

static void begin(void)
{
	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	node_init(&node);
	node.store_bytes = 96 * MIB;
	node_start(&node);
	plain_init(&plain, &config, 1);
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
	train(1);
}

/* @statement: by which its catalog is changed meanwhile; NULL: it is not. */
static void restart(const char *statement)
{
	char path[128];

	if (actors[0].rank)
		actor_leave(&actors[0], true);
	node_settle(&node);
	free_bytes = free_now();
	node_stop(&node);
	(void)snprintf(path, sizeof(path), "%s/catalog.db", node.directory);
	if (statement)
		change_file(path, statement, false);
	node_start(&node);
}

static void end(void)
{
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	cr_assert(plain_equals(&plain, &actors[0]), "the job is none the worse");
	actor_leave(&actors[0], true);
	plain_deinit(&plain);
	node_deinit(&node);
}

#define BLOB_OF_A \
	"UPDATE blob SET bytes = x'00' WHERE job_id IN (SELECT id FROM job WHERE snapshot = 'a')"

Test(zero_snapshot_damage, removing_it_frees_exactly_what_it_held)
{
	uint64_t held_bytes;

	begin();
	held_bytes = snapshot("a", 2);
	restart(BLOB_OF_A);
	call(zero_snapshot_hold, "a", -EUCLEAN);
	cr_assert_eq(free_now(), free_bytes, "while it is there, nobody gets it");
	call(zero_snapshot_remove, "a", 0);
	cr_assert_eq(free_now(), free_bytes + held_bytes);
	node_check_space(&node);
	restart(NULL);
	cr_assert_eq(free_bytes, free_now(), "as after a restart");
	end();
}

/* The job stands where the damaged snapshot was taken, and so does another one. */
Test(zero_snapshot_damage, what_others_hold_too_stays_until_the_last_of_them)
{
	uint64_t held_bytes;

	begin();
	call(zero_snapshot_create, "a", 0);
	held_bytes = kept.op.held_bytes;
	call(zero_snapshot_create, "b", 0);
	restart(BLOB_OF_A);
	cr_assert_eq(free_now(), free_bytes);
	call(zero_snapshot_remove, "a", 0);
	cr_assert_eq(free_now(), free_bytes);
	node_check_space(&node);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	train(2);
	cr_assert_eq(free_now(), free_bytes - held_bytes);
	call(zero_snapshot_remove, "b", 0);
	cr_assert_eq(free_now(), free_bytes);
	node_check_space(&node);
	actor_leave(&actors[0], true);
	end();
}

/* An extent of 'a' begins within one of 'b': whose bytes those are, nobody knows. */
Test(zero_snapshot_damage, space_that_is_in_dispute_is_free_after_the_next_start)
{
	uint64_t held_bytes, kept_bytes;

	begin();
	held_bytes = snapshot("a", 2);
	held_bytes += snapshot("b", 3);
	restart("UPDATE extent SET offset = 4096 + (SELECT e.offset FROM extent e, job"
	        " WHERE e.job_id = job.id AND snapshot = 'b' AND e.bytes > 4096"
	        " ORDER BY e.offset LIMIT 1)"
	        " WHERE plane = 1 AND unit = 1 AND subgroup = 0"
	        " AND job_id IN (SELECT id FROM job WHERE snapshot = 'a');"
	        "UPDATE blob SET bytes = x'00' WHERE job_id IN"
	        " (SELECT id FROM job WHERE snapshot = 'b')");
	call(zero_snapshot_hold, "a", -EUCLEAN);
	call(zero_snapshot_hold, "b", -EUCLEAN);
	kept_bytes = free_now();
	call(zero_snapshot_remove, "b", 0);
	cr_assert_eq(free_now(), kept_bytes, "'a' may mean it");
	call(zero_snapshot_remove, "a", 0);
	cr_assert_eq(free_now(), kept_bytes);
	held_bytes += free_bytes;
	restart(NULL);
	cr_assert_eq(free_now(), held_bytes);
	node_check_space(&node);
	end();
}
