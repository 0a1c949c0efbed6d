/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All ranks discard a step (zinf_step_discard()). Nothing of the step remains, and the group
 * continues. Floor 5, shard thread.
 *
 *   first call ─▶ waiting ranks get an error ─▶ all ranks have called ─▶ what is in flight ends
 *   (is_discarding) ─▶ NONE
 */
#pragma once

#include <stdbool.h>

struct zero_job;
struct zero_op;

/* A rank has called it, and it has not ended. */
bool discard_is_wanted(const struct zero_job *job);
/* Return: -ECANCELED, op->text names the rank that discards the step. */
int discard_refuse(struct zero_op *op);
/* Looked at whenever something ended that was in flight for the step. */
void discard_advance(struct zero_job *job);
