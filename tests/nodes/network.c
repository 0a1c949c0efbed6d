/* SPDX-License-Identifier: Apache-2.0 */
/* Networks of several nodes on this machine; see network.h. */
#include "tests/nodes/network.h"

#include <criterion/criterion.h>
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
	cr_assert_eq(setns(namespace, CLONE_NEWNET), 0);
}

/* Runs a command of the shell in @namespace; it must work. */
static void run_in(const struct network *network, int namespace, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void run_in(const struct network *network, int namespace, const char *format, ...)
{
	char command[400];
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(command, sizeof(command), format, arguments);
	va_end(arguments);
	network_enter(namespace);
	cr_assert_eq(system(command), 0, "%s", command);
	network_enter(network->home);
}

static int new_namespace(const struct network *network)
{
	int fd;

	cr_assert_eq(unshare(CLONE_NEWNET), 0);
	fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	network_enter(network->home);
	return fd;
}

static void add_node(struct network *network, uint32_t node)
{
	network->nodes[node] = new_namespace(network);
	run_in(network, network->hub,
	       "ip link add port%u type veth peer name eth0 netns /proc/%d/fd/%d && "
	       "ip link set port%u master bridge up",
	       node, (int)getpid(), network->nodes[node], node);
	run_in(network, network->nodes[node],
	       "ip link set lo up && ip address add 10.99.0.%u/24 dev eth0 && "
	       "ip address add fd99::%u/64 dev eth0 nodad && ip link set eth0 up",
	       node + 1, node + 1);
}

void network_init(struct network *network, uint32_t node_count)
{
	*network = (struct network){ .node_count = node_count };
	network->home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	cr_assert_geq(network->home, 0);
	network->hub = new_namespace(network);
	run_in(network, network->hub, "ip link add bridge type bridge && ip link set bridge up");
	for (uint32_t i = 0; i < node_count; i++)
		add_node(network, i);
}

void network_deinit(struct network *network)
{
	for (uint32_t i = 0; i < network->node_count; i++)
		network->nodes[i] = zi_close(network->nodes[i]);
	network->hub = zi_close(network->hub);
	network->home = zi_close(network->home);
}

void network_plug(const struct network *network, uint32_t node, bool is_in)
{
	run_in(network, network->hub, "ip link set port%u %s", node, is_in ? "up" : "down");
}

void network_limit(const struct network *network, uint32_t node, uint32_t mbit_per_s)
{
	for (uint32_t side = 0; side < 2; side++) {
		int namespace = side ? network->nodes[node] : network->hub;
		char device[16] = "eth0";

		if (!side)
			(void)snprintf(device, sizeof(device), "port%u", node);
		if (mbit_per_s)
			run_in(network, namespace,
			       "tc qdisc replace dev %s root "
			       "tbf rate %umbit burst 128kb latency 50ms",
			       device, mbit_per_s);
		else
			run_in(network, namespace, "tc qdisc delete dev %s root", device);
	}
}
