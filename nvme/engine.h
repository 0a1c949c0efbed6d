/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of an engine, for engine.c and register.c. Private to nvme/. Floor 2, owner thread. */
#pragma once

#include "common/base/list.h"
#include "nvme/backend.h"
#include "nvme/fixed.h"
#include "nvme/nvme.h"

struct nvme_engine {
	struct nvme_backend *backend;
	uint32_t depth;
	uint32_t block_bytes[2]; /* by direction */
	struct zi_list queues[2];
	struct zi_list free_blocks;
	struct nvme_block *blocks;
	struct nvme_block **reaped; /* depth places */
	uint32_t reads_in_row_count;
	uint32_t inflight_count; /* requests */
	bool is_reaping;
	struct nvme_engine_stats stats;
	struct nvme_fixed fixed;
};
