/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: rounds end in order, on all nodes with the same votes, whatever the order of delivery;
 * votes that cannot be are told. Method: n tables, and entries carried between them in a drawn
 * order, each way in its own.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "daemon/zero/across/talk/round.h"

#define NODES_MAX 5u
#define ROUNDS    40u
#define QUEUE     (ROUNDS + 1)

struct place {
	struct rounds rounds;
	uint32_t done_count, failed_count;
	uint64_t digests[ROUNDS + 1]; /* of the votes of each */
	int error;
	struct zi_text text;
	struct talk_entry queues[NODES_MAX][QUEUE]; /* to each other node */
	uint32_t put[NODES_MAX], taken[NODES_MAX];
};

static struct place places[NODES_MAX];
static uint32_t node_count;
static uint64_t seed;

static uint32_t draw(uint32_t count)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 33) % count;
}

static void begin(uint32_t count, uint64_t with)
{
	node_count = count;
	seed = with;
	memset(places, 0, sizeof(places));
	for (uint32_t i = 0; i < count; i++)
		cr_assert_eq(rounds_init(&places[i].rounds, i, count), 0);
}

static void end(void)
{
	struct zi_text text = { "over" };

	for (uint32_t i = 0; i < node_count; i++) {
		rounds_fail(&places[i].rounds, -EPIPE, &text);
		rounds_deinit(&places[i].rounds);
	}
}

static void done(void *arg, const struct round *round, int error, const struct zi_text *text)
{
	struct place *place = arg;
	uint64_t digest = 0;

	if (error) {
		place->failed_count++;
		place->error = error;
		place->text = *text;
		return;
	}
	cr_assert_eq(round->number, place->done_count + 1, "in their order");
	for (uint32_t i = 0; i < node_count; i++)
		for (uint32_t k = 0; k < round->votes[i].data_bytes; k++)
			digest = digest * 31 + round->votes[i].data[k] + 1;
	place->digests[place->done_count++] = digest;
}

static int cast(uint32_t node, enum round_kind kind, int error, const char *data,
                uint32_t *ret_other)
{
	struct place *place = &places[node];
	struct round_vote vote = { .error = error, .data_bytes = (uint32_t)strlen(data) };
	struct talk_entry entry;
	int r;

	memcpy(vote.data, data, vote.data_bytes);
	r = rounds_cast(&place->rounds, kind, &vote, done, place, &entry, ret_other);
	for (uint32_t i = 0; i < node_count && !r; i++)
		if (i != node)
			place->queues[i][place->put[i]++] = entry;
	rounds_end(&place->rounds);
	return r;
}

/* The next one on the way from @from to @to. */
static int carry(uint32_t from, uint32_t to, uint32_t *ret_other)
{
	struct place *place = &places[from];
	int r;

	cr_assert_lt(place->taken[to], place->put[to]);
	r = rounds_hear(&places[to].rounds, from, &place->queues[to][place->taken[to]++],
	                &places[to].text, ret_other);
	rounds_end(&places[to].rounds);
	return r;
}

/* Votes of every kind, cast as early as may be or late, carried in any order. */
Test(round, every_node_sees_the_same_votes_in_one_order)
{
	for (uint64_t with = 1; with <= 200; with++) {
		uint32_t casts[NODES_MAX] = { 0 }, other;
		bool is_over = false;

		begin(1 + (uint32_t)(with % NODES_MAX), with);
		while (!is_over) {
			uint32_t from = draw(node_count), to = draw(node_count);
			char data[16];

			if (draw(3) == 0 && casts[from] < ROUNDS &&
			    rounds_has_room(&places[from].rounds)) {
				(void)snprintf(data, sizeof(data), "%u.%u", from, casts[from]);
				cr_assert_eq(cast(from, 1 + casts[from] % (_ROUND_KIND_COUNT - 1),
				                  0, data, &other),
				             0);
				casts[from]++;
			} else if (from != to && places[from].taken[to] < places[from].put[to]) {
				cr_assert_eq(carry(from, to, &other), 0, "%s",
				             places[to].text.chars);
			}
			is_over = true;
			for (uint32_t i = 0; i < node_count; i++)
				is_over &= places[i].done_count == ROUNDS;
		}
		for (uint32_t i = 1; i < node_count; i++)
			cr_assert_eq(memcmp(places[i].digests, places[0].digests,
			                    sizeof(places[0].digests)),
			             0, "seed %llu", (unsigned long long)with);
		end();
	}
}

/* Neither who hears of it nor who comes to it then goes on as if nothing were. */
Test(round, another_kind_under_a_number_is_told_with_who)
{
	uint32_t other = 99;

	begin(3, 1);
	cr_assert_eq(cast(0, ROUND_STEP, 0, "", &other), 0);
	cr_assert_eq(cast(1, ROUND_COMMIT, 0, "", &other), 0);
	cr_assert_eq(carry(1, 0, &other), ROUND_E_DIFFERS);
	cr_expect_eq(other, 0);
	cr_assert_eq(carry(0, 2, &other), 0);
	other = 99;
	cr_assert_eq(cast(2, ROUND_BARRIER, 0, "", &other), ROUND_E_DIFFERS);
	cr_expect_eq(other, 0);
	cr_expect_eq(rounds_kind_of(&places[2].rounds, 0, 1), ROUND_STEP);
	cr_expect_eq(rounds_kind_of(&places[2].rounds, 2, 1), 0);
	end();
}

