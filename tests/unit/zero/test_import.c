/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what a client sends becomes a snapshot only whole, and only as its sender says it is; else
 * nothing is left. Method: the extents of one snapshot are sent as another one, some of them wrong
 * or twice, and a job begins with what came of it.
 */
#include "daemon/tier/stripe.h"
#include "daemon/zero/param/fetch.h"
#include "daemon/zero/snapshot/import.h"
#include "daemon/zero/snapshot/snapshot.h"
#include "tests/unit/zero/kept.h"

static struct node node;
static struct actor actors[1], others[1];
static struct plain plain;
static struct kept kept;
static struct zi_job_config config;
static struct zero_import *import;

/* An extent under way. */
struct sent {
	struct zero_put put;
	bool is_done;
};

static void put_done(struct zero_put *put)
{
	struct sent *sent = container_of(put, struct sent, put);

	cr_assert(!sent->is_done, "once");
	cr_assert_str_eq(put->text.chars, "", "no write failed");
	sent->is_done = true;
}

static const struct zero_snapshot *source(void)
{
	return snapshot_find(node.zero, "train", "a");
}

static void begin(void)
{
	struct zi_step_options options = model_options();
	struct zi_text text = { "" };

	config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	node_init(&node);
	node.store_bytes = 64 * MIB;
	node_start(&node);
	plain_init(&plain, &config, 1);
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_step(actors, 1, 1, &options), 0, "%s", actors[0].text.chars);
	plain_step(&plain, 1, &options);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_create, "train", "a"), 0);
	cr_assert_eq(zero_import_new(node.zero,
	                             &(struct zero_import_options){ .job = "train",
	                                                            .name = "b",
	                                                            .record = source()->record,
	                                                            .has_state = true },
	                             &text, &import),
	             0, "%s", text.chars);
}

static void end(void)
{
	actor_leave(&actors[0], true);
	plain_deinit(&plain);
	node_deinit(&node);
}

/* Extent @index of the source, with @wrong added to its digest. Return: what the call said. */
static int begin_one(struct sent *sent, uint32_t index, uint64_t wrong)
{
	const struct catalog_extent *row = &source()->record->extents[index];
	uint64_t bytes = zero_import_extent_bytes(import, index);
	int fd = open(node.store_path, O_RDONLY | O_CLOEXEC);
	int r;

	*sent = (struct sent){ .put = { .import = import,
		                        .index = index,
		                        .source = malloc(bytes),
		                        .buffer = aligned_alloc(4096, bytes),
		                        .done = put_done } };
	cr_assert_eq(bytes, row->extent.bytes);
	cr_assert_eq(pread(fd, (void *)(uintptr_t)sent->put.source, bytes,
	                   (off_t)row->extent.offset_bytes),
	             (ssize_t)bytes);
	(void)zi_close(fd);
	sent->put.digest = kern_hash(row->hashes, row->hash_count * sizeof(row->hashes[0])) + wrong;
	r = zero_import_write(&sent->put);
	cr_assert(!sent->is_done, "never before this returns");
	return r;
}

static int wait_one(struct sent *sent, int begun)
{
	while (!begun && !sent->is_done)
		node_turn(&node);
	free((void *)(uintptr_t)sent->put.source);
	free(sent->put.buffer);
	return begun ? begun : sent->put.result;
}

static int send_one(uint32_t index, uint64_t wrong)
{
	struct sent sent;
	int r = begin_one(&sent, index, wrong);

	return wait_one(&sent, r);
}

Test(zero_import, what_is_whole_and_right_becomes_a_snapshot)
{
	struct zi_text text;
	uint32_t count;

	begin();
	count = source()->record->extent_count;
	cr_assert_eq(send_one(1, 1), -EBADMSG);
	for (uint32_t i = 0; i < count; i++)
		cr_assert_eq(send_one(i, 0), 0);
	cr_assert_eq(send_one(0, 0), -EALREADY);
	cr_assert_eq(zi_copy_name(kept.op.name, sizeof(kept.op.name), "b"), 0);
	kept.is_done = false;
	zero_import_end(import, &kept.op);
	cr_assert_eq(kept_wait(&node, &kept), 0, "%s", kept.op.text.chars);
	node_check_space(&node);
	model_attach(&node, others, 1,
	             &(struct attach_options){ .job = "other", .config = config });
	cr_assert_eq(zero_load(others[0].rank, "train", "b", &text), 0, "%s", text.chars);
	cr_assert_eq(model_materialize(others, 1), 0, "%s", others[0].text.chars);
	cr_assert(plain_equals(&plain, &others[0]));
	actor_leave(&others[0], true);
	end();
}

/* Three at once: the second is not what it says, and comes again; none is taken twice. */
Test(zero_import, several_are_under_way_and_each_has_its_own_answer)
{
	struct sent sent[3], again;
	uint32_t count;

	begin();
	count = source()->record->extent_count;
	cr_assert_geq(count, 3);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(begin_one(&sent[i], i, i == 1), 0);
	cr_assert_eq(wait_one(&again, begin_one(&again, 2, 0)), -EALREADY, "it is under way");
	for (uint32_t i = 3; i-- > 0;)
		cr_assert_eq(wait_one(&sent[i], 0), i == 1 ? -EBADMSG : 0, "extent %u", i);
	for (uint32_t i = 0; i < count; i++)
		cr_assert_eq(send_one(i, 0), i == 0 || i == 2 ? -EALREADY : 0, "extent %u", i);
	cr_assert_eq(zi_copy_name(kept.op.name, sizeof(kept.op.name), "b"), 0);
	kept.is_done = false;
	zero_import_end(import, &kept.op);
	cr_assert_eq(kept_wait(&node, &kept), 0, "%s", kept.op.text.chars);
	node_check_space(&node);
	end();
}

Test(zero_import, what_is_not_whole_leaves_nothing)
{
	uint64_t free_bytes;

	begin();
	free_bytes = tier_extent_free_bytes(&node.nvme);
	cr_assert_eq(send_one(0, 0), 0);
	cr_assert_eq(send_one(1, 1), -EBADMSG);
	kept.is_done = false;
	zero_import_end(import, &kept.op);
	cr_assert_eq(kept_wait(&node, &kept), -ENODATA);
	cr_assert_not_null(strstr(kept.op.text.chars, "were not sent"), "%s", kept.op.text.chars);
	cr_assert_null(snapshot_find(node.zero, "train", "b"));
	cr_assert_gt(tier_extent_free_bytes(&node.nvme), free_bytes);
	node_check_space(&node);
	end();
}
