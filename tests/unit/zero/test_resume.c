/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever became of the nodes of a job (deaths at any moment of a commit, nodes that come
 * late, alone, with an older state or an empty disk, other strategies), the commit that is chosen
 * is the same on all nodes, whole, prepared by all of its group, nowhere written over, and not
 * older than what all of its nodes had acknowledged; where none can be, what is missing is told.
 * Method: drawn histories of disks by the rules of zero/step/votes.h and place/former.h; protocols
 * that leave a rule out must be found wrong.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/zero/across/agree/resume.h"

#define NODES     5u
#define BITS      67u /* more than a word */
#define WORDS     2u
#define HISTORIES 4000u
#define STARTS    12u
#define LOG_MAX   1024u

/* What a broken protocol leaves out. */
enum {
	NO_PREPARED = 1,   /* who has written commits */
	EARLY_RELEASE = 2, /* the former commit goes with the own new one */
	NO_DROP = 4,       /* the rows of one that was divided otherwise stay */
	NO_FORMER = 8,     /* it is not kept */
};

struct slot {
	bool is_there, is_spoiled;
	uint64_t number, line;
	int64_t step;
	uint32_t placement;
	uint64_t bits[WORDS];
};

struct disk {
	struct slot slots[2];
};

static struct disk disks[NODES];
static struct {
	uint64_t number, line;
	bool is_prepared;
} commits[LOG_MAX]; /* made by anybody */
static uint32_t commit_count;
/* The newest commit that all of a group had, or that was gone on from, and who had it. */
static uint64_t acknowledged_number;
static uint32_t acknowledged_mask; /* 0: none */
static uint32_t broken;            /* bits of what is left out */
static uint64_t state;
static uint32_t choice_count, refusal_count, crash_count, heal_count;

static uint32_t draw(uint32_t below)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((state >> 33) % below);
}

static bool dies(void)
{
	bool is_dead = draw(9) == 0;

	crash_count += is_dead;
	return is_dead;
}

/* ---- disks ---- */

static struct slot *in_force(struct disk *disk)
{
	struct slot *slots = disk->slots;

	if (!slots[0].is_there && !slots[1].is_there)
		return NULL;
	if (!slots[0].is_there || !slots[1].is_there)
		return slots[0].is_there ? &slots[0] : &slots[1];
	return slots[0].number > slots[1].number ? &slots[0] : &slots[1];
}

static struct slot *beside(struct disk *disk, const struct slot *slot)
{
	return slot == &disk->slots[0] ? &disk->slots[1] : &disk->slots[0];
}

/* Strategy and nodes. What each holds: all; every n-th; or every n-th of half of them. */
static uint32_t placement_of(uint32_t mask, uint32_t strategy)
{
	return strategy << 8 | mask;
}

static void fill_bits(uint32_t node, uint32_t placement, uint64_t bits[WORDS])
{
	uint32_t mask = placement & 0xff, strategy = placement >> 8;
	uint32_t count = (uint32_t)__builtin_popcount(mask);
	uint32_t index = (uint32_t)__builtin_popcount(mask & ((1u << node) - 1));
	uint32_t share = strategy == 0 ? 1 : strategy == 1 ? count : (count + 1) / 2;

	memset(bits, 0, WORDS * sizeof(bits[0]));
	for (uint32_t i = 0; i < BITS; i++)
		if (i % share == index % share)
			bits[i / 64] |= 1ull << i % 64;
}

/* ---- choosing ---- */

static uint32_t offers_of(uint32_t mask, struct resume_offer offers[2 * NODES])
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < 2 * NODES; i++) {
		const struct slot *slot = &disks[i / 2].slots[i % 2];

		if (mask >> (i / 2) & 1 && slot->is_there)
			offers[count++] = (struct resume_offer){ .number = slot->number,
				                                 .line = slot->line,
				                                 .step = slot->step,
				                                 .node = i / 2,
				                                 .bits = slot->bits };
	}
	return count;
}

static void shuffle(struct resume_offer *offers, uint32_t count)
{
	for (uint32_t i = 1; i < count; i++) {
		uint32_t other = draw(i + 1);
		struct resume_offer offer = offers[i];

		offers[i] = offers[other];
		offers[other] = offer;
	}
}

static bool is_equal(const struct resume_choice *one, const struct resume_choice *other)
{
	return one->number == other->number && one->line == other->line &&
	       one->step == other->step && one->node_mask == other->node_mask &&
	       one->missing_count == other->missing_count &&
	       one->missing_first == other->missing_first;
}

static bool is_prepared(const struct resume_choice *choice)
{
	for (uint32_t i = 0; i < commit_count; i++)
		if (commits[i].number == choice->number && commits[i].line == choice->line)
			return commits[i].is_prepared;
	return false;
}

