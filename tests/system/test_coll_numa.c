/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the arena of a rank lies on the NUMA node that the rank is bound to, and is paid for there;
 * bound to no node it lies with the job, and without room there where more is left; `zctl` tells;
 * and calls of ranks on several nodes give what they should.
 * Method: a faked topology of two nodes with a CPU each, and ranks that are bound to one of these
 * CPUs, so that the daemon decides as on such a machine (pages lie wherever this machine has them).
 */
#include <sched.h>

#include "tests/system/coll.h"

TestSuite(coll_numa, .timeout = 120);

#define TWO_NODES "topology = synthetic:numa:2 pu:1\n"
#define ELEMENTS  300001u
#define ARENA     (8u << 20)

/* CPU of each rank; -1: unbound. */
static const int *bound_to;
static uint32_t world_opened;

static bool has_two_cpus(void)
{
	cpu_set_t cpus;

	return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_ISSET(0, &cpus) &&
	       CPU_ISSET(1, &cpus);
}

static int bind_to_cpu(int cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	return sched_setaffinity(0, sizeof(cpus), &cpus);
}

/* Sums that floats have exactly: any order gives them. Their bits are for check_coll. */
static float value(uint32_t rank, uint64_t index)
{
	return (float)((rank * 7u + index * 13u) % 1000u);
}

static float sum_of(uint32_t world, uint64_t index)
{
	float sum = 0;

	for (uint32_t i = 0; i < world; i++)
		sum += value(i, index);
	return sum;
}

static int call_all(struct coll_rank *self)
{
	uint32_t world = self->world, rank = self->rank;
	uint64_t count = ELEMENTS / world;
	float *data;

	coll_must(self, 0, zinf_coll_alloc(self->zinf, ELEMENTS * sizeof(*data), (void **)&data));
	for (uint64_t i = 0; i < ELEMENTS; i++)
		data[i] = value(rank, i);
	coll_must(self, 0,
	          zinf_coll_all_reduce(self->zinf, data, data, ELEMENTS, ZINF_F32, ZINF_SUM, NULL));
	for (uint64_t i = 0; i < ELEMENTS; i++)
		coll_check(self, data[i] == sum_of(world, i));
	for (uint64_t i = 0; i < ELEMENTS; i++)
		data[i] = value(rank, i);
	coll_must(self, 0,
	          zinf_coll_reduce_scatter(self->zinf, data, data + rank * count, count, ZINF_F32,
	                                   ZINF_SUM, NULL));
	for (uint64_t i = rank * count; i < (rank + 1) * count; i++)
		coll_check(self, data[i] == sum_of(world, i));
	coll_must(
		self, 0,
		zinf_coll_all_gather(self->zinf, data + rank * count, data, count, ZINF_F32, NULL));
	for (uint64_t i = 0; i < world * count; i++)
		coll_check(self, data[i] == sum_of(world, i));
	for (uint64_t i = 0; i < ELEMENTS; i++)
		data[i] = value(rank, i);
	coll_must(self, 0,
	          zinf_coll_broadcast(self->zinf, data, ELEMENTS, ZINF_F32, world - 1, NULL));
	for (uint64_t i = 0; i < ELEMENTS; i++)
		coll_check(self, data[i] == value(world - 1, i));
	return 0;
}

static int body(struct coll_rank *self)
{
	int r;

	if (bound_to[self->rank] >= 0)
		coll_check(self, bind_to_cpu(bound_to[self->rank]) == 0);
	coll_must(self, 0, zinf_coll_open(self->zinf, ARENA));
	r = call_all(self);
	if (r)
		return r;
	coll_check(self, coll_tell(self) == 0);
	coll_check(self, coll_await(self) == 0);
	return 0;
}

