/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measuring a store that jobs use: what nvme/tune.h needs is charged like anything else, and
 * returned. Floor 4, shard thread.
 */
#pragma once

#include "daemon/tier/account.h"
#include "daemon/tier/member.h"
#include "nvme/tune.h"

struct tier_tune;

struct tier_tune_options {
	struct nvme_engine *engine;
	struct tier_member *member;   /* with its store */
	struct tier *cpu_tier;        /* pays for the buffer */
	struct tier_account *account; /* of who asked */
	uint64_t duration_ns;         /* about */
	/* Runs once, from the engine's reap. @report is gone afterwards, and so is the tune. */
	void (*done)(void *arg, const struct nvme_tune_report *report);
	void *arg;
};

/* 0: `done` follows. -ENOSPC, -EDQUOT with figures, -ENOMEM: it never will. */
int tier_tune_start(const struct tier_tune_options *options, struct zi_text *text,
                    struct tier_tune **ret_tune);
/* `done` follows, with -ECANCELED. */
void tier_tune_cancel(struct tier_tune *tune);
