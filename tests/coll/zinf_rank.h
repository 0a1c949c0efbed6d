/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of a case over zinf.h: a session of a job of a real zinfd, with the groups of the case. */
#pragma once

#include <zinf/zinf.h>

#include "tests/coll/rank.h"

struct zinf_rank {
	struct rank_link link;
	struct zinf *zinf;
	zinf_group groups[SCRIPT_GROUPS_MAX];
	zinf_ticket tickets[RANK_PENDING_MAX];
	uint32_t call_timeout_ms;
	char words[360]; /* why the last call failed */
};

struct zinf_rank_options {
	const char *socket_path, *job, *incarnation;
	const struct script *script;
	uint32_t rank;
	uint32_t timeout_ms;      /* of everything */
	uint32_t call_timeout_ms; /* of each collective; 0: the same */
	uint32_t past;            /* tests/unit/node/past.h; 0: none */
	uint32_t port;            /* where nodes meet, on the loopback interface; 0: one node */
	uint32_t local_count;     /* with a port: ranks on this node */
};

/* Attaches, opens collectives, makes the groups. 0 or -errno, and @rank has the words. */
int zinf_rank_open(struct zinf_rank *rank, const struct zinf_rank_options *options);
void zinf_rank_close(struct zinf_rank *rank);
