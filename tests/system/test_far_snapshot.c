/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: all nodes of a job keep the same step, or none does, whichever is asked. A job that was
 * trained on several nodes goes on on one, with the same bits, under whatever
 * strategy it was and comes to be; and parts that do not make one whole are refused by name, before
 * anything is loaded. Method: daemons on the loopback interface; each node's zctl writes its part
 * into one directory, one zctl loads all; parts that are spoilt one thing at a time.
 */
#include <errno.h>
#include <fcntl.h>

#include "common/base/cleanup.h"
#include "tests/harness/ranks.h"
#include "tests/system/far_node.h"
#include "tests/system/folder.h"

#define NODES 2u
#define RANKS 4u

static struct {
	struct harness harness[NODES];
	uint32_t port;
	bool is_alone; /* all ranks are on node 0 */
	struct folder folder;
	char words[1 << 16]; /* of what ran last */
} scene;

TestSuite(far_snapshot, .timeout = 300);

static void open_scene(void)
{
	far_need_net();
	memset(&scene, 0, sizeof(scene));
	folder_make(&scene.folder, "parts");
	scene.port = harness_free_port();
	for (uint32_t i = 0; i < NODES; i++)
		system_start(&scene.harness[i], &(struct harness_options){ .nvme_size = "64M" });
}

static void close_scene(void)
{
	for (uint32_t i = 0; i < NODES; i++)
		cr_assert_eq(harness_stop(&scene.harness[i]), 0, "node %u", i);
	folder_remove(&scene.folder);
}

#define RUN(node, code, ...) \
	SYSTEM_ZCTL(scene.harness[node].socket_path, scene.words, (code), __VA_ARGS__)

static const char *path_of(const char *name)
{
	return folder_file(&scene.folder, name);
}

static void shell(const char *script)
{
	folder_run(&scene.folder, script);
}

static void at_point(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	uint32_t node = scene.is_alone ? 0 : trainer->rank / (RANKS / NODES);

	(void)arg;
	if (point != TRAINER_BORN)
		return;
	far_set_place(&scene.harness[node], scene.port, scene.is_alone ? RANKS : RANKS / NODES);
}

static struct trainer_settings settings_of(const char *job, uint32_t strategy,
                                           enum zinf_offload offload, uint32_t steps)
{
	struct trainer_settings settings = ranks_settings(&scene.harness[0], job, RANKS);

	settings.options.socket_path = NULL;
	settings.options.strategy = strategy;
	settings.options.param_dtype = settings.options.grad_dtype = ZINF_BF16;
	settings.options.offload_optimizer = offload;
	settings.options.staging_bytes = offload == ZINF_OFFLOAD_NVME ? 12 << 20 : 0;
	settings.options.incarnation = "first";
	settings.steps = steps;
	settings.hook = at_point;
	return settings;
}

/* Job "far" stands at step 2 on both nodes, and both have their part in "all". */
static void train_and_export(uint32_t strategy, enum zinf_offload offload_param)
{
	struct trainer_settings settings = settings_of("far", strategy, ZINF_OFFLOAD_NVME, 2);

	settings.options.offload_param = offload_param;
	system_train(&settings);
	RUN(0, 0, "export", "far", path_of("all"), "--format", "zinf");
	system_expect_text(scene.words, "1 of 2 parts are there");
	RUN(1, 0, "export", "far", path_of("all"), "--format", "zinf");
	system_expect_text(scene.words, "all 2 parts are there: zctl load");
}

