/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes could go on from, by name; see names.h. Floor 5, shard thread. */
#include "daemon/zero/across/agree/names.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/across/talk/round.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/materialize_check.h"
#include "daemon/zero/step/doubt.h"

/* Documented in the header, as are all that are not static. */
bool names_is_nvme(const struct zero_job *job)
{
	return job->group.config.offload_optimizer == ZI_OFFLOAD_NVME;
}

bool names_are_one(const struct commit_name *one, const struct commit_name *other)
{
	return one->number == other->number && one->line == other->line && one->step == other->step;
}

struct commit_name names_of(int64_t step, const struct zero_marks *marks)
{
	/* Nothing is the same nothing on all. */
	if (step < 0)
		return (struct commit_name){ .step = -1 };
	return (struct commit_name){ .number = marks->number, .line = marks->line, .step = step };
}

struct commit_offers names_of_job(const struct zero_job *job)
{
	const struct zero_former *former = &job->former;
	struct commit_offers offers;
	struct doubt_name doubt;

	memset(&offers, 0, sizeof(offers)); /* All of it is sent. */
	offers.names[offers.count++] = names_of(job->committed_step, &job->committed);
	offers.in_place = materialize_is_in_place(job, job->committed_step, &job->committed);
	if (former->is_kept || (!names_is_nvme(job) && former->is_named)) {
		offers.names[offers.count++] = names_of(former->step, &former->marks);
		offers.in_place |=
			(uint32_t)materialize_is_in_place(job, former->step, &former->marks) << 1;
	}
	offers.is_in_doubt = step_doubt(job, &doubt);
	if (offers.is_in_doubt)
		offers.doubt = (struct commit_name){ .number = doubt.number,
			                             .line = doubt.line,
			                             .step = doubt.step };
	return offers;
}

struct commit_offers names_at(const struct round *round, uint32_t node)
{
	struct commit_offers offers;

	memcpy(&offers, round->votes[node].data, sizeof(offers));
	offers.count = ZI_MIN(offers.count, (uint32_t)ZI_COUNT_OF(offers.names));
	return offers;
}

static bool is_sane(const struct commit_name *name)
{
	return name->number <= NAMES_NUMBER_MAX && name->step >= -1 &&
	       name->step <= (int64_t)NAMES_NUMBER_MAX;
}

int names_check(const struct round *round, uint32_t node_count, struct zi_text *text)
{
	for (uint32_t i = 0; i < node_count; i++) {
		struct commit_offers offers = names_at(round, i);
		bool is_good =
			offers.count && is_sane(&offers.doubt) && !(offers.offered >> offers.count);

		for (uint32_t k = 0; k < OFFERS_MAX; k++) {
			bool is_offered = offers.offered >> k & 1;

			is_good &= is_sane(&offers.names[k]) &&
			           (!is_offered || offers.names[k].step >= 0);
		}
		if (!is_good)
			return err_origin(zi_text_error(
				text, -EPROTO, "node %u sent an invalid list of commits", i));
	}
	return 0;
}

static bool all_have(const struct round *round, uint32_t node_count, const struct commit_name *name)
{
	for (uint32_t i = 0; i < node_count; i++) {
		struct commit_offers offers = names_at(round, i);
		bool has = false;

		for (uint32_t k = 0; k < offers.count; k++)
			has |= names_are_one(&offers.names[k], name);
		if (!has)
			return false;
	}
	return true;
}

bool names_are_in_place(const struct round *round, uint32_t node_count,
                        const struct commit_name *name)
{
	for (uint32_t i = 0; i < node_count; i++) {
		struct commit_offers offers = names_at(round, i);

		for (uint32_t k = 0; k < offers.count; k++)
			if (names_are_one(&offers.names[k], name) && !(offers.in_place >> k & 1))
				return false;
	}
	return true;
}

bool names_common(const struct round *round, uint32_t node_count, struct commit_name *ret_name)
{
	struct commit_offers first = names_at(round, 0);
	bool is_found = false;

	for (uint32_t k = 0; k < first.count; k++) {
		if (!all_have(round, node_count, &first.names[k]) ||
		    (is_found && first.names[k].number < ret_name->number))
			continue;
		*ret_name = first.names[k];
		is_found = true;
	}
	return is_found;
}

uint32_t names_newest(const struct round *round, uint32_t node_count)
{
	uint32_t newest = 0;

	for (uint32_t i = 1; i < node_count; i++)
		if (names_at(round, i).names[0].number > names_at(round, newest).names[0].number)
			newest = i;
	return newest;
}

uint32_t names_doubt(const struct round *round, uint32_t node_count)
{
	uint32_t node = 0;

	while (node < node_count && !names_at(round, node).is_in_doubt)
		node++;
	return node;
}

bool names_have_made(const struct zero_job *job, const struct round *round, uint32_t node_count)
{
	struct commit_name doubt = names_of_job(job).doubt;

	for (uint32_t i = 0; i < node_count; i++) {
		struct commit_offers offers = names_at(round, i);

		if (names_are_one(&offers.names[0], &doubt))
			return true;
	}
	return false;
}

uint64_t names_after(const struct round *round, uint32_t node_count)
{
	uint64_t number = 0;

	for (uint32_t i = 0; i < node_count; i++) {
		struct commit_offers offers = names_at(round, i);

		for (uint32_t k = 0; k < offers.count; k++)
			number = ZI_MAX(number, offers.names[k].number);
	}
	return number + 1;
}
