/* SPDX-License-Identifier: Apache-2.0 */
/* What an item's failure is called: the first one stays. Floor 5, shard thread. */
#pragma once

#include "daemon/tier/move.h"
#include "daemon/zero/step/item.h"

/* @move: of the item. */
void item_fail_io(struct zero_item *item, const struct tier_move *move, int error);
/* What was to lie on @member finds no room elsewhere. */
void item_fail_room(struct zero_item *item, const struct tier_member *member);
