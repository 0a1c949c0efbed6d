/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what zctl exports is the step it says, byte for byte, in files that other tools read; also
 * while training goes on; and when it cannot be written, or what it reads is damaged, nothing is
 * left and the words say why. Method: exports of a snapshot and from inside a training are compared
 * with the parameters that a job sees which begins with the same snapshot, and the optimizer's
 * planes with each other; the safetensors package of Python reads them where it is installed.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/ranks.h"
#include "tests/harness/reference.h"
#include "tests/system/files.h"

TestSuite(export, .init = files_start, .fini = files_stop, .timeout = 120);

static struct trainer_settings settings_of(const char *job)
{
	struct trainer_settings settings = ranks_settings(&harness, job, 2);

	settings.options.param_dtype = settings.options.grad_dtype = ZINF_BF16;
	settings.options.offload_optimizer = ZINF_OFFLOAD_NVME;
	settings.options.staging_bytes = 8 << 20;
	settings.steps = 4;
	return settings;
}

/* After step 2: snapshot "two"; rank 0 exports while rank 1 goes on as far as it can. */
static void export_there(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	struct zinf_snapshot_options named = ZINF_SNAPSHOT_OPTIONS_INIT;

	(void)arg;
	named.name = "two";
	if (point != TRAINER_STEP_BEGUN || trainer->rank || trainer->step != 3)
		return;
	if (zinf_snapshot(trainer->zinf, &named, NULL) ||
	    harness_zctl(
		    harness.socket_path,
		    (const char *const[]){ "export", "base", path_of("live.safetensors"), NULL },
		    words, sizeof(words)))
		_exit(101);
}

static void train(void)
{
	struct trainer_settings settings = settings_of("base");
	struct ranks ranks;

	settings.hook = export_there;
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert(ranks_are_right(&ranks));
	ranks_free(&ranks);
}

struct file {
	uint8_t *bytes;
	uint64_t byte_count, data_offset;
	json_t *header;
};

/* A safetensors file by the format's own rules. */
static struct file read_file(const char *path)
{
	struct file file = { 0 };
	struct stat status;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	json_error_t error;

	cr_assert_geq(fd, 0, "%s", path);
	cr_assert_eq(fstat(fd, &status), 0);
	cr_expect_eq(status.st_mode & 0777, 0600, "parameters are the owner's: %s", path);
	file.byte_count = (uint64_t)status.st_size;
	file.bytes = malloc(file.byte_count);
	cr_assert_eq(read(fd, file.bytes, file.byte_count), (ssize_t)file.byte_count);
	(void)close(fd);
	for (uint32_t i = 0; i < 8; i++)
		file.data_offset |= (uint64_t)file.bytes[i] << 8 * i;
	cr_assert_eq(file.data_offset % 8, 0);
	file.header = json_loadb((char *)file.bytes + 8, file.data_offset, 0, &error);
	cr_assert_not_null(file.header, "%s", error.text);
	file.data_offset += 8;
	return file;
}

static void free_file(struct file *file)
{
	json_decref(file->header);
	free(file->bytes);
}

/* Every tensor in the model's order, without gaps. */
static void check_header(const struct file *file, const char *dtype, uint32_t width)
{
	const struct trainer_model *model = &trainer_small;
	uint64_t offset = 0;
	uint32_t param = 0;

	for (uint32_t unit = 0; unit < model->unit_count; unit++)
		for (uint32_t end = param + model->unit_params[unit]; param < end; param++) {
			char name[64];
			json_t *tensor, *offsets;

			(void)snprintf(name, sizeof(name), "layer.%u.weight.%u", unit, param);
			tensor = json_object_get(file->header, name);
			cr_assert_not_null(tensor, "%s", name);
			cr_assert_str_eq(json_string_value(json_object_get(tensor, "dtype")),
			                 dtype);
			offsets = json_object_get(tensor, "data_offsets");
			cr_assert_eq((uint64_t)json_integer_value(json_array_get(offsets, 0)),
			             offset);
			offset += model->elements[param] * width;
			cr_assert_eq((uint64_t)json_integer_value(json_array_get(offsets, 1)),
			             offset);
			cr_assert_eq(json_array_size(json_object_get(tensor, "shape")),
			             model->elements[param] == 1 ? 0 : 2);
		}
	cr_assert_eq(file->byte_count, file->data_offset + offset);
}

