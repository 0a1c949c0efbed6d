/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: collectives of a job over several daemons: whoever calls something else, does not come, or
 * dies is named on every node by the deadline, what is merely wrong leaves the group standing, and
 * the job can be started again at once. Method: two or three daemons on the loopback interface with
 * two ranks each; sums, which tests/coll compares with a model, run until somebody spoils them.
 */
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "tests/system/far.h"

TestSuite(far, .timeout = 240);

/* A deadline that passes, and by how much its error may come later: the nodes agree whose fault it
 * was, on a crowded machine. */
#define SHORT_MS 2000u
#define LATE_MS  15000u

Test(far, a_job_begins_and_ends_over_and_over)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	for (uint32_t i = 0; i < 4; i++)
		far_run(&scene, far_sum_once);
	far_close_scene(&scene);
}

/* ---- what is wrong with a call ---- */

static int differ(struct far_rank *rank)
{
	float values[4] = { 1, 1, 1, 1 };
	int r;

	/* Rank 3, on the second node, has another size. */
	r = zinf_coll_all_reduce(rank->zinf, values, values, rank->rank == 3 ? 3 : 4, ZINF_F32,
	                         ZINF_SUM, NULL);
	(void)far_note(rank, r);
	if (r != -EINVAL)
		return 1;
	/* Both of a node have another one than those of the other. */
	r = rank->rank < 2 ? zinf_coll_barrier(rank->zinf, NULL)
	                   : zinf_coll_broadcast(rank->zinf, values, 4, ZINF_F32, 1, NULL);
	if (r != -EINVAL || !strstr(zinf_error_text(rank->zinf), "barrier") ||
	    !strstr(zinf_error_text(rank->zinf), "broadcast of 4"))
		return far_fail(rank, r, 2);
	/* One refuses its own call: the others hear why. */
	r = zinf_coll_all_reduce(rank->zinf, rank->rank == 1 ? NULL : values, values, 4, ZINF_F32,
	                         ZINF_SUM, NULL);
	if (r != -EINVAL)
		return far_fail(rank, r, 3);
	if (rank->rank != 1 && !strstr(zinf_error_text(rank->zinf), "rank 1 refuses it"))
		return far_fail(rank, r, 4);
	/* What goes to rank 0 is more than it takes. */
	{
		uint64_t ones[4] = { 1, 1, 1, 1 }, twos[4] = { rank->rank == 2 ? 2 : 1, 1, 1, 1 };
		float from[5] = { 0 }, to[4];

		r = zinf_coll_all_to_allv(rank->zinf, from, twos, to, ones, ZINF_F32, NULL);
		if (r != -EINVAL || !strstr(zinf_error_text(rank->zinf),
		                            "rank 2 sends 2 elements to rank 0, which takes 1"))
			return far_fail(rank, r, 5);
	}
	return far_sum_once(rank);
}

Test(far, what_differs_between_nodes_is_named_and_the_group_stands)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	far_run(&scene, differ);
	for (uint32_t i = 0; i < 4; i++) {
		far_expect_error(&scene, i, -EINVAL, "rank 3 calls all_reduce of 3");
		far_expect_error(&scene, i, -EINVAL, "rank 2 all_reduce of 4");
	}
	far_close_scene(&scene);
}

/* ---- who does not come, and who dies ---- */

/* The last rank comes to a few calls, and then to no more. */
static int last_stays_away(struct far_rank *rank)
{
	struct zinf_coll_options hasty = ZINF_COLL_OPTIONS_INIT;
	float value = 1;
	uint64_t begin_ns;
	int r;

	for (uint32_t i = 0; i < 3; i++)
		if (zinf_coll_all_reduce(rank->zinf, &value, &value, 1, ZINF_F32, ZINF_MAX, NULL))
			return far_fail(rank, -1, 1);
	if (rank->rank == rank->world - 1) {
		far_tell(rank);
		(void)pause(); /* Until it is killed. */
	}
	hasty.timeout_ms = SHORT_MS;
	begin_ns = zi_clock_now_ns();
	r = zinf_coll_all_reduce(rank->zinf, &value, &value, 1, ZINF_F32, ZINF_MAX, &hasty);
	rank->scene->shared->reports[rank->rank].took_ms =
		(zi_clock_now_ns() - begin_ns) / ZI_NS_PER_MS;
	(void)far_note(rank, r);
	/* It stays broken. */
	return zinf_coll_barrier(rank->zinf, NULL) == r ? 0 : 2;
}

