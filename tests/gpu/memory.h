/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations of the fake GPUs: memfds, known by handles. All under the mutex. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define FAKE_ALLOCATIONS_MAX 2048u

struct fake_allocation {
	uint64_t handle; /* 0: a free place */
	uint64_t bytes;
	int fd;
	int device;
	bool has_handle; /* not released yet */
	bool is_own;     /* made here, hence counted here */
	uint32_t mapping_count;
};

/* Return: NULL: no such handle, or it was released. */
struct fake_allocation *fake_allocation_find(uint64_t handle);
/* Frees @allocation unless it has a handle or a mapping. */
void fake_allocation_settle(struct fake_allocation *allocation);
