/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what zinf-net does over real networks is right, and whatever becomes of the network or a
 * peer, every survivor has its error within the deadline, and the job can begin anew. Method: one
 * worker in each of two to four network namespaces (network.h); cables taken out, rates limited,
 * peers killed and stopped while operations run.
 */
#include "kernels/combine.h"
#include "tests/harness/network.h"
#include "tests/kernels/data.h"
#include "tests/unit/worker/net_fixture.h"

/* A deadline that passes, and by how much an error may come after it: the blame, and a crowded
 * machine. */
#define SHORT_MS 1500u
#define LATE_MS  8000u

#define RESULT_PLACE (16u << 20)

struct job {
	struct network network;
	struct net_test test;
};

static bool job_init(struct job *job, uint32_t node_count)
{
	const char *missing = network_missing();

	*job = (struct job){ .test = { .host = "10.99.0.1" } };
	if (!net_test_is_built(&job->test))
		missing = "zinf-net is not built (libgloo-dev)";
	if (missing) {
		cr_skip_test("%s", missing);
		return false;
	}
	cr_assert_eq(network_init(&job->network, node_count), 0);
	job->test.home = job->network.home;
	for (uint32_t i = 0; i < node_count; i++)
		job->test.namespaces[i] = job->network.nodes[i];
	net_test_init(&job->test, node_count);
	return true;
}

static void job_deinit(struct job *job)
{
	net_test_deinit(&job->test);
	network_deinit(&job->network);
}

/* One rank on each node: node i's element k is a small number made of both, so that sums are exact
 * in any order; which bits come out is for tests/unit/worker. */
static float element(uint32_t node, uint64_t k)
{
	return (float)((k * 7 + node * 13) % 1000);
}

static void prepare(struct job *job, uint64_t elements)
{
	for (uint32_t n = 0; n < job->test.node_count; n++) {
		struct net_node *node = &job->test.nodes[n];

		node->exchange = (struct net_exchange){ .kind = NET_REDUCE,
			                                .mode = NET_ALL,
			                                .dtype = ZI_DTYPE_F32,
			                                .op = ZI_REDUCE_SUM,
			                                .rank_count = job->test.node_count,
			                                .element_count = elements,
			                                .result_offset_bytes = RESULT_PLACE };
		for (uint64_t k = 0; k < elements; k++)
			((float *)node->slab)[k] = element(n, k);
		for (uint32_t i = 0; i < job->test.node_count; i++)
			node->exchange.nodes[i] = (uint8_t)i;
	}
}

static void expect_sum(const struct job *job, uint64_t elements)
{
	for (uint32_t n = 0; n < job->test.node_count; n++) {
		const struct net_node *node = &job->test.nodes[n];
		const float *result = (const float *)(node->slab + RESULT_PLACE);

		cr_assert_eq(node->request.error, 0, "node %u: %s", n, node->request.text.chars);
		for (uint64_t k = 0; k < elements; k++) {
			float sum = 0;

			for (uint32_t i = 0; i < job->test.node_count; i++)
				sum += element(i, k);
			cr_assert_eq(result[k], sum);
		}
	}
}

static void sum(struct job *job, uint64_t elements)
{
	prepare(job, elements);
	net_test_exchange(&job->test);
	expect_sum(job, elements);
}

/* Workers that are down come up, all meet, and the job works. */
static void begin_anew(struct job *job)
{
	for (uint32_t i = 0; i < job->test.node_count; i++)
		if (net_worker_state(job->test.nodes[i].worker) == NET_WORKER_DOWN)
			net_test_start_node(&job->test, i);
	net_test_join(&job->test);
	sum(job, 200000);
}

/* All begin a sum, but @but; how long until the last has its answer. */
static uint64_t begin_sum(struct job *job, uint64_t elements, uint32_t but, uint64_t timeout_ms)
{
	uint64_t started_ns = zi_clock_now_ns();

	prepare(job, elements);
	job->test.sequence++;
	for (uint32_t i = 0; i < job->test.node_count; i++)
		if (i != but)
			net_test_exchange_one(&job->test, i, timeout_ms);
	return started_ns;
}

static void expect_errors(struct job *job, uint64_t started_ns, uint32_t but)
{
	uint64_t took_ms = (zi_clock_now_ns() - started_ns) / ZI_NS_PER_MS;

	cr_expect_lt(took_ms, SHORT_MS + LATE_MS, "%lu ms", took_ms);
	for (uint32_t i = 0; i < job->test.node_count; i++)
		if (i != but)
			cr_expect_lt(job->test.nodes[i].request.error, 0, "node %u", i);
}

