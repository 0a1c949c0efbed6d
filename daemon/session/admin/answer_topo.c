/* SPDX-License-Identifier: Apache-2.0 */
/* ADMIN: what the node is made of, as JSON. Floor 6, shard thread. */
#include "daemon/session/admin/answer_topo.h"

#include "daemon/session/admin/answer_json.h"
#include "daemon/session/sess.h"
#include "daemon/tier/tier.h"
#include "daemon/topo/topo.h"

static json_t *node_or_null(int32_t node)
{
	return node < 0 ? json_null() : json_integer(node);
}

static json_t *answer_nodes(const struct topo *topo)
{
	json_t *nodes = json_array();

	for (uint32_t i = 0; topo && i < topo->node_count; i++) {
		json_t *node = json_object();

		answer_number(node, "node", i);
		answer_number(node, "os_index", topo->nodes[i].os_index);
		answer_number(node, "cpus", topo->nodes[i].cpu_count);
		answer_number(node, "memory_bytes", topo->nodes[i].memory_bytes);
		(void)json_array_append_new(nodes, node);
	}
	return nodes;
}

/* @facts: NULL: zinfd does not have it. */
static json_t *answer_gpu(const char *pci, int32_t node, const struct dev_gpu_facts *facts)
{
	json_t *gpu = json_object();

	answer_word(gpu, "pci", pci);
	answer_put(gpu, "node", node_or_null(node));
	answer_put(gpu, "uuid", facts ? answer_text(facts->uuid) : json_null());
	answer_put(gpu, "device", facts ? answer_text(facts->name) : json_null());
	return gpu;
}

/* Those of the machine, and what zinfd has beside them. */
static json_t *answer_gpus(struct tier_arenas *arenas, const struct topo *topo)
{
	uint32_t count = arenas ? tier_arenas_count(arenas) : 0;
	bool is_told[TOPO_GPUS_MAX] = { false };
	json_t *gpus = json_array();

	for (uint32_t i = 0; i < count; i++) {
		const struct dev_gpu_facts *facts = &tier_arenas_tier(arenas, i)->gpu->facts;
		int32_t index = topo ? topo_find_gpu(topo, facts->pci) : -1;

		if (index >= 0)
			is_told[index] = true;
		(void)json_array_append_new(gpus, answer_gpu(facts->pci, facts->node, facts));
	}
	for (uint32_t i = 0; topo && i < topo->gpu_count; i++)
		if (!is_told[i])
			(void)json_array_append_new(
				gpus, answer_gpu(topo->gpus[i].pci, topo->gpus[i].node, NULL));
	return gpus;
}

static json_t *answer_disks(const struct topo *topo)
{
	json_t *disks = json_array();

	for (uint32_t i = 0; topo && i < topo->disk_count; i++) {
		json_t *disk = json_object();

		answer_word(disk, "name", topo->disks[i].name);
		answer_put(disk, "node", node_or_null(topo->disks[i].node));
		(void)json_array_append_new(disks, disk);
	}
	return disks;
}

static void add_tier(json_t *tiers, const struct tier *tier)
{
	json_t *object = json_object();

	answer_word(object, "name", tier->name);
	answer_word(object, "kind", tier_kind_name(tier->kind));
	answer_put(object, "node",
	           node_or_null(tier->gpu ? tier->gpu->facts.node : (int32_t)tier->node));
	answer_number(object, "capacity_bytes", tier->capacity_bytes);
	(void)json_array_append_new(tiers, object);
}

json_t *sess_answer_topo(struct sess_shard *shard, const struct sess_facts *facts)
{
	uint32_t gpu_count = shard->arenas ? tier_arenas_count(shard->arenas) : 0;
	json_t *object = json_object();
	json_t *tiers = json_array();

	for (uint32_t i = 0; i < facts->cpu_tier_count; i++)
		add_tier(tiers, &facts->cpu_tiers[i]);
	for (uint32_t i = 0; i < facts->nvme_tier_count; i++)
		add_tier(tiers, &facts->nvme_tiers[i]);
	for (uint32_t i = 0; i < gpu_count; i++)
		add_tier(tiers, tier_arenas_tier(shard->arenas, i));
	answer_put(object, "nodes", answer_nodes(facts->topo));
	answer_put(object, "gpus", answer_gpus(shard->arenas, facts->topo));
	answer_put(object, "disks", answer_disks(facts->topo));
	answer_put(object, "tiers", tiers);
	return object;
}
