/* SPDX-License-Identifier: Apache-2.0 */
/* An administrator has a member of a tier emptied, or used again. Floor 4, shard thread. */
#pragma once

#include <stdbool.h>

#include "common/base/text.h"
#include "daemon/tier/member.h"

/* -ENOSPC what is charged does not fit on the others; -EBUSY the only one; -ENODEV missing. Not
 * draining: also forgets that it failed, and where. */
int tier_member_drain(struct tier_member *member, bool is_draining, struct zi_text *text);
