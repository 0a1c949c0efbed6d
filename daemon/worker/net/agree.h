/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether all nodes of a job would make the same group. Each tells through the store what its ranks
 * name, or why they make none; who differs is told, and told of, at once. Floor 3, of zinf-net.
 * Owner: the operations' thread.
 *
 * Key of the store, below the epoch's number: agree/I, what node I says; or, when two others differ
 * or have waited long enough before it has come, why there is no group.
 */
#pragma once

#include "common/base/cleanup.h"
#include "daemon/worker/net.h"
#include "daemon/worker/store.h"

/**
 * agree_all() - the same on all nodes
 * @agree: checked
 *
 * Return: 0, all name the same members; -EINVAL they differ; the error of a node that makes
 * nothing; -ETIMEDOUT a node did not come; all with @text.
 */
int agree_all(const struct net_agree *agree, struct zi_text *text);

/* What nodes say of an epoch, at most, in the store: each "node", "address" (a part for each other
 * node), "agree", "waits"; and "reach", "abort". */
#define AGREE_EPOCH_KEYS(node_count)  (4ull * (node_count) + 2)
#define AGREE_EPOCH_BYTES(node_count) ((node_count) * (264ull * (node_count) + 1024))
#define AGREE_EPOCHS_MAX              256u

/* Keys of what was made so many epochs ago are nobody's, but those of groups that live on, which
 * need them no more. The other half of the store is for what is said later of epochs that ended. */
static inline uint32_t agree_epochs_kept(uint32_t node_count)
{
	uint64_t kept = ZI_MIN(STORE_KEYS_MAX / 2 / AGREE_EPOCH_KEYS(node_count),
	                       STORE_TABLE_BYTES_MAX / 2 / AGREE_EPOCH_BYTES(node_count));

	return (uint32_t)ZI_MIN(kept, (uint64_t)AGREE_EPOCHS_MAX);
}
