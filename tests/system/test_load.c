/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what zctl export wrote can be loaded into a daemon that knows nothing of the job, which
 * then goes on with the same bits as if nothing had happened; what is wrong with the files, or has
 * no room, is refused with words and leaves nothing, and so does a zctl that dies in the middle.
 * Method: export, destroy, load, train on, compared with the reference; one thing broken at a time,
 * and the store's space counted before and after. A zctl dies at a chosen read of its file by a
 * seccomp filter.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "tests/harness/ranks.h"
#include "tests/harness/reference.h"
#include "tests/system/files.h"

TestSuite(load, .init = files_start, .fini = files_stop, .timeout = 120);

static struct trainer_settings settings_of(const char *job, uint32_t world,
                                           enum zinf_offload offload)
{
	struct trainer_settings settings = ranks_settings(&harness, job, world);

	settings.options.param_dtype = settings.options.grad_dtype = ZINF_BF16;
	settings.options.offload_optimizer = offload;
	settings.options.staging_bytes = 9 << 20; /* three slots of f16 */
	settings.steps = 5;
	return settings;
}

/* Charged, and lying there. */
static uint64_t store_bytes(void)
{
	json_t *answer = harness_admin(&harness, "tiers");
	const json_t *tiers = json_object_get(answer, "tiers");
	uint64_t bytes = 0;
	size_t index;
	json_t *tier;

	if (!tiers)
		tiers = answer;
	cr_assert(json_is_array(tiers));
	json_array_foreach(tiers, index, tier)
	{
		const char *kind = json_string_value(json_object_get(tier, "kind"));

		if (!strcmp(kind, "nvme"))
			bytes +=
				(uint64_t)json_integer_value(json_object_get(tier, "used_bytes")) +
				(uint64_t)json_integer_value(json_object_get(tier, "extent_bytes"));
	}
	json_decref(answer);
	return bytes;
}

/* Job "base" is trained to step 2, exported in both formats, and destroyed with its daemon's
 * knowledge of it. */
static void train_and_export_with(enum zinf_dtype dtype, enum zinf_optimizer optimizer)
{
	struct trainer_settings settings = settings_of("base", 2, ZINF_OFFLOAD_NVME);
	struct ranks ranks;

	settings.options.param_dtype = settings.options.grad_dtype = dtype;
	settings.options.optimizer = optimizer;
	settings.steps = 2;
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	ranks_free(&ranks);
	RUN(0, "export", "base", path_of("all"), "--format", "zinf");
	RUN(0, "export", "base", path_of("two.safetensors"));
	cr_assert_eq(system_destroy_job(&settings), 0);
	cr_assert_eq(store_bytes(), 0);
}

static void train_and_export(enum zinf_dtype dtype)
{
	train_and_export_with(dtype, ZINF_ADAMW);
}

/* Job @name begins with @source; the dump of its parameters at @steps is the caller's to free. */
static struct ranks go_on(const char *name, uint32_t world, enum zinf_offload offload,
                          const char *source, uint32_t steps, int64_t first)
{
	struct trainer_settings settings = settings_of(name, world, offload);
	struct ranks ranks;

	settings.load = source;
	settings.steps = steps;
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert_eq(ranks.reports[0]->first_steps[0], first);
	cr_assert_eq(system_destroy_job(&settings), 0);
	return ranks;
}

static void expect_same(struct ranks *a, struct ranks *b)
{
	cr_assert_eq(
		memcmp(a->reports[0]->dump, b->reports[0]->dump, trainer_dump_bytes(&a->settings)),
		0);
	ranks_free(a);
	ranks_free(b);
}

