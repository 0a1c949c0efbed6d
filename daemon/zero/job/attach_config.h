/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration of a rank at the door. Floor 5, shard thread. */
#pragma once

#include "common/base/text.h"
#include "common/base/types.h"

struct zero_attach;
struct zero_job;
struct zi_job_config;
struct zi_job_training;

/* Ranks of this node. */
uint32_t attach_local_size(const struct zero_attach *attach);
/* Return: 0; -EBUSY, all ranks of this node are there, and it is none of them. */
int attach_one_more_check(const struct zero_job *job, const struct zero_attach *attach,
                          struct zi_text *text);
/* @is_new: of a new incarnation. Return: 0; -EINVAL, -EOPNOTSUPP: field, its value, the other one;
 * -EBUSY as above. */
int attach_config_check(const struct zero_job *job, const struct zero_attach *attach, bool is_new,
                        struct zi_text *text);
/* What is stored of a configuration, with the stored job's, if there is one. -EINVAL, -EOPNOTSUPP.
 */
int attach_compare_stored(const struct zi_job_config *config,
                          const struct zi_job_training *training, const struct zero_job *job,
                          struct zi_text *text);
/* What of two configurations must be alike in all ranks. -EINVAL with the first difference, in
 * terms of @whose is @model's. */
int attach_compare(const struct zi_job_config *config, const struct zi_job_config *model,
                   const char *whose, struct zi_text *text);