static struct slot *slot_of(uint32_t node, const struct resume_choice *choice)
{
	for (uint32_t i = 0; i < 2; i++) {
		struct slot *slot = &disks[node].slots[i];

		if (slot->is_there && slot->number == choice->number && slot->line == choice->line)
			return slot;
	}
	return NULL;
}

/* Return: what is wrong with what was chosen; NULL: nothing. */
static const char *judge(uint32_t mask, int r, const struct resume_choice *choice)
{
	uint64_t bits[WORDS] = { 0 }, count = 0;

	if (acknowledged_mask && (mask & acknowledged_mask) == acknowledged_mask) {
		if (r)
			return "all who had it are here, and nothing is whole";
		if (choice->number < acknowledged_number)
			return "older than what was acknowledged";
	}
	if (r == RESUME_E_NONE)
		return NULL;
	for (uint32_t node = 0; node < NODES; node++) {
		const struct slot *slot = mask >> node & 1 ? slot_of(node, choice) : NULL;

		if ((slot != NULL) != (choice->node_mask >> node & 1))
			return "who offers it";
		if (slot && slot->is_spoiled && !r)
			return "written over";
		for (uint32_t i = 0; slot && i < WORDS; i++)
			bits[i] |= slot->bits[i];
	}
	for (uint32_t i = 0; i < BITS; i++)
		count += !(bits[i / 64] >> i % 64 & 1);
	if (choice->step < 0)
		return r ? "nothing is whole, always" : NULL;
	if ((count > 0) != (r == RESUME_E_INCOMPLETE) || count != choice->missing_count)
		return "what is missing";
	if (r)
		return NULL;
	return is_prepared(choice) ? NULL : "not prepared by all";
}

static int choose(uint32_t mask, struct resume_choice *ret_choice, const char **ret_wrong)
{
	struct resume_offer offers[2 * NODES];
	struct resume_choice again = { 0 };
	uint32_t count = offers_of(mask, offers);
	int r;

	*ret_choice = (struct resume_choice){ 0 };
	r = resume_choose(offers, count, BITS, ret_choice);
	*ret_wrong = judge(mask, r, ret_choice);
	shuffle(offers, count);
	cr_assert_eq(resume_choose(offers, count, BITS, &again), r);
	cr_assert(is_equal(ret_choice, &again), "the order of offers does not matter");
	return r;
}

/* ---- a group's life; each function returns false where all its nodes died in it ---- */

static uint32_t order[NODES];

/* Nodes of @mask in a drawn order. */
static uint32_t draw_order(uint32_t mask)
{
	uint32_t count = 0;

	for (uint32_t node = 0; node < NODES; node++) {
		uint32_t other = draw(count + 1);

		if (!(mask >> node & 1))
			continue;
		order[count] = order[other];
		order[other] = node;
		count++;
	}
	return count;
}

/* The next commit's extents go where nobody's are any more. */
static bool write_extents(uint32_t mask)
{
	uint32_t count = draw_order(mask);

	for (uint32_t i = 0; i < count; i++) {
		struct disk *disk = &disks[order[i]];
		struct slot *former = beside(disk, in_force(disk));

		if (dies())
			return false;
		former->is_spoiled = true;
	}
	return !dies();
}

static void write_row(uint32_t node, uint64_t number, uint64_t line, uint32_t placement)
{
	struct disk *disk = &disks[node];
	struct slot *former = in_force(disk);
	struct slot *slot = beside(disk, former);

	*slot = (struct slot){ .is_there = true,
		               .number = number,
		               .line = line,
		               .step = (int64_t)number,
		               .placement = placement };
	fill_bits(node, placement, slot->bits);
	if (broken & NO_FORMER)
		former->is_there = false;
	former->is_spoiled |= broken & EARLY_RELEASE && draw(2);
}

static bool commit(uint32_t mask, uint64_t number, uint64_t line, uint32_t placement)
{
	bool is_written = write_extents(mask);
	uint32_t count;

	if (!is_written && !(broken & NO_PREPARED))
		return false;
	cr_assert_lt(commit_count, LOG_MAX);
	commits[commit_count].number = number;
	commits[commit_count].line = line;
	commits[commit_count++].is_prepared = is_written;
	count = draw_order(mask);
	for (uint32_t i = 0; i < count; i++) {
		if (dies() || (!is_written && draw(2)))
			return false;
		write_row(order[i], number, line, placement);
	}
	if (!is_written || dies())
		return false;
	acknowledged_number = number;
	acknowledged_mask = mask;
	count = draw_order(mask);
	for (uint32_t i = 0; i < count; i++) {
		struct disk *disk = &disks[order[i]];
		struct slot *former = beside(disk, in_force(disk));

		if (dies())
			return false;
		if (former->placement != placement && !(broken & NO_DROP))
			former->is_there = false;
	}
	return true;
}