Test(round, who_cannot_is_the_same_on_all_nodes)
{
	struct round_vote votes[3] = { { .error = 0 },
		                       { .error = -ENOSPC, .data_bytes = 4, .data = "full" },
		                       { .error = -EDQUOT, .data_bytes = 5, .data = "quota" } };
	struct round round = { .votes = votes };
	struct zi_text text;
	uint32_t node;

	cr_assert_eq(round_refusal(&round, 3, &text, &node), -ENOSPC);
	cr_expect_eq(node, 1);
	cr_expect_str_eq(text.chars, "full");
	cr_expect_eq(round_refusal(&round, 1, &text, &node), 0);
	cr_expect_eq(round_odd_one(&round, 3), 1);
	cr_expect_eq(round_odd_one(&round, 1), 1, "nobody differs");
	votes[1].data_bytes = 0;
	cr_assert_eq(round_refusal(&round, 3, &text, &node), -ENOSPC);
	cr_expect_str_eq(text.chars, "node 1 gives no reason");
}

/* No word of it is cut in two. */
Test(round, a_long_reason_ends_where_a_word_does)
{
	struct round_vote vote = { .error = 0 };
	struct zi_text text;

	zi_text_set(&text, "%0180d %050d", 1, 2);
	round_vote_refuse(&vote, -ENOSPC, &text);
	cr_expect_eq(vote.data_bytes, 180);
	zi_text_set(&text, "%0200d", 1);
	round_vote_refuse(&vote, -ENOSPC, &text);
	cr_expect_eq(vote.data_bytes, TALK_DATA_BYTES);
}

Test(round, votes_that_cannot_be_are_refused_with_numbers)
{
	const struct talk_entry bad[] = {
		{ .kind = TALK_ROUND, .what = ROUND_STEP, .tag = 0 },
		{ .kind = TALK_ROUND, .what = ROUND_STEP, .tag = 2 },
		{ .kind = TALK_ROUND, .what = 0, .tag = 1 },
		{ .kind = TALK_ROUND, .what = _ROUND_KIND_COUNT, .tag = 1 },
		{ .kind = TALK_ROUND, .what = ROUND_STEP, .tag = 1, .error = 1 },
		{ .kind = TALK_ROUND, .what = ROUND_STEP, .tag = 1, .error = -TALK_ERRNO_MAX - 1 },
		{ .kind = TALK_ROUND, .what = ROUND_STEP, .tag = 1, .data_bytes = 193 },
	};
	struct zi_text text;
	uint32_t other;

	begin(2, 1);
	for (size_t i = 0; i < ZI_COUNT_OF(bad); i++) {
		text.chars[0] = '\0';
		cr_expect_eq(rounds_hear(&places[0].rounds, 1, &bad[i], &text, &other), -EPROTO,
		             "%zu", i);
		cr_expect_not_null(strstr(text.chars, "node 1"), "%s", text.chars);
	}
	/* So far ahead nobody can be who needs this node's votes. */
	for (uint64_t i = 1; i <= ROUND_RING + 1; i++)
		cr_expect_eq(rounds_hear(&places[0].rounds, 1,
		                         &(struct talk_entry){ .kind = TALK_ROUND,
		                                               .what = ROUND_BARRIER,
		                                               .tag = i },
		                         &text, &other),
		             i <= ROUND_RING ? 0 : -EPROTO);
	end();
}

Test(round, who_waits_for_whom_and_what_ends_without_an_outcome)
{
	struct zi_text why = { "node 2 is gone" };
	uint64_t number = 0;
	uint32_t other;

	begin(3, 1);
	cr_expect_eq(rounds_silent(&places[0].rounds, &number), 0, "nothing is open");
	cr_assert_eq(cast(0, ROUND_STEP_BEGIN, 0, "a", &other), 0);
	cr_assert_eq(cast(0, ROUND_STEP, 0, "b", &other), 0);
	cr_assert_eq(cast(1, ROUND_STEP_BEGIN, 0, "a", &other), 0);
	cr_assert_eq(carry(1, 0, &other), 0);
	cr_expect_eq(rounds_silent(&places[0].rounds, &number), 1u << 2);
	cr_expect_eq(number, 1);
	cr_expect(rounds_waits_for(&places[0].rounds, 1), "for the second");
	cr_expect(!rounds_waits_for(&places[1].rounds, 1));
	cr_expect(!rounds_waits_for(&places[2].rounds, 0), "it has cast none");
	rounds_fail(&places[0].rounds, -EPIPE, &why);
	cr_expect_eq(places[0].failed_count, 2);
	cr_expect_eq(places[0].error, -EPIPE);
	cr_expect_str_eq(places[0].text.chars, why.chars);
	cr_expect_eq(rounds_silent(&places[0].rounds, &number), 0);
	end();
}

Test(round, every_kind_has_a_name)
{
	for (uint32_t i = 1; i < _ROUND_KIND_COUNT; i++) {
		if (i > ROUND_HEALED && i < ROUND_USED)
			continue; /* Numbers that are kept. */
		cr_expect_str_neq(round_kind_name(i), "?", "%u", i);
	}
	cr_expect_str_eq(round_kind_name(0), "?");
	cr_expect_str_eq(round_kind_name(_ROUND_KIND_COUNT), "?");
}
