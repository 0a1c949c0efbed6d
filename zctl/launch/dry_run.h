/* SPDX-License-Identifier: Apache-2.0 */
/* What a run would be, without starting it. */
#pragma once

#include <stdbool.h>

#include "zctl/launch/plan.h"

/* To stdout, for people or as JSON. Return: exit code. */
int launch_dry_run(const struct launch_plan *plan, bool is_json);