/* The parameters at the snapshot's step, as a job sees them that begins with it. */
static void check_params(const struct file *file, int64_t step)
{
	struct trainer_settings settings = settings_of("seen");
	struct ranks ranks;

	settings.load = "base/two";
	settings.steps = (uint32_t)step;
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert_eq(ranks.reports[0]->first_steps[0], step);
	cr_assert_eq(memcmp(file->bytes + file->data_offset, ranks.reports[0]->dump,
	                    trainer_dump_bytes(&settings)),
	             0, "bytes of the step");
	ranks_free(&ranks);
}

/* Where tools/deps has put it; false after a word. */
static bool has_python_package(void)
{
	if (system("PYTHONPATH=build/python python3 -c 'import safetensors' 2>/dev/null") == 0)
		return true;
	fprintf(stderr, "skipped: the Python package safetensors is not installed (tools/deps "
	                "check installs it where pip reaches its index)\n");
	return false;
}

Test(export, parameters_are_those_of_the_step_also_while_training_goes_on)
{
	struct file file, live;
	char command[1024];

	train();
	RUN(0, "export", "base/two", path_of("two.safetensors"));
	system_expect_text(words, "step 2");
	file = read_file(path_of("two.safetensors"));
	check_header(&file, "BF16", 2);
	check_params(&file, 2);
	live = read_file(path_of("live.safetensors"));
	check_header(&live, "BF16", 2);
	cr_assert_eq(memcmp(file.bytes + file.data_offset, live.bytes + live.data_offset,
	                    live.byte_count - live.data_offset),
	             0);
	free_file(&file);
	free_file(&live);
	if (!has_python_package())
		return;
	(void)snprintf(command, sizeof(command),
	               "PYTHONPATH=build/python python3 tests/system/safetensors_read.py %s",
	               path_of("two.safetensors"));
	cr_assert_eq(system(command), 0);
}

/* master rounds to the parameter; the moments are finite, and not all zero. */
Test(export, everything_is_in_the_directory_and_fits_together)
{
	struct file param, master, moments[2];
	uint64_t count, nonzero_count = 0;
	json_t *manifest;
	json_error_t error;

	train();
	RUN(0, "--json", "export", "base/two", path_of("all"), "--format", "zinf");
	manifest = json_loads(words, 0, &error);
	cr_assert_eq(json_integer_value(json_object_get(manifest, "step")), 2, "%s", words);
	json_decref(manifest);
	param = read_file(path_of("all/param.safetensors"));
	master = read_file(path_of("all/master.safetensors"));
	moments[0] = read_file(path_of("all/exp_avg.safetensors"));
	moments[1] = read_file(path_of("all/exp_avg_sq.safetensors"));
	check_header(&param, "BF16", 2);
	check_header(&master, "F32", 4);
	check_header(&moments[1], "F32", 4);
	check_params(&param, 2);
	count = (param.byte_count - param.data_offset) / 2;
	for (uint64_t i = 0; i < count; i++) {
		uint32_t bits, square;
		uint16_t high;

		memcpy(&bits, master.bytes + master.data_offset + 4 * i, 4);
		memcpy(&high, param.bytes + param.data_offset + 2 * i, 2);
		cr_assert_eq((uint16_t)((bits + 0x8000) >> 16), high, "element %llu",
		             (unsigned long long)i);
		memcpy(&square, moments[1].bytes + moments[1].data_offset + 4 * i, 4);
		cr_assert_eq(square >> 31, 0, "no square is negative");
		cr_assert_lt(square, 0x7f800000u, "and all are finite");
		nonzero_count += square != 0;
	}
	cr_assert_gt(nonzero_count, count / 2);
	manifest = json_load_file(path_of("all/manifest.json"), 0, &error);
	cr_assert_not_null(manifest, "%s", error.text);
	cr_assert_str_eq(json_string_value(json_object_get(manifest, "format")), "zinf-checkpoint");
	cr_assert_eq(json_integer_value(json_object_get(manifest, "update_count")), 2);
	cr_assert_eq(json_array_size(json_object_get(manifest, "files")), 4);
	cr_assert_eq(json_array_size(json_object_get(manifest, "blobs")), 2);
	json_decref(manifest);
	free_file(&param);
	free_file(&master);
	free_file(&moments[0]);
	free_file(&moments[1]);
}