/* Job @name begins with snapshot moved/two, under each strategy, on one node or several. */
static void go_on_under_each(const char *name)
{
	static const struct {
		uint32_t strategy;
		enum zinf_offload offload, offload_param;
	} ways[] = {
		{ ZINF_DDP, ZINF_OFFLOAD_CPU, ZINF_OFFLOAD_NONE },
		{ ZINF_ZERO1, ZINF_OFFLOAD_NVME, ZINF_OFFLOAD_NVME },
		{ ZINF_ZERO2, ZINF_OFFLOAD_CPU, ZINF_OFFLOAD_CPU },
		{ ZINF_ZERO2, ZINF_OFFLOAD_NVME, ZINF_OFFLOAD_NVME },
		{ ZINF_ZERO3, ZINF_OFFLOAD_NVME, ZINF_OFFLOAD_NONE },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(ways); i++) {
		struct trainer_settings settings =
			settings_of(name, ways[i].strategy, ways[i].offload, 5);
		struct ranks ranks;

		settings.options.offload_param = ways[i].offload_param;
		settings.load = "moved/two";
		cr_assert_eq(ranks_train(&ranks, &settings), 0);
		for (uint32_t rank = 0; rank < RANKS; rank++)
			cr_assert_eq(ranks.reports[rank]->first_steps[0], 2);
		cr_assert(ranks_are_right(&ranks), "way %zu", i);
		ranks_free(&ranks);
		for (uint32_t node = 0; node < (scene.is_alone ? 1 : NODES); node++) {
			settings.options.socket_path = scene.harness[node].socket_path;
			cr_assert_eq(system_destroy_job(&settings), 0);
		}
	}
}

/* Each strategy over nodes, under each on one node, and over nodes again from all of it on each. */
static void move(uint32_t strategy, enum zinf_offload offload_param)
{
	open_scene();
	train_and_export(strategy, offload_param);
	RUN(0, 0, "load", path_of("all"), "moved/two");
	system_expect_text(scene.words, "as snapshot moved/two, step 2");
	scene.is_alone = true;
	go_on_under_each("moved");
	RUN(1, 0, "load", path_of("all"), "moved/two");
	scene.is_alone = false;
	go_on_under_each("again");
	close_scene();
}

Test(far_snapshot, ddp_goes_on_elsewhere)
{
	move(ZINF_DDP, ZINF_OFFLOAD_NONE);
}

Test(far_snapshot, zero1_goes_on_elsewhere)
{
	move(ZINF_ZERO1, ZINF_OFFLOAD_NVME);
}

Test(far_snapshot, zero2_goes_on_elsewhere)
{
	move(ZINF_ZERO2, ZINF_OFFLOAD_CPU);
}

Test(far_snapshot, zero3_goes_on_elsewhere)
{
	move(ZINF_ZERO3, ZINF_OFFLOAD_NVME);
}

/* Every node keeps the same steps by itself; a new job begins with one where each has its part. */
Test(far_snapshot, automatic_ones_are_of_one_commit)
{
	struct trainer_settings settings;
	struct ranks ranks;

	open_scene();
	settings = settings_of("far", ZINF_ZERO1, ZINF_OFFLOAD_NVME, 3);
	settings.options.offload_param = ZINF_OFFLOAD_NVME;
	settings.options.snapshot_interval = 2;
	settings.options.snapshot_keep = 1;
	system_train(&settings);
	RUN(0, 0, "export", "far/auto-000002", path_of("all"), "--format", "zinf");
	RUN(1, 0, "export", "far/auto-000002", path_of("all"), "--format", "zinf");
	system_expect_text(scene.words, "all 2 parts are there");
	RUN(0, 0, "load", path_of("all"), "moved/two");
	settings = settings_of("other", ZINF_ZERO1, ZINF_OFFLOAD_NVME, 5);
	settings.options.offload_param = ZINF_OFFLOAD_NVME;
	settings.load = "far/auto-000002";
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert_eq(ranks.reports[RANKS - 1]->first_steps[0], 2);
	cr_assert(ranks_are_right(&ranks));
	ranks_free(&ranks);
	/* Of what its nodes have between them, under another strategy no node has enough. */
	settings = settings_of("third", ZINF_ZERO3, ZINF_OFFLOAD_NVME, 5);
	settings.load = "far/auto-000002";
	cr_assert_eq(ranks_start(&ranks, &settings), 0);
	for (uint32_t i = 0; i < RANKS; i++) {
		cr_assert_eq(ranks_wait(&ranks, i), 1);
		cr_assert_eq(ranks.reports[i]->result, -EOPNOTSUPP);
		system_expect_text(ranks.reports[i]->text, "would begin with one node's part");
	}
	ranks_free(&ranks);
	close_scene();
}

