/* SPDX-License-Identifier: Apache-2.0 */
/* What a node goes on from; see chosen.h. Floor 5, shard thread. */
#include "daemon/zero/across/agree/chosen.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/utf8.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/agree/heal_private.h"
#include "daemon/zero/job/job.h"
#include "kernels/hash.h"

static_assert(sizeof(struct chosen) + sizeof(uint32_t) <= TALK_DATA_BYTES, "one vote, and a word");

/* What the next commit has of the chosen one, beside its name: of the first node that offers it,
 * which is the same one on all. */
struct taken_over {
	uint64_t update_count, world;
	double beta1_power, beta2_power;
	uint64_t scaler_bytes;
	uint8_t scaler[CATALOG_SCALER_BYTES];
};
static_assert(sizeof(struct taken_over) % sizeof(uint64_t) == 0, "no padding behind it");

/* Documented in the header, as are all that are not static. */
struct chosen chosen_by_name(const struct commit_name *commit, uint64_t next, uint64_t next_line)
{
	return (struct chosen){ .commit = *commit, .next = next, .next_line = next_line };
}

struct chosen chosen_by_offer(const struct heal *heal)
{
	const struct offer *offer = heal_offer_of(heal, heal->source);
	struct taken_over taken = { .update_count = offer->update_count,
		                    .world = offer->world,
		                    .beta1_power = offer->beta1_power,
		                    .beta2_power = offer->beta2_power,
		                    .scaler_bytes = offer->scaler_bytes };

	memcpy(taken.scaler, offer->scaler, sizeof(taken.scaler));
	return (struct chosen){ .commit = { .number = heal->chosen.number,
		                            .line = heal->chosen.line,
		                            .step = heal->chosen.step },
		                .next = heal->number,
		                .next_line = across_line(heal->job),
		                .is_pulled = 1,
		                .digest = kern_hash(&taken, sizeof(taken)) };
}

void chosen_vote(const struct chosen *chosen, struct round_vote *ret_vote)
{
	*ret_vote = (struct round_vote){ .data_bytes = sizeof(*chosen) };
	memcpy(ret_vote->data, chosen, sizeof(*chosen));
}

struct chosen chosen_of(const struct zero_job *job, const struct round *round)
{
	struct chosen chosen;

	memcpy(&chosen, round->votes[across_node(job)].data, sizeof(chosen));
	return chosen;
}

static bool is_same(const struct chosen *one, const struct chosen *other)
{
	return names_are_one(&one->commit, &other->commit) && one->next == other->next;
}

/* Two nodes that would go on from different commits, or under different numbers. */
static void say_difference(const struct zero_job *job, uint32_t node, const struct chosen *other,
                           const struct chosen *first, struct zi_text *text)
{
	struct zi_text whose = across_name(job, node), firsts = across_name(job, 0);

	if (is_same(first, other))
		zi_text_set(text,
		            "%.50s and %.50s disagree about commit %llu of step %lld: "
		            "start again",
		            firsts.chars, whose.chars, (unsigned long long)first->commit.number,
		            (long long)first->commit.step);
	else
		zi_text_set(text,
		            "%.40s takes commit %llu of step %lld (%016llx, then %llu), but %.40s "
		            "commit %llu of step %lld (%016llx, then %llu)",
		            whose.chars, (unsigned long long)other->commit.number,
		            (long long)other->commit.step, (unsigned long long)other->commit.line,
		            (unsigned long long)other->next, firsts.chars,
		            (unsigned long long)first->commit.number, (long long)first->commit.step,
		            (unsigned long long)first->commit.line,
		            (unsigned long long)first->next);
}

int chosen_check(struct zero_job *job, const struct round *round, struct zi_text *ret_text)
{
	struct chosen first, other;
	uint32_t node_count = across_node_count(job), node;
	int r = round_refusal(round, node_count, ret_text, &node);

	if (r) {
		zi_utf8_clean(ret_text->chars); /* Another node's word. */
		return err_origin(r);
	}
	memcpy(&first, round->votes[0].data, sizeof(first));
	for (node = 1; node < node_count; node++) {
		memcpy(&other, round->votes[node].data, sizeof(other));
		if (!memcmp(&other, &first, sizeof(other)))
			continue;
		say_difference(job, node, &other, &first, ret_text);
		across_fail(job->across, -EPROTO, UINT32_MAX, ret_text);
		return err_origin(-EPROTO);
	}
	return 0;
}
