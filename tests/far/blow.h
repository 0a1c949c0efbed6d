/* SPDX-License-Identifier: Apache-2.0 */
/* What befalls a job over nodes at a moment that is drawn, and what becomes of it (blow.c). */
#pragma once

#include "tests/far/crew.h"

enum blow_kind {
	BLOW_RANK,   /* SIGKILL */
	BLOW_WORKER, /* … of zinf-net */
	BLOW_DAEMON,
	BLOW_NODE,  /* all of these */
	BLOW_TERM,  /* SIGTERM of the daemon */
	BLOW_STOP,  /* SIGSTOP of all of a node for a while */
	BLOW_LEAVE, /* a rank detaches */
	_BLOW_COUNT
};

struct blow {
	char words[200];
	enum blow_kind kind;
	uint32_t node, rank; /* who is hit */
	uint32_t delay_us;   /* after the moment */
	uint32_t stop_ms;
};

/* Draws one, and sets the moment in @crew. */
struct blow blow_draw(struct draw *random, struct crew *crew);
/* A start that is struck so. @is_in_vain: the moment never came. False after saying what was wrong:
 * somebody hung, or died otherwise. */
bool blow_strike(struct crew *crew, const struct blow *blow, bool *is_in_vain);