Test(load, everything_goes_on_with_the_same_bits_in_another_daemon)
{
	struct ranks ranks, other;

	train_and_export(ZINF_BF16);
	RUN(0, "load", path_of("all"), "new/two");
	system_expect_text(words, "as snapshot new/two, step 2");
	/* What was said is kept. */
	harness_kill(&harness);
	cr_assert_eq(harness_restart(&harness), 0);
	ranks = go_on("new", 2, ZINF_OFFLOAD_NVME, "new/two", 5, 2);
	cr_assert(ranks_are_right(&ranks));
	other = go_on("memory", 2, ZINF_OFFLOAD_CPU, "new/two", 5, 2);
	cr_assert(ranks_are_right(&other));
	expect_same(&ranks, &other);
	/* Other ranks have other gradients: both go the same way, wherever their state lies. */
	ranks = go_on("alone", 1, ZINF_OFFLOAD_CPU, "new/two", 4, 2);
	other = go_on("alone-on-disk", 1, ZINF_OFFLOAD_NVME, "new/two", 4, 2);
	expect_same(&ranks, &other);
	RUN(0, "snapshot", "rm", "new/two");
	cr_assert_eq(store_bytes(), 0);
}

/* Exported again it is the same, byte for byte: master, moments, powers, blobs. */
Test(load, what_was_loaded_exports_as_the_same_bytes)
{
	static const char *const planes[] = { "param", "master", "exp_avg", "exp_avg_sq" };
	char command[1024];

	train_and_export(ZINF_BF16);
	RUN(0, "--json", "load", path_of("all"), "base", "--snapshot", "again");
	system_expect_text(words, "\"step\": 2");
	RUN(0, "export", "base/again", path_of("again"), "--format", "zinf");
	for (size_t i = 0; i < 4; i++) {
		(void)snprintf(command, sizeof(command),
		               "cmp %s/all/%s.safetensors %s/again/%s.safetensors", folder.path,
		               planes[i], folder.path, planes[i]);
		cr_assert_eq(system(command), 0, "%s", planes[i]);
	}
	(void)snprintf(command, sizeof(command),
	               "sed '/\"snapshot\"/d' %s/all/manifest.json >%s/a; "
	               "sed '/\"snapshot\"/d' %s/again/manifest.json | cmp - %s/a",
	               folder.path, folder.path, folder.path, folder.path);
	cr_assert_eq(system(command), 0);
}

Test(load, of_fp32_goes_on_with_the_same_bits)
{
	struct trainer_settings settings = settings_of("new", 2, ZINF_OFFLOAD_NVME);
	struct ranks ranks;

	train_and_export(ZINF_F32);
	RUN(0, "load", path_of("all"), "new");
	settings.options.param_dtype = settings.options.grad_dtype = ZINF_F32;
	settings.load = "new/step-2";
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert_eq(ranks.reports[1]->first_steps[0], 2);
	cr_assert(ranks_are_right(&ranks));
	ranks_free(&ranks);
}

/* Of one moment there is one file, of fp32 no master. */
static void go_on_with(enum zinf_dtype dtype, enum zinf_optimizer optimizer)
{
	struct trainer_settings settings = settings_of("new", 2, ZINF_OFFLOAD_NVME);
	bool has_second = optimizer == ZINF_ADAMW;
	struct ranks ranks;

	train_and_export_with(dtype, optimizer);
	cr_assert_eq(access(path_of("all/exp_avg.safetensors"), F_OK), 0);
	cr_assert_eq(access(path_of("all/exp_avg_sq.safetensors"), F_OK) == 0, has_second);
	cr_assert_eq(access(path_of("all/master.safetensors"), F_OK) == 0, dtype != ZINF_F32);
	RUN(0, "load", path_of("all"), "new");
	settings.options.param_dtype = settings.options.grad_dtype = dtype;
	settings.options.optimizer = optimizer;
	settings.load = "new/step-2";
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert_eq(ranks.reports[1]->first_steps[0], 2);
	cr_assert(ranks_are_right(&ranks));
	ranks_free(&ranks);
}

Test(load, of_lion_goes_on_with_the_same_bits)
{
	go_on_with(ZINF_BF16, ZINF_LION);
}

Test(load, of_fp_sixteen_goes_on_with_the_same_bits)
{
	go_on_with(ZINF_F16, ZINF_ADAMW);
}

Test(load, of_adagrad_goes_on_with_the_same_bits)
{
	go_on_with(ZINF_F32, ZINF_ADAGRAD);
}

