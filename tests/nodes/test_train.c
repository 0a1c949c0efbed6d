/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a training of eight ranks over four daemons, each in a network of its own, gives the bits
 * of the plain computation; where a node's link is cut, or its daemon killed, in the middle of a
 * step, every survivor is told which node it was, and the next start goes on to the same bits.
 * Method: as tests/system/test_far_train.c, in network namespaces (network.h).
 */
#include "tests/harness/network.h"
#include "tests/system/far.h"

TestSuite(train, .timeout = 400);

#define PER_NODE 2u
#define WORLD    (PER_NODE * NETWORK_NODES_MAX)
/* A deadline that passes; to begin takes a part of it on a crowded machine. */
#define CALL_MS 10000u

enum loss { LOSS_NONE, LOSS_CABLE, LOSS_DAEMON };

static struct {
	struct network network;
	struct harness harness[NETWORK_NODES_MAX];
	uint32_t port;
	/* What is lost, by rank 0 at that point of that step, and of which node. */
	enum loss loss;
	uint32_t node;
	enum trainer_point point;
} scene;

/* Of steps 1 to 5. */
#define LOSS_STEP 3

static void start_node(uint32_t node, bool is_again)
{
	network_enter(scene.network.nodes[node]);
	if (is_again)
		cr_assert_eq(harness_restart(&scene.harness[node]), 0);
	else
		system_start(&scene.harness[node], &(struct harness_options){ .nvme_size = "32M" });
	network_enter(scene.network.home);
}

static bool open_scene(void)
{
	const char *missing = network_missing();

	if (!far_is_built())
		missing = "zinf-net is not built (libgloo-dev)";
	if (missing) {
		cr_skip_test("%s", missing);
		return false;
	}
	memset(&scene, 0, sizeof(scene));
	cr_assert_eq(network_init(&scene.network, NETWORK_NODES_MAX), 0);
	scene.port = harness_free_port();
	for (uint32_t i = 0; i < NETWORK_NODES_MAX; i++)
		start_node(i, false);
	return true;
}

static void close_scene(void)
{
	for (uint32_t i = 0; i < NETWORK_NODES_MAX; i++)
		cr_assert_eq(harness_stop(&scene.harness[i]), 0, "node %u", i);
	network_deinit(&scene.network);
}

/* In the process of a rank, which learns where it is as launchers tell it. */
static void at_point(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	(void)arg;
	if (point == TRAINER_BORN) {
		(void)setenv("ZINF_SOCKET", scene.harness[trainer->rank / PER_NODE].socket_path, 1);
		(void)setenv("MASTER_ADDR", "10.99.0.1", 1);
		far_set_number("MASTER_PORT", scene.port - 1);
		far_set_number("LOCAL_WORLD_SIZE", PER_NODE);
	}
	if (trainer->rank != 0 || point != scene.point || trainer->step != LOSS_STEP)
		return;
	if (scene.loss == LOSS_CABLE && network_plug(&scene.network, scene.node, false))
		abort();
	if (scene.loss == LOSS_DAEMON)
		(void)kill(scene.harness[scene.node].pid, SIGKILL); /* Or the test fails. */
}

static struct trainer_settings settings_of(uint32_t strategy, enum zinf_offload offload)
{
	struct trainer_settings settings = ranks_settings(&scene.harness[0], "far", WORLD);

	settings.options.socket_path = NULL;
	settings.options.strategy = strategy;
	settings.options.param_dtype = settings.options.grad_dtype = ZINF_BF16;
	settings.options.offload_optimizer = offload;
	settings.options.staging_bytes = offload == ZINF_OFFLOAD_NVME ? 12 << 20 : 0;
	settings.step.max_norm = 1.0;
	settings.steps = 5;
	settings.hook = at_point;
	return settings;
}

