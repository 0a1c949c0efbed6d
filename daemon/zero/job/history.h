/* SPDX-License-Identifier: Apache-2.0 */
/* Names of incarnations that a job has seen. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/catalog/catalog.h"

/* Names of incarnations, oldest first, the present one too: who comes with another one of them is
 * late. */
struct zero_history {
	struct catalog_incarnation *names; /* at most CATALOG_INCARNATIONS_MAX */
	uint32_t count, capacity;
	struct catalog_incarnation *record; /* copies for the catalog, while it is asked */
	uint32_t record_count;
};

/* Room for one more name. -ENOMEM. */
int history_reserve(struct zero_history *history);
/* The newest; there is room. The oldest gives way. */
void history_add(struct zero_history *history, uint64_t number, const char *name);
bool history_has(const struct zero_history *history, const char *name);
/* Names newer than @stored_number, copied for the catalog's next request. -ENOMEM. */
int history_record(struct zero_history *history, uint64_t stored_number);
void history_free(struct zero_history *history);
