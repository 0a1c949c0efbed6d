/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: four ranks train one model as a grid of 2 × 2, tensor-parallel or pipeline-parallel by
 * data-parallel, with sets of ranks for gradients and collectives in sub-groups for what the parts
 * exchange, to the parameters, losses and norms of a plain run of the whole model. Method: a net
 * whose sums are all exact, as the plain run says itself (grid.h): whatever the order, all must be
 * equal bit for bit.
 */
#include "tests/harness/port.h"
#include "tests/system/grid_ranks.h"

/* ---- the tests ---- */

static int destroy_body(void *arg)
{
	struct coll_rank *self = arg;

	self->world = 1;
	if (attach(self))
		return 1;
	coll_must(self, 0, zinf_destroy_job(self->zinf));
	return 0;
}

static void train(struct coll_scene *scene, int (*body)(void *arg))
{
	struct coll_rank first = { .scene = scene };

	scene->world = 4;
	scene->incarnation = "train";
	for (uint32_t i = 0; i < 4; i++) {
		struct coll_rank child = { .scene = scene, .rank = i, .world = 4 };

		scene->shared->pids[i] = harness_fork(body, &child);
		cr_assert_gt(scene->shared->pids[i], 0);
	}
	for (uint32_t i = 0; i < 4; i++)
		coll_join_one(scene, i, 0);
	if (far.places)
		return; /* Each run has a job of its own. */
	scene->incarnation = "destroy";
	cr_assert_eq(harness_wait(harness_fork(destroy_body, &first), 20000), 0);
}

static void train_everywhere(int (*body)(void *arg))
{
	static const enum zinf_strategy strategies[] = { ZINF_DDP, ZINF_ZERO1, ZINF_ZERO2,
		                                         ZINF_ZERO3 };
	static const enum zinf_offload places[] = { ZINF_OFFLOAD_NONE, ZINF_OFFLOAD_NVME };
	struct coll_scene scene;

	plain_run(&plain);
	coll_open_scene_with(&scene, &(struct harness_options){ .nvme_size = "64M" });
	for (uint32_t i = 0; i < ZI_COUNT_OF(strategies); i++)
		for (uint32_t k = 0; k < ZI_COUNT_OF(places); k++) {
			strategy = strategies[i];
			offload = places[k];
			train(&scene, body);
		}
	coll_close_scene(&scene);
}

TestSuite(grid, .timeout = 300);

Test(grid, tensors_in_two_times_two_replicas_are_the_plain_run)
{
	train_everywhere(tensor_body);
}

Test(grid, stages_in_two_times_two_replicas_are_the_plain_run)
{
	train_everywhere(pipeline_body);
}

/* ---- over two nodes ---- */

static void train_over_nodes(int (*body)(void *arg), const char *places)
{
	static const enum zinf_strategy strategies[] = { ZINF_DDP, ZINF_ZERO1, ZINF_ZERO3 };
	struct coll_scene scene;

	far_need_net();
	plain_run(&plain);
	coll_open_scene_with(&scene, &(struct harness_options){ .nvme_size = "64M" });
	system_start(&far.harness, &(struct harness_options){ .nvme_size = "64M" });
	far.places = places;
	for (uint32_t i = 0; i < ZI_COUNT_OF(strategies); i++)
		for (uint32_t k = 0; k < 2; k++) {
			strategy = strategies[i];
			offload = k ? ZINF_OFFLOAD_NVME : ZINF_OFFLOAD_NONE;
			far.port = harness_free_port();
			(void)snprintf(far.job, sizeof(far.job), "grid%u%u", i, k);
			train(&scene, body);
		}
	cr_assert_eq(harness_stop(&far.harness), 0);
	coll_close_scene(&scene);
}

/* Parts of a tensor meet within their node, replicas across; then the other way round. */
Test(grid, tensors_within_nodes_and_replicas_across)
{
	train_over_nodes(tensor_body, "0011");
}

Test(grid, tensors_across_nodes_and_replicas_within)
{
	train_over_nodes(tensor_body, "0101");
}

/* A stage to a node; then a replica to a node. */
Test(grid, stages_on_nodes_of_their_own)
{
	train_over_nodes(pipeline_body, "0011");
}

Test(grid, stages_across_nodes)
{
	train_over_nodes(pipeline_body, "0101");
}
