/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: memory that ranks received stays while they may read it, and has no pages afterwards,
 * whoever has a descriptor. Method: the test keeps a descriptor of each segment, and looks at its
 * blocks when ranks have left, were replaced, or the daemon stops.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "daemon/tier/holder.h"
#include "tests/unit/zero/door.h"

static uint64_t held_bytes(int fd)
{
	struct stat status;

	cr_assert_eq(fstat(fd, &status), 0);
	return (uint64_t)status.st_blocks * 512;
}

Test(zero_held, that_ranks_received_has_no_pages_once_they_have_left)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	int fds[3];

	begin();
	model_begin(&node, actors, 2, &(struct attach_options){ .config = config });
	fds[0] = fcntl(actors[0].memory.param->region.fd, F_DUPFD_CLOEXEC, 0);
	for (uint32_t i = 0; i < 2; i++)
		fds[1 + i] = fcntl(actors[i].memory.grad->region.fd, F_DUPFD_CLOEXEC, 0);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_gt(held_bytes(fds[i]), 0);
	actor_leave(&actors[0], true);
	actor_leave(&actors[1], false);
	node_settle(&node);
	for (uint32_t i = 0; i < 3; i++) {
		cr_assert_eq(held_bytes(fds[i]), 0, "segment %u has pages", i);
		(void)close(fds[i]);
	}
	cr_assert_eq(tier_holders_count(node.holders), 0);
	cr_assert_eq(node.cpu.used_bytes, 0);
	cr_assert_gt(node.nvme.used_bytes, 0, "the job itself stays");
	node_deinit(&node);
}

/* A rank of the start before, which has not heard of it yet, may still be reading. */
Test(zero_held, of_a_replaced_start_stays_until_its_ranks_have_left)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	static struct actor next;
	uint64_t bytes;
	int fd;

	begin();
	model_begin(&node, actors, 1,
	            &(struct attach_options){ .config = config, .incarnation = "run.0" });
	bytes = actors[0].memory.grad->region.bytes;
	fd = fcntl(actors[0].memory.grad->region.fd, F_DUPFD_CLOEXEC, 0);
	model_attach(&node, &next, 1,
	             &(struct attach_options){ .config = config, .incarnation = "run.1" });
	cr_assert_eq(model_materialize(&next, 1), 0, "%s", next.text.chars);
	node_settle(&node);
	cr_assert(actors[0].is_broken);
	cr_assert_eq(held_bytes(fd), bytes);
	cr_assert_eq(tier_holders_lingering_bytes(node.holders, &node.cpu, NULL), bytes);
	actor_leave(&actors[0], true);
	node_settle(&node);
	cr_assert_eq(held_bytes(fd), 0);
	cr_assert_eq(tier_holders_lingering_bytes(node.holders, &node.cpu, NULL), 0);
	(void)close(fd);
	actor_leave(&next, true);
	node_settle(&node);
	node_deinit(&node);
}

static void quiesced(void *arg)
{
	*(bool *)arg = true;
}

/* They are about to hear that the daemon stops, and may be reading until then. */
Test(zero_held, of_a_daemon_that_stops_stays_with_the_ranks)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU);
	bool is_quiet = false;
	uint64_t bytes;
	int fd;

	begin();
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
	bytes = actors[0].memory.param->region.bytes;
	fd = fcntl(actors[0].memory.param->region.fd, F_DUPFD_CLOEXEC, 0);
	zero_quiesce(node.zero, quiesced, &is_quiet);
	node_settle(&node);
	cr_assert(is_quiet);
	leave_all();
	node_deinit(&node);
	cr_assert_eq(held_bytes(fd), bytes);
	(void)close(fd);
}

/* A layout of 176 bytes a parameter. */
Test(zero_held, of_a_large_layout_is_charged_as_long_as_the_job_has_it)
{
	struct attach_options options = { .world = 1,
		                          .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME) };
	uint64_t streamed_bytes;
	char name[32];

	node_init(&node);
	node.params_max = 1024;
	node_start(&node);
	cr_assert_eq(attach(0, options), 0);
	layout_unit(&actors[0], "unit");
	for (uint32_t i = 0; i < 1024; i++) {
		(void)snprintf(name, sizeof(name), "p%u", i);
		layout_param(&actors[0], name, 1, 4);
	}
	streamed_bytes = node.cpu.used_bytes;
	cr_assert_geq(streamed_bytes, 1024 * 176);
	/* What a try that fails gives back is the rank's again. */
	node.cpu.capacity_bytes = streamed_bytes + 4096;
	cr_assert_eq(actor_call(&actors[0], zero_materialize, NULL), -ENOSPC);
	cr_assert_eq(node.cpu.used_bytes, streamed_bytes);
	node.cpu.capacity_bytes = 256 * MIB;
	cr_assert_eq(actor_call(&actors[0], zero_materialize, NULL), 0, "%s", actors[0].text.chars);
	cr_assert_geq(node_job(&node, "train")->layout_charge.bytes, 1024 * 176);
	cr_assert_eq(actors[0].rank->stream_charge.bytes, 0, "paid for once");
	actor_leave(&actors[0], true);
	node_settle(&node);
	cr_assert_eq(node.cpu.used_bytes, 0);
	node_deinit(&node);
}