static void expect_culprit(const struct job *job, uint32_t node, uint32_t culprit)
{
	const struct net_request *request = &job->test.nodes[node].request;
	char name[48];

	(void)snprintf(name, sizeof(name), "node %u (10.99.0.%u, ", culprit, culprit + 1);
	cr_expect_eq(request->culprit, culprit, "node %u: %u, %s", node, request->culprit,
	             request->text.chars);
	cr_expect(strstr(request->text.chars, name), "node %u: %s", node, request->text.chars);
}

Test(nodes, sums_over_2_to_4_networks_are_right)
{
	static const uint64_t sizes[] = { 0, 1, 1000, 40000, 1000000, 3000000 };

	for (uint32_t count = 2; count <= 4; count++) {
		struct job job;

		if (!job_init(&job, count))
			return;
		net_test_join(&job.test);
		for (uint32_t i = 0; i < ZI_COUNT_OF(sizes); i++)
			sum(&job, sizes[i]);
		job_deinit(&job);
	}
}

Test(nodes, ipv6_serves_as_well)
{
	struct job job;

	if (!job_init(&job, 3))
		return;
	job.test.host = "fd99::1";
	net_test_join(&job.test);
	sum(&job, 100000);
	job_deinit(&job);
}

Test(nodes, a_cut_link_is_an_error_of_all_by_the_deadline)
{
	struct job job;

	if (!job_init(&job, 4))
		return;
	for (uint32_t victim = 3; victim < 4; victim--) {
		uint64_t started_ns;

		if (victim == 1) /* As 2. */
			continue;
		begin_anew(&job);
		cr_assert_eq(network_plug(&job.network, victim, false), 0);
		started_ns = begin_sum(&job, 1000000, UINT32_MAX, SHORT_MS);
		net_test_run(&job.test);
		expect_errors(&job, started_ns, UINT32_MAX);
		/* Whom the store still serves say whose cable it is. */
		for (uint32_t i = 0; i < 4 && victim; i++)
			if (i != victim)
				expect_culprit(&job, i, victim);
		cr_assert_eq(network_plug(&job.network, victim, true), 0);
	}
	begin_anew(&job);
	job_deinit(&job);
}

Test(nodes, a_slow_link_is_waited_for_until_the_deadline)
{
	struct job job;
	uint64_t started_ns;

	if (!job_init(&job, 3))
		return;
	net_test_join(&job.test);
	cr_assert_eq(network_limit(&job.network, 1, 100), 0);
	sum(&job, 1000000); /* 4 MB to and from it: a third of a second and more */
	cr_assert_eq(network_limit(&job.network, 1, 1), 0);
	started_ns = begin_sum(&job, 1000000, UINT32_MAX, SHORT_MS);
	net_test_run(&job.test);
	expect_errors(&job, started_ns, UINT32_MAX);
	cr_assert_eq(network_limit(&job.network, 1, 0), 0);
	begin_anew(&job);
	job_deinit(&job);
}

Test(nodes, a_killed_peer_is_named_at_once)
{
	struct job job;

	if (!job_init(&job, 4))
		return;
	for (uint32_t victim = 0; victim < 4; victim += 2) {
		uint64_t started_ns;

		begin_anew(&job);
		started_ns = begin_sum(&job, 1000000, victim, NET_TEST_MS);
		net_test_kill(&job.test, victim, SIGKILL);
		net_test_run(&job.test);
		expect_errors(&job, started_ns, victim);
		for (uint32_t i = 0; i < 4; i++)
			if (i != victim)
				expect_culprit(&job, i, victim);
		net_test_await_down(&job.test, victim);
	}
	begin_anew(&job);
	job_deinit(&job);
}

Test(nodes, a_hung_peer_is_named_at_the_deadline)
{
	struct job job;
	uint64_t started_ns;

	if (!job_init(&job, 4))
		return;
	begin_anew(&job);
	net_test_kill(&job.test, 2, SIGSTOP);
	started_ns = begin_sum(&job, 1000000, 2, SHORT_MS);
	net_test_run(&job.test);
	expect_errors(&job, started_ns, 2);
	for (uint32_t i = 0; i < 4; i++)
		if (i != 2)
			expect_culprit(&job, i, 2);
	net_worker_kill(job.test.nodes[2].worker, &(struct zi_text){ "hung" });
	begin_anew(&job);
	job_deinit(&job);
}