static void train_to_the_end(const struct trainer_settings *settings, int64_t first_step)
{
	struct ranks ranks;

	cr_assert_eq(ranks_start(&ranks, settings), 0);
	cr_assert_eq(ranks_join(&ranks), 0);
	cr_assert(ranks_are_right(&ranks));
	for (uint32_t i = 0; i < WORLD; i++)
		cr_assert_geq(ranks.reports[i]->first_steps[0], first_step, "rank %u", i);
	ranks_free(&ranks);
}

/* All of other nodes name the one that is lost; its own ranks have any error. */
static void lose(enum loss loss, uint32_t node, enum trainer_point point,
                 struct trainer_settings settings)
{
	struct ranks ranks;
	char name[32];

	scene.loss = loss;
	scene.node = node;
	scene.point = point;
	settings.options.incarnation = "first";
	settings.options.timeout_ms = CALL_MS;
	(void)snprintf(name, sizeof(name), "node %u (", node);
	cr_assert_eq(ranks_start(&ranks, &settings), 0);
	for (uint32_t i = 0; i < WORLD; i++) {
		const struct trainer_report *report = ranks.reports[i];

		cr_assert_eq(ranks_wait(&ranks, i), 1, "rank %u: %s", i, report->text);
		cr_expect(i / PER_NODE == node || strstr(report->text, name),
		          "rank %u: '%s' is not in: %s", i, name, report->text);
		cr_expect_leq(report->step, LOSS_STEP, "rank %u", i);
	}
	ranks_free(&ranks);
	scene.loss = LOSS_NONE;
}

static void lose_and_go_on(enum loss loss, uint32_t node, enum trainer_point point,
                           uint32_t strategy, enum zinf_offload offload)
{
	struct trainer_settings settings;

	if (!open_scene())
		return;
	settings = settings_of(strategy, offload);
	lose(loss, node, point, settings);
	if (loss == LOSS_CABLE) {
		cr_assert_eq(network_plug(&scene.network, node, true), 0);
	} else {
		harness_kill(&scene.harness[node]);
		start_node(node, true);
	}
	settings.options.incarnation = "second";
	train_to_the_end(&settings, LOSS_STEP - 1);
	close_scene();
}

Test(train, four_networks_train_the_bits_of_one_place)
{
	struct trainer_settings settings;

	if (!open_scene())
		return;
	settings = settings_of(ZINF_ZERO3, ZINF_OFFLOAD_NVME);
	train_to_the_end(&settings, -1);
	close_scene();
}

Test(train, a_slow_link_is_waited_for)
{
	struct trainer_settings settings;

	if (!open_scene())
		return;
	cr_assert_eq(network_limit(&scene.network, 2, 20), 0);
	settings = settings_of(ZINF_ZERO2, ZINF_OFFLOAD_CPU);
	train_to_the_end(&settings, -1);
	close_scene();
}

Test(train, a_cut_link_costs_a_step_at_most)
{
	lose_and_go_on(LOSS_CABLE, 3, TRAINER_REDUCED, ZINF_ZERO2, ZINF_OFFLOAD_NVME);
	lose_and_go_on(LOSS_CABLE, 1, TRAINER_STEPPED, ZINF_ZERO1, ZINF_OFFLOAD_NVME);
}

Test(train, a_cut_link_leaves_divided_parameters_whole)
{
	lose_and_go_on(LOSS_CABLE, 2, TRAINER_UNSHARDED, ZINF_ZERO3, ZINF_OFFLOAD_CPU);
}

Test(train, a_killed_daemon_costs_a_step_at_most)
{
	lose_and_go_on(LOSS_DAEMON, 3, TRAINER_REDUCED, ZINF_ZERO3, ZINF_OFFLOAD_NVME);
	lose_and_go_on(LOSS_DAEMON, 2, TRAINER_STEPPED, ZINF_DDP, ZINF_OFFLOAD_NVME);
}

/* Nodes meet there: when it is gone no store is left to say so. */
Test(train, the_first_daemon_is_no_other)
{
	lose_and_go_on(LOSS_DAEMON, 0, TRAINER_BACKWARD, ZINF_ZERO1, ZINF_OFFLOAD_NVME);
}
