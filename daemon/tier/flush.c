/* SPDX-License-Identifier: Apache-2.0 */
/* Flushes of several members at once (flush.h). Floor 4; shard thread. */
#include "daemon/tier/flush.h"

#include "common/base/assert.h"
#include "common/base/clock.h"

/* Context: shard thread. */
static void part_done(struct zi_post *post)
{
	struct tier_flush_part *part = container_of(post, struct tier_flush_part, wish.post);
	struct tier_flush *flush = part->flush;
	struct tier_member *member = &flush->tier->members[part - flush->parts];

	/* What it did not bring to its medium, it may claim to have brought there the next time. */
	if (part->wish.result)
		tier_member_fail(member, part->wish.result, "flushing");
	if (part->wish.result && !flush->result) {
		flush->result = part->wish.result;
		flush->failed = member;
	}
	flush->open_members &= ~tier_member_bit(member);
	if (!flush->open_members)
		flush->done(flush);
}

/**
 * tier_flush_submit() - bring what was written to some members to their media
 * @flush: tier, members, loop and done are filled
 *
 * Context: shard thread; `done` runs there.
 */
void tier_flush_submit(struct tier_flush *flush)
{
	assert(flush->members);
	assert(flush->done);
	flush->result = 0;
	flush->failed = NULL;
	/* Before the first of them can be done. */
	flush->open_members = flush->members;
	flush->submitted_ns = zi_clock_now_ns();
	for (uint32_t i = 0; i < flush->tier->member_count; i++) {
		const struct tier_member *member = &flush->tier->members[i];
		struct tier_flush_part *part = &flush->parts[i];

		if (!(flush->members >> i & 1))
			continue;
		assert(member->flusher);
		*part = (struct tier_flush_part){
			.flush = flush,
			.wish = { .loop = flush->loop, .done = part_done },
		};
		tier_flusher_ask(member->flusher, &part->wish);
	}
}

/* See flush.h. */
const struct tier_member *tier_flush_awaited(const struct tier_flush *flush)
{
	if (!flush->open_members)
		return NULL;
	return &flush->tier->members[__builtin_ctz(flush->open_members)];
}
