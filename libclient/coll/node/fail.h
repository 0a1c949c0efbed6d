/* SPDX-License-Identifier: Apache-2.0 */
/* How a group ends: by what, and what is said of it. Floor 2, private to the engine. */
#pragma once

#include "libclient/coll/node/node.h"

/* Nobody reads this member's private memory after that. Return: false: it was over before, by what
 * stays. */
bool zi_node_set_over(struct zi_node_group *group, int error);
/* 0; else the group is over, and why. */
int zi_node_check_group(struct zi_node_group *group, struct zi_text *text);
/* The group ends with @error, of the collective that it is in, or of @p2p. @timeout_ns: see struct
 * zi_node_failure. Return: @error. */
int zi_node_over_by_call(struct zi_node_group *group, int error, uint64_t timeout_ns);
int zi_node_over_by_message(struct zi_node_group *group, const struct zi_node_p2p *p2p, int error,
                            uint64_t timeout_ns);
/* The same of what still waits, because of its time, the verdict or a daemon that is gone: with
 * words. @late: what is not over of a batch. */
int zi_node_fail_call(struct zi_node_group *group, int error, uint64_t timeout_ns,
                      struct zi_text *text);
int zi_node_fail_message(struct zi_node_group *group, const struct zi_node_p2p *late, int error,
                         uint64_t timeout_ns, struct zi_text *text);
