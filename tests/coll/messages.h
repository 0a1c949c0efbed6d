/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and batches of check_coll as single messages. */
#pragma once

#include "tests/coll/rank.h"

#define MESSAGES_MAX (2u * SCRIPT_RANKS_MAX)

struct message {
	bool is_send;
	uint32_t peer; /* member */
	uint64_t element_count;
	void *data;
};

/* Whether member @self has anything to do in a call: what is no message concerns all. */
bool messages_concern(const struct script_call *call, uint32_t members, uint32_t self);
/* Those of a send or a batch that concern member @self, at most MESSAGES_MAX. Return: how many. */
uint32_t messages_of(const struct script_call *call, uint32_t members, uint32_t self,
                     const struct rank_buffers *buffers, struct message *messages);
