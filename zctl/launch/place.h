/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which NUMA nodes each rank runs on: the ranks spread over the nodes in blocks, in the order of
 * both, so that neighbours share a node. With fewer ranks than nodes a rank has several.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/base/text.h"
#include "zctl/launch/options.h"

struct launch_places;

/* @ret_places: NULL when ranks are to be left unbound. Return: 0; -ENOMEM, -errno of hwloc. */
int launch_places_new(enum launch_binding binding, uint32_t rank_count, struct zi_text *text,
                      struct launch_places **ret_places);
/* NULL is fine. Return: NULL. */
struct launch_places *launch_places_free(struct launch_places *places);
ZI_DEFINE_CLEANUP(struct launch_places *, launch_places_free)

/* "0-3,8" of a rank's CPUs and of its nodes. */
void launch_places_cpus(const struct launch_places *places, uint32_t rank, struct zi_text *text);
void launch_places_nodes(const struct launch_places *places, uint32_t rank, struct zi_text *text);

/* Binds the calling process, and what it starts: CPUs strictly, fresh memory as long as the nodes
 * have some. On a faked topology (HWLOC_SYNTHETIC) nothing. Return: 0; -errno, never for what was
 * only tried (auto). */
int launch_places_bind(const struct launch_places *places, uint32_t rank);
