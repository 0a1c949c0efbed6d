/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks come to a job. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/zero/zero.h"

/* May this uid have one more job? -EMFILE, -EDQUOT with figures. */
int attach_limits_check(struct zero *zero, uint32_t uid, struct zi_text *text);
