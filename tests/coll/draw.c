/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of check_coll, drawn from a seed; see script.h. */
#include "common/base/cleanup.h"
#include "tests/coll/script.h"

#define CALLS_MIN 8u
/* All buffers of a call, of all ranks together. */
#define CALL_BYTES_MAX (12ull << 20)
#define ARENA_BYTES    (8ull << 20)

struct dice {
	uint64_t state;
};

uint64_t script_mix(uint64_t number)
{
	number += 0x9e3779b97f4a7c15ull;
	number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9ull;
	number = (number ^ number >> 27) * 0x94d049bb133111ebull;
	return number ^ number >> 31;
}

static uint64_t roll(struct dice *dice, uint64_t sides)
{
	dice->state = script_mix(dice->state);
	return dice->state % sides;
}

/* Bytes of a block: nothing, a few, about what fits into a post, about pages, about the pieces of
 * staging, some MiB; now and then exactly there, else beside. */
static uint64_t draw_bytes(struct dice *dice)
{
	static const uint64_t near[] = { 16,     64,     1024,    4096,    8192,   65536,
		                         262144, 524288, 1048576, 2097152, 4194304 };
	/* Large ones take their time: fewer of them. */
	uint64_t index = roll(dice, 3) ? roll(dice, 6) : roll(dice, ZI_COUNT_OF(near));
	uint64_t bytes = near[index];

	switch (roll(dice, 6)) {
	case 0:
		return roll(dice, 40);
	case 1:
		return bytes;
	case 2:
		return bytes + 1 + roll(dice, 64);
	case 3:
		return bytes > 64 ? bytes - 1 - roll(dice, 64) : bytes;
	default:
		return 1 + roll(dice, bytes);
	}
}

static void draw_groups(struct script *script, struct dice *dice)
{
	uint32_t all = (1u << script->ranks) - 1;

	script->groups[0] = all;
	script->group_count = 1;
	for (uint64_t more = roll(dice, SCRIPT_GROUPS_MAX); more > 0; more--) {
		uint32_t group = (uint32_t)roll(dice, all) + 1;

		script->groups[script->group_count++] = group;
	}
}

static void draw_call(const struct script *script, struct dice *dice, struct script_call *call)
{
	*call = (struct script_call){
		.operation = roll(dice, _SCRIPT_OPERATION_COUNT),
		.dtype = 1 + roll(dice, _ZI_DTYPE_COUNT - 1),
		.style = roll(dice, 4) ? SCRIPT_ORDINARY : 1 + roll(dice, 2),
		.group = (uint32_t)roll(dice, script->group_count),
		.seed = roll(dice, 1u << 30),
		.is_async = roll(dice, 3) == 0,
		.skew = roll(dice, 3) ? 0 : (uint32_t)roll(dice, 40),
	};
	uint32_t members = script_member_count(script, call);
	uint32_t width = zi_dtype_bytes(call->dtype);
	uint32_t all = (1u << script->ranks) - 1;

	call->root = (uint32_t)roll(dice, members);
	call->is_in_place = script_has_in_place(call->operation) && roll(dice, 3) == 0;
	if (script_is_joining(call->operation))
		do
			call->reduce_op = 1 + roll(dice, _ZI_REDUCE_COUNT - 1);
		while (!zi_reduce_op_is_for(call->reduce_op, call->dtype));
	call->element_count = draw_bytes(dice) / width;
	/* Half of the drawn sizes are meant for the whole, half for a block. */
	if (roll(dice, 2))
		call->element_count /= members;
	while (call->element_count * width * members * members * 2 > CALL_BYTES_MAX ||
	       call->element_count * width * members * 2 > ARENA_BYTES / 2)
		call->element_count /= 2;
	if (call->operation == SCRIPT_BARRIER)
		call->element_count = 0;
	switch (roll(dice, 3)) {
	case 0:
		break; /* all in arenas */
	case 1:
		call->sources_outside = call->targets_outside = all;
		break;
	default:
		call->sources_outside = (uint32_t)roll(dice, all + 1u);
		call->targets_outside = (uint32_t)roll(dice, all + 1u);
	}
}

/* All on one; in blocks, as launchers spread ranks; in any way at all. */
static void draw_numa(struct script *script, struct dice *dice)
{
	uint64_t kind = roll(dice, 3), block = 1ull << roll(dice, 3);

	script->numa = 0;
	for (uint32_t i = 0; i < script->ranks && kind; i++)
		script->numa |= (uint32_t)(kind == 1 ? i / block % 4 : roll(dice, 4)) << 2 * i;
}

/* None, all, or some; and of every second case somebody's memory is lost in its middle. */
static void draw_cma(struct script *script, struct dice *dice)
{
	uint32_t all = (1u << script->ranks) - 1;
	uint64_t kind = roll(dice, 4);

	script->cma = kind == 0 ? 0 : kind == 1 ? (uint32_t)roll(dice, all + 1u) : all;
	if (roll(dice, 2))
		script->cma |= (uint32_t)roll(dice, all + 1u) << SCRIPT_CMA_LOST;
}

void script_draw(struct script *script, uint64_t seed, uint64_t round, uint32_t ranks)
{
	struct dice dice = { script_mix(script_mix(seed) + round) };

	*script = (struct script){ .arena_bytes = ARENA_BYTES };
	script->ranks = 1 + (uint32_t)roll(&dice, SCRIPT_RANKS_MAX);
	if (ranks)
		script->ranks = ranks;
	draw_groups(script, &dice);
	script->call_count = CALLS_MIN + (uint32_t)roll(&dice, SCRIPT_CALLS_MAX - CALLS_MIN + 1);
	for (uint32_t i = 0; i < script->call_count; i++)
		draw_call(script, &dice, &script->calls[i]);
	draw_numa(script, &dice);
	draw_cma(script, &dice);
}

void script_spread(struct script *script, uint64_t seed)
{
	struct dice dice = { script_mix(seed) };
	uint64_t node_count = 1 + roll(&dice, SCRIPT_NODES_MAX);

	script->nodes = 0;
	for (uint32_t i = 0; i < script->ranks; i++)
		script->nodes |= (uint32_t)roll(&dice, node_count) << 2 * i;
}

void script_simplify(struct script *script)
{
	for (uint32_t i = 0; i < script->call_count; i++) {
		struct script_call *call = &script->calls[i];

		if (call->operation >= SCRIPT_ALL_TO_ALLV || call->operation == SCRIPT_BROADCAST)
			call->operation = SCRIPT_ALL_TO_ALL;
		call->is_async = false;
		call->sources_outside = call->targets_outside = 0;
	}
}
