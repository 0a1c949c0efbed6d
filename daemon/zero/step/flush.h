/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data on the media of its stores, and then the transaction that relies on it. Floor 5, shard
 * thread.
 */
#pragma once

#include "common/base/types.h"
#include "daemon/catalog/catalog.h"
#include "daemon/tier/tier.h"

struct zero;
struct zero_flush;

/* Submits @request when what was written to @members of @tier is on their media; when a flush
 * fails, @request ends with its error and a sentence. No members: at once. */
void flush_then_submit(struct zero *zero, struct zero_flush *flush, struct tier *tier,
                       uint32_t members, struct catalog_request *request);