Test(far, a_rank_that_does_not_come_is_named_on_all_nodes)
{
	struct far_scene scene;
	uint32_t last;

	far_open_on_loopback(&scene, 3, 2);
	last = far_world(&scene) - 1;
	far_start(&scene, last_stays_away);
	far_hear(&scene, 1);
	for (uint32_t i = 0; i < last; i++) {
		far_join_one(&scene, i, 0);
		far_expect_error(&scene, i, -ETIMEDOUT, "rank 5 (pid ");
		far_expect_error(&scene, i, -ETIMEDOUT, "did not come within");
		cr_expect_lt(scene.shared->reports[i].took_ms, SHORT_MS + LATE_MS);
		/* The nodes ask each other for it before the time is over (common/wire/far.h). */
		cr_expect_geq(scene.shared->reports[i].took_ms, SHORT_MS * 3 / 4 - 1);
	}
	cr_assert_eq(kill(scene.pids[last], SIGKILL), 0);
	far_join_one(&scene, last, 1000 + SIGKILL);
	far_run(&scene, far_sum_once);
	far_close_scene(&scene);
}

/* Nobody on its node has come either, and its daemon, which would know, does not answer. */
Test(far, a_rank_on_a_node_that_does_not_answer_is_named_with_the_call)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 1);
	far_start(&scene, last_stays_away);
	far_hear(&scene, 1);
	cr_assert_eq(kill(scene.harness[1].pid, SIGSTOP), 0);
	far_join_one(&scene, 0, 0);
	cr_assert_eq(kill(scene.harness[1].pid, SIGCONT), 0);
	far_expect_error(&scene, 0, -ETIMEDOUT, "of group 0, all_reduce of 1 × f32 (max): rank 1 ");
	far_expect_error(&scene, 0, -ETIMEDOUT, " on node 1 (127.0.0.1, ");
	far_expect_error(&scene, 0, -ETIMEDOUT, ") did not come within ");
	cr_assert_eq(kill(scene.pids[1], SIGKILL), 0);
	far_join_one(&scene, 1, 1000 + SIGKILL);
	far_close_scene(&scene);
}

/* Kills @victim, which none of the ranks but those of @spared is, amid sums. */
static void expect_all(struct far_scene *scene, const char *part, uint32_t spared)
{
	for (uint32_t i = 0; i < far_world(scene); i++) {
		const struct far_report *report = &scene->shared->reports[i];

		if (i == spared)
			continue;
		far_join_one(scene, i, 0);
		cr_expect_lt(report->error, 0);
		cr_expect(strstr(report->text, part), "rank %u: '%s' is not in: %s", i, part,
		          report->text);
		cr_expect_lt(report->took_ms, LATE_MS, "rank %u: %lu ms", i, report->took_ms);
	}
}

Test(far, a_killed_rank_is_named_on_all_nodes_at_once)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 3, 2);
	for (uint32_t victim = 0; victim < 6; victim += 3) {
		char name[32];

		far_start(&scene, far_sum_until_error);
		far_hear(&scene, far_world(&scene));
		(void)snprintf(name, sizeof(name), "rank %u (pid %d)", victim, scene.pids[victim]);
		cr_assert_eq(kill(scene.pids[victim], SIGKILL), 0);
		far_join_one(&scene, victim, 1000 + SIGKILL);
		expect_all(&scene, name, victim);
		far_run(&scene, far_sum_once);
	}
	far_close_scene(&scene);
}

/* Rank 4, on the last node, calls it off while the others wait for it. */
static int one_aborts(struct far_rank *rank)
{
	float value = 1;

	if (rank->rank == 4) {
		int r = zinf_coll_barrier(rank->zinf, NULL);

		far_tell(rank);
		return r ? r : zinf_coll_abort(rank->zinf, ZINF_GROUP_WORLD, "no more data");
	}
	(void)zinf_coll_barrier(rank->zinf, NULL);
	(void)far_note(rank, zinf_coll_all_reduce(rank->zinf, &value, &value, 1, ZINF_F32, ZINF_SUM,
	                                          NULL));
	return 0;
}

Test(far, an_abort_is_heard_on_all_nodes_with_its_reason)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 3, 2);
	far_start(&scene, one_aborts);
	far_hear(&scene, 1);
	for (uint32_t i = 0; i < far_world(&scene); i++)
		far_join_one(&scene, i, 0);
	for (uint32_t i = 0; i < far_world(&scene); i++) {
		if (i == 4)
			continue;
		far_expect_error(&scene, i, -ECONNABORTED, "rank 4 (pid ");
		far_expect_error(&scene, i, -ECONNABORTED, "aborted group 0: no more data");
	}
	far_run(&scene, far_sum_once);
	far_close_scene(&scene);
}

