/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: ranks on several nodes that train nothing use the parameters that they were given, with
 * every strategy, from memory and from the stores of all nodes; what is on the stores outlives the
 * daemons; what a node holds is what zctl estimate says. Method: daemons on the loopback interface,
 * whose workers talk over Gloo; the ranks are processes of this test.
 */
#include <errno.h>
#include <poll.h>

#include "common/base/cleanup.h"
#include "tests/system/far_node.h"

#define NODES    2u
#define PER_NODE 2u
#define WORLD    (NODES * PER_NODE)
#define UNITS    5u
#define ELEMENTS 300000u

static struct {
	struct harness harness[NODES];
	uint32_t port, start;
	enum zinf_strategy strategy;
	enum zinf_offload offload, offload_param;
	bool is_again; /* the job is there */
	int tell_fds[2], go_fds[2];
} scene;

TestSuite(far_forward, .timeout = 240);

static uint16_t value_of(uint32_t unit, uint32_t element)
{
	return (uint16_t)(unit * 7919 + element * 31 + element / 4096);
}

static int give(struct zinf *zinf, uint32_t unit, uint32_t root, uint32_t rank)
{
	uint16_t *data;
	int r = 0;

	if (rank == root) {
		r = zinf_param_write_begin(zinf, unit);
		data = r ? NULL : (uint16_t *)zinf_param_data(zinf, unit);
		for (uint32_t i = 0; i < ELEMENTS && !r; i++)
			data[i] = value_of(unit, i);
	}
	return r ? r : zinf_param_write_end(zinf, unit, root);
}

static int look(struct zinf *zinf, uint32_t unit)
{
	const uint16_t *data;
	int r = zinf_unshard(zinf, unit);

	if (r)
		return r;
	data = zinf_param_data(zinf, unit);
	for (uint32_t i = 0; i < ELEMENTS; i++)
		if (data[i] != value_of(unit, i))
			return -EUCLEAN;
	return zinf_reshard(zinf, unit);
}

static int use(struct zinf *zinf, uint32_t rank)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	uint32_t index;
	int r = 0;
	char byte;

	for (uint32_t i = 0; i < UNITS && !r; i++) {
		char name[8];

		(void)snprintf(name, sizeof(name), "u%u", i); /* Fits. */
		r = zinf_unit_add(zinf, name, &index);
		r = r ? r : zinf_param_add(zinf, name, 1, (uint64_t[]){ ELEMENTS }, &index);
	}
	r = r ? r : zinf_materialize(zinf);
	for (uint32_t i = 0; i < UNITS && !r && !scene.is_again; i++)
		r = give(zinf, i, i % WORLD, rank);
	if (!scene.is_again)
		r = r ? r : zinf_commit(zinf, NULL, 0);
	for (uint32_t i = 0; i < 3 * UNITS && !r; i++)
		r = look(zinf, i % UNITS);
	if (!r && zinf_step_begin(zinf, &options) != -EPERM)
		r = -ENOTRECOVERABLE;
	/* What they hold is looked at now. */
	if (!r && (write(scene.tell_fds[1], "x", 1) != 1 || read(scene.go_fds[0], &byte, 1) != 1))
		r = -EIO;
	return r ? r : zinf_barrier(zinf);
}

static int rank_body(void *arg)
{
	uint32_t rank = *(const uint32_t *)arg;
	struct zinf_options options = ZINF_OPTIONS_INIT;
	char incarnation[16];
	struct zinf *zinf;
	int r;

	far_set_place(&scene.harness[rank / PER_NODE], scene.port, PER_NODE);
	(void)snprintf(incarnation, sizeof(incarnation), "i%u", scene.start); /* Fits. */
	options.job = "look";
	options.incarnation = incarnation;
	options.rank = (int32_t)rank;
	options.world_size = (int32_t)WORLD;
	options.param_dtype = options.grad_dtype = ZINF_BF16;
	options.strategy = scene.strategy;
	options.offload_optimizer = scene.offload;
	options.offload_param = scene.offload_param;
	options.staging_bytes = scene.offload == ZINF_OFFLOAD_NVME ? 4 << 20 : 0;
	options.is_forward_only = true;
	options.timeout_ms = 30000;
	r = zinf_attach(&options, &zinf);
	if (r) {
		(void)fprintf(stderr, "rank %u: %s\n", rank, zinf_attach_error());
		return 3;
	}
	r = use(zinf, rank);
	if (r)
		(void)fprintf(stderr, "rank %u: %d: %s\n", rank, r, zinf_error_text(zinf));
	zinf_detach(zinf);
	return r ? 1 : 0;
}

static uint64_t bytes_of(const json_t *object, const char *plane, const char *tier)
{
	return (uint64_t)json_integer_value(
		json_object_get(json_object_get(json_object_get(object, "held"), plane), tier));
}

