/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a job of eight ranks over four daemons, each in a network of its own: sums are right, and
 * whatever becomes of a link, a rank, a worker or a daemon, every survivor has its error within
 * the deadline, the daemons go on, and the job can be started again at once. Method: as
 * tests/system/test_far.c, in network namespaces (network.h).
 */
#include "tests/harness/network.h"
#include "tests/system/far.h"

TestSuite(jobs, .timeout = 400);

/* A deadline that passes, and by how much its error may come later: the nodes agree whose fault it
 * was, on a crowded machine. */
#define SHORT_MS 3000u
#define LATE_MS  20000u
#define PER_NODE 2u
/* Times that a rank is stopped until its name reaches all others within the deadline. */
#define HANGS_MAX 6u

struct job {
	struct network network;
	struct far_scene scene;
	struct far_scene beside; /* a job that nothing happens to */
};

static bool job_init(struct job *job)
{
	const char *missing = network_missing();

	if (!far_is_built())
		missing = "zinf-net is not built (libgloo-dev)";
	if (missing) {
		cr_skip_test("%s", missing);
		return false;
	}
	*job = (struct job){ .scene = { .host = "10.99.0.1" } };
	cr_assert_eq(network_init(&job->network, NETWORK_NODES_MAX), 0);
	job->scene.home = job->network.home;
	for (uint32_t i = 0; i < NETWORK_NODES_MAX; i++)
		job->scene.namespaces[i] = job->network.nodes[i];
	far_open_scene(&job->scene, NETWORK_NODES_MAX, PER_NODE);
	job->scene.timeout_ms = SHORT_MS;
	return true;
}

static void job_deinit(struct job *job)
{
	far_close_scene(&job->scene);
	network_deinit(&job->network);
}

/* Another job sums on @node_count of the daemons, from @first on, until end_beside(). */
static void begin_beside(struct job *job, uint32_t first, uint32_t node_count)
{
	static const char *const hosts[] = { "10.99.0.1", "10.99.0.2" };

	far_open_beside(&job->scene, first, node_count, &job->beside);
	job->beside.host = hosts[first];
	far_start(&job->beside, far_sum_until_told);
	far_hear(&job->beside, far_world(&job->beside));
}

/* It has gone on, whatever happened. */
static void end_beside(struct job *job)
{
	far_expect_goes_on(&job->beside);
	far_end_beside(&job->beside);
}

static void begin(struct job *job)
{
	job->scene.timeout_ms = 20000; /* to begin may take its time */
	far_start(&job->scene, far_sum_until_error);
	far_hear(&job->scene, far_world(&job->scene));
}

static void begin_anew(struct job *job)
{
	job->scene.timeout_ms = 20000;
	far_run(&job->scene, far_sum_once);
}

/* All but @spared end with an error that has @part, in time; those of node @lost with any. */
static void expect_all(struct job *job, const char *part, uint32_t spared, uint32_t lost)
{
	for (uint32_t i = 0; i < far_world(&job->scene); i++) {
		const struct far_report *report = &job->scene.shared->reports[i];

		if (i == spared)
			continue;
		far_join_one(&job->scene, i, 0);
		cr_expect_lt(report->error, 0, "rank %u", i);
		cr_expect(i / PER_NODE == lost || strstr(report->text, part),
		          "rank %u: '%s' is not in: %s", i, part, report->text);
		cr_expect_lt(report->took_ms, 20000 + LATE_MS, "rank %u: %lu ms", i,
		             report->took_ms);
	}
}

Test(jobs, sums_over_four_networks_are_right)
{
	struct job job;

	if (!job_init(&job))
		return;
	begin_anew(&job);
	begin_anew(&job);
	job_deinit(&job);
}

Test(jobs, a_killed_rank_is_named_on_all_nodes)
{
	struct job job;

	if (!job_init(&job))
		return;
	begin_beside(&job, 0, 4);
	for (uint32_t victim = 1; victim < 8; victim += 6) {
		char name[32];

		begin(&job);
		(void)snprintf(name, sizeof(name), "rank %u (pid %d)", victim,
		               job.scene.pids[victim]);
		cr_assert_eq(kill(job.scene.pids[victim], SIGKILL), 0);
		far_join_one(&job.scene, victim, 1000 + SIGKILL);
		expect_all(&job, name, victim, UINT32_MAX);
		begin_anew(&job);
	}
	end_beside(&job);
	job_deinit(&job);
}

