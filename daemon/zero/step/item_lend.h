/* SPDX-License-Identifier: Apache-2.0 */
/*
 * With a pool: parameters that a step has made and the disk does not have yet. They lie in the slot
 * from which they are written (item_pool.h), and who wants them takes them from there, instead of
 * waiting until they are written and reading them again. Floor 5, shard thread.
 */
#pragma once

struct zero_item;
struct zero_subgroup;

/* The item that is writing the parameters of @subgroup: from its ->param they may be read by any
 * thread until item_give_back(). Return: NULL, none does. */
struct zero_item *item_lend(const struct zero_subgroup *subgroup);
/* May end the pipeline. Precondition: something of the job is counted as busy. */
void item_give_back(struct zero_item *item);
