/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of check_kernel share: a daemon with two stores, of which the first is spoiled
 * below the kernel, a victim in it and a neighbour in the other. */
#pragma once

#include "tests/faults/faults.h"
#include "tests/faults/kernel/faultfs.h"
#include "tests/faults/kernel/loop.h"

struct scene {
	struct test test;
	char directory[64];
	char disk_path[128]; /* of the store that is spoiled */
	char extra[256];     /* the sound store's section */
	struct neighbour neighbour;
	uint32_t life_count; /* of neighbours */
	int64_t step;        /* where the victim stands */
};

/* A daemon on an empty store at @scene->disk_path, which there is room for; the victim stands at
 * @step, the neighbour has made one. */
bool scene_open(struct scene *scene, const char *backend, const char *direct, uint32_t deadline_s,
                uint32_t step);
/* Another life of the daemon; the neighbour goes on where it stood. */
bool scene_reopen(struct scene *scene, const char *backend, uint32_t deadline_s);
/* The neighbour ends in the bits of the reference, the daemon without a word. */
bool scene_halt(struct scene *scene);
/* The daemon's directory is gone. */
void scene_remove(struct scene *scene);
/* The next step fails with @error, told with its place (@is_placed) or at least with the path; the
 * neighbour makes one meanwhile. */
bool scene_fails(struct scene *scene, int error, bool is_placed);
/* The victim resumes at the step that it stood at, and makes the next, to the right bits. */
bool scene_goes_on(struct scene *scene);
/* Says so where the neighbour cannot make a step. */
bool scene_neighbour_steps(struct scene *scene);
/* A sentence about the victim's next step that failed. */
bool scene_names_path(const struct scene *scene, const char *text);

/* Each of them: false after saying why; what cannot be tried here is printed. */
bool kernel_check_fuse(struct scene *scene);
bool kernel_check_loop(struct scene *scene);
