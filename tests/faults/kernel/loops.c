/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of loop devices, with and without a file system on them (kernel.h). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "tests/faults/kernel/kernel.h"

#define DEVICE_BYTES (64u << 20)
/* Of the backing file the superblock of a store on the bare device is left. */
#define CUT_BYTES (64u << 10)
/* Room for what the victim has when it begins, not for what it writes then. */
#define TMPFS_SIZE "size=24m"

static char *path_in(const struct scene *scene, const char *name, char path[300])
{
	(void)snprintf(path, 300, "%s/%s", scene->directory, name);
	return path;
}

static bool is_mounted(const char *what, const char *path, const char *type, const char *options)
{
	return faults_says((mkdir(path, 0755) == 0 || errno == EEXIST) &&
	                           mount(what, path, type, 0, options) == 0,
	                   "not mounted", path);
}

/* Rings of a daemon that has just gone may hold it for a moment longer. */
static void unmount(const char *path)
{
	(void)umount2(path, MNT_DETACH);
	(void)rmdir(path);
}

/* A file that takes all that is left. */
static bool fill(const char *path)
{
	static const char zeros[1 << 16];
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ssize_t r = 0;

	while (fd >= 0 && (r = write(fd, zeros, sizeof(zeros))) > 0)
		;
	while (fd >= 0 && (r = write(fd, zeros, 512)) > 0)
		;
	r = fd >= 0 && errno == ENOSPC;
	(void)zi_close(fd);
	return faults_says(r, "it does not get full", path);
}

static bool is_sound(int r, const char *words)
{
	return faults_says(r == 0, words, strerror(-r));
}

/* What was cut off cannot be read; where it was it is again. */
static bool check_cut(struct scene *scene, const struct loop *loop)
{
	bool is_right = is_sound(loop_keep(loop), "no copy") &&
	                is_sound(loop_cut(loop, CUT_BYTES), "not cut") &&
	                scene_fails(scene, -EIO, true);

	scene->test.found_count++;
	return is_sound(loop_restore(loop), "not restored") && is_right && scene_goes_on(scene);
}

static bool check_device(struct scene *scene, struct loop *loop, const char *backend)
{
	(void)snprintf(scene->disk_path, sizeof(scene->disk_path), "%s", loop->device_path);
	return scene_open(scene, backend, "require", 30, 1) && check_cut(scene, loop) &&
	       scene_halt(scene);
}

/* A device promises more than what is behind it has. */
static bool check_thin(struct scene *scene, struct loop *loop, const char *tmpfs_path,
                       const char *backend)
{
	char path[320];

	(void)snprintf(path, sizeof(path), "%s/filler", tmpfs_path);
	(void)snprintf(scene->disk_path, sizeof(scene->disk_path), "%s", loop->device_path);
	if (!scene_open(scene, backend, "require", 30, 0) || !fill(path) ||
	    !scene_fails(scene, -ENOSPC, true))
		return false;
	scene->test.found_count++;
	return is_sound(unlink(path), "the filler stays") && scene_goes_on(scene) &&
	       scene_halt(scene);
}

/* Return: whether the daemon refuses to begin in a full file system, with figures. */
static bool check_full(struct scene *scene, const char *filler_path)
{
	static char words[1 << 14];
	char config[512];
	int code;

	(void)snprintf(config, sizeof(config),
	               "[daemon]\nsocket = %s/full.sock\nstate_dir = %s/full\n"
	               "[tier.cpu]\ncapacity = 64M\n[nvme disk]\nsize = 36M\npath = %s\n",
	               scene->directory, scene->directory, scene->disk_path);
	if (!fill(filler_path))
		return false;
	code = harness_run(config, NULL, words, sizeof(words));
	scene->test.case_count++;
	scene->test.found_count++;
	return faults_says(code > 0 && strstr(words, scene->disk_path) && strstr(words, "36 MiB") &&
	                           strstr(words, "free") && access(scene->disk_path, F_OK),
	                   "a full file system is not told", words) &&
	       is_sound(unlink(filler_path), "the filler stays");
}

static bool check_ext4(struct scene *scene, struct loop *loop, const char *mount_path,
                       const char *backend)
{
	char command[128], path[320];

	if (access("/sbin/mkfs.ext4", X_OK)) {
		printf("check_kernel: ext4 is skipped: no mkfs.ext4\n");
		return true;
	}
	(void)snprintf(command, sizeof(command), "mkfs.ext4 -q -F %s", loop->device_path);
	(void)snprintf(path, sizeof(path), "%s/filler", mount_path);
	(void)snprintf(scene->disk_path, sizeof(scene->disk_path), "%.120s/disk", mount_path);
	return is_sound(system(command), "no file system") &&
	       is_mounted(loop->device_path, mount_path, "ext4", NULL) && check_full(scene, path) &&
	       scene_open(scene, backend, "require", 30, 1) && check_cut(scene, loop) &&
	       scene_halt(scene);
}

enum stage { BARE, THIN, EXT4, _STAGE_COUNT };

/* Return: 1 where this machine has no loop devices, 0 right, -1 wrong. */
static int check_stage(struct scene *scene, enum stage stage, const char *backend)
{
	struct loop loop;
	char below[300], above[300], backing[320];
	bool is_right = true;
	int r;

	(void)path_in(scene, "below", below);
	(void)path_in(scene, "above", above);
	if (stage == THIN)
		is_right = is_mounted("zinf-test", below, "tmpfs", TMPFS_SIZE);
	else
		is_right = is_sound(mkdir(below, 0755), "no folder");
	(void)snprintf(backing, sizeof(backing), "%s/backing", below);
	r = loop_attach(&loop, backing, DEVICE_BYTES);
	if (!r && is_right) {
		is_right = stage == BARE   ? check_device(scene, &loop, backend)
		           : stage == THIN ? check_thin(scene, &loop, below, backend)
		                           : check_ext4(scene, &loop, above, backend);
		if (!is_right)
			harness_print_log(&scene->test.harness);
		scene_remove(scene);
	}
	unmount(above);
	loop_detach(&loop);
	unmount(below);
	if (r == -EOPNOTSUPP)
		return 1;
	return is_right && is_sound(r, "no loop device") ? 0 : -1;
}

bool kernel_check_loop(struct scene *scene)
{
	for (int stage = 0; stage < _STAGE_COUNT; stage++) {
		const char *backend = stage == THIN ? "threads" : "io_uring";
		int r = check_stage(scene, (enum stage)stage, backend);

		if (r > 0)
			printf("check_kernel: loop devices are skipped: this machine has none\n");
		if (r)
			return r > 0;
	}
	return true;
}