/* ---- asked for at one node ---- */

/* A rank of either node keeps a step while it trains; the other ones go on to their next call. */
static void keep_two(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	struct zinf_snapshot_options options = ZINF_SNAPSHOT_OPTIONS_INIT;
	int64_t step = -1;

	at_point(trainer, point, arg);
	if (point != TRAINER_WAITED || (trainer->rank && trainer->rank != RANKS - 1))
		return;
	options.name = trainer->rank ? "last" : "first";
	if (trainer->step == (trainer->rank ? 3 : 2) &&
	    (zinf_snapshot(trainer->zinf, &options, &step) || step != trainer->step))
		_exit(101);
}

static void keep_in_training(enum zinf_offload offload)
{
	struct trainer_settings settings;
	struct ranks ranks;

	open_scene();
	settings = settings_of("far", ZINF_ZERO1, offload, 4);
	settings.hook = keep_two;
	system_train(&settings);
	for (uint32_t i = 0; i < NODES; i++) {
		RUN(i, 0, "snapshot", "list", "far");
		system_expect_text(scene.words, "far/first");
		system_expect_text(scene.words, "far/last");
	}
	RUN(0, 0, "export", "far/first", path_of("all"), "--format", "zinf");
	RUN(1, 0, "export", "far/first", path_of("all"), "--format", "zinf");
	system_expect_text(scene.words, "all 2 parts are there");
	settings = settings_of("other", ZINF_ZERO1, offload, 5);
	settings.load = "far/last";
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert_eq(ranks.reports[RANKS - 1]->first_steps[0], 3);
	cr_assert(ranks_are_right(&ranks));
	ranks_free(&ranks);
	/* Nobody uses it: its daemons do not talk. */
	RUN(1, 0, "snapshot", "far", "--name", "alone");
	system_expect_text(scene.words, "this is one node's part, of 2");
	RUN(0, 1, "snapshot", "restore", "far/first");
	system_expect_text(
		scene.words,
		offload == ZINF_OFFLOAD_NVME
			? "start a new job with this snapshot on all nodes "
			  "(zinf_load)"
			: "delete the job (zctl delete), and start it with the snapshot");
	close_scene();
}

Test(far_snapshot, asked_for_at_one_node_all_keep_the_state_on_disk)
{
	keep_in_training(ZINF_OFFLOAD_NVME);
}

Test(far_snapshot, asked_for_at_one_node_all_keep_the_state_in_memory)
{
	keep_in_training(ZINF_OFFLOAD_CPU);
}

/* Until the first store is full: what is said then, and by zctl while it trains. */
static void keep_many(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	struct zinf_snapshot_options options = ZINF_SNAPSHOT_OPTIONS_INIT;
	char name[16];
	int r = 0;

	at_point(trainer, point, arg);
	if (point != TRAINER_WAITED || trainer->rank != RANKS - 1 || trainer->step != 2)
		return;
	if (harness_zctl(scene.harness[0].socket_path,
	                 (const char *const[]){ "snapshot", "far", "--name", "zctl", NULL },
	                 scene.words, sizeof(scene.words)) ||
	    !strstr(scene.words, "each of its 2 nodes has kept its part"))
		_exit(101);
	options.name = name;
	for (uint32_t i = 0; i < 100 && !r; i++) {
		(void)snprintf(name, sizeof(name), "s%u", i);
		r = zinf_snapshot(trainer->zinf, &options, NULL);
	}
	if (r != -ENOSPC)
		_exit(102);
	(void)snprintf(trainer->report->restart_text, sizeof(trainer->report->restart_text), "%s",
	               zinf_error_text(trainer->zinf));
}

