/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots from the catalog. Floor 5, before the loop runs. */
#pragma once

#include "daemon/catalog/catalog.h"

struct zero;

/* @record: of a snapshot, owned by this. 0, also of one that cannot be right, which is kept,
 * refused and explained; -ENOMEM. */
int snapshot_recover(struct zero *zero, struct catalog_job *record);