/* Of the first node, which what estimates say is of. */
static void compare_with_estimate(void)
{
	static const char *const planes[] = { "param", "grad",    "reduced_grad",
		                              "state", "staging", "collectives" };
	static const char *const offloads[] = { "none", "cpu", "nvme" };
	char line[300];
	json_t *jobs = harness_admin(&scene.harness[0], "jobs"), *estimate;
	const json_t *held = json_array_get(jobs, 0);

	(void)snprintf(line, sizeof(line),
	               "estimate 1500000 --units %u --forward-only --ranks %u --nodes %u "
	               "--strategy %s --dtype bf16 --offload-optimizer %s --offload-param %s "
	               "--staging 4M",
	               UNITS, PER_NODE, NODES, scene.strategy == ZINF_DDP ? "ddp" : "zero3",
	               offloads[scene.offload], offloads[scene.offload_param]);
	estimate = harness_admin(&scene.harness[0], line);
	cr_assert_not_null(estimate, "%s", line);
	for (size_t i = 0; i < ZI_COUNT_OF(planes); i++) {
		cr_expect_eq(bytes_of(held, planes[i], "cpu_bytes"),
		             bytes_of(estimate, planes[i], "cpu_bytes"), "%s: %s: %lu, %lu", line,
		             planes[i], bytes_of(held, planes[i], "cpu_bytes"),
		             bytes_of(estimate, planes[i], "cpu_bytes"));
		cr_expect_eq(bytes_of(held, planes[i], "nvme_bytes"),
		             bytes_of(estimate, planes[i], "nvme_bytes"), "%s: %s", line,
		             planes[i]);
	}
	json_decref(jobs);
	json_decref(estimate);
}

/* A start of the job. @is_measured: what it holds is what an estimate says. */
static void run(bool is_measured)
{
	pid_t pids[WORLD];
	char byte;

	scene.start++;
	for (uint32_t i = 0; i < WORLD; i++) {
		pids[i] = harness_fork(rank_body, &i);
		cr_assert_gt(pids[i], 0);
	}
	for (uint32_t i = 0; i < WORLD; i++) {
		struct pollfd poll_fd = { .fd = scene.tell_fds[0], .events = POLLIN };

		if (poll(&poll_fd, 1, FAR_JOIN_MS) != 1)
			break; /* Whoever has failed says so. */
		cr_assert_eq(read(scene.tell_fds[0], &byte, 1), 1);
		if (i + 1 == WORLD && is_measured)
			compare_with_estimate();
	}
	cr_assert_eq(write(scene.go_fds[1], "gogo", WORLD), (ssize_t)WORLD);
	for (uint32_t i = 0; i < WORLD; i++) {
		int r = harness_wait(pids[i], FAR_JOIN_MS);

		if (r)
			harness_print_log(&scene.harness[i / PER_NODE]);
		cr_assert_eq(r, 0, "rank %u ended with %d", i, r);
	}
}

static void open_scene(void)
{
	far_need_net();
	memset(&scene, 0, sizeof(scene));
	scene.port = harness_free_port();
	for (uint32_t i = 0; i < NODES; i++)
		system_start(&scene.harness[i], &(struct harness_options){ .nvme_size = "32M" });
	cr_assert_eq(pipe(scene.tell_fds), 0);
	cr_assert_eq(pipe(scene.go_fds), 0);
}

static void close_scene(void)
{
	for (uint32_t i = 0; i < NODES; i++)
		cr_assert_eq(harness_stop(&scene.harness[i]), 0, "node %u", i);
	for (uint32_t i = 0; i < 2; i++) {
		close(scene.tell_fds[i]);
		close(scene.go_fds[i]);
	}
}

static const struct {
	enum zinf_strategy strategy;
	enum zinf_offload offload, offload_param;
} cases[] = {
	{ ZINF_DDP, ZINF_OFFLOAD_CPU, ZINF_OFFLOAD_NONE },
	{ ZINF_ZERO3, ZINF_OFFLOAD_CPU, ZINF_OFFLOAD_NONE },
	{ ZINF_DDP, ZINF_OFFLOAD_NVME, ZINF_OFFLOAD_NVME },
	{ ZINF_ZERO3, ZINF_OFFLOAD_NVME, ZINF_OFFLOAD_CPU },
	{ ZINF_ZERO3, ZINF_OFFLOAD_NVME, ZINF_OFFLOAD_NVME },
};

Test(far_forward, parameters_are_used_wherever_they_are)
{
	for (size_t i = 0; i < ZI_COUNT_OF(cases); i++) {
		open_scene();
		scene.strategy = cases[i].strategy;
		scene.offload = cases[i].offload;
		scene.offload_param = cases[i].offload_param;
		run(true);
		scene.is_again = true;
		for (uint32_t k = 0; k < NODES && scene.offload == ZINF_OFFLOAD_NVME; k++) {
			cr_assert_eq(harness_halt(&scene.harness[k]), 0);
			cr_assert_eq(harness_restart(&scene.harness[k]), 0);
		}
		run(false);
		close_scene();
	}
}
