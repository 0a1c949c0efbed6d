/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a case that fails to a smaller one that does: fewer calls, fewer ranks, fewer elements,
 * nothing special about them, for as long as it goes on failing.
 */
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "tests/coll/runner.h"

#define SHRINK_NS (90 * ZI_NS_PER_S)
/* Who waits for a call that will not come is told soon. */
#define SHRINK_TIMEOUT_MS 4000u
/* What fails by chance is given some. */
#define SHRINK_TRIES  3u
#define DROP_VARIANTS 5u

struct shrink {
	struct runner *runner;
	struct script *best;
	uint64_t end_ns;
};

/* Takes @script where it fails too. */
static bool try_one(struct shrink *shrink, const struct script *script)
{
	if (memcmp(script, shrink->best, sizeof(*script)) == 0 || !script_is_sound(script))
		return false;
	for (uint32_t i = 0; i < SHRINK_TRIES && zi_clock_now_ns() < shrink->end_ns; i++) {
		if (shrink->runner->run(shrink->runner, script)) {
			*shrink->best = *script;
			return true;
		}
	}
	return false;
}

static void drop_calls(struct shrink *shrink)
{
	for (uint32_t run = shrink->best->call_count / 2; run > 0; run /= 2) {
		for (uint32_t first = 0; first + run <= shrink->best->call_count;) {
			struct script script = *shrink->best;

			memmove(&script.calls[first], &script.calls[first + run],
			        (script.call_count - first - run) * sizeof(*script.calls));
			script.call_count -= run;
			memset(&script.calls[script.call_count], 0, run * sizeof(*script.calls));
			if (!try_one(shrink, &script))
				first += run;
		}
	}
}

/* Of one rank less; where @variant is not 0, with other data, uneven counts and roots as well. */
static bool drop_rank(struct shrink *shrink, uint32_t variant)
{
	struct script script = *shrink->best;
	uint32_t all = (1u << --script.ranks) - 1;

	for (uint32_t i = 0; i < script.group_count; i++)
		script.groups[i] &= all;
	for (uint32_t i = 0; i < script.call_count; i++) {
		struct script_call *call = &script.calls[i];
		uint32_t members = script_member_count(&script, call);

		call->root = members ? (call->root + variant) % members : 0;
		if (variant != 0)
			call->seed = variant;
	}
	return try_one(shrink, &script);
}

static void drop_ranks(struct shrink *shrink)
{
	while (shrink->best->ranks > 1) {
		bool is_dropped = false;

		/* What is wrong may be nobody's any more: no block is his, or he is the root. */
		for (uint32_t variant = 0; !is_dropped && variant < DROP_VARIANTS; variant++)
			is_dropped = drop_rank(shrink, variant);
		if (!is_dropped)
			return;
	}
}

static void drop_cma(struct shrink *shrink)
{
	struct script script = *shrink->best;

	script.cma &= (1u << SCRIPT_CMA_LOST) - 1;
	(void)try_one(shrink, &script);
	script.cma = 0;
	(void)try_one(shrink, &script);
}

static void drop_numa(struct shrink *shrink)
{
	struct script script = *shrink->best;

	script.numa = 0;
	(void)try_one(shrink, &script);
}

static void drop_groups(struct shrink *shrink)
{
	for (uint32_t i = 1; i < shrink->best->group_count;) {
		struct script script = *shrink->best;

		memmove(&script.groups[i], &script.groups[i + 1],
		        (script.group_count - i - 1) * sizeof(*script.groups));
		script.groups[--script.group_count] = 0;
		for (uint32_t k = 0; k < script.call_count; k++) {
			struct script_call *call = &script.calls[k];

			if (call->group == i) { /* then for all */
				call->group = 0;
			} else if (call->group > i) {
				call->group--;
			}
		}
		if (!try_one(shrink, &script))
			i++;
	}
}

/* One call in a plainer way, @way of these. */
static bool make_plainer(struct script_call *call, uint32_t way)
{
	switch (way) {
	case 0:
		call->element_count /= 2;
		return true;
	case 1:
		call->element_count -= call->element_count > 0;
		return true;
	case 2:
		call->skew = 0;
		return true;
	case 3:
		call->is_async = false;
		return true;
	case 4:
		call->is_in_place = false;
		return true;
	case 5:
		call->style = SCRIPT_ORDINARY;
		return true;
	case 6:
		call->sources_outside = 0;
		return true;
	case 7:
		call->targets_outside = 0;
		return true;
	default:
		return false;
	}
}

static void make_calls_plainer(struct shrink *shrink)
{
	for (uint32_t i = 0; i < shrink->best->call_count; i++) {
		for (uint32_t way = 0;;) {
			struct script script = *shrink->best;

			if (!make_plainer(&script.calls[i], way))
				break;
			if (!try_one(shrink, &script))
				way++;
		}
	}
}

void runner_shrink(struct runner *runner, struct script *script)
{
	struct shrink shrink = {
		.runner = runner,
		.best = script,
		.end_ns = zi_clock_now_ns() + SHRINK_NS,
	};
	uint32_t timeout_ms = runner->timeout_ms;

	runner->timeout_ms = SHRINK_TIMEOUT_MS;
	drop_calls(&shrink);
	drop_groups(&shrink);
	drop_numa(&shrink);
	drop_cma(&shrink);
	drop_ranks(&shrink);
	make_calls_plainer(&shrink);
	drop_calls(&shrink);
	runner->timeout_ms = timeout_ms;
}