/* Sums with a deadline of their own, so that a job that begins slowly has its time. */
static int sum_with_deadlines(struct far_rank *rank)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	struct far_report *report = &rank->scene->shared->reports[rank->rank];
	float value = 1;
	int r = zinf_coll_barrier(rank->zinf, NULL);

	options.timeout_ms = SHORT_MS;
	far_tell(rank);
	while (!r) {
		uint64_t begin_ns = zi_clock_now_ns();

		r = zinf_coll_all_reduce(rank->zinf, &value, &value, 1, ZINF_F32, ZINF_MAX,
		                         &options);
		report->took_ms = (zi_clock_now_ns() - begin_ns) / ZI_NS_PER_MS;
	}
	(void)far_note(rank, r);
	return 0;
}

static void begin_sums(struct job *job)
{
	job->scene.timeout_ms = 20000;
	far_start(&job->scene, sum_with_deadlines);
	far_hear(&job->scene, far_world(&job->scene));
}

static void expect_in_time(const struct job *job, uint32_t spared)
{
	for (uint32_t i = 0; i < far_world(&job->scene); i++)
		cr_expect(i == spared || job->scene.shared->reports[i].took_ms < SHORT_MS + LATE_MS,
		          "rank %u: %lu ms", i, job->scene.shared->reports[i].took_ms);
}

/*
 * All others end by their deadline once @rank is stopped; then it is killed. Its node has 0.3 s to
 * say which of its ranks it waits for. A busy machine misses these; an error then names a node.
 * Return: whether all of them name the rank.
 */
static bool is_hung_rank_named(struct job *job, uint32_t rank)
{
	char name[32];
	bool is_named = true;

	cr_assert_eq(kill(job->scene.pids[rank], SIGSTOP), 0);
	(void)snprintf(name, sizeof(name), "rank %u (pid %d)", rank, job->scene.pids[rank]);
	for (uint32_t i = 0; i < far_world(&job->scene); i++) {
		const struct far_report *report = &job->scene.shared->reports[i];

		if (i == rank)
			continue;
		far_join_one(&job->scene, i, 0);
		cr_expect_lt(report->error, 0, "rank %u", i);
		cr_expect(strstr(report->text, name) || strstr(report->text, "node"),
		          "rank %u: neither '%s' nor a node is in: %s", i, name, report->text);
		is_named = is_named && strstr(report->text, name);
	}
	expect_in_time(job, rank);
	cr_assert_eq(kill(job->scene.pids[rank], SIGKILL), 0);
	far_join_one(&job->scene, rank, 1000 + SIGKILL);
	return is_named;
}

/* One time of several is in time on any machine that still works. */
static void hang(struct job *job, void (*begin_calls)(struct job *job), uint32_t rank)
{
	for (uint32_t i = 0; i < HANGS_MAX; i++) {
		begin_calls(job);
		if (is_hung_rank_named(job, rank))
			return;
	}
	cr_assert_fail("rank %u was not named in %u times", rank, HANGS_MAX);
}

/* All name node 3, whose link is cut, by their deadline; then it is there again. */
static void cut_off(struct job *job)
{
	cr_assert_eq(network_plug(&job->network, 3, false), 0);
	expect_all(job, "node 3 (10.99.0.4", UINT32_MAX, 3);
	expect_in_time(job, UINT32_MAX);
	cr_assert_eq(network_plug(&job->network, 3, true), 0);
}

Test(jobs, a_hung_rank_is_named_on_all_nodes_by_the_deadline)
{
	struct job job;

	if (!job_init(&job))
		return;
	begin_beside(&job, 0, 4);
	hang(&job, begin_sums, 5);
	begin_anew(&job);
	end_beside(&job);
	job_deinit(&job);
}

Test(jobs, a_cut_link_is_an_error_of_all_by_the_deadline)
{
	struct job job;

	if (!job_init(&job))
		return;
	begin_beside(&job, 0, 3);
	begin_sums(&job);
	cut_off(&job);
	begin_anew(&job);
	end_beside(&job);
	job_deinit(&job);
}

