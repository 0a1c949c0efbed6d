/* SPDX-License-Identifier: Apache-2.0 */
/* What would have fitted, behind the words of a refusal. Floor 5, shard thread. */
#pragma once

#include "common/base/text.h"

struct zero_job;

/* What the job takes in all, and the nearest setting that fits into what is free now. Nothing where
 * no other setting is to be had, where it is not room that was missing, or where the words would
 * not be whole. @text: a refusal; may be NULL. */
void advice_append(const struct zero_job *job, struct zi_text *text);
