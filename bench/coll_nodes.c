/* SPDX-License-Identifier: Apache-2.0 */
/* Two nodes for suite `coll`; see coll_nodes.h. */
#include "bench/coll_nodes.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "tests/harness/harness.h"

#define NODES          2u
#define DAEMON_BYTES   (512u << 20) /* beside the arenas */
#define ADDRESS        "10.99.0.1"
#define PORT           "29617" /* whose else: nobody is in these networks */
#define INTERFACE_NAME "eth0"

struct coll_nodes {
	struct network network;
	struct harness daemons[NODES];
	unsigned daemon_count; /* that have been started */
	unsigned per_node;
};

static int start_daemon(struct coll_nodes *nodes, unsigned node, uint64_t capacity_bytes)
{
	char capacity[32];
	struct harness_options options = { .cpu_capacity = capacity };
	int r;

	(void)snprintf(capacity, sizeof capacity, "%llu", (unsigned long long)capacity_bytes);
	network_enter(nodes->network.nodes[node]);
	r = harness_start(&nodes->daemons[node], &options);
	network_enter(nodes->network.home);
	nodes->daemons[node].options.cpu_capacity = NULL; /* it was this function's */
	if (!r)
		nodes->daemon_count++;
	return r;
}

struct coll_nodes *coll_nodes_new(unsigned world, uint64_t bytes_max, bool *ret_is_skipped)
{
	const char *missing = network_missing();
	struct coll_nodes *nodes;
	int r;

	*ret_is_skipped = missing != NULL;
	if (missing) {
		printf("skipped: nodes: %s\n", missing);
		return NULL;
	}
	nodes = calloc(1, sizeof *nodes);
	if (!nodes)
		abort();
	nodes->per_node = world / NODES;
	r = network_init_pair(&nodes->network);
	for (unsigned i = 0; i < NODES && !r; i++)
		r = start_daemon(nodes, i, nodes->per_node * 2 * bytes_max + DAEMON_BYTES);
	if (!r)
		return nodes;
	(void)coll_nodes_free(nodes);
	return NULL;
}

int coll_nodes_free(struct coll_nodes *nodes)
{
	int r = 0;

	if (!nodes)
		return 0;
	for (unsigned i = 0; i < nodes->daemon_count; i++)
		if (harness_stop(&nodes->daemons[i]))
			r = -1;
	network_deinit(&nodes->network);
	free(nodes);
	return r;
}

const struct network *coll_nodes_network(const struct coll_nodes *nodes)
{
	return &nodes->network;
}

void coll_nodes_enter(void *arg, unsigned rank)
{
	const struct coll_nodes *nodes = arg;
	unsigned node = rank / nodes->per_node;
	char per_node[16];

	assert(node < NODES);
	(void)snprintf(per_node, sizeof per_node, "%u", nodes->per_node);
	(void)setenv("ZINF_SOCKET", nodes->daemons[node].socket_path, 1);
	(void)setenv("LOCAL_WORLD_SIZE", per_node, 1);
	(void)setenv("MASTER_ADDR", ADDRESS, 1);
	(void)setenv("ZINF_PORT", PORT, 1);
	(void)setenv("GLOO_SOCKET_IFNAME", INTERFACE_NAME, 1);
	network_enter(nodes->network.nodes[node]);
}

/* Of the process whose folder is /proc/@name; -1: it has gone. */
static pid_t parent_of(const char *name)
{
	char path[300], line[512] = "";
	const char *rest;
	int parent = -1;
	FILE *file;

	(void)snprintf(path, sizeof path, "/proc/%s/stat", name);
	file = fopen(path, "re");
	if (!file)
		return -1;
	if (!fgets(line, sizeof line, file))
		line[0] = '\0';
	(void)fclose(file);
	rest = strrchr(line, ')'); /* the name before it may contain anything */
	return rest && sscanf(rest + 2, "%*c %d", &parent) == 1 ? parent : -1;
}

static void add_children(struct coll_side *side, pid_t parent)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;

	while (proc && (entry = readdir(proc)))
		if (atoi(entry->d_name) > 0 && parent_of(entry->d_name) == parent &&
		    side->helper_count < COLL_HELPERS_MAX)
			side->helpers[side->helper_count++] = atoi(entry->d_name);
	if (proc)
		(void)closedir(proc);
}

void coll_nodes_add_helpers(const struct coll_nodes *nodes, struct coll_side *side)
{
	for (unsigned i = 0; i < NODES; i++) {
		side->helpers[side->helper_count++] = nodes->daemons[i].pid;
		add_children(side, nodes->daemons[i].pid);
	}
}
