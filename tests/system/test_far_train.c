/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: ranks on several nodes train the bits of the plain computation, with nothing set but what
 * launchers set, in every strategy, with state in memory and on NVMe; a rank, a worker or a daemon
 * that is killed in the middle of a step is told to all ranks that live, and the next start goes on
 * and ends in the same bits. Method: daemons on the loopback interface, whose workers talk over
 * Gloo; ranks of the made-up trainer, which open no collectives.
 */
#include <signal.h>

#include "common/base/cleanup.h"
#include "tests/harness/ranks.h"
#include "tests/system/far_node.h"

#define NODES 3u

enum loss { LOSS_NONE, LOSS_RANK, LOSS_WORKER, LOSS_DAEMON, _LOSS_COUNT };

static struct {
	struct harness harness[NODES];
	uint32_t node_count, per_node, port;
	bool stores_param; /* with parameters on NVMe */
	bool is_turned;    /* the first ranks are on the last node */
	/* What is lost, and when: at that point of that step of rank 0, on the last node. */
	enum loss loss;
	enum trainer_point point;
	int64_t step;
} scene;

TestSuite(far_train, .timeout = 300);

static void open_scene(uint32_t node_count, uint32_t per_node)
{
	far_need_net();
	memset(&scene, 0, sizeof(scene));
	scene.node_count = node_count;
	scene.per_node = per_node;
	scene.port = harness_free_port();
	for (uint32_t i = 0; i < node_count; i++)
		system_start(&scene.harness[i], &(struct harness_options){ .nvme_size = "32M" });
}

static void close_scene(void)
{
	for (uint32_t i = 0; i < scene.node_count; i++)
		cr_assert_eq(harness_stop(&scene.harness[i]), 0, "node %u", i);
}

/* In the process of rank 0. */
static void lose(void)
{
	const struct harness *last = &scene.harness[scene.node_count - 1];

	if (scene.loss == LOSS_DAEMON)
		(void)kill(last->pid, SIGKILL); /* It lives, or the test fails by itself. */
	else if (scene.loss == LOSS_WORKER)
		(void)kill(far_child_of(last->pid, "zinf-net"), SIGKILL);
}

/* A rank learns where it is as launchers tell it. */
static void at_point(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	uint32_t its = trainer->rank / scene.per_node;
	uint32_t node = scene.is_turned ? scene.node_count - 1 - its : its;
	uint32_t world = scene.per_node * scene.node_count;

	(void)arg;
	if (point == TRAINER_BORN)
		far_set_place(&scene.harness[node], scene.port, scene.per_node);
	if (scene.loss == LOSS_NONE || point != scene.point || trainer->step != scene.step)
		return;
	if (trainer->rank == 0)
		lose();
	else if (scene.loss == LOSS_RANK && trainer->rank == world - 1)
		(void)raise(SIGKILL);
}

static struct trainer_settings settings_of(uint32_t strategy, enum zinf_offload offload)
{
	struct trainer_settings settings =
		ranks_settings(&scene.harness[0], "far", scene.node_count * scene.per_node);

	settings.options.socket_path = NULL;
	settings.options.strategy = strategy;
	settings.options.param_dtype = settings.options.grad_dtype = ZINF_BF16;
	settings.options.offload_optimizer = offload;
	settings.options.offload_param = scene.stores_param ? ZINF_OFFLOAD_NVME : ZINF_OFFLOAD_NONE;
	settings.options.staging_bytes = offload == ZINF_OFFLOAD_NVME ? 12 << 20 : 0;
	settings.options.incarnation = "first";
	settings.steps = 5;
	settings.hook = at_point;
	return settings;
}

static void train_anywhere(uint32_t node_count, uint32_t per_node)
{
	static const uint32_t strategies[] = { ZINF_DDP, ZINF_ZERO1, ZINF_ZERO2, ZINF_ZERO3 };
	static char names[8][16];

	for (uint32_t i = 0; i < 8; i++) {
		struct trainer_settings settings;

		open_scene(node_count, per_node);
		settings = settings_of(strategies[i / 2],
		                       i % 2 ? ZINF_OFFLOAD_NVME : ZINF_OFFLOAD_CPU);
		settings.step.max_norm = i % 3 ? 0 : 1.0;
		(void)snprintf(names[i], sizeof(names[i]), "job%u", i);
		settings.options.job = names[i];
		system_train(&settings);
		close_scene();
	}
}

