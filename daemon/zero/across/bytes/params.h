/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters of what other nodes update: each subgroup's newest values are pulled from a node that
 * holds its state, its *source*, inside the own replica. Floor 5, shard thread. Where nodes divide
 * parameters (zero3) there are no planes: what a unit in use needs is pulled then (fetch_far.h), by
 * the same numbers. With parameters on NVMe (zero1, zero2) every node has all of them on its
 * store: what is pulled passes through a slot of staging, by the pipeline of the update itself
 * (step/item.h), and what is given is read back from the store (lent.h). Who materializes has them.
 *
 *   source                                      who has the plane and does not hold the subgroup
 *   it is updated: READY ─────────────────────▶ its own step has come to its update:
 *     ◀─────────────────────── PULL PARAM       copied into the plane by a pool thread
 *                                               all have come: the step may end
 *
 * Values are numbered, for each unit, from when nodes talk: 1 is what they have materialized with;
 * each update, and each param_write_end() of the unit, makes one more. All nodes count alike, since
 * all come to these together. A node that calls for the next one (a vote for STEP, WRITE_END) has
 * no pull under way of the former one any more: its source overwrites that. Who asks for it all the
 * same ends the talk; who asks for the next one before its time waits.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "daemon/zero/job/gather.h"

struct across;
struct params;
struct zero_job;
struct zero_subgroup;

/* The job's sets, owners and grads are built. What was there of a former start that failed goes.
 * -ENOMEM with @text. */
int params_open(struct zero_job *job, struct zi_text *text);

/* Of @unit's values, the ones in force or under way: what a PULL_PARAM asks for. */
uint32_t params_number(const struct zero_job *job, uint32_t unit);
/* The node that this one pulls it from; itself where it holds it. */
uint32_t params_source(const struct zero_job *job, const struct zero_subgroup *subgroup);

/* All nodes have loaded what they hold: the rest comes; then @go_on, from the loop or at once, also
 * when the group has broken: then it is not whole. */
void params_load(struct zero_job *job, gather_go_fn go_on);
/* Every unit is about to be updated: unit->update_count has to count what is to come, too. */
void params_update(struct zero_job *job);
/* A subgroup that this node holds has been; */
void params_updated(struct zero_job *job, const struct zero_subgroup *subgroup);
/* and its parameters are on the store. */
void params_stored(struct zero_job *job);
/* With parameters on NVMe that all nodes keep (zero1, zero2): one that another node holds has come,
 * and is about to be written. */
void params_copied(struct zero_job *job, const struct zero_subgroup *subgroup);
/* What is to come has, and others have what they are to have; or nothing of it will be any more. */
bool params_are_there(const struct zero_job *job);
/* All nodes have come to a param_write_end() of the unit; */
void params_write(struct zero_job *job, uint32_t unit);
/* it has ended here. */
void params_written(struct zero_job *job, uint32_t unit);
/* What @unit, or any with UINT32_MAX, waits for. Return: false, nothing; @ret_text is untouched. */
bool params_say_late(const struct zero_job *job, uint32_t unit, struct zi_text *ret_text);
