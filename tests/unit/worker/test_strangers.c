/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: programs that connect to the ports of zinf-net while nodes meet cost them time, never the
 * start. Method: a thread beside two real workers that share a token. It holds more silent
 * connections to the store than have places there, or connects to each port at which one of the
 * workers listens and sends nonsense.
 */
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include "common/base/thread.h"
#include "daemon/worker/strangers.h"
#include "tests/kernels/data.h"
#include "tests/unit/worker/net_fixture.h"

/* More than there are places, in all and from one address. */
#define SILENT_COUNT (STRANGERS_MAX + 26)
#define PORTS_MAX    64u
#define INODES_MAX   256u
#define STARTS       3u

static struct net_test test;

static int open_to(uint16_t port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		                       .sin_port = htons(port),
		                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) && errno != EINPROGRESS)
		fd = zi_close(fd);
	return fd;
}

struct stranger_thread {
	struct zi_thread thread;
	int stop_fd;
	uint64_t connected_count;         /* read when it has ended */
	_Atomic uint64_t displaced_count; /* connections that the store has closed */
	uint32_t kind;
};

static bool is_stopped(const struct stranger_thread *stranger, int timeout_ms)
{
	struct pollfd polled = { .fd = stranger->stop_fd, .events = POLLIN };

	return poll(&polled, 1, timeout_ms) > 0;
}

static void start(struct stranger_thread *stranger, int (*run)(void *arg), uint32_t kind)
{
	*stranger = (struct stranger_thread){ .kind = kind };
	stranger->stop_fd = eventfd(0, EFD_CLOEXEC);
	cr_assert_geq(stranger->stop_fd, 0);
	cr_assert_eq(zi_thread_start(&stranger->thread, "stranger", run, stranger), 0);
}

static void stop(struct stranger_thread *stranger)
{
	cr_assert_eq(eventfd_write(stranger->stop_fd, 1), 0);
	cr_assert_eq(zi_thread_join(&stranger->thread), 0);
	zi_close(stranger->stop_fd);
}

/* Whether somebody was there before it ended. */
static bool was_connected(int fd)
{
	int error = 0;
	socklen_t size = sizeof(error);

	cr_assert_eq(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size), 0);
	return error != ECONNREFUSED;
}

static void join_one_with_token(uint32_t index)
{
	struct net_node *node = &test.nodes[index];

	net_test_fill_join(&test, index, NET_TEST_MS);
	(void)snprintf(node->join.way.token, sizeof(node->join.way.token), "secret");
	cr_assert_eq(net_worker_join(node->worker, &node->request, &node->join), 0);
	test.pending_count++;
}

/* Both nodes meet, with a token. @stranger: the second comes when it has lost a place in the store,
 * which the first node's worker holds; NULL: at once. */
static void join_with_token(struct stranger_thread *stranger)
{
	test.epoch++;
	join_one_with_token(0);
	while (stranger && !stranger->displaced_count)
		(void)sched_yield();
	for (uint32_t i = 1; i < test.node_count; i++)
		join_one_with_token(i);
	net_test_run(&test);
	for (uint32_t i = 0; i < test.node_count; i++)
		cr_expect_eq(test.nodes[i].request.error, 0, "node %u: %s", i,
		             test.nodes[i].request.text.chars);
}

/* ---- silence ---- */

/* Holds SILENT_COUNT connections, and replaces each one that the store closes. */
static int be_silent(void *arg)
{
	struct stranger_thread *stranger = arg;
	struct pollfd polled[SILENT_COUNT + 1];

	for (uint32_t i = 0; i < SILENT_COUNT; i++)
		polled[i] = (struct pollfd){ .fd = -1, .events = POLLIN };
	polled[SILENT_COUNT] = (struct pollfd){ .fd = stranger->stop_fd, .events = POLLIN };
	while (!polled[SILENT_COUNT].revents) {
		for (uint32_t i = 0; i < SILENT_COUNT; i++) {
			if (polled[i].fd >= 0 && polled[i].revents) {
				stranger->displaced_count += was_connected(polled[i].fd);
				polled[i].fd = zi_close(polled[i].fd);
			}
			if (polled[i].fd < 0)
				polled[i].fd = open_to(test.port);
		}
		(void)poll(polled, SILENT_COUNT + 1, 10);
	}
	for (uint32_t i = 0; i < SILENT_COUNT; i++)
		zi_close(polled[i].fd);
	return 0;
}

Test(strangers, nodes_meet_beside_silent_connections_in_all_places_of_the_store, .timeout = 200)
{
	struct stranger_thread stranger;

	net_test_skip_unless_built(&test);
	net_test_init(&test, 2);
	start(&stranger, be_silent, 0);
	join_with_token(&stranger);
	stop(&stranger);
	net_test_deinit(&test);
}

