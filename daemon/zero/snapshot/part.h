/* SPDX-License-Identifier: Apache-2.0 */
/* Of a job over several nodes each node keeps snapshots of what it held itself: what cannot be done
 * with such a part. Floor 5, shard thread. */
#pragma once

#include <stdbool.h>

#include "common/base/text.h"

struct catalog_job;
struct zero_job;

/* A job's record, or a snapshot's: other nodes held what is not here. */
bool part_is(const struct catalog_job *record);
/* All parameters are here, whoever held them (zero1 and zero2 with offload_param NVMe). */
bool part_has_params(const struct catalog_job *record);
/* The record is read as if it were all of the model. @what: "snapshot 'a/b'". Return: 0;
 * -EOPNOTSUPP. */
int part_check(const struct catalog_job *record, const char *what, struct zi_text *text);
/* A job goes back on this node alone. Return: 0; -EOPNOTSUPP others have trained with it. */
int part_check_restore(const struct zero_job *job, const struct catalog_job *record,
                       struct zi_text *text);
