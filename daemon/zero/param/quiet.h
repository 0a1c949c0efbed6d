/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of all nodes that change parameters (step, param_write_end), where nodes divide these: a
 * node says that its ranks have come when it brings none any more. Then nobody changes what another
 * one still reads (across/bytes/params.h). Floor 5, shard thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/zero/job/gather.h"

struct zero_job;
struct zero_op;

/* A call that all ranks here have come to. */
struct quiet {
	bool is_waiting; /* for what is on its way */
	enum zero_gather gather;
	uint32_t words[2];
	gather_go_fn go_on;
};

/* As agree_all(), once nothing is brought. At once where there is no pool, or no other node. */
void quiet_agree(struct zero_job *job, enum zero_gather gather, const uint32_t words[2],
                 gather_go_fn go_on);
/* Something has come. */
void quiet_look(struct zero_job *job);
/* The time of @op, which waits in it, is over: no other node knows yet that the ranks of this one
 * have come. Return: that ended the group. */
bool quiet_expired(const struct zero_op *op, enum zero_gather gather);
/* From when all ranks here have come to such a call until it changes them: nothing is brought. */
bool quiet_is_on(const struct zero_job *job);
