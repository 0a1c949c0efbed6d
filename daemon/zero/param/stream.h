/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of what a rank reads or writes unit by unit outside of steps. Floor 5, shard thread.
 */
#pragma once

#include "common/base/types.h"

struct zero_job;
struct zero_rank;

void stream_drop(struct zero_rank *rank);
/* The rank's layout becomes the job's, and the job pays for it. */
void stream_to_job(struct zero_rank *rank);
/* The job's layout becomes the rank's again, and the rank pays for it. */
void stream_from_job(struct zero_rank *rank);
/* The job has its layout from the catalog, and pays for it as far as there is room. */
void stream_charge_job(struct zero_job *job);
