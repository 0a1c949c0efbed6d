/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what a disk does below the kernel reaches who needs it: errors, short counts, failing
 * flushes, silence and disappearance are told with job, plane, offset and path; the job stands at a
 * committed step and goes on to the right bits when the disk is well again; another job on another
 * disk goes on meanwhile; what does not answer is reported when `deadline_s` is over, and no buffer
 * is used while the kernel has it.
 * Method: a real zinfd (io_uring and threads) with a store on a FUSE file system that fails by
 * command (faultfs.h, a test double), and on loop devices whose backing file is cut or cannot grow.
 * All of it is mounted in a name space of the test: nothing stays mounted whatever happens.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/faults/kernel/kernel.h"
#include "tests/guard/guard.h"

/* The whole of it takes a tenth; a machine under load takes its time. */
#define CHECK_TIMEOUT_MS 300000u

/* In a process of its own, whose end takes mounts and devices with it. */
static int check(void *arg)
{
	struct scene *scene = arg;
	uint64_t started_ns = zi_clock_now_ns();
	bool is_right;

	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
		printf("check-faults: the kernel's are skipped: no mount name space (%s)\n",
		       strerror(errno));
		return 0;
	}
	is_right = kernel_check_fuse(scene) && kernel_check_loop(scene);
	printf("check-faults: the kernel's: %u cases, %u times named, in %.1f s: %s\n",
	       scene->test.case_count, scene->test.found_count,
	       (double)(zi_clock_now_ns() - started_ns) / (double)ZI_NS_PER_S,
	       is_right ? "nothing lost, nobody else disturbed" : "FAILED");
	(void)fflush(stdout);
	return !is_right;
}

int main(void)
{
	struct scene scene = { .test.durability = ZINF_DURABILITY_POWER };
	int code;

	if (geteuid()) {
		printf("check-faults: the kernel's are skipped: mounting needs root\n");
		return 0;
	}
	if (!mkdtemp(guard_path(scene.directory, sizeof(scene.directory), "kernel")) ||
	    chmod(scene.directory, 0755)) {
		fprintf(stderr, "check_kernel: no directory '%s': %s\n", scene.directory,
		        strerror(errno));
		return 1;
	}
	code = harness_wait(harness_fork(check, &scene), CHECK_TIMEOUT_MS);
	(void)harness_remove_folder(scene.directory); /* best effort */
	if (code)
		fprintf(stderr, "check_kernel: ended with %d\n", code);
	return code != 0;
}
