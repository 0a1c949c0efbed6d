/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a node that is lost for good, with its daemon and its store, costs nothing that others
 * have: ranks come back on the nodes that are left or with a blank one in its place, in other
 * numbers, and go on with the bits of a run that nothing befell, masters and moments too. What
 * nobody has is refused by name, and an export goes on in its place. Method: daemons on the
 * loopback interface, of which one is killed in the middle of a step and its directory removed; the
 * made-up trainer, whose gradients need the resume blobs of all ranks; one more daemon that trains
 * the same in one place.
 */
#include <errno.h>
#include <signal.h>

#include "common/base/cleanup.h"
#include "tests/harness/port.h"
#include "tests/harness/ranks.h"
#include "tests/system/far_node.h"
#include "tests/system/folder.h"

#define NODES 5u
#define STAY  UINT32_MAX /* nobody is lost */

static struct {
	struct harness harness[NODES];
	struct harness judge;
	uint32_t port;
	const char *places; /* of each rank its node; NULL: with the judge */
	uint32_t start;
	/* The node that is lost, when rank 0 is in the middle of that step. */
	uint32_t lost;
	int64_t step;
	struct trainer_former formers[TRAINER_FORMERS];
	struct folder folder;
	char words[1 << 14]; /* of zctl */
} scene;

TestSuite(far_lost, .timeout = 300);

static void start_node(struct harness *harness)
{
	system_start(harness, &(struct harness_options){ .nvme_size = "48M" });
}

static void open_scene(uint32_t node_count)
{
	far_need_net();
	memset(&scene, 0, sizeof(scene));
	folder_make(&scene.folder, "lost");
	scene.port = harness_free_port();
	scene.lost = STAY;
	for (uint32_t i = 0; i < node_count; i++)
		start_node(&scene.harness[i]);
}

static void close_scene(void)
{
	for (uint32_t i = 0; i < NODES; i++)
		if (scene.harness[i].pid)
			cr_assert_eq(harness_stop(&scene.harness[i]), 0, "node %u", i);
	if (scene.judge.pid)
		cr_assert_eq(harness_stop(&scene.judge), 0);
	folder_remove(&scene.folder);
}

static uint32_t node_of(uint32_t rank)
{
	return (uint32_t)(scene.places[rank] - '0');
}

/* A rank learns where it is as launchers tell it. */
static void at_point(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	uint32_t here = 0;

	(void)arg;
	if (point == TRAINER_BORN && scene.places) {
		for (uint32_t i = 0; scene.places[i]; i++)
			here += scene.places[i] == scene.places[trainer->rank];
		far_set_place(&scene.harness[node_of(trainer->rank)], scene.port, here);
	}
	if (point == TRAINER_REDUCED && scene.lost != STAY && trainer->rank == 0 &&
	    trainer->step == scene.step)
		(void)kill(scene.harness[scene.lost].pid, SIGKILL); /* Or the test fails. */
}

static struct trainer_settings settings_of(uint32_t strategy, uint32_t shard_size, uint32_t world,
                                           uint32_t steps)
{
	static char names[8][8];
	char *name = names[scene.start++ % ZI_COUNT_OF(names)];
	struct trainer_settings settings = ranks_settings(&scene.judge, "far", world);

	(void)snprintf(name, sizeof(names[0]), "i%u", scene.start);
	settings.options.socket_path = scene.places ? NULL : scene.judge.socket_path;
	settings.options.strategy = strategy;
	settings.options.shard_size = shard_size;
	settings.options.param_dtype = settings.options.grad_dtype = ZINF_BF16;
	settings.options.offload_optimizer = ZINF_OFFLOAD_NVME;
	settings.options.staging_bytes = 12 << 20;
	settings.options.incarnation = name;
	settings.steps = steps;
	settings.hook = at_point;
	memcpy(settings.formers, scene.formers, sizeof(settings.formers));
	return settings;
}