/* The trainer wants its blob, which parameters alone do not have: it ends where it has them. */
static void end_there(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	(void)arg;
	if (point == TRAINER_MATERIALIZED)
		_exit(zinf_committed_step(trainer->zinf) == 0 ? 33 : 34);
}

Test(load, parameters_alone_begin_at_step_0_and_are_the_same_bytes)
{
	struct trainer_settings settings = settings_of("tuned", 1, ZINF_OFFLOAD_NVME);
	char command[512];
	struct ranks ranks;

	train_and_export(ZINF_BF16);
	RUN(0, "load", path_of("two.safetensors"), "fine");
	system_expect_text(words, "as snapshot fine/step-0, step 0");
	RUN(0, "export", "fine/step-0", path_of("zero.safetensors"));
	/* Job and step are in the header: the data is compared. */
	(void)snprintf(command, sizeof(command),
	               "tail -c 100000 %s/two.safetensors >%s/a; "
	               "tail -c 100000 %s/zero.safetensors | cmp - %s/a",
	               folder.path, folder.path, folder.path, folder.path);
	cr_assert_eq(system(command), 0);
	settings.load = "fine/step-0";
	settings.hook = end_there;
	cr_assert_eq(ranks_start(&ranks, &settings), 0);
	cr_assert_eq(ranks_wait(&ranks, 0), 33);
	ranks_free(&ranks);
}

/* ---- what is refused ---- */

/* One bit of the file at @offset is another one. */
static void flip(const char *path, off_t offset)
{
	uint8_t byte;
	int fd = open(path, O_RDWR | O_CLOEXEC);

	cr_assert_geq(fd, 0, "%s", path);
	cr_assert_eq(pread(fd, &byte, 1, offset), 1);
	byte ^= 4;
	cr_assert_eq(pwrite(fd, &byte, 1, offset), 1);
	(void)close(fd);
}

static off_t bytes_of(const char *path)
{
	struct stat status;

	cr_assert_eq(stat(path, &status), 0, "%s", path);
	return status.st_size;
}

/* What was being written when zctl ended is given back when it is over. */
static void expect_nothing_left(void)
{
	for (uint32_t i = 0; i < 20000 && store_bytes(); i++)
		;
	cr_assert_eq(store_bytes(), 0, "%s", words);
	RUN(0, "--json", "snapshot", "list");
	system_expect_text(words, "[]");
}

Test(load, damaged_files_are_refused_by_name_and_leave_nothing)
{
	off_t bytes;

	train_and_export(ZINF_BF16);
	bytes = bytes_of(path_of("all/exp_avg.safetensors"));
	flip(path_of("all/exp_avg.safetensors"), bytes - 100);
	RUN(1, "load", path_of("all"), "new");
	system_expect_text(words, "exp_avg.safetensors is damaged");
	system_expect_text(words, "subgroup");
	system_expect_text(words, "nothing was loaded");
	expect_nothing_left();
	flip(path_of("all/exp_avg.safetensors"), bytes - 100);

	cr_assert_eq(truncate(path_of("all/exp_avg.safetensors"), bytes - 1), 0);
	RUN(1, "load", path_of("all"), "new");
	system_expect_text(words, "cut short");
	cr_assert_eq(unlink(path_of("all/exp_avg.safetensors")), 0);
	RUN(1, "load", path_of("all"), "new");
	system_expect_text(words, "exp_avg.safetensors: No such file");

	bytes = bytes_of(path_of("two.safetensors"));
	cr_assert_eq(truncate(path_of("two.safetensors"), bytes - 1), 0);
	RUN(1, "load", path_of("two.safetensors"), "new");
	system_expect_text(words, "cut short");
	cr_assert_eq(truncate(path_of("two.safetensors"), 5), 0);
	RUN(1, "load", path_of("two.safetensors"), "new");
	system_expect_text(words, "cut short");
	RUN(1, "load", path_of("nowhere"), "new");
	system_expect_text(words, "No such file");
	cr_assert_eq(truncate(path_of("all/manifest.json"), 100), 0);
	RUN(1, "load", path_of("all"), "new");
	system_expect_text(words, "manifest.json, line");
	RUN(2, "load", path_of("all"));
	RUN(2, "load", path_of("all"), "new", "--nonsense");
	expect_nothing_left();
}