/* One of two stays on each node; where none is of what was chosen, none. */
static bool settle(uint32_t mask, const struct resume_choice *choice)
{
	uint32_t count = draw_order(mask);

	for (uint32_t i = 0; i < count; i++) {
		struct slot *stays = slot_of(order[i], choice);

		if (dies())
			return false;
		for (uint32_t k = 0; k < 2; k++)
			if (&disks[order[i]].slots[k] != stays)
				disks[order[i]].slots[k] = (struct slot){ 0 };
	}
	return true;
}

/* Is each node's share of @placement where it should be? */
static bool is_placed(uint32_t mask, const struct resume_choice *choice, uint32_t placement)
{
	for (uint32_t node = 0; node < NODES; node++) {
		const struct slot *slot = slot_of(node, choice);

		if (mask >> node & 1 && (!slot || slot->placement != placement))
			return false;
	}
	return true;
}

/* All of @mask come, with @placement. Return: what was wrong with what they chose; or NULL. */
static const char *live(uint32_t mask, uint32_t placement)
{
	struct resume_choice choice;
	const char *wrong = NULL;
	int r = choose(mask, &choice, &wrong);
	uint64_t line = (uint64_t)draw(UINT32_MAX) << 31 | draw(UINT32_MAX);

	if (wrong)
		return wrong;
	choice_count += r == 0;
	refusal_count += r == RESUME_E_INCOMPLETE;
	if (r == RESUME_E_INCOMPLETE)
		return NULL;
	/* From the first on that drops what is beside it. Some may have gone on without who had
	 * something newer. */
	acknowledged_number = choice.number;
	acknowledged_mask = r || choice.step < 0 ? 0 : (uint32_t)choice.node_mask;
	if (!r && !settle(mask, &choice))
		return NULL;
	/* A job that begins; or whose parts are elsewhere than they should be now: pulled, and
	 * committed before anything else (one without any state begins with nothing too). */
	for (uint32_t node = 0; node < NODES; node++)
		if (mask >> node & 1 && !in_force(&disks[node]))
			disks[node].slots[0] = (struct slot){ .is_there = true, .step = -1 };
	if (r || !is_placed(mask, &choice, placement)) {
		heal_count += !r;
		if (!commit(mask, ++choice.number, line, placement))
			return NULL;
	}
	for (uint32_t i = draw(4); i > 0; i--)
		if (!commit(mask, ++choice.number, line, placement))
			return NULL;
	return NULL;
}

/* Daemons are started again: a job that never committed anything is forgotten. */
static void restart(uint32_t lost_mask)
{
	for (uint32_t node = 0; node < NODES; node++) {
		const struct slot *slot = in_force(&disks[node]);

		if ((slot && slot->step < 0) || lost_mask >> node & 1)
			disks[node] = (struct disk){ 0 };
	}
	if (lost_mask & acknowledged_mask)
		acknowledged_mask = 0;
}

/* Return: what went wrong, or NULL. */
static const char *history(uint64_t seed)
{
	uint32_t placement = 0;

	state = seed * 0x9e3779b97f4a7c15ull;
	memset(disks, 0, sizeof(disks));
	commit_count = 0;
	acknowledged_mask = 0;
	for (uint32_t i = 0; i < STARTS; i++) {
		const char *wrong;

		/* The same nodes again, often; or others. */
		if (!placement || draw(3) == 0)
			placement = placement_of(1 + draw((1u << NODES) - 1), draw(3));
		wrong = live(placement & 0xff, placement);
		if (wrong)
			return wrong;
		restart(draw(8) ? 0 : 1u << draw(NODES));
	}
	return NULL;
}

Test(zero_resume, drawn_histories_go_on_from_what_all_had_prepared)
{
	broken = 0;
	for (uint64_t seed = 1; seed <= HISTORIES; seed++) {
		const char *wrong = history(seed);

		cr_assert_null(wrong, "seed %llu: %s", (unsigned long long)seed, wrong);
	}
	cr_log_info("%u chosen, %u refused, %u deaths, %u healed", choice_count, refusal_count,
	            crash_count, heal_count);
	cr_assert_gt(choice_count, HISTORIES);
	cr_assert_gt(refusal_count, HISTORIES / 10);
	cr_assert_gt(crash_count, HISTORIES);
	cr_assert_gt(heal_count, HISTORIES / 2);
}

/* Else the test above shows nothing. */
static void must_fail(uint32_t part)
{
	const char *wrong = NULL;

	broken = part;
	for (uint64_t seed = 1; seed <= HISTORIES && !wrong; seed++)
		wrong = history(seed);
	cr_assert_not_null(wrong, "part %u left out was not noticed", part);
	cr_log_info("without part %u: %s", part, wrong);
}

Test(zero_resume, protocols_that_leave_a_rule_out_are_found)
{
	must_fail(NO_PREPARED);
	must_fail(EARLY_RELEASE);
	must_fail(NO_DROP);
	must_fail(NO_FORMER);
}
