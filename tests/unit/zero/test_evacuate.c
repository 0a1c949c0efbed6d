/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what snapshots hold leaves a drained path as well; what several hold is moved once, is
 * shared still, and is the same after a restart; whoever reads, removes or cannot follow meanwhile
 * loses nothing. Method: a tier of two stores, one of which is drained, and a job beside the plain
 * computation whose snapshots others begin with.
 */
#include <fcntl.h>

#include "daemon/zero/snapshot/snapshot.h"
#include "tests/unit/zero/kept.h"

static struct node node;
static struct actor actors[1], others[1];
static struct plain plain;
static struct kept kept;
static struct zi_job_config config;
static uint32_t durability = ZI_DURABILITY_PROCESS;

static void begin(void)
{
	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	config.durability = durability;
	node_init(&node);
	node.store_count = 2;
	node.store_bytes = 64 * MIB;
	node_start(&node);
	plain_init(&plain, &config, 1);
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
}

static void leave(void)
{
	if (actors[0].rank)
		actor_leave(&actors[0], true);
	if (others[0].rank)
		actor_leave(&others[0], true);
	node_settle(&node);
}

static void end(void)
{
	leave();
	plain_deinit(&plain);
	node_deinit(&node);
}

static void restart(void)
{
	leave();
	node_stop(&node);
	node_start(&node);
}

static void snapshot(const char *name)
{
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_create, "train", name), 0, "%s",
	             kept.op.text.chars);
}

static void restore_as(const char *name, const char *as)
{
	cr_assert_eq(zi_copy_name(kept.op.as, sizeof(kept.op.as), as), 0);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_restore, "train", name), 0, "%s",
	             kept.op.text.chars);
	kept.op.as[0] = '\0';
}

static uint64_t used(uint32_t index)
{
	return tier_member_used_bytes(&node.nvme.members[index]);
}

static void drain(uint32_t index)
{
	node.nvme.members[index].is_draining = true;
	zero_evacuate(node.zero);
}

/* Job @name comes back and is where @plain is, with the state of a step more. */
static void goes_on(struct actor *actor, const char *name, uint64_t step)
{
	model_attach(&node, actor, 1, &(struct attach_options){ .job = name, .config = config });
	cr_assert_eq(model_materialize(actor, 1), 0, "%s", actor->text.chars);
	cr_assert_eq(actor->memory.committed_step, (int64_t)step - 1);
	cr_assert(plain_equals(&plain, actor));
	model_train(actor, 1, step, step);
	plain_train(&plain, step, step);
	cr_assert(plain_equals(&plain, actor));
}

Test(zero_evacuate, what_a_snapshot_alone_holds_leaves_a_drained_path)
{
	uint64_t bytes, held_bytes;

	begin();
	model_train(actors, 1, 1, 2);
	plain_train(&plain, 1, 2);
	snapshot("a");
	bytes = kept.op.held_bytes;
	cr_assert_eq(actor_call(&actors[0], zero_job_destroy, NULL), 0);
	actors[0].rank = NULL;
	cr_assert_gt(used(1), 0);
	held_bytes = node.cpu.used_bytes; /* What this process received. */
	drain(1);
	node_settle(&node);
	cr_assert_eq(used(1), 0);
	cr_assert_eq(used(0), bytes);
	cr_assert_eq(node.cpu.used_bytes, held_bytes, "no memory is held when it is over");
	node_check_space(&node);
	restart();
	cr_assert_eq(used(1), 0);
	node_check_space(&node);
	restore_as("a", "train");
	goes_on(actors, "train", 3);
	end();
}

/* With `power` the paths that it goes to are flushed before the catalog is told. */
static void several_hold(uint32_t how)
{
	uint64_t bytes, written;

	durability = how;
	begin();
	model_train(actors, 1, 1, 2);
	plain_train(&plain, 1, 2);
	snapshot("a");
	snapshot("b");
	bytes = kept.op.held_bytes;
	restore_as("a", "other");
	leave();
	cr_assert_eq(used(0) + used(1), bytes);
	written = node.nvme.write_bytes + used(1);
	drain(1);
	node_settle(&node);
	cr_assert_eq(used(1), 0);
	cr_assert_eq(used(0), bytes);
	cr_assert_eq(node.nvme.write_bytes, written, "once");
	node_check_space(&node);
	restart();
	cr_assert_eq(used(1), 0);
	cr_assert_eq(used(0), bytes);
	node_check_space(&node);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_remove, "train", "a"), 0);
	goes_on(others, "other", 3);
	cr_assert_eq(node_job(&node, "train")->committed_step, 2);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_restore, "train", "b"), 0);
	node_check_space(&node);
	end();
}

Test(zero_evacuate, what_several_hold_is_moved_once_and_is_shared_still)
{
	several_hold(ZI_DURABILITY_PROCESS);
	several_hold(ZI_DURABILITY_POWER);
}

/* It is nobody's turn but the snapshot's; the job's next step leaves the path by itself. */
Test(zero_evacuate, job_that_trains_goes_on_while_its_snapshots_are_moved)
{
	begin();
	model_train(actors, 1, 1, 1);
	snapshot("a");
	model_train(actors, 1, 2, 2);
	snapshot("b");
	plain_train(&plain, 1, 2);
	drain(0);
	model_train(actors, 1, 3, 4);
	node_settle(&node);
	cr_assert_eq(used(0), 0);
	restart();
	restore_as("b", "other");
	goes_on(others, "other", 3);
	node_check_space(&node);
	plain_train(&plain, 4, 4);
	leave();
	goes_on(actors, "train", 5);
	end();
}