static void nothing_is_left(const char *name)
{
	char partial[100];

	(void)snprintf(partial, sizeof(partial), "%s.tmp", name);
	cr_assert_neq(access(path_of(name), F_OK), 0, "%s", words);
	cr_assert_neq(access(path_of(partial), F_OK), 0, "%s", words);
}

/* A process that may write no file larger than 64 KiB, as on a disk that is full. */
static int export_limited(void *arg)
{
	const struct rlimit limit = { 1 << 16, 1 << 16 };
	const char *const *arguments = arg;

	(void)signal(SIGXFSZ, SIG_IGN);
	if (setrlimit(RLIMIT_FSIZE, &limit))
		return 77;
	if (harness_zctl(harness.socket_path, arguments, words, sizeof(words)) != 1)
		return 78;
	return strstr(words, "nothing was exported") && strstr(words, "free space") ? 0 : 79;
}

Test(export, what_cannot_be_written_is_refused_and_leaves_nothing)
{
	struct stat status;

	train();
	RUN(2, "export", "base");
	RUN(2, "export", "base", path_of("x"), "--format", "tar");
	RUN(1, "export", "nobody", path_of("x"));
	system_expect_text(words, "no job 'nobody'");
	RUN(1, "export", "base/three", path_of("x"));
	system_expect_text(words, "no snapshot 'base/three'");
	RUN(1, "export", "base", path_of("no/such/place"));
	cr_assert_eq(harness_wait(harness_fork(export_limited,
	                                       (void *)(const char *const[]){
						       "export", "base", path_of("full"), NULL }),
	                          20000),
	             0);
	nothing_is_left("full");
	cr_assert_eq(harness_wait(harness_fork(export_limited,
	                                       (void *)(const char *const[]){
						       "export", "base", path_of("full"),
						       "--format", "zinf", NULL }),
	                          20000),
	             0);
	nothing_is_left("full");
	cr_assert_eq(mkdir(path_of("there"), 0700), 0);
	RUN(1, "export", "base", path_of("there"));
	system_expect_text(words, "exists: nothing was overwritten");
	cr_assert_eq(stat(path_of("there"), &status), 0);
	cr_assert(S_ISDIR(status.st_mode));
	RUN(0, "snapshot", "rm", "base/two"); /* Nobody reads it any more. */
}

/* ---- on a terminal ---- */

struct terminal {
	const char *source, *target;
	int fd; /* zctl's side */
};

/* zctl, whose words go to a terminal. */
static int export_on_terminal(void *arg)
{
	const struct terminal *terminal = arg;
	char program[300];

	harness_program("zctl", program, sizeof(program));
	if (setenv("ZINF_SOCKET", harness.socket_path, 1) || dup2(terminal->fd, 1) < 0 ||
	    dup2(terminal->fd, 2) < 0)
		return 77;
	execl(program, "zctl", "export", terminal->source, terminal->target, NULL);
	return 78;
}

/* All that is shown until zctl ends; its exit code. */
static int show_export(const char *source, const char *target)
{
	struct terminal terminal = { source, target, -1 };
	size_t byte_count = 0;
	ssize_t got;
	pid_t pid;
	int fd;

	cr_assert_eq(openpty(&fd, &terminal.fd, NULL, NULL, NULL), 0);
	pid = harness_fork(export_on_terminal, &terminal);
	(void)close(terminal.fd);
	while (byte_count < sizeof(words) - 1 && /* -EIO: nobody holds the other side any more. */
	       (got = read(fd, words + byte_count, sizeof(words) - 1 - byte_count)) > 0)
		byte_count += (size_t)got;
	words[byte_count] = '\0';
	(void)close(fd);
	return harness_wait(pid, 20000);
}