Test(far_train, two_nodes_train_the_bits_of_one_place)
{
	train_anywhere(2, 2);
}

Test(far_train, three_nodes_train_the_bits_of_one_place)
{
	train_anywhere(3, 1);
}

/* 16 bits summed in f32, f32 in 16 bits. */
Test(far_train, sums_have_a_type_of_their_own)
{
	for (uint32_t i = 0; i < 4; i++) {
		struct trainer_settings settings;

		open_scene(i % 2 ? 3 : 2, i % 2 ? 1 : 2);
		settings = settings_of(i < 2 ? ZINF_DDP : ZINF_ZERO2,
		                       i == 2 ? ZINF_OFFLOAD_NVME : ZINF_OFFLOAD_CPU);
		settings.options.grad_dtype = i % 2 ? ZINF_F32 : ZINF_BF16;
		settings.options.reduce_dtype = i % 2 ? ZINF_F16 : ZINF_F32;
		settings.step.max_norm = i < 2 ? 1.0 : 0;
		system_train(&settings);
		close_scene();
	}
}

/* Of some parameters no rank has a gradient, of others those of one node. */
Test(far_train, what_nobody_used_is_left_alone)
{
	for (uint32_t i = 0; i < 4; i++) {
		struct trainer_settings settings;
		struct ranks ranks;
		uint64_t unused = 0;

		open_scene(i % 2 ? 3 : 2, i % 2 ? 1 : 2);
		settings = settings_of(i < 2 ? ZINF_DDP : ZINF_ZERO3,
		                       i % 3 ? ZINF_OFFLOAD_NVME : ZINF_OFFLOAD_CPU);
		settings.is_sparse = settings.options.finds_unused = true;
		settings.step.max_norm = i % 2 ? 1.0 : 0;
		cr_assert_eq(ranks_train(&ranks, &settings), 0);
		cr_assert(ranks_are_right(&ranks));
		for (uint32_t step = 1; step <= settings.steps; step++)
			unused += ranks.reports[0]->stats[step].unused_count;
		cr_assert_gt(unused, 0);
		ranks_free(&ranks);
		close_scene();
	}
}

/* Each node brings what its ranks now own from the node that has it, and what they left there. */
Test(far_train, ranks_change_places_and_strategies)
{
	static const struct {
		uint32_t strategy;
		bool stores_param, is_turned;
	} turns[] = { { ZINF_ZERO1, false, false }, { ZINF_ZERO3, true, true },
		      { ZINF_ZERO2, true, false },  { ZINF_DDP, false, false },
		      { ZINF_ZERO2, false, true },  { ZINF_ZERO1, true, true } };
	struct trainer_settings settings;

	open_scene(2, 2);
	for (uint32_t i = 0; i < ZI_COUNT_OF(turns); i++) {
		scene.stores_param = turns[i].stores_param;
		scene.is_turned = turns[i].is_turned;
		settings = settings_of(turns[i].strategy, ZINF_OFFLOAD_NVME);
		settings.options.incarnation =
			(const char *const[]){ "a", "b", "c", "d", "e", "f" }[i];
		settings.steps = 2 * (i + 1);
		system_train(&settings);
	}
	close_scene();
}

/* Parameters come from the stores of all nodes. */
Test(far_train, parameters_on_nvme_come_from_all_nodes)
{
	static const uint32_t strategies[] = { ZINF_ZERO3, ZINF_ZERO2, ZINF_ZERO1 };

	for (uint32_t i = 0; i < ZI_COUNT_OF(strategies); i++) {
		struct trainer_settings settings;

		open_scene(2, 2);
		scene.stores_param = true;
		settings = settings_of(strategies[i], ZINF_OFFLOAD_NVME);
		system_train(&settings);
		close_scene();
	}
}