/* The manifest with a line edited by sed, which must be one that changes it. */
static void edit_manifest(const char *script)
{
	char command[512];

	(void)snprintf(command, sizeof(command),
	               "cd %s/all && cp ../manifest.json . 2>/dev/null; cp manifest.json .. && "
	               "sed -i '%s' manifest.json && ! cmp -s manifest.json ../manifest.json",
	               folder.path, script);
	cr_assert_eq(system(command), 0, "%s", script);
}

Test(load, manifests_that_make_no_sense_are_refused)
{
	static const struct {
		const char *script, *text;
	} cases[] = {
		{ "s/\"version\": 1/\"version\": 2/", "another version" },
		{ "s/zinf-checkpoint/tar/", "is not of a zinf checkpoint" },
		{ "s/\"step\": 2/\"step\": -2/", "cannot be" },
		{ "s/\"beta1_power\": \".*\"/\"beta1_power\": \"much\"/", "no number" },
		{ "s/\"beta1_power\": \".*\"/\"beta1_power\": \"nan\"/", "cannot be" },
		{ "s/\"beta2_power\": \".*\"/\"beta2_power\": \"0x1p+3\"/", "cannot be" },
		{ "s/\"world_size\": 2/\"world_size\": 65/", "ranks" },
		{ "s/\"rank\": 1/\"rank\": 7/", "of no rank" },
		{ "s/\"optimizer\": \"adamw\"/\"optimizer\": \"lamb\"/", "is invalid" },
		{ "s/\"name\": \"master.safetensors\"/\"name\": \"..\\/x\"/", "names no file" },
		{ "s/\"layer.0.weight.0\"/\"renamed\"/", "tensor 'renamed' is missing" },
		{ "s/\"subgroup_elements\": 262144/\"subgroup_elements\": 1/", "another length" },
	};

	train_and_export(ZINF_BF16);
	for (size_t i = 0; i < ZI_COUNT_OF(cases); i++) {
		edit_manifest(cases[i].script);
		RUN(1, "load", path_of("all"), "new");
		cr_assert(strstr(words, cases[i].text), "%s: %s", cases[i].script, words);
	}
	expect_nothing_left();
}

/* As trainer_small, but for the last parameter. */
static const struct trainer_model other_model = {
	.unit_count = 4,
	.unit_params = { 2, 3, 1, 1 },
	.elements = { 270000, 1777, 1, 4095, 8193, 40960, 16386 },
};

Test(load, another_model_and_a_name_that_is_taken_are_refused)
{
	struct trainer_settings settings;
	uint32_t refused = 0;
	struct ranks ranks;

	train_and_export(ZINF_BF16);
	RUN(0, "load", path_of("all"), "new/two");
	RUN(1, "load", path_of("all"), "new/two");
	system_expect_text(words, "'new/two' exists");
	settings = settings_of("other", 2, ZINF_OFFLOAD_NVME);
	settings.load = "new/two";
	settings.model = &other_model;
	cr_assert_neq(ranks_train(&ranks, &settings), 0);
	/* The first to come; the other one may find that one's group, and no model. */
	while (refused + 1 < ranks.world && ranks.reports[refused]->result != -EINVAL)
		refused++;
	system_expect_text(ranks.reports[refused]->text,
	                   "'new/two' is a snapshot of another model");
	ranks_free(&ranks);
	/* Parameters of a model whose tensors have other shapes. */
	RUN(1, "load", path_of("two.safetensors"), "x", "--like", "nobody");
	system_expect_text(words, "no job 'nobody'");
}

Test(load, without_room_is_refused_with_figures)
{
	train_and_export(ZINF_BF16);
	harness_kill(&harness);
	harness.options.extra = "[quota]\nuid_nvme = 1M\n";
	cr_assert_eq(harness_restart(&harness), 0);
	RUN(1, "load", path_of("all"), "new");
	system_expect_text(words, "EDQUOT");
	system_expect_text(words, "1 MiB");
	expect_nothing_left();
}

