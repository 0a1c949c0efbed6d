/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a daemon that starts finds a job of 10^5 extents at its last committed step in less than
 * two seconds. Method: such a job, 13 G parameters, is put into a catalog through the catalog's own
 * interface; the store only claims to have the room, as nothing of it is read. The time is printed;
 * what fails is ten seconds of CPU time, as the machine may be slow, and busy.
 */
#include "daemon/tier/stripe.h"
#include "tests/harness/cpu_time.h"
#include "tests/unit/zero/node.h"

#define UNITS         100u
#define UNIT_COUNT    500u /* subgroups of a unit */
#define SUBGROUPS     (UNITS * UNIT_COUNT)
#define EXTENTS       (2 * SUBGROUPS)
#define TILES         (ZI_SUBGROUP_ELEMENTS / ZI_TILE_ELEMENTS)
#define TIME_LIMIT_NS (10 * ZI_NS_PER_S)

static struct node node;

static struct catalog_unit units[UNITS];
static struct catalog_param params[UNITS];
static struct catalog_extent extents[EXTENTS];
static uint64_t hashes[TILES];

static void fill(struct catalog_job *job)
{
	uint64_t offset_bytes = NVME_SUPERBLOCK_BYTES;

	for (uint32_t i = 0; i < UNITS; i++) {
		(void)snprintf(units[i].name, sizeof(units[i].name), "layer.%u", i);
		(void)snprintf(params[i].name, sizeof(params[i].name), "layer.%u.weight", i);
		params[i].unit = i;
		params[i].dim_count = 2;
		params[i].shape[0] = UNIT_COUNT;
		params[i].shape[1] = ZI_SUBGROUP_ELEMENTS;
	}
	for (uint32_t i = 0; i < EXTENTS; i++) {
		bool is_state = i % 2;
		uint64_t bytes = ZI_SUBGROUP_ELEMENTS * (is_state ? 10ull : 2ull);

		extents[i] = (struct catalog_extent){
			.unit = i / 2 / UNIT_COUNT,
			.subgroup = i / 2 % UNIT_COUNT,
			.plane = is_state ? ZI_PLANE_STATE : ZI_PLANE_PARAM,
			.extent = { offset_bytes, bytes },
			.step = 7,
			.hash_count = TILES,
			.hashes = hashes,
		};
		memcpy(extents[i].store_uuid, node.uuids[i % node.store_count], 16);
		offset_bytes += bytes;
	}
	*job = (struct catalog_job){
		.name = "large",
		.world_size = 8,
		.config = { ZI_DTYPE_BF16, ZI_DTYPE_BF16, ZI_OPTIMIZER_ADAMW, ZI_SCHEDULE_LOCAL,
		            ZI_OFFLOAD_NVME, ZI_OFFLOAD_CPU, ZI_DURABILITY_PROCESS },
		.step = -1,
		.beta1_power = 1,
		.beta2_power = 1,
		.unit_count = UNITS,
		.param_count = UNITS,
		.units = units,
		.params = params,
		.extents = extents,
	};
}

struct waited {
	struct catalog_request request;
	bool is_done;
};

static void done(struct catalog_request *request)
{
	container_of(request, struct waited, request)->is_done = true;
}

static void put(const struct catalog_job *job, enum catalog_request_kind kind)
{
	struct waited waited = { .request = { .kind = kind, .job = job, .done = done } };
	uint64_t deadline_ns = zi_clock_deadline_ns(3 * TURN_LIMIT_NS);

	waited.request.loop = node.loop;
	catalog_submit(node.catalog, &waited.request);
	while (!waited.is_done) {
		node_turn(&node);
		cr_assert_lt(zi_clock_now_ns(), deadline_ns);
	}
	cr_assert_eq(waited.request.result, 0, "%s", waited.request.text.chars);
}

static void recover_from(uint32_t store_count)
{
	struct catalog_job job;
	const struct zero_job *found;
	uint64_t started_ns, took_ns, cpu_ns;

	node_init(&node);
	node.store_count = store_count;
	node.pretended_bytes = 400ull << 30;
	node_start(&node);
	fill(&job);
	put(&job, CATALOG_JOB_CREATE);
	job.step = 7;
	job.extent_count = EXTENTS;
	put(&job, CATALOG_COMMIT);
	node_stop(&node);
	started_ns = zi_clock_now_ns();
	cpu_ns = process_cpu_ns();
	node_start(&node);
	cpu_ns = process_cpu_ns() - cpu_ns;
	took_ns = zi_clock_now_ns() - started_ns;
	printf("recovery of %u extents on %u paths: %.2f s, %.2f s of CPU time\n", EXTENTS,
	       store_count, (double)took_ns / (double)ZI_NS_PER_S,
	       (double)cpu_ns / (double)ZI_NS_PER_S);
	found = node_job(&node, "large");
	cr_assert_not_null(found);
	cr_assert_eq(found->refusal, 0, "%s", found->refusal_text.chars);
	cr_assert_eq(found->committed_step, 7);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme) +
	                     SUBGROUPS * (ZI_SUBGROUP_ELEMENTS * 12ull),
	             node.nvme.capacity_bytes);
	cr_assert_lt(cpu_ns, TIME_LIMIT_NS, "%.2f s", (double)cpu_ns / (double)ZI_NS_PER_S);
	node_deinit(&node);
}

Test(zero_recover_large, job_of_1e5_extents_is_there_in_two_seconds)
{
	recover_from(1);
}

Test(zero_recover_large, spread_over_three_paths_as_well)
{
	recover_from(NODE_STORES);
}