/* The node that waits cannot know that its peer was not let in: the store tells. */
Test(strangers, a_node_that_waits_in_vain_hears_of_connections_that_lost_their_places,
     .timeout = 200)
{
	struct stranger_thread stranger;

	net_test_skip_unless_built(&test);
	net_test_init(&test, 2);
	test.epoch = 1;
	start(&stranger, be_silent, 0);
	net_test_join_one(&test, 0, 1000);
	net_test_run(&test);
	stop(&stranger);
	cr_expect_eq(test.nodes[0].request.error, -ETIMEDOUT);
	cr_expect(strstr(test.nodes[0].request.text.chars, "lost their place before they greeted"),
	          "%s", test.nodes[0].request.text.chars);
	net_test_deinit(&test);
}

/* ---- nonsense ---- */

/* Sockets that @pid holds. */
static uint32_t inodes_of(pid_t pid, uint64_t *inodes)
{
	char path[64], target[64];
	struct dirent *entry;
	uint32_t count = 0;
	DIR *folder;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid); /* Fits. */
	folder = opendir(path);
	while (folder && count < INODES_MAX && (entry = readdir(folder))) {
		ssize_t bytes =
			readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);

		target[bytes > 0 ? bytes : 0] = '\0';
		count += sscanf(target, "socket:[%lu]", &inodes[count]) == 1;
	}
	if (folder)
		(void)closedir(folder);
	return count;
}

/* Ports at which the workers listen now, and nobody else's. Return: how many. */
static uint32_t find_ports(uint16_t *ports)
{
	uint64_t inodes[NET_TEST_NODES_MAX * INODES_MAX];
	uint32_t inode_count = 0, count = 0;
	char line[256];
	FILE *table;

	for (uint32_t i = 0; i < test.node_count; i++)
		inode_count +=
			inodes_of(net_worker_pid(test.nodes[i].worker), inodes + inode_count);
	table = fopen("/proc/net/tcp", "re");
	while (table && count < PORTS_MAX && fgets(line, sizeof(line), table)) {
		unsigned int port, state;
		uint64_t inode;

		if (sscanf(line, " %*u: %*x:%x %*x:%*x %x %*x:%*x %*x:%*x %*x %*u %*u %lu", &port,
		           &state, &inode) != 3 ||
		    state != 0x0a)
			continue;
		for (uint32_t i = 0; i < inode_count; i++)
			if (inodes[i] == inode) {
				ports[count++] = (uint16_t)port;
				break;
			}
	}
	if (table)
		(void)fclose(table);
	return count;
}

static void send_nonsense(uint32_t kind, uint16_t port, uint64_t *state)
{
	static const struct linger at_once = { .l_onoff = 1 };
	uint64_t words[16] = { 0 };
	int fd = open_to(port);

	for (uint32_t i = 0; i < ZI_COUNT_OF(words); i++)
		words[i] = data_random(state);
	if (fd >= 0 && kind == 0)
		(void)send(fd, words, sizeof(words), MSG_NOSIGNAL);
	if (fd >= 0 && kind == 1) {
		words[0] %= 64; /* As a program that numbers its connections. */
		(void)send(fd, words, sizeof(words[0]), MSG_NOSIGNAL);
	}
	if (fd >= 0 && kind == 2) /* The close is a reset. */
		(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	zi_close(fd);
}

static int scan(void *arg)
{
	struct stranger_thread *stranger = arg;
	uint64_t state = 77 + stranger->kind;
	uint16_t ports[PORTS_MAX];

	while (!is_stopped(stranger, 0)) {
		uint32_t count = find_ports(ports);

		for (uint32_t i = 0; i < count; i++)
			send_nonsense(stranger->kind, ports[i], &state);
		stranger->connected_count += count;
	}
	return 0;
}

static void expect_meets_beside_nonsense(uint32_t kind)
{
	struct stranger_thread stranger;
	uint64_t connected_count = 0;

	net_test_skip_unless_built(&test);
	for (uint32_t i = 0; i < STARTS; i++) {
		net_test_init(&test, 2);
		start(&stranger, scan, kind);
		join_with_token(NULL);
		stop(&stranger);
		connected_count += stranger.connected_count;
		for (uint32_t node = 0; node < test.node_count; node++)
			cr_expect_neq(net_worker_state(test.nodes[node].worker), NET_WORKER_DOWN,
			              "node %u: %s", node, test.nodes[node].ended.chars);
		net_test_deinit(&test);
	}
	cr_expect_gt(connected_count, 0, "the scanner found no port");
}

Test(strangers, nodes_meet_beside_a_scanner_that_sends_random_bytes, .timeout = 400)
{
	expect_meets_beside_nonsense(0);
}

Test(strangers, nodes_meet_beside_a_scanner_that_sends_a_number, .timeout = 400)
{
	expect_meets_beside_nonsense(1);
}

Test(strangers, nodes_meet_beside_a_scanner_that_resets_its_connections, .timeout = 400)
{
	expect_meets_beside_nonsense(2);
}
