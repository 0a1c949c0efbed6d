/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU of the house: a fake owner of chunks, which answers a turn after each request. Its chunks
 * are descriptors of an empty file.
 */
#pragma once

struct tier_arenas;
struct zi_loop;

#define HOUSE_GPU_UUID        "GPU-1"
#define HOUSE_GPU_GRANULARITY 4096u

/* Return: the tiers, for sess_shard_options. */
struct tier_arenas *house_gpu_open(struct zi_loop *loop);
/* After the end of all sessions, before that of zero. Return: NULL. */
struct tier_arenas *house_gpu_close(struct tier_arenas *arenas);