Test(jobs, who_dies_or_is_cut_off_amid_large_sums_is_named)
{
	struct job job;
	char name[32];

	if (!job_init(&job))
		return;
	begin_beside(&job, 0, 3);
	job.scene.timeout_ms = SHORT_MS * 4;
	far_start(&job.scene, far_large_until_error);
	far_hear(&job.scene, far_world(&job.scene));
	(void)snprintf(name, sizeof(name), "rank 6 (pid %d)", job.scene.pids[6]);
	cr_assert_eq(kill(job.scene.pids[6], SIGKILL), 0);
	far_join_one(&job.scene, 6, 1000 + SIGKILL);
	expect_all(&job, name, 6, UINT32_MAX);
	far_start(&job.scene, far_large_until_error);
	far_hear(&job.scene, far_world(&job.scene));
	cr_assert_eq(network_plug(&job.network, 3, false), 0);
	expect_all(&job, "node", UINT32_MAX, 3);
	end_beside(&job);
	cr_assert_eq(network_plug(&job.network, 3, true), 0);
	begin_anew(&job);
	job_deinit(&job);
}

Test(jobs, a_slow_link_is_waited_for)
{
	struct job job;

	if (!job_init(&job))
		return;
	begin_beside(&job, 0, 2);
	cr_assert_eq(network_limit(&job.network, 2, 20), 0);
	begin_anew(&job);
	cr_assert_eq(network_limit(&job.network, 2, 0), 0);
	begin_anew(&job);
	end_beside(&job);
	job_deinit(&job);
}

Test(jobs, a_killed_worker_is_an_error_of_all)
{
	struct job job;

	if (!job_init(&job))
		return;
	for (uint32_t node = 0; node < 4; node += 3) {
		pid_t worker;

		begin(&job);
		worker = far_child_of(job.scene.harness[node].pid, "zinf-net");
		cr_assert_gt(worker, 0);
		begin_beside(&job, 0, 4); /* Its workers come after that one. */
		cr_assert_eq(kill(worker, SIGKILL), 0);
		expect_all(&job, "node", UINT32_MAX, node);
		begin_anew(&job);
		end_beside(&job);
	}
	job_deinit(&job);
}

Test(jobs, a_killed_daemon_is_an_error_of_all)
{
	struct job job;

	if (!job_init(&job))
		return;
	for (uint32_t node = 0; node < 4; node += 3) {
		begin(&job);
		begin_beside(&job, node ? 0 : 1, 3);
		harness_kill(&job.scene.harness[node]);
		expect_all(&job, "node", UINT32_MAX, node);
		end_beside(&job);
		far_start_node(&job.scene, node, true);
		begin_anew(&job);
	}
	job_deinit(&job);
}

/* ---- messages ---- */

/* Of each rank with the one on the next node but one, until a round fails. */
static int send_with_deadlines(struct far_rank *rank)
{
	enum { COUNT = 200001 };
	static int32_t source[COUNT], target[COUNT];
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	struct far_report *report = &rank->scene->shared->reports[rank->rank];
	uint32_t peer = (rank->rank + rank->world / 2) % rank->world;
	const struct zinf_coll_p2p both[] = {
		{ .is_send = 1, .peer = peer, .data = source, .count = COUNT, .dtype = ZINF_I32 },
		{ .peer = peer, .data = target, .count = COUNT, .dtype = ZINF_I32 },
	};
	int r = zinf_coll_barrier(rank->zinf, NULL);

	options.timeout_ms = SHORT_MS;
	for (int32_t round = 1; !r; round++) {
		uint64_t begin_ns = zi_clock_now_ns();

		source[0] = source[COUNT - 1] = (int32_t)rank->rank * 1000 + round % 1000;
		r = zinf_coll_batch(rank->zinf, both, 2, &options);
		report->took_ms = (zi_clock_now_ns() - begin_ns) / ZI_NS_PER_MS;
		if (!r && (target[0] != (int32_t)peer * 1000 + round % 1000 ||
		           target[COUNT - 1] != target[0]))
			return 4;
		if (round == 1)
			far_tell(rank);
	}
	(void)far_note(rank, r);
	return 0;
}

static void begin_messages(struct job *job)
{
	job->scene.timeout_ms = 20000;
	far_start(&job->scene, send_with_deadlines);
	far_hear(&job->scene, far_world(&job->scene));
}

