/* SPDX-License-Identifier: Apache-2.0 */
/* This node's part of a snapshot that all keep; see keep.h. Floor 5, shard thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"

struct across;
struct zero_job;

/* Whose nodes these are, also when the ranks of this one have left; NULL: it is no more. */
struct zero_job *keep_job(const struct across *across);
/* keep.now is to be kept here: ends in keep_tell(), at once or when its time has come. */
void keep_part_begin(struct across *across, struct zero_job *job);
/* What all nodes say. Precondition: it has told. */
void keep_part_end(struct across *across, int error);
/* Nobody will say so any more. */
void keep_part_leave(struct across *across);

/* ---- keep.c ---- */

/* Node 0 hears how that ended here. @had: it was there before. */
void keep_tell(struct across *across, int error, bool had, const struct zi_text *text);
