/* SPDX-License-Identifier: Apache-2.0 */
/* Faults that a FUSE file system hands up through the kernel (kernel.h). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "tests/faults/kernel/kernel.h"

/* How the kernel brings a request to the file system. */
struct way {
	const char *backend;
	bool is_async;
	bool gives_back; /* what is asked back comes back */
};

static const struct way ways[] = {
	{ "io_uring", false, true },
	{ "io_uring", true, false },
	{ "threads", false, false },
};
#define WAY_COUNT (sizeof(ways) / sizeof(*ways))

static const struct faultfs_rule errors[] = {
	{ FAULTFS_READ, FAULTFS_ERROR, EIO, 0 },  { FAULTFS_READ, FAULTFS_ERROR, EIO, 5 },
	{ FAULTFS_WRITE, FAULTFS_ERROR, EIO, 0 }, { FAULTFS_WRITE, FAULTFS_ERROR, ENOSPC, 3 },
	{ FAULTFS_FLUSH, FAULTFS_ERROR, EIO, 0 },
};
#define ERROR_COUNT (sizeof(errors) / sizeof(*errors))

struct fuse_scene {
	struct scene *scene;
	struct faultfs faultfs;
	char store_path[128]; /* behind the mount */
};

static bool make_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	return faults_says(zi_close(fd) == -1 && access(path, F_OK) == 0, "no file", path);
}

static bool obeys(int r)
{
	return faults_says(r == 0, "the file system does not obey", strerror(-r));
}

static bool check_errors(struct fuse_scene *fuse)
{
	for (size_t i = 0; i < ERROR_COUNT; i++) {
		const struct faultfs_rule *rule = &errors[i];

		if (!obeys(faultfs_rule(&fuse->faultfs, rule)) ||
		    !scene_fails(fuse->scene, -rule->error, rule->op != FAULTFS_FLUSH) ||
		    !obeys(faultfs_mend(&fuse->faultfs)) || !scene_goes_on(fuse->scene))
			return false;
		fuse->scene->test.found_count++;
	}
	return true;
}

static bool cut_all(struct fuse_scene *fuse, enum faultfs_op op)
{
	struct faultfs_rule rule = { op, FAULTFS_SHORT, 0, 0 };

	return obeys(faultfs_rule(&fuse->faultfs, &rule));
}

/*
 * All of them short: mended by asking for the rest, nobody notices. Of a short write io_uring does
 * not tell us: the kernel (6.18) makes an error of it. And where a thread of the kernel waits for a
 * read, it asks for the rest itself, but from the beginning (fuse_direct_IO() leaves ki_pos as it
 * was), and says that all has come: not ours to mend, and damage by the checksum.
 */
static bool check_short(struct fuse_scene *fuse, const struct way *way)
{
	bool is_uring = !strcmp(way->backend, "io_uring");
	struct scene *scene = fuse->scene;
	struct faultfs_counts before, after;

	scene->test.case_count++;
	if (is_uring && !way->is_async)
		return cut_all(fuse, FAULTFS_READ) && scene_fails(scene, -EBADMSG, true) &&
		       obeys(faultfs_mend(&fuse->faultfs)) && scene_goes_on(scene);
	if (!obeys(faultfs_await(&fuse->faultfs, 0, &before)) || !cut_all(fuse, FAULTFS_READ) ||
	    (!is_uring && !cut_all(fuse, FAULTFS_WRITE)) || !scene_goes_on(scene) ||
	    !obeys(faultfs_await(&fuse->faultfs, 0, &after)) ||
	    !faults_says(after.hit_count > before.hit_count + 10, "too few were short",
	                 way->backend))
		return false;
	if (is_uring && (!cut_all(fuse, FAULTFS_WRITE) || !scene_fails(scene, -EIO, true)))
		return false;
	return obeys(faultfs_mend(&fuse->faultfs)) && scene_goes_on(scene);
}

/* ---- what does not answer ---- */

static int64_t held_now(struct scene *scene)
{
	json_t *status = harness_admin(&scene->test.harness, "status");
	int64_t count = json_integer_value(json_object_get(status, "io_held"));

	json_decref(status);
	return count;
}

/* The deadline has passed, and the disk still has what it was given. Asks again and again; the
 * daemon answers meanwhile. */
static bool await_late(struct scene *scene)
{
	static char log[1 << 16];
	uint64_t deadline_ns = zi_clock_deadline_ns(30 * ZI_NS_PER_S);

	while (!held_now(scene) && zi_clock_now_ns() < deadline_ns)
		;
	harness_log(&scene->test.harness, log, sizeof(log));
	return faults_says(held_now(scene) > 0, "nothing is held", scene->test.extra) &&
	       faults_says(strstr(log, "(deadline_s); the device still holds a part of it") &&
	                           strstr(log, scene->disk_path),
	                   "the stall is not logged", log);
}

