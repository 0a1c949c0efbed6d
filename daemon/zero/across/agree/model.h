/* SPDX-License-Identifier: Apache-2.0 */
/*
 * That the ranks of all nodes train the same model in the same way, and from the same step. Floor
 * 5, shard thread.
 *
 *   across_open() ─▶ MODEL ─▶ LAYOUT ─▶ (memory is made) ─▶ MADE, by materialize.c
 *                               └▶ SEARCH … where digests differ, until it is known at what
 *
 * No model goes from node to node for that: each round of the search takes digests of a part of it.
 */
#pragma once

#include "common/base/text.h"

struct zero_job;

typedef void (*model_agreed_fn)(struct zero_job *job, int error, const struct zi_text *text);

/* The ranks of this node have materialized. @agreed: from the loop, or before this returns with an
 * error; where models differ the group has broken by then, on all nodes with the same words. */
void model_agree(struct zero_job *job, model_agreed_fn agreed);