static size_t count_snapshots(uint32_t node)
{
	json_t *list;
	size_t count;

	RUN(node, 0, "--json", "snapshot", "list", "far");
	list = json_loads(scene.words, 0, NULL);
	count = json_array_size(list);
	json_decref(list);
	return count;
}

Test(far_snapshot, what_one_node_has_no_room_for_none_keeps)
{
	struct trainer_settings settings;
	struct ranks ranks;
	size_t count;

	open_scene();
	settings = settings_of("far", ZINF_ZERO1, ZINF_OFFLOAD_NVME, 3);
	settings.hook = keep_many;
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert(ranks_are_right(&ranks));
	system_expect_text(ranks.reports[RANKS - 1]->restart_text,
	                   "node 0 cannot keep it, so none does: a snapshot of job 'far' keeps");
	ranks_free(&ranks);
	count = count_snapshots(1);
	cr_assert_gt(count, 1);
	cr_assert_eq(count_snapshots(0), count);
	close_scene();
}

/* ---- what is refused ---- */

static void load_refused(const char *text)
{
	RUN(0, 1, "load", path_of("all"), "moved");
	cr_assert(strstr(scene.words, text), "%s: %s", text, scene.words);
	RUN(0, 0, "--json", "snapshot", "list");
	system_expect_text(scene.words, "[]");
}

/* A middle byte of a file is another one, and then as it was. */
static void flip(const char *path)
{
	uint8_t byte;
	int fd = open(path, O_RDWR | O_CLOEXEC);
	off_t offset;

	cr_assert_geq(fd, 0, "%s", path);
	offset = lseek(fd, 0, SEEK_END) - 100;
	cr_assert_eq(pread(fd, &byte, 1, offset), 1);
	byte ^= 4;
	cr_assert_eq(pwrite(fd, &byte, 1, offset), 1);
	(void)close(fd);
}

Test(far_snapshot, parts_that_make_no_whole_are_refused_by_name)
{
	struct trainer_settings settings;

	open_scene();
	train_and_export(ZINF_ZERO1, ZINF_OFFLOAD_NONE);
	RUN(0, 1, "export", "far", path_of("all"), "--format", "zinf");
	system_expect_text(scene.words, "part-0 exists: nothing was overwritten");
	RUN(0, 1, "export", "far", path_of("one.safetensors"));
	system_expect_text(scene.words, "export each node's part into one directory");
	RUN(0, 1, "load", path_of("all/part-1"), "moved");
	system_expect_text(scene.words, "holds only the part of node 1, of 2 nodes");

	shell("mv all/part-1 kept");
	load_refused("part-1 is missing, of ranks 2, 3: unit '");
	RUN(0, 1, "load", path_of("all"), "moved", "--allow-missing");
	system_expect_text(scene.words, "more are in no other part");
	shell("cp -r all/part-0 all/part-1");
	load_refused("has the part of node 0: two parts of one node, or renamed");
	shell("rm -r all/part-1 && mv kept all/part-1");

	flip(path_of("all/part-1/exp_avg.safetensors"));
	load_refused("part-1/exp_avg.safetensors is damaged: unit ");
	flip(path_of("all/part-1/exp_avg.safetensors"));

	shell("cp all/part-1/manifest.json kept");
	shell("sed -i 's/\"param_dtype\": \"bf16\"/\"param_dtype\": \"f16\"/' "
	      "all/part-1/manifest.json");
	load_refused("differ in 'param_dtype': they are not of one job");
	shell("cp kept all/part-1/manifest.json");
	shell("sed -i 's/\"node_count\": 2/\"node_count\": 65/' all/part-*/manifest.json");
	load_refused("has a part whose manifest names its nodes wrongly");
	shell("sed -i 's/\"node_count\": 65/\"node_count\": 2/' all/part-*/manifest.json");
	shell("tr '\\n' ' ' <kept | sed 's/\"subgroups\": \\[ *\\[ *[0-9]*/\"subgroups\": [[99/' "
	      ">all/part-1/manifest.json && ! cmp -s kept all/part-1/manifest.json");
	load_refused("names a subgroup that does not exist, or not in order");
	shell("cp kept all/part-1/manifest.json");

	/* The job has gone on since one of them was written. */
	settings = settings_of("far", ZINF_ZERO1, ZINF_OFFLOAD_NVME, 3);
	settings.options.incarnation = "second";
	system_train(&settings);
	shell("mv all/part-1 kept.1");
	RUN(1, 1, "export", "far", path_of("all"), "--format", "zinf");
	system_expect_text(scene.words, "part-0 is of step 2 (commit ");
	RUN(1, 0, "export", "far", path_of("later"), "--format", "zinf");
	shell("mv later/part-1 all/part-1");
	load_refused("part-1 is of step 3 (commit ");
	shell("rm -r all/part-1 && mv kept.1 all/part-1");
	RUN(0, 0, "load", path_of("all"), "moved");
	close_scene();
}

