/* SPDX-License-Identifier: Apache-2.0 */
/* Networks of several nodes on this machine; see network.h. */
#include "tests/harness/network.h"

#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/fd.h"

const char *network_missing(void)
{
	int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	const char *why = NULL;

	if (geteuid())
		why = "networks of their own need root";
	else if (access("/usr/sbin/ip", X_OK) && access("/sbin/ip", X_OK))
		why = "no ip (iproute2)";
	else if (home < 0 || unshare(CLONE_NEWNET))
		why = "the kernel or this container allows no network namespaces";
	else if (system("ip link add port0 type veth peer name port1 2>/dev/null"))
		why = "no veth interfaces here";
	if (home >= 0 && setns(home, CLONE_NEWNET))
		abort();
	zi_close(home);
	return why;
}

void network_enter(int namespace)
{
	if (setns(namespace, CLONE_NEWNET))
		abort(); /* it is this process's own */
}

/* Runs a command of the shell in @namespace. */
static int run_in(const struct network *network, int namespace, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static int run_in(const struct network *network, int namespace, const char *format, ...)
{
	char command[400];
	va_list arguments;
	int status;

	va_start(arguments, format);
	(void)vsnprintf(command, sizeof(command), format, arguments);
	va_end(arguments);
	network_enter(namespace);
	status = system(command);
	network_enter(network->home);
	if (status)
		fprintf(stderr, "network: status %d of: %s\n", status, command);
	return status ? -1 : 0;
}

/* -1: none more can be had. */
static int new_namespace(const struct network *network)
{
	int fd = -1;

	if (unshare(CLONE_NEWNET)) {
		perror("network: a namespace");
		return -1;
	}
	fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	network_enter(network->home);
	return fd;
}

static int set_address(const struct network *network, uint32_t node)
{
	return run_in(network, network->nodes[node],
	              "ip link set lo up && ip address add 10.99.0.%u/24 dev eth0 && "
	              "ip address add fd99::%u/64 dev eth0 nodad && ip link set eth0 up",
	              node + 1, node + 1);
}

static int plug_in(const struct network *network, uint32_t node)
{
	return run_in(network, network->hub,
	              "ip link add port%u type veth peer name eth0 netns /proc/%d/fd/%d && "
	              "ip link set port%u master bridge up",
	              node, (int)getpid(), network->nodes[node], node);
}

/* Namespaces alone. */
static int begin(struct network *network, uint32_t node_count)
{
	*network = (struct network){ .node_count = node_count, .hub = -1 };
	for (uint32_t i = 0; i < NETWORK_NODES_MAX; i++)
		network->nodes[i] = -1;
	network->home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	if (network->home < 0)
		return -1;
	for (uint32_t i = 0; i < node_count; i++) {
		network->nodes[i] = new_namespace(network);
		if (network->nodes[i] < 0)
			return -1;
	}
	return 0;
}

int network_init(struct network *network, uint32_t node_count)
{
	int r = begin(network, node_count);

	if (r)
		return r;
	network->hub = new_namespace(network);
	if (network->hub < 0)
		return -1;
	r = run_in(network, network->hub,
	           "ip link add bridge type bridge && ip link set bridge up");
	for (uint32_t i = 0; i < node_count && !r; i++) {
		r = plug_in(network, i);
		if (!r)
			r = set_address(network, i);
	}
	return r;
}

int network_init_pair(struct network *network)
{
	int r = begin(network, 2);

	if (!r)
		r = run_in(network, network->nodes[0],
		           "ip link add eth0 type veth peer name eth0 netns /proc/%d/fd/%d",
		           (int)getpid(), network->nodes[1]);
	for (uint32_t i = 0; i < 2 && !r; i++)
		r = set_address(network, i);
	return r;
}

void network_deinit(struct network *network)
{
	for (uint32_t i = 0; i < network->node_count; i++)
		network->nodes[i] = zi_close(network->nodes[i]);
	network->hub = zi_close(network->hub);
	network->home = zi_close(network->home);
}

int network_plug(const struct network *network, uint32_t node, bool is_in)
{
	return run_in(network, network->hub, "ip link set port%u %s", node, is_in ? "up" : "down");
}

static int limit_device(const struct network *network, int namespace, const char *device,
                        uint32_t mbit_per_s)
{
	if (!mbit_per_s)
		return run_in(network, namespace, "tc qdisc delete dev %s root", device);
	return run_in(network, namespace,
	              "tc qdisc replace dev %s root tbf rate %umbit burst 128kb latency 50ms",
	              device, mbit_per_s);
}

int network_limit(const struct network *network, uint32_t node, uint32_t mbit_per_s)
{
	char port[16];

	(void)snprintf(port, sizeof(port), "port%u", node); /* Fits. */
	return limit_device(network, network->hub, port, mbit_per_s) ||
	                       limit_device(network, network->nodes[node], "eth0", mbit_per_s)
	               ? -1
	               : 0;
}
