/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether all nodes of a job would make the same group. Each tells through the store what its ranks
 * name, or why they make none; who differs is told, and told of, at once. Floor 3, of zinf-net.
 * Owner: the operations' thread.
 *
 * Key of the store, below the epoch's number: agree/I, what node I says; or, when two others differ
 * before it has come, their difference.
 */
#pragma once

#include "daemon/worker/net.h"

/**
 * agree_all() - the same on all nodes
 * @agree: checked
 *
 * Return: 0, all name the same members; -EINVAL they differ; the error of a node that makes
 * nothing; -ETIMEDOUT a node did not come; all with @text.
 */
int agree_all(const struct net_agree *agree, struct zi_text *text);