static void begin(struct coll_scene *scene, const int *cpus, uint32_t world, const char *capacity)
{
	if (!has_two_cpus())
		cr_skip_test("CPUs 0 and 1 are not both to be had here");
	bound_to = cpus;
	world_opened = world;
	coll_open_large_scene(scene, capacity);
	cr_assert_eq(harness_halt(&scene->harness), 0);
	scene->harness.options.daemon_extra = TWO_NODES;
	cr_assert_eq(harness_restart(&scene->harness), 0);
	scene->is_plain = true;
	coll_start(scene, world, body);
	coll_hear(scene, world);
}

static void end(struct coll_scene *scene)
{
	coll_let_go(scene, world_opened);
	for (uint32_t i = 0; i < world_opened; i++)
		coll_join_one(scene, i, 0);
	coll_close_scene(scene);
}

/* Of the job, as JSON: ["cpu:0","cpu:1"]. */
static void expect_tiers(struct coll_scene *scene, const char *expected)
{
	json_t *jobs = harness_admin(&scene->harness, "jobs collective --collectives");
	const json_t *collectives = json_object_get(json_array_get(jobs, 0), "collectives");
	char *tiers = json_dumps(json_object_get(collectives, "arena_tiers"), JSON_COMPACT);

	cr_assert_not_null(tiers);
	cr_expect_str_eq(tiers, expected);
	free(tiers);
	json_decref(jobs);
}

static uint64_t used_bytes(struct coll_scene *scene, const char *name)
{
	json_t *tiers = harness_admin(&scene->harness, "tiers"), *tier;
	uint64_t bytes = UINT64_MAX;
	size_t index;

	json_array_foreach(tiers, index, tier)
	{
		const char *is_called = json_string_value(json_object_get(tier, "name"));

		if (is_called && !strcmp(is_called, name))
			bytes = (uint64_t)json_integer_value(json_object_get(tier, "used_bytes"));
	}
	json_decref(tiers);
	return bytes;
}

Test(coll_numa, arenas_lie_and_are_paid_for_where_ranks_are_bound)
{
	const uint64_t arena_bytes = ARENA + (16u << 20); /* and its staging */
	struct coll_scene scene;
	char words[4096];

	begin(&scene, (const int[]){ 0, 0, 1, 1 }, 4, "512M");
	expect_tiers(&scene, "[\"cpu:0\",\"cpu:0\",\"cpu:1\",\"cpu:1\"]");
	/* And what is small: rings, boards. */
	for (uint32_t i = 0; i < 2; i++) {
		uint64_t bytes = used_bytes(&scene, i ? "cpu:1" : "cpu:0");

		cr_expect(bytes >= 2 * arena_bytes && bytes < 2 * arena_bytes + (2u << 20),
		          "cpu:%u: %llu bytes", i, (unsigned long long)bytes);
	}
	cr_assert_eq(
		harness_zctl(scene.harness.socket_path,
	                     (const char *const[]){ "jobs", "collective", "--collectives", NULL },
	                     words, sizeof(words)),
		0);
	cr_expect_not_null(strstr(words, "arenas of ranks 0, 1 lie on cpu:0\n"), "%s", words);
	cr_expect_not_null(strstr(words, "arenas of ranks 2, 3 lie on cpu:1\n"), "%s", words);
	end(&scene);
}

Test(coll_numa, ranks_in_any_order_and_unbound_ones)
{
	struct coll_scene scene;

	/* The job is on cpu:1, since rings lie on cpu:0. */
	begin(&scene, (const int[]){ 1, 0, -1, 0 }, 4, "512M");
	expect_tiers(&scene, "[\"cpu:1\",\"cpu:0\",\"cpu:1\",\"cpu:0\"]");
	end(&scene);
}

Test(coll_numa, without_room_there_they_lie_with_the_job)
{
	struct coll_scene scene;

	/* 80 MiB for each node: three of 24 MiB find room, the fourth goes elsewhere. */
	begin(&scene, (const int[]){ 1, 1, 1, 1 }, 4, "160M");
	expect_tiers(&scene, "[\"cpu:1\",\"cpu:1\",\"cpu:1\",\"cpu:0\"]");
	end(&scene);
}
