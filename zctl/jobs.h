/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `zctl jobs` share. */
#pragma once

#include <jansson.h>

struct zctl_context;

/* @job: as answered to `jobs JOB collectives`. */
void zctl_print_collectives(const struct zctl_context *context, const json_t *job);
