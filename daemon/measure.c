/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores that were never measured are measured at start, before anybody may use them: a second
 * each, once in a store's life, as what is found is kept (tuning.c). Floor 7, main thread; blocks,
 * but a signal that says to stop is heard between two stores. `zctl bench nvme` measures anew.
 */
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "daemon/daemon.h"
#include "daemon/tier/member.h"
#include "daemon/tier/stripe.h"
#include "daemon/tier/tune.h"
#include "daemon/zero/zero.h"
#include "nvme/nvme.h"

#define MEASURE_NS    ZI_NS_PER_S
#define MEASURE_DEPTH 64u

struct measure {
	bool is_done;
	struct nvme_tune_report report;
};

static void measure_done(void *arg, const struct nvme_tune_report *report)
{
	struct measure *measure = arg;

	measure->is_done = true;
	measure->report = *report;
}

/* An injected fault belongs to what jobs do, not to this. */
static bool measure_is_due(const struct config_store *config, const struct nvme_store *store)
{
	bool is_auto = !config->read_depth || !config->write_depth || !config->read_block_bytes ||
	               !config->write_block_bytes;

	return config->is_measured && is_auto && !store->tuning.read_bytes_per_s &&
	       strncmp(config->backend, "faulty", strlen("faulty")) != 0;
}

/* On an engine of its own: the shard's belongs to another thread. */
static int measure_run(struct daemon *daemon, const struct config_store *config,
                       struct tier_member *member, struct measure *measure, struct zi_text *text)
{
	_cleanup_(nvme_engine_freep) struct nvme_engine *engine = NULL;
	const struct nvme_engine_options options = { .backend = config->backend,
		                                     .depth = MEASURE_DEPTH };
	struct tier_tune_options tune_options = { .member = member,
		                                  .cpu_tier = &daemon->cpu_tiers[0],
		                                  .account = zero_account(daemon->shard.zero, 0),
		                                  .duration_ns = MEASURE_NS,
		                                  .done = measure_done,
		                                  .arg = measure };
	struct tier_tune *tune;
	int r;

	if (!tune_options.account)
		return err_origin(-ENOMEM);
	r = nvme_engine_new(&options, text, &engine);
	if (r)
		return err_trace(r);
	tune_options.engine = engine;
	r = tier_tune_start(&tune_options, text, &tune);
	if (r)
		return err_trace(r);
	while (!measure->is_done)
		(void)nvme_engine_wait(engine); /* A count. */
	if (measure->report.result)
		*text = measure->report.text;
	return measure->report.result;
}

/* What cannot be measured works as it would have without. */
static void measure_store(struct daemon *daemon, const struct config_store *config,
                          struct tier_member *member)
{
	struct nvme_store *store = member->store;
	struct measure measure = { .is_done = false };
	struct zi_text text = { .chars = "" };
	int r;

	notify_send(&daemon->notify, "EXTEND_TIMEOUT_USEC=60000000\nSTATUS=Measuring store '%s'",
	            store->name);
	r = measure_run(daemon, config, member, &measure, &text);
	if (r) {
		(void)log_warning_errno(r,
		                        "Store '%s' could not be measured, continuing with "
		                        "defaults: %s",
		                        store->name, text.chars);
		return;
	}
	store->tuning = tuning_resolve(config, &measure.report.chosen);
	r = nvme_engine_tune(daemon->shard.engine, store, &store->tuning);
	if (!r)
		r = tuning_save(daemon->config->state_dir, store->uuid, &measure.report.chosen);
	if (r)
		(void)log_warning_errno(r, "What was measured of store '%s' cannot be kept",
		                        store->name);
	log_info("Store '%s' reads %s/s in blocks of %s, %u at once; writes %s/s in blocks of %s, "
	         "%u at once",
	         store->name, zi_format_bytes(store->tuning.read_bytes_per_s).chars,
	         zi_format_bytes(store->tuning.read_block_bytes).chars, store->tuning.read_depth,
	         zi_format_bytes(store->tuning.write_bytes_per_s).chars,
	         zi_format_bytes(store->tuning.write_block_bytes).chars, store->tuning.write_depth);
	if (tuning_is_odd(&measure.report.chosen))
		log_warning(
			"Store '%s' is oddly slow: %s/s of reads, %s/s of writes. Other programs "
			"may have used the disk or the CPUs meanwhile; 'zctl bench nvme %s' "
			"measures it again",
			store->name, zi_format_bytes(store->tuning.read_bytes_per_s).chars,
			zi_format_bytes(store->tuning.write_bytes_per_s).chars, store->name);
}

/**
 * daemon_measure_stores() - whatever was never measured; then paths have their first weights
 * @daemon: with stores, tiers, nodes and zero, whose jobs have claimed what is theirs
 *
 * Return: 0, also when a store could not be; -ECANCELED: a signal said to stop.
 */
int daemon_measure_stores(struct daemon *daemon)
{
	for (uint32_t i = 0; i < daemon->config->store_count; i++) {
		const struct config_store *config = &daemon->config->stores[i];
		struct tier_member *member = daemon_find_member(daemon, config->name);

		if (!member || !measure_is_due(config, member->store))
			continue;
		if (daemon_is_told_to_stop(daemon, 0))
			return err_origin(-ECANCELED);
		measure_store(daemon, config, member);
	}
	for (uint32_t i = 0; i < daemon->nvme_tier_count; i++)
		tier_stripe_weigh(&daemon->nvme_tiers[i]);
	return 0;
}