/* Of each daemon, as rank 0 finds them in the middle of a step: "0011" twice, hosts by name. */
static void ask_all(const struct trainer *trainer)
{
	static char words[1 << 16];

	for (uint32_t i = 0; i < scene.node_count; i++) {
		char path[PATH_MAX + 16];
		FILE *file;

		(void)snprintf(path, sizeof(path), "%s/jobs", scene.harness[i].directory);
		if (harness_zctl(scene.harness[i].socket_path,
		                 (const char *const[]){ "--json", "jobs", NULL }, words,
		                 sizeof(words)) ||
		    !(file = fopen(path, "we")))
			abort(); /* Told by ranks_train(). */
		(void)fputs(words, file);
		(void)fclose(file);
	}
	(void)trainer;
}

static void at_point_asking(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	at_point(trainer, point, arg);
	if (point == TRAINER_ACQUIRED && trainer->rank == 0 && trainer->step == 3)
		ask_all(trainer);
}

static void expect_places(json_t *jobs, uint32_t node, bool is_training)
{
	json_t *job = json_array_get(jobs, 0), *ranks = json_object_get(job, "ranks");
	char host[64] = "";

	(void)gethostname(host, sizeof(host) - 1);
	cr_assert_eq(json_array_size(jobs), 1);
	cr_expect_eq(json_integer_value(json_object_get(job, "nodes")), scene.node_count);
	cr_expect_eq(json_integer_value(json_object_get(job, "node")), node);
	cr_assert_eq(json_array_size(ranks), scene.node_count * scene.per_node);
	for (uint32_t i = 0; i < json_array_size(ranks); i++) {
		json_t *rank = json_array_get(ranks, i);
		uint32_t its = i / scene.per_node;

		cr_expect_eq(json_integer_value(json_object_get(rank, "node")), its);
		cr_expect_eq(json_is_true(json_object_get(rank, "is_attached")),
		             is_training && its == node);
		cr_expect_str_eq(json_string_value(json_object_get(rank, "host")),
		                 is_training ? host : "");
	}
	json_decref(jobs);
}

Test(far_train, zctl_jobs_says_where_ranks_are_and_were)
{
	static char words[1 << 16];
	struct trainer_settings settings;

	open_scene(2, 2);
	settings = settings_of(ZINF_ZERO1, ZINF_OFFLOAD_NVME);
	settings.hook = at_point_asking;
	system_train(&settings);
	for (uint32_t i = 0; i < scene.node_count; i++) {
		char path[PATH_MAX + 16];

		(void)snprintf(path, sizeof(path), "%s/jobs", scene.harness[i].directory);
		expect_places(json_load_file(path, 0, NULL), i, true);
		cr_assert_eq(unlink(path), 0);
		cr_assert_eq(harness_zctl(scene.harness[i].socket_path,
		                          (const char *const[]){ "--json", "jobs", NULL }, words,
		                          sizeof(words)),
		             0, "%s", words);
		expect_places(json_loads(words, 0, NULL), i, false);
		cr_assert_eq(harness_zctl(scene.harness[i].socket_path,
		                          (const char *const[]){ "jobs", "far", NULL }, words,
		                          sizeof(words)),
		             0, "%s", words);
		system_expect_text(words, i ? "nodes: 2, of which this one is number 1"
		                            : "nodes: 2, of which this one is number 0");
		system_expect_text(words, i ? "rank 1: of node 0\n" : "rank 3: of node 1\n");
	}
	close_scene();
}

