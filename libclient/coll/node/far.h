/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group whose members lie on several nodes: its board is that of this node's members and of the
 * worker that speaks with the other nodes, and data go through the slab (common/wire/far.h); what
 * one member sends to another goes through its last part (common/wire/mail.h).
 * Floor 2; belongs to the thread that makes the group's calls.
 */
#pragma once

#include "common/wire/mail.h"
#include "libclient/coll/node/node.h"

struct zi_far_group {
	struct zi_far_shape shape;
	uint32_t self; /* member of the whole group; meet.self is that of this node */
	char *slab;    /* (slab_bytes,) shared with the node's members and the worker */
	uint64_t slab_bytes;
	struct zi_mail mail; /* its last part */

	/* the engine's own */
	struct zi_far_cut cut; /* of the call under way */
	uint64_t pieces;       /* of all calls before */
	uint64_t staged, taken;
	uint32_t agreed; /* the newest call that was not refused */
	bool is_cut;     /* the call under way: in pieces, as far as this member knows */
	bool is_direct;  /* the call under way: from and to where the data lie */
	uint32_t rung;   /* words that were changed for the mail */
};

/* What a call of such a group does in its phases (call.c). Return: 0, an error, ZI_NODE_E_WAITS. */
int zi_node_catch_up_far(struct zi_node_group *group, struct zi_meet_wants *wants);
void zi_node_post_far(struct zi_node_group *group);
int zi_node_meet_far(struct zi_node_group *group, struct zi_meet_wants *wants,
                     struct zi_text *text);
int zi_node_step_far(struct zi_node_group *group, struct zi_meet_wants *wants);