/* A link so slow that what was begun is under way for seconds: then it happens. */
#define AMID_MBIT 20u

static void harm(struct job *job, uint32_t kind, uint32_t victim)
{
	if (kind == 0)
		net_test_kill(&job->test, victim, SIGKILL);
	else if (kind == 1)
		net_test_kill(&job->test, victim, SIGSTOP);
	else
		cr_assert_eq(network_plug(&job->network, victim, false), 0);
}

Test(nodes, what_happens_amid_a_transfer_is_an_error_of_all)
{
	struct job job;

	if (!job_init(&job, 3))
		return;
	for (uint32_t kind = 0; kind < 3; kind++) {
		uint32_t victim = kind;
		uint64_t started_ns;

		begin_anew(&job);
		cr_assert_eq(network_limit(&job.network, victim, AMID_MBIT), 0);
		started_ns = begin_sum(&job, 3000000, UINT32_MAX, kind ? SHORT_MS : NET_TEST_MS);
		harm(&job, kind, victim);
		net_test_run(&job.test);
		expect_errors(&job, started_ns, UINT32_MAX);
		cr_assert_eq(network_limit(&job.network, victim, 0), 0);
		if (kind == 0)
			net_test_await_down(&job.test, victim);
		if (kind == 1)
			net_worker_kill(job.test.nodes[victim].worker, &(struct zi_text){ "hung" });
		if (kind == 2)
			cr_assert_eq(network_plug(&job.network, victim, true), 0);
	}
	begin_anew(&job);
	job_deinit(&job);
}

static void expect_join_fails(struct job *job, uint32_t node, int error, const char *says)
{
	job->test.epoch++;
	net_test_join_one(&job->test, node, SHORT_MS);
	net_test_run(&job->test);
	cr_expect_eq(job->test.nodes[node].request.error, error, "%d",
	             job->test.nodes[node].request.error);
	cr_expect(strstr(job->test.nodes[node].request.text.chars, says), "%s",
	          job->test.nodes[node].request.text.chars);
}

Test(nodes, an_address_that_is_nobodys_or_has_no_way_is_told)
{
	struct job job;

	if (!job_init(&job, 2))
		return;
	job.test.host = "10.99.0.77";
	expect_join_fails(&job, 1, -ETIMEDOUT, "no store at 10.99.0.77");
	job.test.host = "10.98.0.1";
	expect_join_fails(&job, 1, -ETIMEDOUT, "Network is unreachable");
	expect_join_fails(&job, 0, -ENETUNREACH, "no route to '10.98.0.1'");
	job.test.host = "10.99.0.1";
	begin_anew(&job);
	job_deinit(&job);
}

Test(nodes, the_interface_is_found_or_as_configured)
{
	struct job job;

	if (!job_init(&job, 2))
		return;
	job.test.interface = "eth0";
	begin_anew(&job);
	job.test.interface = "eth7";
	expect_join_fails(&job, 1, -ENODEV, "no network interface 'eth7'");
	/* One on its loopback, one on the network: whoever comes second is told. */
	job.test.interface = NULL;
	job.test.epoch++;
	net_test_join_one(&job.test, 0, SHORT_MS);
	job.test.interface = "lo";
	net_test_join_one(&job.test, 1, SHORT_MS);
	net_test_run(&job.test);
	cr_expect(job.test.nodes[0].request.error == -EADDRNOTAVAIL ||
	          job.test.nodes[1].request.error == -EADDRNOTAVAIL);
	cr_expect_lt(job.test.nodes[0].request.error, 0);
	cr_expect_lt(job.test.nodes[1].request.error, 0);
	job.test.interface = NULL;
	begin_anew(&job);
	job_deinit(&job);
}

/* Node 0 is told that the store is at its loopback: the others cannot come there, and are told. */
Test(nodes, a_master_address_that_only_its_own_node_reaches_is_told)
{
	struct job job;

	if (!job_init(&job, 2))
		return;
	job.test.host = "127.0.0.1";
	job.test.epoch = 1;
	net_test_join_one(&job.test, 0, SHORT_MS);
	net_test_join_one(&job.test, 1, SHORT_MS);
	net_test_run(&job.test);
	cr_expect(strstr(job.test.nodes[0].request.text.chars, "node 1 of 2 did not come"), "%s",
	          job.test.nodes[0].request.text.chars);
	cr_expect(strstr(job.test.nodes[1].request.text.chars, "check MASTER_ADDR"), "%s",
	          job.test.nodes[1].request.text.chars);
	job_deinit(&job);
}
