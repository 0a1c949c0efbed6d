/* SPDX-License-Identifier: Apache-2.0 */
/* What cannot be planned, and which word of it is wrong (plan.h). Floor 1, any thread. */
#pragma once

#include "common/wire/plan.h"

/* Return: 0; -EINVAL with @text. */
int zi_plan_check(const struct zi_plan_model *model, const struct zi_plan_options *options,
                  struct zi_text *text);
