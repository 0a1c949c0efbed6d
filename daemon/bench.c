/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `bench nvme`: measures a store beside the jobs that use it, works with what was found from then
 * on, and keeps it for the next start. Floor 7, shard thread; the file is written by a pool thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "daemon/daemon.h"
#include "daemon/tier/member.h"
#include "daemon/tier/stripe.h"
#include "daemon/tier/tune.h"
#include "daemon/zero/zero.h"

/* The measurement under way: there is one at most, as two would measure each other. */
struct daemon_bench {
	struct daemon *daemon;
	const struct config_store *config;
	struct nvme_store *store;
	struct tier_tune *tune; /* NULL: it is being saved */
	struct sess_bench asked;
	struct nvme_tune_report report;
	struct dev_task task;
	int save_result;
};

/* Tells who asked. Context: shard thread. */
static void bench_end(struct daemon_bench *bench)
{
	const struct sess_bench_result result = {
		.store = bench->store->name,
		.report = &bench->report,
		.used = &bench->store->tuning,
		.save_result = bench->save_result,
	};

	bench->daemon->bench = NULL;
	bench->asked.done(bench->asked.arg, &result);
	free(bench);
}

/* Context: a pool thread. */
static void bench_save(struct dev_task *task)
{
	struct daemon_bench *bench = container_of(task, struct daemon_bench, task);

	bench->save_result = tuning_save(bench->daemon->config->state_dir, bench->store->uuid,
	                                 &bench->report.chosen);
}

static void bench_saved(struct dev_task *task)
{
	struct daemon_bench *bench = container_of(task, struct daemon_bench, task);

	if (bench->save_result)
		(void)log_warning_errno(bench->save_result,
		                        "What was measured of store '%s' cannot be kept in %s; it "
		                        "holds until the daemon stops",
		                        bench->store->name, bench->daemon->config->state_dir);
	bench_end(bench);
}

static void bench_measured(void *arg, const struct nvme_tune_report *report)
{
	struct daemon_bench *bench = arg;
	struct nvme_tuning tuning;
	int r;

	bench->tune = NULL;
	bench->report = *report;
	if (report->result) {
		bench_end(bench);
		return;
	}
	tuning = tuning_resolve(bench->config, &report->chosen);
	r = nvme_engine_tune(bench->daemon->shard.engine, bench->store, &tuning);
	assert(r == 0); /* Registered, and within the engine's limits. */
	(void)r;
	/* What is shown need not wait for the next step. */
	tier_stripe_weigh(daemon_find_member(bench->daemon, bench->store->name)->tier);
	log_info("Store '%s' reads %s/s in blocks of %s, %u at once; writes %s/s in blocks of %s, "
	         "%u at once",
	         bench->store->name, zi_format_bytes(report->chosen.read_bytes_per_s).chars,
	         zi_format_bytes(tuning.read_block_bytes).chars, tuning.read_depth,
	         zi_format_bytes(report->chosen.write_bytes_per_s).chars,
	         zi_format_bytes(tuning.write_block_bytes).chars, tuning.write_depth);
	bench->task = (struct dev_task){ .run = bench_save,
		                         .done = bench_saved,
		                         .loop = bench->daemon->shard.loop };
	dev_submit(bench->daemon->devices[0], &bench->task);
}

/* The member whose store has this name, and is there; or NULL. */
struct tier_member *daemon_find_member(struct daemon *daemon, const char *name)
{
	for (uint32_t i = 0; i < daemon->nvme_tier_count; i++) {
		struct tier *tier = &daemon->nvme_tiers[i];

		for (uint32_t j = 0; j < tier->member_count; j++)
			if (tier->members[j].store && !strcmp(tier->members[j].store->name, name))
				return &tier->members[j];
	}
	return NULL;
}

static const struct config_store *bench_config(const struct daemon *daemon, const char *name)
{
	for (uint32_t i = 0; i < daemon->config->store_count; i++)
		if (!strcmp(daemon->config->stores[i].name, name))
			return &daemon->config->stores[i];
	return NULL;
}

/**
 * daemon_bench() - begins a measurement
 * @arg: the daemon
 * @asked: copied, but for its name; its `done` runs once when this returns 0
 *
 * Return: 0; -ENOENT no such store; -EBUSY one is under way; -ENOSPC, -EDQUOT, -ENOMEM: with @text.
 * Context: shard thread.
 */
int daemon_bench(void *arg, const struct sess_bench *asked, struct zi_text *text)
{
	_cleanup_(zi_freep) struct daemon_bench *bench = NULL;
	struct daemon *daemon = arg;
	struct tier_member *member = daemon_find_member(daemon, asked->store);
	struct tier_tune_options options = { .engine = daemon->shard.engine,
		                             .member = member,
		                             .cpu_tier = &daemon->cpu_tiers[0],
		                             .duration_ns = asked->duration_ns,
		                             .done = bench_measured };
	int r;

	if (!member)
		return err_origin(zi_text_error(
			text, -ENOENT, "no store '%s': zctl tiers lists the stores", asked->store));
	if (daemon->bench)
		return err_origin(zi_text_error(text, -EBUSY,
		                                "store '%s' is being measured: try again later",
		                                daemon->bench->store->name));
	bench = calloc(1, sizeof(*bench));
	options.account = zero_account(daemon->shard.zero, asked->uid);
	if (!bench || !options.account)
		return err_origin(zi_text_error(text, -ENOMEM, "out of memory"));
	*bench = (struct daemon_bench){
		.daemon = daemon,
		.config = bench_config(daemon, asked->store),
		.store = member->store,
		.asked = *asked,
	};
	assert(bench->config); /* Every store is of the configuration. */
	options.arg = bench;
	r = tier_tune_start(&options, text, &bench->tune);
	if (r)
		return err_trace(r);
	daemon->bench = zi_steal(bench);
	return 0;
}

/* The daemon stops: whoever asked hears of it. Context: shard thread. */
void daemon_cancel_bench(struct daemon *daemon)
{
	if (daemon->bench && daemon->bench->tune)
		tier_tune_cancel(daemon->bench->tune);
}
