/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a snapshot takes no space that was not paid for, and one that is out of reach says where it
 * lies and is there again with its path. Method: a quota that it does not fit in; a tier of two
 * stores, the second of which is gone for one start.
 */
#include "tests/unit/zero/kept.h"

static struct node node;
static struct actor actors[1];
static struct plain plain;
static struct kept kept;
static struct zi_job_config config;

static void begin_job(void)
{
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
}

static void refused(kept_fn function, int error, const char *word)
{
	cr_assert_eq(kept_call(&node, &kept, function, "train", "a"), error, "%s",
	             kept.op.text.chars);
	cr_assert_not_null(strstr(kept.op.text.chars, word), "%s", kept.op.text.chars);
}

static void end(void)
{
	if (actors[0].rank)
		actor_leave(&actors[0], true);
	plain_deinit(&plain);
	node_deinit(&node);
}

Test(zero_snapshot_place, state_in_memory_is_paid_for_before_anything_is_written)
{
	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU);
	node_init(&node);
	node.uid_nvme_bytes = 1 * MIB;
	node_start(&node);
	plain_init(&plain, &config, 1);
	begin_job();
	refused(zero_snapshot_create, -EDQUOT, "a snapshot of job 'train' keeps");
	cr_assert_eq(node.nvme.write_bytes, 0, "in space that others may have paid for");
	node_check_space(&node);
	end();
}

Test(zero_snapshot_place, snapshot_on_a_missing_path_is_refused_by_name_and_comes_back)
{
	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	node_init(&node);
	node.store_count = 2;
	node_start(&node);
	plain_init(&plain, &config, 1);
	begin_job();
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_create, "train", "a"), 0, "%s",
	             kept.op.text.chars);
	actor_leave(&actors[0], true);
	node_stop(&node);
	node.missing = 2;
	node_start(&node);
	refused(zero_snapshot_hold, -ENODEV, "was not there when zinfd started");
	cr_assert_not_null(strstr(kept.op.text.chars, node.more_paths[1]), "%s",
	                   kept.op.text.chars);
	node_stop(&node);
	node.missing = 0;
	node_start(&node);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_hold, "train", "a"), 0, "%s",
	             kept.op.text.chars);
	zero_snapshot_release(kept.op.held);
	end();
}
