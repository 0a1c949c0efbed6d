/* SPDX-License-Identifier: Apache-2.0 */
/* Write budgets of a job, its uid and its stores. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/catalog/catalog.h"
#include "daemon/zero/zero.h"

struct zero_job;

enum { _BUDGET_E_SUCCESS, BUDGET_E_WAIT };
int budget_take(struct zero_job *job, struct zi_text *text);
void budget_watch(struct zero *zero); /* from zero_new() on, by itself */
uint32_t budget_record(struct zero_job *job);
void budget_restore(void *arg, const struct catalog_traffic *traffic);