/* Each is in its second large sum, or on its way there. */
Test(far, who_dies_amid_large_sums_is_named_on_all_nodes)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	for (uint32_t kind = 0; kind < 2; kind++) {
		pid_t worker = 0;
		char name[32];

		far_start(&scene, far_large_until_error);
		far_hear(&scene, far_world(&scene));
		(void)snprintf(name, sizeof(name), "rank 3 (pid %d)", scene.pids[3]);
		if (kind)
			worker = far_child_of(scene.harness[1].pid, "zinf-net");
		cr_assert_eq(kill(kind ? worker : scene.pids[3], SIGKILL), 0);
		if (!kind)
			far_join_one(&scene, 3, 1000 + SIGKILL);
		expect_all(&scene, kind ? "" : name, kind ? UINT32_MAX : 3);
		far_run(&scene, far_sum_once);
	}
	far_close_scene(&scene);
}

/* The thread called @name of @pid. */
static pid_t thread_of(pid_t pid, const char *name)
{
	char path[300], comm[32];
	struct dirent *entry;
	pid_t found = 0;
	DIR *threads;

	(void)snprintf(path, sizeof(path), "/proc/%d/task", pid); /* Fits. */
	threads = opendir(path);
	cr_assert(threads);
	while ((entry = readdir(threads)) && !found) {
		FILE *file;

		(void)snprintf(path, sizeof(path), "/proc/%d/task/%.16s/comm", pid, entry->d_name);
		file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
		if (!file)
			continue;
		if (fgets(comm, sizeof(comm), file) && !strncmp(comm, name, strlen(name)) &&
		    comm[strlen(name)] == '\n')
			found = atoi(entry->d_name);
		(void)fclose(file);
	}
	(void)closedir(threads);
	return found;
}

/* One of its threads is held as a debugger would: net waits for it in vain when the group ends. */
Test(far, a_worker_that_does_not_let_go_of_a_group_ends_and_says_why_the_group_did)
{
	struct far_scene scene;
	char name[32];
	pid_t thread;

	far_open_on_loopback(&scene, 2, 2);
	scene.timeout_ms = 10 * LATE_MS; /* What comes by deadlines comes too late. */
	far_start(&scene, far_sum_until_error);
	far_hear(&scene, far_world(&scene));
	/* It has its name as soon as it has run for the first time. */
	while (!(thread = thread_of(far_child_of(scene.harness[0].pid, "zinf-net"), "mail")))
		(void)sched_yield();
	cr_assert_eq(ptrace(PTRACE_SEIZE, thread, NULL, NULL), 0, "%s", strerror(errno));
	cr_assert_eq(ptrace(PTRACE_INTERRUPT, thread, NULL, NULL), 0);
	cr_assert_eq(waitpid(thread, NULL, __WALL), thread);
	(void)snprintf(name, sizeof(name), "rank 3 (pid %d)", scene.pids[3]);
	cr_assert_eq(kill(scene.pids[3], SIGKILL), 0);
	far_join_one(&scene, 3, 1000 + SIGKILL);
	/* It ends with its process, which its daemon cannot reap before. */
	cr_assert_eq(waitpid(thread, NULL, __WALL), thread);
	expect_all(&scene, name, 3);
	scene.timeout_ms = 20000;
	far_run(&scene, far_sum_once);
	far_close_scene(&scene);
}

Test(far, a_killed_worker_ends_the_groups_of_its_job_alone)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	for (uint32_t node = 0; node < 2; node++) {
		pid_t worker;

		far_start(&scene, far_sum_until_error);
		far_hear(&scene, far_world(&scene));
		worker = far_child_of(scene.harness[node].pid, "zinf-net");
		cr_assert_gt(worker, 0);
		cr_assert_eq(kill(worker, SIGKILL), 0);
		expect_all(&scene, "", UINT32_MAX);
		for (uint32_t i = 2 * node; i < 2 * node + 2; i++)
			far_expect_error(&scene, i, -EPIPE, "was killed by signal 9");
		far_run(&scene, far_sum_once);
	}
	far_close_scene(&scene);
}

Test(far, a_killed_daemon_is_the_end_of_its_ranks_and_an_error_elsewhere)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	for (uint32_t node = 0; node < 2; node++) {
		char name[32];

		far_start(&scene, far_sum_until_error);
		far_hear(&scene, far_world(&scene));
		harness_kill(&scene.harness[node]);
		expect_all(&scene, "", UINT32_MAX);
		(void)snprintf(name, sizeof(name), "node %u (", node);
		for (uint32_t i = 2 - 2 * node; i < 4 - 2 * node; i++)
			far_expect_error(&scene, i, -EPIPE, name);
		far_start_node(&scene, node, true);
		far_run(&scene, far_sum_once);
	}
	far_close_scene(&scene);
}
