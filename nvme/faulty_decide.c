/* SPDX-License-Identifier: Apache-2.0 */
/* The fate of a block, decided when it is prepared (faulty.c). Floor 2, the engine's owner. */
#include <errno.h>
#include <signal.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "nvme/faulty_damage.h"
#include "nvme/faulty_private.h"

/* splitmix64 (Steele, Lea, Flood 2014): one addition of state, any seed is good. */
uint64_t nvme_faulty_draw(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

uint64_t nvme_faulty_random(struct faulty *faulty)
{
	return nvme_faulty_draw(&faulty->random);
}

static bool faulty_is_nth(uint64_t every, uint64_t count)
{
	return every && count % every == 0;
}

static bool is_from(uint64_t first, uint64_t count)
{
	return first && count >= first;
}

/* Its count is later reported a little lower half of the time: not even the granularity may be
 * relied on. */
static void faulty_shorten(struct faulty *faulty, struct nvme_block *block)
{
	block->bytes = nvme_faulty_short_bytes(block, nvme_faulty_random(faulty));
}

static void faulty_inject(struct fault *fault, int32_t result)
{
	fault->is_injected = true;
	fault->result = result;
}

static void faulty_decide_read(struct faulty *faulty, struct nvme_block *block, struct fault *fault)
{
	const struct nvme_faulty_spec *spec = &faulty->spec;
	uint64_t count = ++faulty->reads_count;

	if (count == spec->read_eio_at || is_from(spec->read_eio_from, count))
		faulty_inject(fault, -(int32_t)spec->error);
	else if (count == spec->overlong_at)
		faulty_inject(fault, (int32_t)block->bytes + 1);
	else if (faulty_is_nth(spec->read_short_every, count))
		faulty_shorten(faulty, block);
	fault->is_flipped = count == spec->bitflip_at;
}

static void faulty_decide_write(struct faulty *faulty, struct nvme_block *block,
                                struct fault *fault)
{
	const struct nvme_faulty_spec *spec = &faulty->spec;
	uint64_t count = ++faulty->writes_count;

	if (count == spec->write_eio_at || is_from(spec->write_eio_from, count))
		faulty_inject(fault, -(int32_t)spec->error);
	else if (count == spec->write_lost_at)
		faulty_inject(fault, (int32_t)block->bytes);
	else if (spec->has_enospc_after_bytes &&
	         faulty->written_bytes + block->bytes > spec->enospc_after_bytes)
		faulty_inject(fault, -ENOSPC);
	else if (faulty_is_nth(spec->write_short_every, count))
		faulty_shorten(faulty, block);
	if (!fault->is_injected)
		faulty->written_bytes += block->bytes;
}

static void faulty_tear(struct faulty *faulty, struct nvme_block *block, struct fault *fault)
{
	uint32_t kept_bytes = nvme_faulty_torn_bytes(block, nvme_faulty_random(faulty));

	if (!kept_bytes) {
		faulty_inject(fault, (int32_t)block->bytes);
		return;
	}
	block->bytes = kept_bytes;
	fault->is_torn = true;
}

static void faulty_apply(struct faulty *faulty, const struct nvme_faulty_rule *rule,
                         struct nvme_block *block, struct fault *fault)
{
	switch (rule->kind) {
	case NVME_FAULTY_ERROR:
		faulty_inject(fault, -rule->error);
		break;
	case NVME_FAULTY_SHORT:
		faulty_shorten(faulty, block);
		break;
	case NVME_FAULTY_LOST:
		faulty_inject(fault, (int32_t)block->bytes);
		break;
	case NVME_FAULTY_TORN:
		faulty_tear(faulty, block, fault);
		break;
	case NVME_FAULTY_FLIP:
		fault->is_flipped = true;
		break;
	case NVME_FAULTY_MISPLACE:
		block->offset_bytes = nvme_faulty_other_offset(block, nvme_faulty_random(faulty));
		break;
	case NVME_FAULTY_STALL:
		fault->due_ns = zi_clock_now_ns() + faulty->spec.stall_ms * ZI_NS_PER_MS;
		break;
	case NVME_FAULTY_KILL:
		faulty->inner->ops->submit(faulty->inner); /* Those before it have gone out. */
		(void)raise(SIGKILL);
		break;
	case NVME_FAULTY_KILL_DONE:
		fault->is_fatal = true;
		break;
	case NVME_FAULTY_NONE:
	case _NVME_FAULTY_COUNT:
	default:
		assert(false);
	}
}

/* The first rule that fires decides; the others count all the same. */
static void faulty_decide_by_rule(struct faulty *faulty, struct nvme_block *block,
                                  struct fault *fault)
{
	const struct nvme_faulty_rule *fired = NULL;

	for (uint32_t i = 0; i < faulty->spec.rule_count; i++) {
		struct nvme_faulty_rule *rule = &faulty->spec.rules[i];

		if (nvme_faulty_rule_fires(rule, block, nvme_faulty_random(faulty)) && !fired)
			fired = rule;
	}
	if (fired && !fault->is_injected)
		faulty_apply(faulty, fired, block, fault);
}

void nvme_faulty_decide(struct faulty *faulty, struct nvme_block *block, struct fault *fault)
{
	uint64_t count;

	if (block->direction == NVME_READ)
		faulty_decide_read(faulty, block, fault);
	else
		faulty_decide_write(faulty, block, fault);
	if (faulty->spec.rule_count)
		faulty_decide_by_rule(faulty, block, fault);
	count = faulty->reads_count + faulty->writes_count;
	if (!fault->is_injected && faulty_is_nth(faulty->spec.eagain_every, count))
		faulty_inject(fault, -EAGAIN);
	if (count == faulty->spec.stall_at)
		fault->due_ns = zi_clock_now_ns() + faulty->spec.stall_ms * ZI_NS_PER_MS;
}
