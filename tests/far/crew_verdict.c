/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked when a run of check_crash_nodes is over (crew.h). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "tests/far/crew.h"

static int destroy_body(void *arg)
{
	struct zinf_options options = *(const struct zinf_options *)arg;
	struct zinf *zinf = NULL;

	options.incarnation = "destroy";
	options.world_size = 1;
	options.rank = 0;
	options.strategy = ZINF_DDP;
	if (!zinf_attach(&options, &zinf) && !zinf_destroy_job(zinf))
		return 0;
	fprintf(stderr, "check_crash_nodes: %s\n",
	        zinf ? zinf_error_text(zinf) : zinf_attach_error());
	return 1;
}

static uint64_t nvme_bytes(struct harness *harness)
{
	json_t *tiers = harness_admin(harness, "tiers");
	uint64_t bytes = 0;

	for (size_t i = 0; i < json_array_size(tiers); i++) {
		const json_t *tier = json_array_get(tiers, i);

		if (!strcmp(json_string_value(json_object_get(tier, "kind")), "nvme"))
			bytes += (uint64_t)json_integer_value(json_object_get(tier, "used_bytes"));
	}
	json_decref(tiers);
	return bytes;
}

static size_t job_count(struct harness *harness)
{
	json_t *jobs = harness_admin(harness, "jobs");
	size_t count = json_array_size(jobs);

	json_decref(jobs);
	return count;
}

/* Workers end when their job has; each question is a round of /proc. */
static bool workers_end(struct crew *crew, uint32_t node)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(CREW_PATIENCE_MS * ZI_NS_PER_MS);
	pid_t pid;

	while (crew_workers(crew, node, &pid, 1))
		if (zi_clock_now_ns() > deadline_ns)
			return crew_says(false, "node %u: zinf-net (pid %d) is left", node, pid);
	return true;
}

bool crew_clears(struct crew *crew)
{
	bool is_right = true;

	if (crew->ranks.world)
		ranks_free(&crew->ranks);
	for (uint32_t i = 0; i < crew->kind.node_count && is_right; i++) {
		struct harness *harness = &crew->harness[i];
		struct zinf_options options = crew->settings.options;

		options.socket_path = harness->socket_path;
		is_right =
			crew_says(harness_wait(harness_fork(destroy_body, &options),
		                               CREW_PATIENCE_MS) == 0,
		                  "node %u: the job cannot be destroyed", i) &&
			crew_says(job_count(harness) == 0, "node %u has a job left", i) &&
			crew_says(nvme_bytes(harness) == 0, "node %u: space is still charged", i) &&
			crew_says(harness_charges_return(harness, crew->idle_cpu_bytes[i],
		                                         CREW_PATIENCE_MS),
		                  "node %u: memory is still charged", i) &&
			workers_end(crew, i);
	}
	for (uint32_t i = 0; i < CREW_WORLD; i++)
		crew->diary->acknowledged[i] = -1;
	crew->is_memory_lost = false;
	return is_right;
}

int64_t crew_acknowledged(const struct crew *crew)
{
	int64_t step = -1;

	for (uint32_t i = 0; i < crew->kind.world; i++)
		step = ZI_MAX(step, crew->diary->acknowledged[i]);
	return step;
}

static bool ends_right(struct crew *crew, int64_t from)
{
	for (uint32_t i = 0; i < crew->kind.world; i++)
		if (!crew_says(crew->diary->resumed[i] >= from &&
		                       crew->diary->resumed[i] == crew->diary->resumed[0],
		               "rank %u went on at step %lld, rank 0 at %lld; %lld was "
		               "acknowledged",
		               i, (long long)crew->diary->resumed[i],
		               (long long)crew->diary->resumed[0], (long long)from))
			return false;
	return crew_says(ranks_are_right(&crew->ranks), "other parameters");
}

bool crew_goes_on(struct crew *crew)
{
	static const int errors[] = { -ENODATA, 0 };
	int64_t from = crew_acknowledged(crew);
	int codes[CREW_WORLD];
	bool is_begun = true;

	crew->point = 0;
	if (!crew->is_memory_lost)
		return crew_train(crew) && ends_right(crew, from);
	/* Where no node has kept anything there is nothing to refuse. */
	if (!crew_start(crew) || !crew_await(crew, codes))
		return false;
	for (uint32_t i = 0; i < crew->kind.world; i++)
		is_begun &= codes[i] == 0;
	if (is_begun)
		return ends_right(crew, -1);
	return crew_is_refused(crew, "state in memory that is gone", errors) && crew_clears(crew) &&
	       crew_train(crew) && ends_right(crew, -1);
}