/* Ranks at @places go on, at @from or the step after it, up to @steps. */
static void train_from(const char *places, uint32_t strategy, uint32_t shard_size, int64_t from,
                       uint32_t steps)
{
	struct trainer_settings settings;
	struct ranks ranks;

	scene.places = places;
	settings = settings_of(strategy, shard_size, (uint32_t)strlen(places), steps);
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert(ranks_are_right(&ranks), "at %s", places);
	for (uint32_t i = 0; i < ranks.world; i++) {
		int64_t first = ranks.reports[i]->first_steps[0];

		cr_assert(first == from || (from >= 0 && first == from + 1),
		          "rank %u began at %lld", i, (long long)first);
	}
	ranks_free(&ranks);
}

/* A node goes, in the middle of step @step, and all that it has. */
static void lose(const char *places, uint32_t strategy, uint32_t shard_size, uint32_t lost,
                 int64_t step)
{
	struct trainer_settings settings;
	struct ranks ranks;

	scene.places = places;
	scene.lost = lost;
	scene.step = step;
	settings = settings_of(strategy, shard_size, (uint32_t)strlen(places), (uint32_t)step + 2);
	cr_assert_eq(ranks_start(&ranks, &settings), 0);
	for (uint32_t i = 0; i < ranks.world; i++)
		cr_assert_eq(ranks_wait(&ranks, i), 1, "rank %u", i);
	ranks_free(&ranks);
	harness_remove(&scene.harness[lost]);
	scene.lost = STAY;
}

/* ---- masters and moments ---- */

#define RUN(harness, code, ...) \
	SYSTEM_ZCTL((harness)->socket_path, scene.words, (code), __VA_ARGS__)

static const char *path_of(const char *name)
{
	return folder_file(&scene.folder, name);
}

static void shell(const char *script)
{
	folder_run(&scene.folder, script);
}

/* Each node of scene.places writes its part. */
static void export_parts(const char *name)
{
	uint64_t seen = 0;

	for (uint32_t i = 0; scene.places[i]; i++) {
		if (!(seen >> node_of(i) & 1))
			RUN(&scene.harness[node_of(i)], 0, "export", "far", path_of(name),
			    "--format", "zinf");
		seen |= 1ull << node_of(i);
	}
}

/* What nodes have between them is what one place has that trained the same. */
static void compare_state(uint32_t steps)
{
	struct trainer_settings settings;
	struct ranks ranks;
	uint32_t world = (uint32_t)strlen(scene.places);

	start_node(&scene.judge);
	export_parts("parts");
	RUN(&scene.judge, 0, "load", path_of("parts"), "healed/last");
	RUN(&scene.judge, 0, "export", "healed/last", path_of("healed"), "--format", "zinf");
	scene.places = NULL;
	for (uint32_t i = 0; i <= TRAINER_FORMERS; i++) {
		bool is_last = i == TRAINER_FORMERS || !scene.formers[i].step;

		settings = settings_of(ZINF_DDP, 0, is_last ? world : scene.formers[i].world,
		                       is_last ? steps : scene.formers[i].step);
		memset(&settings.formers[i], 0,
		       (TRAINER_FORMERS - i) * sizeof(settings.formers[0]));
		cr_assert_eq(ranks_train(&ranks, &settings), 0);
		cr_assert(ranks_are_right(&ranks));
		ranks_free(&ranks);
		if (is_last)
			break;
	}
	RUN(&scene.judge, 0, "export", "far", path_of("plain"), "--format", "zinf");
	/* Bytes of the tensors alone, behind a head whose length is in front. */
	shell("body() { tail -c +$((9 + $(od -An -t u8 -N 8 $1))) $1; }; "
	      "for plane in master exp_avg exp_avg_sq; do "
	      "body healed/$plane.safetensors >one && body plain/$plane.safetensors >other && "
	      "[ -s one ] && cmp one other || exit 1; done");
}

/* ---- replicas ---- */

/* Two nodes, each with a replica: one goes, the other trains on alone, then with a blank one. */
static void lose_a_replica(uint32_t strategy, uint32_t shard_size, uint32_t lost)
{
	open_scene(2);
	lose("0011", strategy, shard_size, lost, 3);
	train_from(lost ? "0000" : "1111", strategy, shard_size, 2, 4);
	start_node(&scene.harness[lost]);
	train_from("0011", strategy, shard_size, 4, 6);
	compare_state(6);
	close_scene();
}

