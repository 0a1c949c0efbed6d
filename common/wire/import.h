/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `zctl load` describes to the daemon, in the window that it shares with it: this head, then
 * units and parameters as in the LAYOUT stream, then the blobs, each its own head and its bytes,
 * padded to ZI_IMPORT_ALIGN. Floor 1, no behaviour. The daemon copies it before it looks.
 */
#pragma once

#include <assert.h>
#include <stdint.h>

#include "common/wire/control.h"

#define ZI_IMPORT_MAGIC 0x31504d495a464e5aull
#define ZI_IMPORT_ALIGN 8u
/* No description is larger: 160000 parameters, and the blobs of 64 ranks. */
#define ZI_IMPORT_BYTES_MAX (32u << 20)

struct zi_import_head {
	uint64_t magic;
	int64_t step;                    /* 0 or later */
	uint64_t update_count;           /* steps that updated */
	double beta1_power, beta2_power; /* from 0 to 1 */
	uint32_t world_size;             /* 1 to ZI_WORLD_MAX */
	uint32_t param_dtype, grad_dtype, optimizer, schedule;
	uint32_t has_state; /* 1: optimizer state follows; 0: it is all zero */
	uint32_t unit_count, param_count, blob_count;
	uint32_t reserved; /* 0 */
};
static_assert(sizeof(struct zi_import_head) == 80, "import head");

struct zi_import_blob {
	uint32_t rank;
	uint32_t bytes; /* at most ZI_BLOB_BYTES */
};
static_assert(sizeof(struct zi_import_blob) == ZI_IMPORT_ALIGN, "import blob");
