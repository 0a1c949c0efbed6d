/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the port where nodes meet may still be that of a job which has just ended: then it is
 * waited for, and a job follows another at once. Where it stays in use, or is another run's, that
 * is told. Method: real workers on loopback, and a socket of the test's own at their port.
 */
#include <netinet/in.h>

#include "tests/guard/guard.h"
#include "tests/unit/worker/net_fixture.h"

/* When the port is free again: later than a worker asks for it, sooner than its patience ends. */
#define FREE_NS (300 * ZI_NS_PER_MS)

struct occupied {
	struct zi_timer timer;
	int fd;
};

static int occupy(uint16_t port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		                       .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	cr_assert_eq(listen(fd, 1), 0);
	return fd;
}

static void let_go(struct zi_timer *timer)
{
	struct occupied *occupied = container_of(timer, struct occupied, timer);

	occupied->fd = zi_close(occupied->fd);
}

/* The other node comes to the socket that is still there: what does not answer is no store yet. */
Test(net_port, one_that_is_free_in_a_moment_is_waited_for)
{
	struct occupied occupied = { .fd = -1 };
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	net_test_init(&test, 2);
	occupied.fd = occupy(test.port);
	zi_loop_arm(test.loop, &occupied.timer, zi_clock_deadline_ns(FREE_NS), let_go);
	net_test_join(&test);
	cr_expect_eq(occupied.fd, -1, "it was in use until the timer");
	net_test_deinit(&test);
}

Test(net_port, one_in_use_and_another_run_are_told_at_the_join)
{
	struct net_test test = { .host = NULL };
	int fd;

	net_test_skip_unless_built(&test);
	net_test_init(&test, 2);
	test.epoch = 1;
	fd = occupy(test.port);
	net_test_join_one(&test, 0, 400);
	net_test_run(&test);
	cr_expect_eq(test.nodes[0].request.error, -EADDRINUSE);
	cr_expect(strstr(test.nodes[0].request.text.chars, "set ZINF_PORT"));
	zi_close(fd);
	net_test_join_one(&test, 0, 5000);
	net_test_join_one(&test, 1, 5000);
	cr_assert_eq(zi_loop_run(test.loop), 0);
	test.nodes[1].worker = net_worker_free(test.nodes[1].worker);
	cr_assert_eq(net_worker_new(test.loop,
	                            &(struct net_worker_options){ .program = test.program },
	                            &test.nodes[1].worker),
	             0);
	net_test_start_node(&test, 1);
	test.nodes[1].join.timeout_ms = 5000;
	(void)snprintf(test.nodes[1].join.way.incarnation,
	               sizeof(test.nodes[1].join.way.incarnation), "run.old");
	cr_assert_eq(
		net_worker_join(test.nodes[1].worker, &test.nodes[1].request, &test.nodes[1].join),
		0);
	test.pending_count++;
	net_test_run(&test);
	cr_expect_eq(test.nodes[1].request.error, -ESTALE);
	cr_expect(strstr(test.nodes[1].request.text.chars, "'run.0' here, the client as 'run.old'"),
	          "%s", test.nodes[1].request.text.chars);
	net_test_deinit(&test);
}
