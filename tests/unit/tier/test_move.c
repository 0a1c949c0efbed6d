/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: bytes reach a store and come back, are counted on the tier, and every refusal is told once.
 * Method: a small store, the real engine with blocking threads beneath; errors by the faulty
 * backend.
 */
#include <poll.h>
#include <stdio.h>

#include "daemon/tier/move.h"
#include "daemon/tier/stripe.h"
#include "tests/guard/guard.h"
#include "tests/unit/tier/fixture.h"

struct disk {
	char directory[64], path[96];
	struct nvme_store *store;
	struct nvme_engine *engine;
	struct tier tier;
	struct tier_move move;
	uint32_t done_count;
};

static void disk_init(struct disk *disk, const char *backend)
{
	struct zi_text text = { "" };

	*disk = (struct disk){ .done_count = 0 };
	cr_assert_not_null(mkdtemp(guard_path(disk->directory, sizeof(disk->directory), "tier")));
	(void)snprintf(disk->path, sizeof(disk->path), "%s/store", disk->directory);
	cr_assert_eq(nvme_store_open(&(struct nvme_store_options){ .name = "fast",
	                                                           .path = disk->path,
	                                                           .bytes = 4 * MIB },
	                             &text, &disk->store),
	             0, "%s", text.chars);
	cr_assert_eq(nvme_engine_new(&(struct nvme_engine_options){ .backend = backend }, &text,
	                             &disk->engine),
	             0, "%s", text.chars);
	cr_assert_eq(nvme_engine_register_store(disk->engine, disk->store), 0);
	cr_assert_eq(tier_init_nvme(&disk->tier, disk->store->name, 0), 0);
	cr_assert_eq(tier_member_add_store(&disk->tier, disk->store), 0);
}

static void disk_deinit(struct disk *disk)
{
	tier_deinit(&disk->tier);
	disk->engine = nvme_engine_free(disk->engine);
	disk->store = nvme_store_close(disk->store);
	cr_assert_eq(unlink(disk->path), 0);
	cr_assert_eq(rmdir(disk->directory), 0);
}

static void move_done(struct tier_move *move)
{
	container_of(move, struct disk, move)->done_count++;
}

static int move(struct disk *disk, bool is_write, uint64_t offset, void *buffer, uint64_t bytes)
{
	int r;

	disk->move = (struct tier_move){ .member = &disk->tier.members[0],
		                         .is_write = is_write,
		                         .offset_bytes = offset,
		                         .buffer = buffer,
		                         .bytes = bytes,
		                         .done = move_done };
	r = tier_move_submit(disk->engine, &disk->move);
	if (r)
		return r;
	tier_move_kick(disk->engine);
	while (nvme_engine_inflight_count(disk->engine))
		(void)nvme_engine_wait(disk->engine);
	return disk->move.result;
}

Test(move, bytes_reach_the_store_and_come_back_and_are_counted)
{
	struct disk disk;
	struct tier_extent extent;
	char *source = aligned_alloc(4096, 65536), *target = aligned_alloc(4096, 65536);

	disk_init(&disk, "threads");
	cr_assert_str_eq(disk.tier.name, "nvme:fast");
	cr_assert_eq(disk.tier.capacity_bytes, nvme_space_total_bytes(disk.tier.members[0].space));
	memset(source, 'x', 65536);
	memset(target, 0, 65536);
	cr_assert_eq(tier_extent_reserve(&disk.tier, 0, 65536, &extent), 0);
	cr_assert_eq(move(&disk, true, extent.offset_bytes, source, 65536), 0);
	cr_assert_eq(move(&disk, false, extent.offset_bytes, target, 65536), 0);
	cr_assert_eq(memcmp(source, target, 65536), 0);
	cr_assert_eq(disk.done_count, 2);
	cr_assert_eq(disk.tier.write_bytes, 65536);
	cr_assert_eq(disk.tier.read_bytes, 65536);
	cr_assert_str_eq(disk.tier.members[0].path, disk.path);
	cr_assert_eq(memcmp(disk.tier.members[0].uuid, disk.store->uuid, 16), 0);
	tier_extent_release(&extent);
	cr_assert_eq(extent.bytes, 0);
	tier_extent_release(&extent);
	free(source);
	free(target);
	disk_deinit(&disk);
}

Test(move, outside_the_store_or_misaligned_is_refused_and_never_told)
{
	struct disk disk;
	char *buffer = aligned_alloc(4096, 4096);

	disk_init(&disk, "threads");
	cr_assert_eq(move(&disk, false, 1ull << 40, buffer, 4096), -EINVAL);
	cr_assert_eq(move(&disk, false, 4097, buffer, 4096), -EINVAL);
	cr_assert_eq(disk.done_count, 0);
	free(buffer);
	disk_deinit(&disk);
}

Test(move, failure_of_the_disk_is_the_result_and_is_not_counted)
{
	struct disk disk;
	char *buffer = aligned_alloc(4096, 4096);

	disk_init(&disk, "faulty:over=threads,write_eio_at=1");
	memset(buffer, 1, 4096);
	cr_assert_eq(move(&disk, true, 8192, buffer, 4096), -EIO);
	cr_assert_eq(disk.done_count, 1);
	cr_assert_eq(disk.tier.write_bytes, 0);
	free(buffer);
	disk_deinit(&disk);
}

Test(move, a_full_store_is_a_condition)
{
	struct disk disk;
	struct tier_extent extent = { 0 }, other = { 0 };

	disk_init(&disk, "threads");
	cr_assert_eq(tier_extent_reserve(&disk.tier, 0, 64 * MIB, &extent), TIER_E_FULL);
	cr_assert_eq(extent.bytes, 0);
	cr_assert_eq(
		tier_extent_reserve(&disk.tier, 0, tier_extent_free_bytes(&disk.tier), &extent), 0);
	cr_assert_eq(tier_extent_reserve(&disk.tier, 0, 4096, &other), TIER_E_FULL);
	tier_extent_release(&extent);
	disk_deinit(&disk);
}

Test(move, an_extent_is_claimed_once)
{
	struct disk disk;
	struct tier_extent extent = { .offset_bytes = 8192, .bytes = 4096 };
	struct tier_extent outside = { .offset_bytes = 1ull << 40, .bytes = 4096 };

	disk_init(&disk, "threads");
	extent.member = outside.member = &disk.tier.members[0];
	cr_assert_eq(tier_extent_claim(&extent), 0);
	cr_assert_eq(tier_extent_claim(&extent), -EUCLEAN);
	cr_assert_eq(tier_extent_claim(&outside), -EUCLEAN);
	tier_extent_release(&extent);
	disk_deinit(&disk);
}

Test(move, a_store_name_that_is_too_long_for_a_tier_is_refused)
{
	char name[ZI_NAME_BYTES] = "";
	struct tier tier;

	memset(name, 'x', sizeof(name) - 1);
	cr_assert_eq(tier_init_nvme(&tier, name, 0), -ENAMETOOLONG);
}
