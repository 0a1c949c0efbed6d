/* SPDX-License-Identifier: Apache-2.0 */
/* Memory in which the layers compute: the CPU's, or a GPU's. */
#pragma once

#include <stdint.h>

struct gpt_device;

/* On a cache line at least; not zeroed. @device: NULL: the CPU's. Return: NULL: there is not so
 * much. */
void *gpt_arena_new(struct gpt_device *device, uint64_t bytes);
/* " on the GPU", or nothing: for a sentence about memory that is missing. */
const char *gpt_arena_place(const struct gpt_device *device);
/* @arena: of gpt_arena_new() with the same @device; NULL is fine. */
void gpt_arena_free(struct gpt_device *device, void *arena);
