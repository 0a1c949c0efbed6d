/* SPDX-License-Identifier: Apache-2.0 */
/* The stores that the engine serves, and the NVMe tiers on them. Floor 7, main thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "daemon/catalog/catalog.h"
#include "daemon/daemon.h"
#include "daemon/progress.h"
#include "daemon/tier/member.h"
#include "daemon/tier/tier.h"
#include "nvme/holder.h"
#include "nvme/nvme.h"

/* Of a living holder, which may be about to end; and of one that has ended: its requests last as
 * long as the disk takes. */
#define STORES_BUSY_NS  (5 * ZI_NS_PER_S)
#define STORES_ENDED_NS (60 * ZI_NS_PER_S)
#define STORES_RETRY_MS 20

/* Polling is a matter of speed: what cannot be polled works with interrupts, after a word. */
static void start_poll(const struct daemon *daemon, const struct config_store *config,
                       struct nvme_store *store)
{
	const struct nvme_engine *engine = daemon->shard.engine;
	struct zi_text text = { "" };

	if (!config->iopoll)
		return;
	if (!nvme_engine_can_poll(engine))
		zi_text_set(&text, "store '%s' cannot be polled by engine %s", store->path,
		            nvme_engine_backend(engine));
	else if (!nvme_store_start_poll(store, &text))
		log_info("Store '%s': completions are polled for, in blocks of at most %s",
		         store->name, zi_format_bytes(store->poll_block_bytes).chars);
	if (!store->is_polled)
		log_warning("%s; going on with interrupts", text.chars);
}

/* A new store is written once in advance, which takes its time: the manager sees that we live. */
struct store_progress {
	struct daemon *daemon;
	const struct config_store *config;
	struct progress steps;
};

/* The line that a terminal shows while the store is written. @end: "\n" behind the last one. */
static void show_bar(const struct store_progress *progress, uint64_t total_bytes, const char *end)
{
	fprintf(stderr, "\rWriting store '%s': %3u %% of %s%s", progress->config->name,
	        progress->steps.percent, zi_format_bytes(total_bytes).chars, end);
	(void)fflush(stderr); /* Nobody may read it. */
}

/* The first line of the log. A store that becomes larger has only its new part written. */
static void show_begin(const struct config_store *config, uint64_t total_bytes)
{
	if (config->bytes > total_bytes + ZI_STORE_ALIGN_BYTES)
		log_info("Growing the store at %s by %s", config->path,
		         zi_format_bytes(total_bytes).chars);
	else
		log_info("Making a store of %s at %s", zi_format_bytes(config->bytes).chars,
		         config->path);
}

static void show_progress(const struct store_progress *progress, uint32_t news,
                          uint64_t total_bytes)
{
	const struct config_store *config = progress->config;

	if (news & PROGRESS_BEGUN)
		show_begin(config, total_bytes);
	if (news & PROGRESS_BAR)
		show_bar(progress, total_bytes, progress->steps.percent == 100 ? "\n" : "");
	if (news & PROGRESS_LINE)
		log_info("Writing store '%s': %u %% of %s", config->name, progress->steps.percent,
		         zi_format_bytes(total_bytes).chars);
	if (news & PROGRESS_MANAGER)
		notify_send(&progress->daemon->notify,
		            "EXTEND_TIMEOUT_USEC=60000000\nSTATUS=Writing store '%s' for the first "
		            "time: %u %% of %s",
		            config->name, progress->steps.percent,
		            zi_format_bytes(total_bytes).chars);
}

static int store_progress(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
	struct store_progress *progress = arg;

	if (daemon_is_told_to_stop(progress->daemon, 0)) {
		if (progress->steps.is_terminal && progress->steps.is_begun)
			show_bar(progress, total_bytes, "\n");
		return err_origin(-ECANCELED);
	}
	show_progress(progress,
	              progress_step(&progress->steps, done_bytes, total_bytes, zi_clock_now_ns()),
	              total_bytes);
	return 0;
}

static uint64_t patience_ns(const char *path)
{
	pid_t holder = nvme_holder_of(path);

	if (holder == getpid()) /* Another section of the configuration. */
		return 0;
	return holder ? STORES_BUSY_NS : STORES_ENDED_NS;
}

/*
 * A daemon that was killed leaves its io_uring to the kernel, which ends it, and the writes still
 * in flight, a moment later; until then it keeps the store's lock. Waiting for the lock is
 * therefore not only comfort at a restart: none of those writes can hit what this daemon is about
 * to allocate. A store that another living daemon has costs this wait before it is refused.
 */
static int open_when_free(struct daemon *daemon, const struct nvme_store_options *options,
                          struct zi_text *text, struct nvme_store **ret_store)
{
	uint64_t begin_ns = zi_clock_now_ns();
	int r = nvme_store_open(options, text, ret_store);

	if (r == -EBUSY)
		notify_send(&daemon->notify, "STATUS=Waiting for store '%s' to become free",
		            options->name);
	while (r == -EBUSY && zi_clock_now_ns() - begin_ns < patience_ns(options->path)) {
		if (daemon_is_told_to_stop(daemon, STORES_RETRY_MS))
			return err_origin(-ECANCELED);
		r = nvme_store_open(options, text, ret_store);
	}
	return err_trace(r);
}

/* Once for each change of a path's state. Context: shard thread, or main at start. */
static void member_changed(void *arg, const struct tier_member *member)
{
	(void)arg;
	if (member->state == TIER_MEMBER_HEALTHY)
		log_info("Path %s of %s is healthy again: %s", member->name, member->tier->name,
		         member->path);
	else if (member->state == TIER_MEMBER_DRAINING)
		log_info("Path %s of %s is draining: %s", member->name, member->tier->name,
		         member->path);
	else
		log_warning("Path %s of %s is %s (%s): %s", member->name, member->tier->name,
		            tier_member_state_name(member->state), member->reason.chars,
		            member->path);
}