Test(export, progress_is_a_bar_on_a_terminal_and_nothing_elsewhere)
{
	train();
	cr_assert_eq(show_export("base", path_of("shown")), 0, "%s", words);
	system_expect_text(words, "\rbase [#");
	system_expect_text(words, "100 %");
	system_expect_text(words, "iB/s\033[K\r\nexported base, step 4");
	cr_assert_eq(show_export("base", path_of("shown")), 1); /* Before anything is drawn. */
	cr_assert_null(strchr(words, '['), "%s", words);
	RUN(0, "export", "base", path_of("unseen"));
	cr_assert_null(strchr(words, '['), "no bar in a file: %s", words);
}

Test(export, a_full_disk_is_told_and_left_as_it_was)
{
	const char *full = path_of("small");

	train();
	if (geteuid()) {
		files_stop(); /* A test that is skipped has no .fini. */
		cr_skip_test("mounting a small file system needs root");
	}
	cr_assert_eq(mkdir(full, 0700), 0);
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("zinf-test", full, "tmpfs", 0, "size=256k")) {
		files_stop(); /* A test that is skipped has no .fini. */
		cr_skip_test("this machine does not let us mount a tmpfs");
	}
	RUN(1, "export", "base", path_of("small/x"));
	system_expect_text(words, "No space left on device (export elsewhere, or free space)");
	nothing_is_left("small/x");
	cr_assert_eq(umount2(path_of("small"), 0), 0);
}

/* ---- damage ---- */

/* One byte of the first parameters on the store is another one. */
static void damage_store(const struct file *file)
{
	char path[512];
	uint8_t block[4096];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/store", harness.directory);
	fd = open(path, O_RDWR | O_CLOEXEC);
	cr_assert_geq(fd, 0, "%s", path);
	for (off_t offset = 0; pread(fd, block, sizeof(block), offset) == (ssize_t)sizeof(block);
	     offset += (off_t)sizeof(block)) {
		if (memcmp(block, file->bytes + file->data_offset, sizeof(block)) != 0)
			continue;
		block[7] ^= 1;
		cr_assert_eq(pwrite(fd, block, 8, offset), 8);
		(void)close(fd);
		return;
	}
	cr_assert(false, "the parameters are not on the store");
}

Test(export, damage_is_found_and_named)
{
	struct file file;

	train();
	RUN(0, "export", "base/two", path_of("whole"));
	file = read_file(path_of("whole"));
	damage_store(&file);
	free_file(&file);
	RUN(1, "export", "base/two", path_of("damaged"));
	system_expect_text(words,
	                   "job 'base': parameters of unit 'layer.0', subgroup 0, is damaged");
	system_expect_text(words, "do not match their checksum");
	nothing_is_left("damaged");
	cr_assert_eq(show_export("base/two", path_of("damaged")), 1);
	system_expect_text(words, "\033[K\r\nzctl: job 'base'"); /* below the bar */
	/* Other steps have other extents. */
	RUN(0, "export", "base", path_of("newer"));
}

/* ---- a disk that cannot be read ---- */

static void start_unreadable(void)
{
	folder_make(&folder, "files");
	system_start(&harness,
	             &(struct harness_options){ .nvme_size = "64M",
	                                        .nvme_extra = "backend = faulty:EIO=read@1+\n" });
}

Test(export_unreadable, what_could_not_be_read_is_named, .init = start_unreadable,
     .fini = files_stop, .timeout = 120)
{
	struct trainer_settings settings = settings_of("base");
	struct ranks ranks;

	settings.steps = 0;
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	ranks_free(&ranks);
	RUN(1, "export", "base", path_of("none"));
	system_expect_text(
		words, "job 'base': reading parameters of unit 'layer.0', subgroup 0, at offset ");
	system_expect_text(words, "/store: EIO");
	nothing_is_left("none");
}