/* All ranks that live hear of it, and who it was; the next start goes on. */
static void lose_and_go_on_with(enum loss loss, uint32_t strategy, enum zinf_offload offload,
                                bool stores_param, enum trainer_point point)
{
	struct trainer_settings settings;
	struct ranks ranks;
	uint32_t world;

	open_scene(2, 2);
	world = scene.node_count * scene.per_node;
	scene.stores_param = stores_param;
	scene.loss = loss;
	scene.point = point;
	scene.step = 3;
	settings = settings_of(strategy, offload);
	cr_assert_eq(ranks_start(&ranks, &settings), 0);
	for (uint32_t i = 0; i < world; i++) {
		bool is_dead = loss == LOSS_RANK && i == world - 1;
		const struct trainer_report *report = ranks.reports[i];

		cr_assert_eq(ranks_wait(&ranks, i), is_dead ? 1000 + SIGKILL : 1, "rank %u", i);
		if (is_dead)
			continue;
		if (loss == LOSS_RANK)
			system_expect_text(report->text, "rank 3 (pid");
		else if (i < scene.per_node)
			system_expect_text(report->text, "node 1");
		else if (loss == LOSS_WORKER)
			system_expect_text(report->text, "zinf-net");
		cr_assert_leq(report->step, scene.step);
	}
	ranks_free(&ranks);
	if (loss == LOSS_DAEMON) {
		harness_kill(&scene.harness[1]);
		cr_assert_eq(harness_restart(&scene.harness[1]), 0);
	}
	scene.loss = LOSS_NONE;
	settings.options.incarnation = "second";
	cr_assert_eq(ranks_start(&ranks, &settings), 0);
	cr_assert_eq(ranks_join(&ranks), 0);
	cr_assert(ranks_are_right(&ranks));
	for (uint32_t i = 0; i < world; i++)
		cr_assert_geq(ranks.reports[i]->first_steps[0], scene.step - 1, "rank %u", i);
	ranks_free(&ranks);
	close_scene();
}

static void lose_and_go_on(enum loss loss, uint32_t strategy, enum zinf_offload offload,
                           enum trainer_point point)
{
	lose_and_go_on_with(loss, strategy, offload, false, point);
}

Test(far_train, a_rank_that_is_killed_costs_a_step_at_most)
{
	lose_and_go_on(LOSS_RANK, ZINF_ZERO1, ZINF_OFFLOAD_NVME, TRAINER_REDUCED);
	lose_and_go_on(LOSS_RANK, ZINF_DDP, ZINF_OFFLOAD_CPU, TRAINER_UNSHARDED);
	lose_and_go_on(LOSS_RANK, ZINF_ZERO2, ZINF_OFFLOAD_NVME, TRAINER_STEPPED);
}

Test(far_train, a_worker_that_is_killed_costs_a_step_at_most)
{
	lose_and_go_on(LOSS_WORKER, ZINF_ZERO2, ZINF_OFFLOAD_NVME, TRAINER_REDUCED);
	lose_and_go_on(LOSS_WORKER, ZINF_ZERO1, ZINF_OFFLOAD_NVME, TRAINER_STEPPED);
}

Test(far_train, a_daemon_that_is_killed_costs_a_step_at_most)
{
	lose_and_go_on(LOSS_DAEMON, ZINF_ZERO1, ZINF_OFFLOAD_NVME, TRAINER_REDUCED);
	lose_and_go_on(LOSS_DAEMON, ZINF_DDP, ZINF_OFFLOAD_NVME, TRAINER_STEPPED);
}

/* Of parameters that nodes divide each has its own again, in memory or on its store. */
Test(far_train, divided_parameters_come_back)
{
	lose_and_go_on(LOSS_RANK, ZINF_ZERO3, ZINF_OFFLOAD_CPU, TRAINER_UNSHARDED);
	lose_and_go_on(LOSS_DAEMON, ZINF_ZERO3, ZINF_OFFLOAD_NVME, TRAINER_REDUCED);
	lose_and_go_on_with(LOSS_WORKER, ZINF_ZERO3, ZINF_OFFLOAD_NVME, true, TRAINER_STEPPED);
	lose_and_go_on_with(LOSS_DAEMON, ZINF_ZERO3, ZINF_OFFLOAD_NVME, true, TRAINER_UNSHARDED);
	lose_and_go_on_with(LOSS_DAEMON, ZINF_ZERO1, ZINF_OFFLOAD_NVME, true, TRAINER_STEPPED);
}
