/* SPDX-License-Identifier: Apache-2.0 */
/* What device threads compute for an item. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/device/device.h"

void update_run(struct dev_task *task); /* of an item */
void load_run(struct dev_task *task);
void hash_run(struct dev_task *task);
void store_run(struct dev_task *task);