static const char *stripe_name(const struct config_store *config)
{
	return config->stripe[0] ? config->stripe : config->name;
}

/* The tier of a store's stripe, made by its first store. */
static int tier_of(struct daemon *daemon, const struct config_store *config, struct tier **ret_tier)
{
	const char *name = stripe_name(config);
	struct tier *tier = &daemon->nvme_tiers[daemon->nvme_tier_count];
	int r;

	for (uint32_t i = 0; i < daemon->nvme_tier_count; i++)
		if (!strcmp(daemon->nvme_tiers[i].name + strlen("nvme:"), name)) {
			*ret_tier = &daemon->nvme_tiers[i];
			return 0;
		}
	r = tier_init_nvme(tier, name, topo_node_of_path(daemon->topo, config->path));
	if (r)
		return err_trace(r);
	tier->changed = member_changed;
	daemon->nvme_tier_count++;
	*ret_tier = tier;
	return 0;
}

/* A store that is there. Return: as daemon_open_stores(). */
static int open_present(struct daemon *daemon, const struct config_store *config, bool is_known,
                        struct zi_text *text, struct nvme_store **ret_store)
{
	struct store_progress progress = { .daemon = daemon,
		                           .config = config,
		                           .steps.is_terminal = isatty(STDERR_FILENO) };
	struct nvme_store_options options = {
		.name = config->name,
		.path = config->path,
		.bytes = config->bytes,
		.is_direct_required = config->direct == CONFIG_DIRECT_REQUIRE,
		.is_known = is_known,
		.progress = store_progress,
		.progress_arg = &progress,
	};
	struct nvme_store *store;
	int r;

	r = open_when_free(daemon, &options, text, ret_store);
	if (r)
		return err_trace(r);
	store = *ret_store;
	store->timeout_ns = config->deadline_s * ZI_NS_PER_S;
	daemon_tune_store(daemon, config, store);
	r = catalog_adopt_store(daemon->catalog, store->name, store->uuid, store->is_created, text);
	if (!r)
		r = nvme_store_settle(store, text);
	if (!r)
		r = nvme_engine_register_store(daemon->shard.engine, store);
	if (r)
		return err_trace(r);
	start_poll(daemon, config, store);
	if (!store->is_direct)
		log_warning("Store '%s' at %s is not read and written directly (O_DIRECT): slower, "
		            "through the page cache",
		            store->name, store->path);
	return 0;
}

/* One path of several is gone: the others' jobs go on without it. A tier that is gone as a whole is
 * rather a mistake, and refused. */
static bool is_dispensable(const struct config *config, const struct config_store *store, int error)
{
	if (error != -ENODATA && error != -EIO && error != -ENXIO && error != -ENODEV)
		return false;
	for (uint32_t i = 0; i < config->store_count; i++)
		if (&config->stores[i] != store &&
		    !strcmp(stripe_name(&config->stores[i]), stripe_name(store)))
			return true;
	return false;
}

static int open_store(struct daemon *daemon, uint32_t index, struct zi_text *text)
{
	const struct config_store *config = &daemon->config->stores[index];
	struct tier_member_options options = {
		.name = config->name,
		.path = config->path,
		.is_draining = config->is_drained,
		.write_budget = { .day_bytes = config->write_budget_bytes,
		                  .action = (enum tier_budget_action)config->write_budget_action },
	};
	uint64_t extent_count = 0;
	uint8_t uuid[16] = { 0 };
	struct tier *tier = NULL;
	int r;

	r = catalog_store_extents(daemon->catalog, config->name, text, uuid, &extent_count);
	if (r)
		return err_trace(r);
	r = open_present(daemon, config, extent_count > 0, text, &daemon->stores[index]);
	if (r && !(extent_count && is_dispensable(daemon->config, config, r)))
		return err_trace(r);
	if (r)
		daemon->stores[index] = nvme_store_close(daemon->stores[index]);
	options.store = daemon->stores[index];
	options.uuid = options.store ? options.store->uuid : uuid;
	if (r)
		log_warning("%s; going on without it", text->chars);
	r = tier_of(daemon, config, &tier);
	if (!r)
		r = tier_member_add(tier, &options);
	return err_trace(r);
}

/**
 * daemon_open_stores() - whatever the configuration names
 * @daemon: with topo, catalog and the shard's loop
 *
 * Return: 0; -ECANCELED a signal said to stop meanwhile; errors of nvme_store_open(),
 * nvme_engine_new(), catalog_adopt_store(), with @text.
 */
int daemon_open_stores(struct daemon *daemon, struct zi_text *text)
{
	int r;

	if (!daemon->config->store_count)
		return 0;
	r = daemon_make_engine(daemon, text);
	for (uint32_t i = 0; !r && i < daemon->config->store_count; i++)
		r = open_store(daemon, i, text);
	return err_trace(r);
}

/* NULL-safe. Nothing is in flight, no extent is charged. Context: main thread, no shard runs. */
void daemon_close_stores(struct daemon *daemon)
{
	while (daemon->nvme_tier_count) {
		uint32_t index = --daemon->nvme_tier_count;

		tier_deinit(&daemon->nvme_tiers[index]);
	}
	/* After the tiers' space, before the stores: the engine has them registered. */
	daemon->shard.engine = nvme_engine_free(daemon->shard.engine);
	for (uint32_t i = 0; i < CONFIG_STORES_MAX; i++)
		daemon->stores[i] = nvme_store_close(daemon->stores[i]);
}