Test(far_lost, hybrid_goes_on_alone_and_with_a_blank_node)
{
	lose_a_replica(ZINF_ZERO3, 2, 1);
	lose_a_replica(ZINF_ZERO1, 2, 0);
}

Test(far_lost, ddp_goes_on_alone_and_with_a_blank_node)
{
	lose_a_replica(ZINF_DDP, 0, 0);
}

/* Replicas are pairs of nodes: what is left is not on one node alone. */
Test(far_lost, a_blank_node_takes_the_place_of_the_lost_one)
{
	open_scene(4);
	lose("0123", ZINF_ZERO3, 2, 2, 2);
	start_node(&scene.harness[2]);
	train_from("0123", ZINF_ZERO3, 2, 1, 4);
	/* Without any of the former ones but two, and one of these is new. */
	harness_remove(&scene.harness[0]);
	harness_remove(&scene.harness[3]);
	train_from("1122", ZINF_ZERO2, 0, 4, 6);
	compare_state(6);
	close_scene();
}

/* 4 -> 3 -> 5 ranks and nodes. */
Test(far_lost, fewer_ranks_and_more_go_on)
{
	open_scene(4);
	train_from("0123", ZINF_ZERO3, 2, -1, 2);
	harness_remove(&scene.harness[3]);
	scene.formers[0] = (struct trainer_former){ 2, 4 };
	train_from("012", ZINF_ZERO2, 0, 2, 4);
	start_node(&scene.harness[3]);
	start_node(&scene.harness[4]);
	scene.formers[1] = (struct trainer_former){ 4, 3 };
	train_from("01234", ZINF_ZERO1, 0, 4, 6);
	compare_state(6);
	close_scene();
}

/* ---- no replica ---- */

/* A job that begins with what was exported at step 2, by three ranks. */
static void begin_with_export(const char *places, const char *job, uint32_t strategy)
{
	struct trainer_settings settings;
	struct ranks ranks;
	uint64_t seen = 0;

	scene.places = places;
	for (uint32_t i = 0; places[i]; i++) {
		if (!(seen >> node_of(i) & 1))
			RUN(&scene.harness[node_of(i)], 0, "load", path_of("all"), "moved/two");
		seen |= 1ull << node_of(i);
	}
	scene.formers[0] = (struct trainer_former){ 2, 3 };
	settings = settings_of(strategy, 0, (uint32_t)strlen(places), 5);
	settings.options.job = job;
	settings.load = "moved/two";
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert_eq(ranks.reports[0]->first_steps[0], 2);
	cr_assert(ranks_are_right(&ranks), "at %s", places);
	ranks_free(&ranks);
	for (uint32_t i = 0; places[i]; i++) {
		if (seen >> node_of(i) & 1)
			RUN(&scene.harness[node_of(i)], 0, "snapshot", "rm", "moved/two");
		seen &= ~(1ull << node_of(i));
	}
}

Test(far_lost, what_nobody_has_is_refused_by_name_and_an_export_goes_on)
{
	struct trainer_settings settings;
	struct ranks ranks;

	open_scene(3);
	train_from("012", ZINF_ZERO3, 0, -1, 2);
	export_parts("all");
	lose("012", ZINF_ZERO3, 0, 2, 4);
	for (uint32_t i = 0; i < 2; i++) {
		if (i)
			start_node(&scene.harness[2]); /* A blank one has it not. */
		scene.places = i ? "012" : "010";
		settings = settings_of(ZINF_ZERO3, 0, 3, 5);
		cr_assert_eq(ranks_start(&ranks, &settings), 0);
		for (uint32_t rank = 0; rank < 3; rank++) {
			const struct trainer_report *report = ranks.reports[rank];

			cr_assert_eq(ranks_wait(&ranks, rank), 1);
			cr_expect_eq(report->result, -ENODATA, "%s", report->text);
			system_expect_text(report->text, "cannot go on at step 3");
			system_expect_text(report->text, "of unit 'layer.");
			system_expect_text(report->text, "which rank 2 on node 2 had");
		}
		ranks_free(&ranks);
	}
	begin_with_export("000", "fewer", ZINF_ZERO1);
	begin_with_export("0122", "more", ZINF_ZERO3);
	close_scene();
}
