/* SPDX-License-Identifier: Apache-2.0 */
/* Loop devices for tests: each is gone with the last that has it open or mounted. */
#pragma once

#include <stdint.h>

struct loop {
	int fd; /* -1: none */
	char device_path[32];
	char backing_path[256];
};

/* A device over @backing_path, which is made sparse, of @bytes. Return: 0 or -errno; -EOPNOTSUPP:
 * this machine gives us none. */
int loop_attach(struct loop *loop, const char *backing_path, uint64_t bytes);
void loop_detach(struct loop *loop);
/* The backing file and a copy of it beside, taken now. */
int loop_keep(const struct loop *loop);
/* The end of the backing file is gone: only @bytes are left. */
int loop_cut(const struct loop *loop, uint64_t bytes);
/* As it was kept, and the copy is gone. */
int loop_restore(const struct loop *loop);