/* ---- a zctl that dies ---- */

/* It dies when it reads its files from @offset or later on. */
static int load_and_die(void *arg)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pread64, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t) * (off_t *)arg, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { ZI_COUNT_OF(code), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		return 77;
	return harness_zctl(harness.socket_path,
	                    (const char *const[]){ "load", path_of("all"), "new", NULL }, words,
	                    sizeof(words));
}

Test(load, that_dies_in_the_middle_leaves_nothing)
{
	off_t offset;
	int code;

	train_and_export(ZINF_BF16);
	offset = bytes_of(path_of("all/exp_avg.safetensors")) / 2;
	code = harness_wait(harness_fork(load_and_die, &offset), 20000);
	cr_assert_neq(code, 0);
	cr_assert_neq(code, 1);
	cr_assert_neq(code, 77, "no seccomp");
	expect_nothing_left();
	RUN(0, "load", path_of("all"), "new");
}

/* ---- restore ---- */

static void refused_while_attached(const struct trainer *trainer, enum trainer_point point,
                                   void *arg)
{
	(void)arg;
	if (point != TRAINER_WAITED || trainer->rank || trainer->step != 2)
		return;
	if (harness_zctl(harness.socket_path,
	                 (const char *const[]){ "snapshot", "base", "--name", "two", NULL }, words,
	                 sizeof(words)) != 0)
		_exit(101);
	if (harness_zctl(harness.socket_path,
	                 (const char *const[]){ "snapshot", "restore", "base/two", NULL }, words,
	                 sizeof(words)) != 1 ||
	    !strstr(words, "is in use by 2 processes, such as rank 0, pid"))
		_exit(102);
}

Test(load, restore_puts_a_job_back_and_it_goes_the_same_way)
{
	struct trainer_settings settings = settings_of("base", 2, ZINF_OFFLOAD_NVME);
	struct trainer_settings branch;
	struct ranks ranks;

	settings.hook = refused_while_attached;
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	ranks_free(&ranks);
	settings.hook = NULL;
	for (uint32_t i = 0; i < 2; i++) {
		RUN(0, "snapshot", "restore", "base/two");
		system_expect_text(words, "restored base/two, step 2");
		if (i) { /* What was said is kept. */
			harness_kill(&harness);
			cr_assert_eq(harness_restart(&harness), 0);
		}
		settings.options.incarnation = i ? "third" : "second";
		cr_assert_eq(ranks_train(&ranks, &settings), 0);
		cr_assert_eq(ranks.reports[0]->first_steps[0], 2);
		cr_assert(ranks_are_right(&ranks));
		ranks_free(&ranks);
	}
	RUN(0, "snapshot", "restore", "base/two", "--as", "branch");
	system_expect_text(words, "restored base/two as job branch, step 2");
	RUN(1, "snapshot", "restore", "base/two", "--as", "branch");
	system_expect_text(words, "job 'branch' exists");
	RUN(2, "snapshot", "restore", "base/two", "--as");
	RUN(1, "snapshot", "restore", "base/two", "--as", "a/b");
	branch = settings_of("branch", 2, ZINF_OFFLOAD_NVME);
	cr_assert_eq(ranks_train(&ranks, &branch), 0);
	cr_assert_eq(ranks.reports[0]->first_steps[0], 2);
	cr_assert(ranks_are_right(&ranks));
	ranks_free(&ranks);
	cr_assert_eq(system_destroy_job(&branch), 0);
	RUN(1, "snapshot", "restore", "base/three");
	system_expect_text(words, "no snapshot 'base/three'");
	RUN(1, "snapshot", "restore", "nobody/two");
	system_expect_text(words, "no snapshot 'nobody/two'");
	cr_assert_eq(system_destroy_job(&settings), 0);
	RUN(1, "snapshot", "restore", "base/two");
	system_expect_text(words, "--as");
	RUN(0, "snapshot", "rm", "base/two");
	expect_nothing_left();
}