/* Of the round that was under way nothing is left. */
Test(zero_evacuate, snapshot_that_is_removed_meanwhile_leaves_nothing)
{
	begin();
	model_train(actors, 1, 1, 1);
	snapshot("a");
	model_train(actors, 1, 2, 2);
	plain_train(&plain, 1, 2);
	drain(1);
	while (!node.zero->evacuation.active_count)
		node_turn(&node);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_remove, "train", "a"), 0, "%s",
	             kept.op.text.chars);
	node_settle(&node);
	node_check_space(&node);
	leave();
	cr_assert_eq(used(1), 0);
	goes_on(actors, "train", 3);
	end();
}

struct reading {
	struct zero_read read;
	bool is_done;
};

static void read_done(struct zero_read *read)
{
	container_of(read, struct reading, read)->is_done = true;
}

static struct zero_snapshot *hold(const char *name)
{
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_hold, "train", name), 0, "%s",
	             kept.op.text.chars);
	return kept.op.held;
}

static uint32_t extent_on(const struct zero_snapshot *held, uint32_t member)
{
	uint32_t index = 0;

	while (held->extents[index].member != &node.nvme.members[member])
		index++;
	return index;
}

/* Begun while the catalog is told of the new places: the old one is nobody else's until its end. */
Test(zero_evacuate, what_is_being_read_stays_as_long)
{
	struct reading reading = { .is_done = false };
	struct zero_snapshot *held;

	begin();
	model_train(actors, 1, 1, 1);
	snapshot("a");
	model_train(actors, 1, 2, 2);
	leave();
	drain(1);
	while (!snapshot_find(node.zero, "train", "a")->moving)
		node_turn(&node);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_restore, "train", "a"), -EBUSY);
	cr_assert_not_null(strstr(kept.op.text.chars, "being moved off a path"), "%s",
	                   kept.op.text.chars);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_remove, "train", "a"), -EBUSY);
	cr_assert_not_null(strstr(kept.op.text.chars, "being moved off a path"), "%s",
	                   kept.op.text.chars);
	cr_assert_not_null(snapshot_find(node.zero, "train", "a")->moving, "still");
	node.is_disk_held = true;
	held = hold("a");
	reading.read = (struct zero_read){ .held = held,
		                           .index = extent_on(held, 1),
		                           .buffer = aligned_alloc(4096, 4 * MIB),
		                           .done = read_done };
	cr_assert_eq(zero_snapshot_read(&reading.read), 0);
	while (node.zero->evacuation.records)
		node_turn(&node);
	cr_assert_eq(held->extents[reading.read.index].member, &node.nvme.members[0]);
	cr_assert_eq(used(1), reading.read.move.bytes, "what is read is there still");
	node.is_disk_held = false;
	(void)nvme_engine_wait(node.engine);
	while (!reading.is_done)
		node_turn(&node);
	cr_assert_eq(reading.read.result, 0);
	cr_assert_eq(used(1), 0);
	free(reading.read.buffer);
	zero_snapshot_release(held);
	node_settle(&node);
	node_check_space(&node);
	end();
}

/* An export or a load that is under way comes first; its end is noticed. */
Test(zero_evacuate, snapshot_in_use_is_moved_afterwards)
{
	struct zero_snapshot *held;

	begin();
	model_train(actors, 1, 1, 1);
	snapshot("a");
	model_train(actors, 1, 2, 2);
	leave();
	held = hold("a");
	drain(1);
	node_settle(&node);
	cr_assert_gt(used(1), 0);
	zero_snapshot_release(held);
	node_settle(&node);
	cr_assert_eq(used(1), 0);
	node_check_space(&node);
	end();
}

static void damage(const struct tier_extent *extent)
{
	uint64_t garbage = 0x5a5a5a5a5a5a5a5aull;
	int fd = open(extent->member->path, O_WRONLY | O_CLOEXEC);

	cr_assert_geq(fd, 0);
	cr_assert_eq(pwrite(fd, &garbage, sizeof(garbage), (off_t)extent->offset_bytes + 40000),
	             (ssize_t)sizeof(garbage));
	(void)zi_close(fd);
}

Test(zero_evacuate, damaged_snapshot_stays_is_told_once_and_others_move)
{
	const struct zero_snapshot *first;
	uint32_t index;

	begin();
	model_train(actors, 1, 1, 1);
	snapshot("a");
	model_train(actors, 1, 2, 2);
	snapshot("b");
	model_train(actors, 1, 3, 3);
	leave();
	first = snapshot_find(node.zero, "train", "a");
	for (index = extent_on(first, 1); first->extents[index].bytes < MIB; index++)
		;
	damage(&first->extents[index]);
	drain((uint32_t)(first->extents[index].member - node.nvme.members));
	node_settle(&node);
	cr_assert(first->is_stuck);
	cr_assert_not_null(strstr(node.stuck_text.chars, "snapshot 'train/a': moving"), "%s",
	                   node.stuck_text.chars);
	cr_assert_not_null(strstr(node.stuck_text.chars, "damaged at offset"), "%s",
	                   node.stuck_text.chars);
	cr_assert(!snapshot_find(node.zero, "train", "b")->is_stuck);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_remove, "train", "a"), 0);
	node_settle(&node);
	cr_assert_eq(used(0) == 0 || used(1) == 0, true, "one of them is empty");
	node_check_space(&node);
	end();
}

Test(zero_evacuate, snapshot_that_finds_no_room_stays_and_that_is_told)
{
	begin();
	model_train(actors, 1, 1, 1);
	snapshot("a");
	leave();
	node.nvme.members[0].is_draining = true; /* Nowhere to go. */
	drain(1);
	node_settle(&node);
	cr_assert_not_null(strstr(node.stuck_text.chars, "no room"), "%s", node.stuck_text.chars);
	node_check_space(&node);
	end();
}
