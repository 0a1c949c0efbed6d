/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a node that has no memory to join says so to all others. Method: real workers on loopback;
 * what one of them may map is limited while it waits for the others in its join.
 */
#include <sys/resource.h>

#include "tests/unit/worker/store_relay.h"

/* What the heap may still grow by; a thread's stack and the pieces of three nodes are larger. */
#define ROOM_BYTES (4ul << 20)

#ifdef ZI_SANITIZED
#define SKIP_SANITIZED() cr_skip_test("a sanitizer maps more than any limit here")
#else
#define SKIP_SANITIZED() ((void)0)
#endif

static struct store_relay relay;

static uint64_t mapped_bytes(int pid)
{
	unsigned long pages = 0;
	char path[64];
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/statm", pid);
	file = fopen(path, "re");
	cr_assert_not_null(file);
	cr_assert_eq(fscanf(file, "%lu", &pages), 1);
	(void)fclose(file);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Node 1 may map @more_bytes when it waits for node 2, which then comes. */
static void join_with_little(struct net_test *test, uint64_t more_bytes)
{
	uint16_t port = test->port;
	struct rlimit limit;
	int pid;

	store_relay_open(&relay, test);
	relay.key = "1/abort";
	relay.keep_ns = ZI_NS_PER_MS;
	test->epoch = 1;
	net_test_join_one(test, 0, NET_TEST_MS);
	test->port = relay.port;
	net_test_join_one(test, 1, NET_TEST_MS);
	test->port = port;
	while (!relay.is_over)
		cr_assert_eq(zi_loop_run(test->loop), 0);
	pid = net_worker_pid(test->nodes[1].worker);
	limit.rlim_cur = limit.rlim_max = mapped_bytes(pid) + more_bytes;
	cr_assert_eq(prlimit(pid, RLIMIT_AS, &limit, NULL), 0);
	net_test_join_one(test, 2, NET_TEST_MS);
	net_test_run(test);
	store_relay_close(&relay);
}

/* Those who had joined already hear it in their next call. */
static void expect_node_1(struct net_test *test, int error, const char *says)
{
	for (uint32_t i = 0; i < test->node_count; i++) {
		struct net_node *node = &test->nodes[i];
		const struct zi_text *text = &node->request.text;

		if (i != 1 && !node->request.error) {
			cr_assert_eq(net_worker_map(node->worker, &node->request, 0, node->slab_fd,
			                            NET_TEST_SLAB_BYTES),
			             0);
			test->pending_count++;
			net_test_run(test);
			test->sequence = 1;
			node->exchange = (struct net_exchange){ .kind = NET_MOVE };
			net_test_exchange_one(test, i, NET_TEST_MS);
			net_test_run(test);
		}
		cr_expect_eq(node->request.error, error, "node %u: %d", i, node->request.error);
		cr_expect(strstr(text->chars, "node 1 ("), "node %u: %s", i, text->chars);
		cr_expect(strstr(text->chars, says), "node %u: %s", i, text->chars);
	}
}

/* What the thread of the watch takes. */
static uint64_t stack_bytes(void)
{
	struct rlimit limit;

	cr_assert_eq(getrlimit(RLIMIT_STACK, &limit), 0);
	return limit.rlim_cur == RLIM_INFINITY ? 2u << 20 : limit.rlim_cur;
}

Test(join_memory, a_node_without_room_for_its_watch_tells_all)
{
	struct net_test test = { .host = NULL };

	SKIP_SANITIZED();
	net_test_skip_unless_built(&test);
	net_test_init(&test, 3);
	join_with_little(&test, ROOM_BYTES);
	expect_node_1(&test, -EAGAIN, "has no room for a thread");
	net_test_deinit(&test);
}

Test(join_memory, a_node_that_has_joined_and_has_no_room_for_pieces_tells_all)
{
	struct net_test test = { .host = NULL };

	SKIP_SANITIZED();
	net_test_skip_unless_built(&test);
	net_test_init(&test, 3);
	join_with_little(&test, ROOM_BYTES + stack_bytes());
	expect_node_1(&test, -ENOMEM, "has no memory for the pieces of 3 nodes");
	net_test_deinit(&test);
}