/* The victim on its way to the next step when the disk stops answering @op. */
static bool hang(struct fuse_scene *fuse, enum faultfs_op op, struct ranks *ranks,
                 char incarnation[32])
{
	struct scene *scene = fuse->scene;
	struct trainer_settings settings = faults_settings(&scene->test, "victim");
	struct faultfs_rule rule = { op, FAULTFS_HOLD, 0, 2 };
	struct faultfs_counts counts;

	(void)snprintf(incarnation, 32, "run.%u", scene->test.incarnation++);
	settings.options.incarnation = incarnation;
	settings.steps = (uint32_t)scene->step + 1;
	scene->test.case_count++;
	return obeys(faultfs_rule(&fuse->faultfs, &rule)) &&
	       faults_says(ranks_start(ranks, &settings) == 0, "no rank", incarnation) &&
	       obeys(faultfs_await(&fuse->faultfs, 1, &counts)) && scene_neighbour_steps(scene);
}

static bool ends(struct scene *scene, struct ranks *ranks, int error, int other_error)
{
	int code = ranks_wait(ranks, 0);
	struct trainer_report *report = ranks->reports[0];
	bool is_right =
		faults_says(code == 1 && (report->result == error || report->result == other_error),
	                    "another end than the disk's", report->text) &&
		faults_says(faults_names_place(&scene->test, report->text),
	                    "the error does not name its place", report->text);

	scene->test.found_count++;
	return is_right;
}

/* Whether the kernel gives it back by itself, or not before the disk does: the answer then is that
 * of nobody, and must reach nobody. */
static bool check_hang(struct fuse_scene *fuse, const struct way *way, enum faultfs_op op)
{
	struct scene *scene = fuse->scene;
	struct faultfs_counts counts;
	struct ranks ranks = { 0 };
	char incarnation[32];
	bool is_right = hang(fuse, op, &ranks, incarnation);

	if (is_right && !way->gives_back)
		is_right = await_late(scene) && scene_neighbour_steps(scene) &&
		           obeys(faultfs_mend(&fuse->faultfs)) &&
		           obeys(faultfs_let_go(&fuse->faultfs, true));
	is_right = is_right && ends(scene, &ranks, -ETIMEDOUT, -ETIMEDOUT);
	ranks_free(&ranks);
	if (!is_right || !obeys(faultfs_mend(&fuse->faultfs)) ||
	    !obeys(faultfs_await(&fuse->faultfs, 0, &counts)))
		return false;
	return faults_says(counts.held_count == 0, "something is held", scene->test.extra) &&
	       faults_says(!way->gives_back || counts.interrupted_count > 0,
	                   "nothing was asked back", scene->test.extra) &&
	       faults_says(held_now(scene) == 0, "the engine waits", scene->test.extra) &&
	       scene_goes_on(scene);
}

/* In the midst of a step the disk is gone, with what it was given; then it is back, and the daemon
 * is started anew. */
static bool check_vanish(struct fuse_scene *fuse, const struct way *way)
{
	struct scene *scene = fuse->scene;
	struct ranks ranks = { 0 };
	char incarnation[32];
	bool is_right = hang(fuse, FAULTFS_WRITE, &ranks, incarnation);

	faultfs_vanish(&fuse->faultfs);
	is_right = is_right && ends(scene, &ranks, -ECONNABORTED, -ENOTCONN);
	ranks_free(&ranks);
	return is_right && scene_fails(scene, -ENOTCONN, true) && scene_halt(scene) &&
	       obeys(faultfs_start(&fuse->faultfs, fuse->store_path, scene->disk_path,
	                           way->is_async)) &&
	       scene_reopen(scene, way->backend, 30) && scene_goes_on(scene);
}

static bool check_way(struct fuse_scene *fuse, const struct way *way)
{
	struct scene *scene = fuse->scene;

	return obeys(faultfs_start(&fuse->faultfs, fuse->store_path, scene->disk_path,
	                           way->is_async)) &&
	       scene_open(scene, way->backend, "require", 30, 1) && check_errors(fuse) &&
	       check_short(fuse, way) && scene_halt(scene) &&
	       scene_reopen(scene, way->backend, 1) && check_hang(fuse, way, FAULTFS_READ) &&
	       check_hang(fuse, way, FAULTFS_WRITE) && scene_halt(scene) &&
	       /* What vanishes is not late, however long it takes until it does. */
	       scene_reopen(scene, way->backend, 30) && check_vanish(fuse, way) &&
	       scene_halt(scene);
}

bool kernel_check_fuse(struct scene *scene)
{
	struct fuse_scene fuse = { .scene = scene, .faultfs = { .control_fd = -1 } };
	bool is_right = true;

	if (access("/dev/fuse", R_OK | W_OK)) {
		printf("check_kernel: FUSE is skipped: no /dev/fuse (%s)\n", strerror(errno));
		return true;
	}
	(void)snprintf(scene->disk_path, sizeof(scene->disk_path), "%s/disk", scene->directory);
	(void)snprintf(fuse.store_path, sizeof(fuse.store_path), "%s/behind", scene->directory);
	for (size_t i = 0; i < WAY_COUNT && is_right; i++) {
		is_right = make_file(scene->disk_path) && make_file(fuse.store_path) &&
		           check_way(&fuse, &ways[i]);
		if (!is_right) {
			fprintf(stderr, "check_kernel: FAILED with %s\n", ways[i].backend);
			harness_print_log(&scene->test.harness);
		}
		faultfs_vanish(&fuse.faultfs);
		scene_remove(scene);
		(void)unlink(fuse.store_path);
		(void)unlink(scene->disk_path);
	}
	return is_right;
}