/* With zero1 and zero2 on NVMe each node has all parameters, though not what made them: one file of
 * them is the same from each, and any part is of one node's state alone. */
Test(far_snapshot, parameters_that_all_nodes_store_are_one_file)
{
	open_scene();
	train_and_export(ZINF_ZERO2, ZINF_OFFLOAD_NVME);
	RUN(0, 0, "export", "far", path_of("0.safetensors"));
	RUN(1, 0, "export", "far", path_of("1.safetensors"));
	RUN(0, 0, "load", path_of("all"), "moved/two");
	RUN(0, 0, "export", "moved/two", path_of("moved.safetensors"));
	/* What is behind the header. */
	shell("for name in 0 1 moved; do tail -c +$(($(od -An -tu8 -N8 $name.safetensors) + 9)) "
	      "$name.safetensors >$name; done; [ -s 0 ] && cmp 0 1 && cmp 0 moved");
	close_scene();
}

/* With ddp one node has all units, and what ranks of all handed to their steps. */
Test(far_snapshot, a_node_that_is_lost_costs_nothing_with_ddp)
{
	struct trainer_settings settings;

	open_scene();
	train_and_export(ZINF_DDP, ZINF_OFFLOAD_NONE);
	RUN(0, 0, "export", "far", path_of("one.safetensors"));
	shell("mv all/part-0 kept");
	RUN(0, 0, "load", path_of("all"), "moved/two");
	scene.is_alone = true;
	settings = settings_of("moved", ZINF_DDP, ZINF_OFFLOAD_NVME, 4);
	settings.load = "moved/two";
	system_train(&settings);
	/* A part that has those of its own ranks alone, as state in memory has. */
	shell("cp all/part-1/manifest.json whole && tr '\\n' ' ' <whole | "
	      "sed 's/{[^{}]*\"rank\": 0,[^{}]*}, *//; s/{[^{}]*\"rank\": 1,[^{}]*}, *//' "
	      ">all/part-1/manifest.json && ! cmp -s whole all/part-1/manifest.json");
	RUN(0, 1, "load", path_of("all"), "third");
	system_expect_text(scene.words, "part-0 is missing: the other parts have all units, but "
	                                "not the blobs of ranks 0, 1");
	RUN(0, 0, "load", path_of("all"), "third", "--allow-missing");
	shell("mv whole all/part-1/manifest.json");
	/* Two copies are compared. */
	shell("mv kept all/part-0");
	shell("tr '\\n' ' ' <all/part-0/manifest.json | "
	      "sed 's/\"xxh3\": \\[ *\"[0-9a-f]*\"/\"xxh3\": [\"0000000000000000\"/' >kept && "
	      "mv kept all/part-0/manifest.json");
	RUN(0, 1, "load", path_of("all"), "other");
	system_expect_text(scene.words, "have different bytes of unit");
	close_scene();
}
