/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where an item's parameters are, with a pool (param/residency.h): in the pool, where they are
 * updated and copied into the slot, or in the store, from where they are read into the slot. Floor
 * 5, shard thread.
 *
 * They are written from the slot in both cases. So the pool holds a unit for its update only while
 * a subgroup of it is being computed, and not until the disk has it: its room may go to the unit
 * that backward uses next, also before all of the unit is updated. What of it has not begun then
 * comes from the store.
 */
#pragma once

#include <stdbool.h>

struct zero_item;

/* Behind the state, in the same slot. */
void *item_slot_param(const struct zero_item *item);
/* Where they are when the update comes to them. False: they have to be read, to ->param. */
bool item_has_param(struct zero_item *item);
/* The update of what lies in the pool is over, or it failed before it began: the item forgets where
 * the parameters are. Return: true when the unit may go from the pool, as it could not before. */
bool item_leave_pool(struct zero_item *item);
