/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes and nodes that move nothing, for targets that link parts of zinf-net: doubles of
 * net_lane_*(), nodes_mesh() and nodes_name(). */
#pragma once

#include <stdint.h>

#include "common/base/text.h"

#define LANES_MAX 8u

struct net_lane {
	char *memory;
	uint64_t bytes;
	uint32_t peer;
	uint64_t places[2]; /* the target's */
};

/* What a target says about its lanes. Each target that links the doubles defines lanes_target. */
struct lanes_target {
	uint32_t lane_max;          /* lanes at a time; 0: net_lane_new() returns -ENOMEM */
	const uint32_t *node_count; /* nodes that may be named; NULL: none */
	/* A transfer that lies within the memory of @lane begins. */
	void (*begin)(struct net_lane *lane, uint64_t slot, uint64_t offset_bytes, uint64_t bytes,
	              int is_out);
	/* @count transfers are waited for. Return: 0, or an error with @text. */
	int (*wait)(struct net_lane *lane, uint32_t count, uint64_t deadline_ns, int is_out,
	            struct zi_text *text);
};

extern const struct lanes_target lanes_target;

/* Those of net_lane_new(), in order. */
extern struct net_lane lanes[LANES_MAX];
/* Before each input. */
void lanes_forget(void);