Test(jobs, a_killed_peer_is_named_amid_messages)
{
	struct job job;
	char name[32];

	if (!job_init(&job))
		return;
	begin_messages(&job);
	(void)snprintf(name, sizeof(name), "rank 6 (pid %d)", job.scene.pids[6]);
	cr_assert_eq(kill(job.scene.pids[6], SIGKILL), 0);
	far_join_one(&job.scene, 6, 1000 + SIGKILL);
	expect_all(&job, name, 6, UINT32_MAX);
	begin_anew(&job);
	job_deinit(&job);
}

Test(jobs, a_hung_peer_is_named_amid_messages_by_the_deadline)
{
	struct job job;

	if (!job_init(&job))
		return;
	hang(&job, begin_messages, 6);
	begin_anew(&job);
	job_deinit(&job);
}

Test(jobs, a_cut_link_is_named_amid_messages_by_the_deadline)
{
	struct job job;

	if (!job_init(&job))
		return;
	begin_messages(&job);
	cut_off(&job);
	begin_anew(&job);
	job_deinit(&job);
}

Test(jobs, messages_over_a_slow_link_arrive)
{
	struct job job;

	if (!job_init(&job))
		return;
	cr_assert_eq(network_limit(&job.network, 2, 20), 0);
	begin_messages(&job);
	cr_assert_eq(network_limit(&job.network, 2, 0), 0);
	cr_assert_eq(kill(job.scene.pids[0], SIGKILL), 0);
	far_join_one(&job.scene, 0, 1000 + SIGKILL);
	expect_all(&job, "rank 0 (pid", 0, UINT32_MAX);
	job_deinit(&job);
}

/* A large sum is broken off while it is on its way. Return: 0, or what is wrong. */
static int break_off_sum(struct far_rank *rank, struct zinf_coll_options options)
{
	enum { COUNT = 4 << 20, MOMENT_MS = 300 /* in which the link takes a tenth of it */ };
	static float values[COUNT];
	zinf_ticket ticket;
	int r;

	for (uint32_t i = 0; i < COUNT; i++)
		values[i] = 12345;
	options.ret_ticket = &ticket;
	r = zinf_coll_all_reduce(rank->zinf, values, values, COUNT, ZINF_F32, ZINF_SUM, &options);
	if (!r && rank->rank == 3) {
		r = zinf_wait_for(rank->zinf, ticket, MOMENT_MS, NULL);
		if (r != -ETIMEDOUT)
			return far_fail(rank, r, 11);
		r = zinf_coll_abort(rank->zinf, options.group, "enough");
	}
	r = r ? r : zinf_wait(rank->zinf, ticket, NULL);
	return r == -ECONNABORTED ? 0 : far_fail(rank, r, 12);
}

static int sum_after_broken_sums(struct far_rank *rank)
{
	enum { COUNT = 300001 };
	static const uint32_t both[] = { 3, 4 };
	static float values[COUNT];
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;

	for (uint32_t round = 0; round < 6; round++) {
		int r = zinf_coll_group(rank->zinf, both, 2, NULL, &options.group);

		if (r)
			return far_fail(rank, r, 1);
		if (options.group == ZINF_GROUP_NONE)
			continue;
		if (round % 2 == 0) {
			r = break_off_sum(rank, options);
			if (r)
				return r;
		} else {
			for (uint32_t i = 0; i < COUNT; i++)
				values[i] = (float)(rank->rank + i % 64);
			r = zinf_coll_all_reduce(rank->zinf, values, values, COUNT, ZINF_F32,
			                         ZINF_SUM, &options);
			for (uint32_t i = 0; i < COUNT && !r; i++)
				if (values[i] != (float)(7 + 2 * (i % 64)))
					return 2;
			r = r ? r : zinf_coll_barrier(rank->zinf, &options);
			if (r)
				return far_fail(rank, r, 3);
		}
		if (zinf_coll_group_free(rank->zinf, options.group))
			return far_fail(rank, -1, 4);
	}
	return zinf_coll_barrier(rank->zinf, NULL) ? far_fail(rank, -1, 5) : 0;
}

/* The link still carries pieces of the former group when the next one has its memory. */
Test(jobs, what_is_on_its_way_for_a_broken_group_does_not_reach_the_next_one)
{
	struct job job;

	if (!job_init(&job))
		return;
	job.scene.timeout_ms = 60000;
	cr_assert_eq(network_limit(&job.network, 2, 20), 0);
	far_run(&job.scene, sum_after_broken_sums);
	cr_assert_eq(network_limit(&job.network, 2, 0), 0);
	job_deinit(&job);
}
