/* SPDX-License-Identifier: Apache-2.0 */
/* Measuring a store: its extent and buffer, taken and given back. Floor 4, shard thread. */
#include "daemon/tier/tune.h"

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/tier/account.h"
#include "daemon/tier/member.h"
#include "daemon/tier/segment.h"

struct tier_tune {
	struct tier_tune_options options;
	struct tier_charge charge; /* of the extent */
	struct zi_extent extent;
	struct tier_segment *segment;
	struct nvme_tune *tune;
};

/* NULL-safe, half-built ones too. */
static struct tier_tune *tune_free(struct tier_tune *tune)
{
	if (!tune)
		return NULL;
	tune->tune = nvme_tune_free(tune->tune);
	tune->segment = tier_segment_unref(tune->segment);
	nvme_space_release(tune->options.member->space, &tune->extent);
	tier_charge_return(&tune->charge);
	free(tune);
	return NULL;
}
ZI_DEFINE_CLEANUP(struct tier_tune *, tune_free)

/* Charged first: what jobs have reserved is never taken from them. */
static int tune_reserve_bytes(struct tier_tune *tune, uint64_t bytes, struct zi_text *text)
{
	struct tier_member *member = tune->options.member;
	int r;

	r = tier_charge_take(&tune->charge, member->tier, tune->options.account, bytes, text);
	if (r)
		return r == TIER_E_FULL ? -ENOSPC : r == TIER_E_QUOTA ? -EDQUOT : err_trace(r);
	r = nvme_space_allocate(member->space, bytes, &tune->extent);
	if (!r)
		return 0;
	tier_charge_return(&tune->charge);
	return zi_text_error(text, -ENOSPC, "store '%s' has no run of %s free, %s are in pieces",
	                     member->store->path, zi_format_bytes(bytes).chars,
	                     zi_format_bytes(nvme_space_free_bytes(member->space)).chars);
}

/* As much as there is. */
static int tune_reserve(struct tier_tune *tune, struct zi_text *text)
{
	uint64_t bytes = NVME_TUNE_EXTENT_MAX_BYTES;
	int r;

	for (;;) {
		r = tune_reserve_bytes(tune, bytes, text);
		if (!r || bytes == NVME_TUNE_EXTENT_GRAIN_BYTES)
			return r ? err_origin(r) : 0;
		bytes /= 2;
	}
}

/* Not zero: what is written looks like data to whatever lies below. */
static void tune_fill(struct tier_segment *segment)
{
	uint64_t *words = segment->region.base;

	for (uint64_t i = 0; i < NVME_TUNE_BUFFER_BYTES / sizeof(*words); i++)
		words[i] = (i + 1) * 0x9e3779b97f4a7c15ull;
}

static void tune_done(void *arg)
{
	struct tier_tune *tune = arg;

	tune->options.done(tune->options.arg, nvme_tune_report(tune->tune));
	(void)tune_free(tune); /* Always NULL. */
}

/**
 * tier_tune_start() - measure a store
 * @options: copied
 * @text: of a refusal, with figures
 * @ret_tune: good for tier_tune_cancel() until `done` ran
 *
 * Takes and fills a buffer of NVME_TUNE_BUFFER_BYTES on this thread: a few milliseconds.
 * Return: 0; -ENOSPC, -EDQUOT, -ENOMEM. Context: shard thread.
 */
int tier_tune_start(const struct tier_tune_options *options, struct zi_text *text,
                    struct tier_tune **ret_tune)
{
	_cleanup_(tune_freep) struct tier_tune *tune = NULL;
	struct nvme_tune_options tune_options = {
		.engine = options->engine,
		.store = options->member->store,
		.duration_ns = options->duration_ns,
		.done = tune_done,
	};
	int r;

	tune = calloc(1, sizeof(*tune));
	if (!tune)
		return err_origin(-ENOMEM);
	tune->options = *options;
	r = tune_reserve(tune, text);
	if (!r)
		r = tier_segment_new(options->cpu_tier, options->account, "zinf-bench",
		                     NVME_TUNE_BUFFER_BYTES, TIER_PAGES_HUGE, text, &tune->segment);
	if (!r)
		r = tier_segment_register(tune->segment, options->engine);
	if (r)
		return err_trace(r);
	tier_segment_prepare(tune->segment);
	tune_fill(tune->segment);
	tune_options.extent = tune->extent;
	tune_options.buffer = tune->segment->region.base;
	tune_options.arg = tune;
	r = nvme_tune_start(&tune_options, &tune->tune);
	if (r)
		return err_trace(zi_text_error(text, r, "the engine has no place to measure"));
	*ret_tune = zi_steal(tune);
	return 0;
}

/* Twice is once. Context: shard thread, before `done`. */
void tier_tune_cancel(struct tier_tune *tune)
{
	nvme_tune_cancel(tune->tune);
}
