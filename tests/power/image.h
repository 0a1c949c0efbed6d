/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of a file in memory, as recorded calls make them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tests/power/record.h"

/* What lies in `data` behind `bytes` is zero, but for a chosen image, where it does not matter. */
struct image {
	uint8_t *data;
	uint64_t bytes, capacity_bytes;
};

/* Room for @bytes. */
void image_hold(struct image *image, uint64_t bytes);
/* Zeros from @bytes on. */
void image_truncate(struct image *image, uint64_t bytes);
/* The whole effect of @record. */
void image_fold(struct image *image, const struct record *record);
/* The size of a file after @record, which was @bytes. */
uint64_t image_size_after(const struct record *record, uint64_t bytes);
/* A new file. */
void image_write(const struct image *image, const char *path);
/* Whether the file is there and the same. */
bool image_equals(const struct image *image, const char *path);
/* Removes every file of a directory. */
void image_clear_directory(const char *directory);
