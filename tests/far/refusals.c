/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job over nodes that is at rest, and starts that it cannot go on from: of state in memory alone
 * with other ranks, nodes, places or strategy; of state on NVMe that is divided, a node whose store
 * is blank, or older than the others'. Each is refused on all ranks in words with figures, and
 * costs the job nothing.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/far/crew.h"

static const int others[] = { -EOPNOTSUPP, -EINVAL, -EPROTO, -EEXIST, 0 };
static const int lacks[] = { -ENODATA, -EOPNOTSUPP, -ESTALE, -EPROTO, 0 };

/* In the directory of a daemon that does not run. */
static bool run(const struct harness *harness, const char *command)
{
	char line[600];

	(void)snprintf(line, sizeof(line), "cd '%s' && %s", harness->directory, command);
	return crew_says(system(line) == 0, "failed: %s", line);
}

/* Some steps more, in the job's own way: what was refused has cost it nothing. */
static bool goes_on(struct crew *crew, uint32_t steps)
{
	int64_t stood = crew->settings.steps;

	crew->settings.steps += steps;
	if (!crew_train(crew))
		return false;
	for (uint32_t i = 0; i < crew->kind.world; i++)
		if (!crew_says(crew->diary->resumed[i] == stood,
		               "rank %u went on at %lld, not %lld", i,
		               (long long)crew->diary->resumed[i], (long long)stood))
			return false;
	return crew_says(ranks_are_right(&crew->ranks), "other parameters");
}

static bool refuse_strategy(struct crew *crew)
{
	bool is_right;

	crew->settings.options.strategy = crew->kind.strategy == ZINF_ZERO1 ? ZINF_DDP : ZINF_ZERO1;
	is_right = crew_is_refused(crew, "another strategy", others);
	crew->settings.options.strategy = crew->kind.strategy;
	return is_right;
}

/* @counts as another start has them. */
static bool refuse_counts(struct crew *crew, const char *what, const uint32_t *counts)
{
	struct crew_kind kind = crew->kind;
	bool is_right;

	crew->kind.world = crew->kind.node_count = 0;
	for (uint32_t i = 0; i < CREW_NODES; i++) {
		crew->kind.counts[i] = counts[i];
		crew->kind.world += counts[i];
		crew->kind.node_count += counts[i] > 0;
	}
	is_right = crew_is_refused(crew, what, others);
	crew->kind = kind;
	return is_right;
}

static bool refuse_places(struct crew *crew, uint32_t *count)
{
	uint32_t counts[CREW_NODES], last = crew->kind.node_count - 1;
	bool is_right = true;

	memcpy(counts, crew->kind.counts, sizeof(counts));
	if (crew->kind.world < CREW_WORLD) {
		counts[last]++;
		is_right = refuse_counts(crew, "one rank more", counts);
		counts[last]--;
		*count += 1;
	}
	if (is_right && counts[0] != counts[last]) {
		counts[0] = crew->kind.counts[last];
		counts[last] = crew->kind.counts[0];
		is_right = refuse_counts(crew, "ranks divided otherwise", counts);
		memcpy(counts, crew->kind.counts, sizeof(counts));
		*count += 1;
	}
	if (is_right && crew->kind.node_count > 2) {
		counts[last] = 0;
		is_right = refuse_counts(crew, "a node less", counts);
		*count += 1;
	}
	if (is_right) {
		memset(counts, 0, sizeof(counts));
		counts[0] = crew->kind.counts[0];
		is_right = refuse_counts(crew, "one node alone", counts);
		*count += 1;
	}
	if (is_right) {
		crew->node_order[0] = last;
		crew->node_order[last] = 0;
		is_right = crew_is_refused(crew, "nodes that have changed places", others);
		crew->node_order[0] = 0;
		crew->node_order[last] = last;
		*count += 1;
	}
	return is_right;
}

/* With a blank store, or the one that was kept as "old". */
static bool refuse_store(struct crew *crew, struct harness *harness, const char *what, bool is_old)
{
	return crew_says(harness_halt(harness) == 0, "a daemon did not stop") &&
	       run(harness, "mkdir now && mv state store now") &&
	       (!is_old || run(harness, "mv old/* . && rmdir old")) && crew_restart(crew) &&
	       crew_is_refused(crew, what, lacks) &&
	       crew_says(harness_halt(harness) == 0, "a daemon did not stop") &&
	       run(harness, "rm -r state store && mv now/* . && rmdir now") && crew_restart(crew);
}

static bool refuse_stores(struct crew *crew, uint32_t *count)
{
	struct harness *harness = &crew->harness[crew->start_count % crew->kind.node_count];

	*count += 2;
	return refuse_store(crew, harness, "a blank store", false) && goes_on(crew, 1) &&
	       crew_says(harness_halt(harness) == 0, "a daemon did not stop") &&
	       run(harness, "mkdir old && cp -a --sparse=always state store old") &&
	       crew_restart(crew) && goes_on(crew, 3) && goes_on(crew, 3) &&
	       refuse_store(crew, harness, "an older store", true) && goes_on(crew, 1);
}

bool crew_refusals(struct crew *crew, uint32_t *count)
{
	crew->point = 0;
	if (crew->is_memory_lost)
		return true;
	if (crew->kind.offload == ZINF_OFFLOAD_NVME) {
		/* What is not divided is healed (tests/unit/zero/test_across_heal.c). */
		if (crew->kind.strategy != ZINF_DDP && !refuse_stores(crew, count))
			return false;
	} else {
		if (!refuse_strategy(crew) || !refuse_places(crew, count) || !goes_on(crew, 1))
			return false;
		*count += 1;
	}
	crew->settings.steps = CREW_STEPS;
	return true;
}
