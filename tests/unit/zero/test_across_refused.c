/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a node that pulls more than it may, or refuses what it has, ends the group by a sentence
 * that names it. Method: two nodes in one process (nodes.h), with messages that no daemon sends.
 */
#include "daemon/zero/across/bytes/pull.h"
#include "tests/unit/zero/across.h"

/* The pulls wait for a write that no rank has made. */
Test(across_refused, a_node_that_pulls_more_than_it_may_is_named)
{
	made(2, 3, "01");
	for (uint64_t i = 0; i <= TALK_CREDIT; i++)
		nodes_say(0, 1,
		          (struct talk_entry){ .kind = TALK_PULL,
		                               .what = PULL_WRITTEN,
		                               .micro = 1,
		                               .bytes = 4096,
		                               .tag = 100 + i });
	all_hear(-EPROTO, "node 0 pulls more than it may");
	end(false);
}

/* Bytes that were asked for, and come, are refused instead. */
static uint32_t refuse_bytes(struct net_worker *worker, struct talk_entry *entry)
{
	static const char why[] = "no such bytes";

	(void)worker;
	if (entry->kind != TALK_CAME)
		return 1;
	entry->kind = TALK_REFUSED;
	entry->error = -EIO;
	entry->data_bytes = sizeof(why) - 1;
	memcpy(entry->data, why, sizeof(why) - 1);
	return 1;
}

Test(across_refused, a_node_that_refuses_what_it_has_is_named)
{
	made(2, 4, "01");
	net.lie = refuse_bytes;
	cr_assert_eq(actor_unit(&ranks.actors[0], zero_param_write_begin, 1), 0);
	for (uint32_t i = 0; i < 2; i++)
		actor_start(&ranks.actors[i], 0, zero_param_write_end,
		            &(struct zero_op){ .unit = 1 });
	all_hear(-EPROTO, "refuses what is pulled: no such bytes");
	net.lie = NULL;
	end(false);
}
