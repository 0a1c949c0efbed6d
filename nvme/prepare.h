/* SPDX-License-Identifier: Apache-2.0 */
/* Making room for a store in a file system, once and in advance. Private to nvme/. Floor 2. */
#pragma once

#include <stdint.h>

#include "common/base/text.h"

struct nvme_prepare {
	int fd;
	const char *path;    /* for sentences */
	uint64_t from_bytes; /* what is there already; 0: a new file */
	uint64_t to_bytes;   /* size afterwards */
	/* May be NULL. Not 0: ends it, with that. */
	int (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes);
	void *progress_arg;
};

/* On failure the file has from_bytes again. */
int nvme_prepare(const struct nvme_prepare *prepare, struct zi_text *text);
