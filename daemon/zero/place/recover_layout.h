/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a stored layout can be true. Tables grow with it, so that one which its extents, a
 * subgroup each, cannot hold is not believed. Floor 5, before the loop runs.
 */
#pragma once

#include <stdbool.h>

struct catalog_job;
struct zero_job;

/* @job has the layout of @stored, which was checked. What only other nodes hold may take tables as
 * large as half of the memory there is. */
bool recover_believes(const struct zero_job *job, const struct catalog_job *stored);
