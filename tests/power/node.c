/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon without its sockets (node.h). */
#include "tests/power/node.h"

#include <stdio.h>
#include <sys/epoll.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/tier/holder.h"

#define MIB (1ull << 20)

static void node_reap(struct zi_source *source, uint32_t events)
{
	(void)events;
	(void)nvme_engine_reap(container_of(source, struct node, engine_source)->engine);
}

/* The order of daemon/run.c. The threads of the engine make their writes where they are seen. */
static int start_disk(struct node *node, const char *directory, uint64_t store_bytes,
                      struct zi_text *text)
{
	char path[128];
	int r;

	(void)snprintf(path, sizeof(path), "%s/store", directory); /* Fits. */
	r = catalog_open(directory, text, &node->catalog);
	if (!r)
		r = nvme_engine_new(
			&(struct nvme_engine_options){ .backend = "threads", .depth = 3 }, text,
			&node->engine);
	if (!r)
		r = nvme_store_open(&(struct nvme_store_options){ .name = "t",
		                                                  .path = path,
		                                                  .bytes = store_bytes },
		                    text, &node->store);
	if (!r)
		r = catalog_adopt_store(node->catalog, "t", node->store->uuid,
		                        node->store->is_created, text);
	if (!r)
		r = nvme_store_settle(node->store, text);
	if (!r)
		r = nvme_engine_register_store(node->engine, node->store);
	if (!r)
		r = zi_loop_add(node->loop, &node->engine_source, nvme_engine_fd(node->engine),
		                EPOLLIN, node_reap);
	node->has_source = !r;
	if (!r)
		r = tier_init_nvme(&node->nvme, node->store->name, 0);
	if (!r)
		r = tier_member_add_store(&node->nvme, node->store);
	node->has_nvme = !r;
	return err_trace(r);
}

static int start_zero(struct node *node, struct zi_text *text)
{
	int r;

	tier_init_cpu(&node->cpu, 0, 256 * MIB, NULL, false);
	node->has_cpu = true;
	r = dev_fake_new(1, &node->device);
	if (!r)
		r = tier_holders_new(&node->holders);
	if (!r)
		r = zero_new(&(struct zero_options){ .loop = node->loop,
		                                     .catalog = node->catalog,
		                                     .engine = node->engine,
		                                     .holders = node->holders,
		                                     .cpu_tiers = &node->cpu,
		                                     .cpu_tier_count = 1,
		                                     .devices = &node->device,
		                                     .nvme_tiers = &node->nvme,
		                                     .nvme_tier_count = 1,
		                                     .default_staging_bytes = 4 * MIB,
		                                     .is_staging_kept = true,
		                                     .uid_cpu_limit_bytes = UINT64_MAX,
		                                     .uid_nvme_limit_bytes = UINT64_MAX,
		                                     .jobs_max = 8,
		                                     .jobs_per_uid_max = 8,
		                                     .units_max = 8,
		                                     .params_max = 8 },
		             &node->zero);
	if (!r)
		r = zero_recover(node->zero, NULL, NULL, text);
	if (!r)
		r = catalog_start(node->catalog);
	return err_trace(r);
}

int node_start(struct node *node, const char *directory, uint64_t store_bytes, struct zi_text *text)
{
	int r;

	*node = (struct node){ 0 };
	text->chars[0] = '\0';
	r = zi_loop_new(&node->loop);
	if (!r)
		r = start_disk(node, directory, store_bytes, text);
	if (!r)
		r = start_zero(node, text);
	if (r)
		node_stop(node);
	return err_trace(r);
}

static void stop_loop(struct zi_post *post)
{
	zi_loop_stop(container_of(post, struct node, stop)->loop);
}

void node_turn(struct node *node)
{
	int r;

	zi_loop_post(node->loop, &node->stop, stop_loop);
	r = zi_loop_run(node->loop);
	assert(r == 0);
	(void)r;
}

static bool is_quiet(const struct node *node)
{
	if (!zi_list_is_empty(&node->zero->ghosts))
		return false;
	zi_list_for_each(link, &node->zero->jobs)
		if (container_of(link, struct zero_job, jobs_link)->busy_count)
			return false;
	return true;
}

void node_settle(struct node *node)
{
	do
		node_turn(node);
	while (!is_quiet(node));
}

void node_stop(struct node *node)
{
	if (node->zero && node->catalog)
		node_turn(node);
	node->zero = zero_free(node->zero);
	node->holders = tier_holders_free(node->holders);
	node->device = dev_free(node->device);
	if (node->has_source)
		zi_loop_remove(&node->engine_source);
	node->engine = nvme_engine_free(node->engine);
	node->catalog = catalog_close(node->catalog);
	if (node->has_cpu)
		tier_deinit(&node->cpu);
	if (node->has_nvme)
		tier_deinit(&node->nvme);
	node->store = nvme_store_close(node->store);
	node->loop = zi_loop_free(node->loop);
}
