/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of a unit's parameters from the daemon to the GPU, phase by phase (the diagram is in
 * rank.h): asked for, copied, and given back to the daemon. copies.c decides which units go. Floor
 * 2, with the context current.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "libclient/gpu/rank.h"

/* With a pool: units that zinfd holds for this rank at one time. zinfd counts the pins of a rank
 * that waits for room as never released, so such a rank has none. */
#define ZI_GPU_POOL_HELD_MAX 1u
/* Entries of the table of operations that prefetch leaves to calls. */
#define ZI_GPU_SPARE_OPS 4u

/* The only transition of phases. */
void zi_gpu_way_set(struct zinf *zinf, uint32_t unit, enum zi_gpu_phase phase);
/* Units that the daemon holds for this rank, beside @unit. */
uint32_t zi_gpu_way_held(const struct zinf *zinf, uint32_t unit);
/* @ret_is_free: nothing that was queued uses the place of a coming unit any more. */
int zi_gpu_way_look_at_place(struct zinf *zinf, uint32_t unit, bool *ret_is_free);
/* A PLACED unit is asked for, if it may be now. */
int zi_gpu_way_ask(struct zinf *zinf, uint32_t unit);
/* What the daemon said of where the unit lies. Return: 0; -EPROTO. */
int zi_gpu_way_take_place(struct zinf *zinf, uint32_t unit, uint64_t offset_bytes);
/* The copy of a coming unit, behind all that uses its place: COPYING, and present on the ring.
 * After a failure the unit is absent: COPYING until the part that was queued has ended, or IDLE. */
int zi_gpu_way_copy(struct zinf *zinf, uint32_t unit);
/* The daemon gets the unit back: IDLE. */
int zi_gpu_way_give_back(struct zinf *zinf, uint32_t unit);
/* The unit has lost its place on the ring: it is not copied any more. */
void zi_gpu_way_drop(struct zinf *zinf, uint32_t unit);
/* Gives up all units that were not copied yet. */
void zi_gpu_way_drop_all(struct zinf *zinf);
/* All units go on as far as they can without waiting. */
int zi_gpu_way_look(struct zinf *zinf);
