/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a job over several daemons begins when all of its ranks are there, and whoever is missing,
 * is there twice, listens at the store's port, knows another token, or is of another run is named
 * in time. Method: two or three daemons on the loopback interface; ranks that come late, in
 * another order, or with other variables.
 */
#include <fcntl.h>

#include "tests/system/far.h"

TestSuite(far_meet, .timeout = 240);

#define SHORT_MS 2000u
#define LONG_MS  8000u

static int open_late(struct far_rank *rank)
{
	return far_note(rank, zinf_coll_open(rank->zinf, FAR_ARENA)) ? 7 : 0;
}

Test(far_meet, without_a_place_to_meet_there_is_a_clear_error)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	scene.is_plain = true;
	scene.host = NULL;
	far_start(&scene, open_late);
	for (uint32_t i = 0; i < 4; i++) {
		far_join_one(&scene, i, 7);
		far_expect_error(&scene, i, -EINVAL, "$MASTER_ADDR is not set");
	}
	far_close_scene(&scene);
}

static int open_on_one_node(struct far_rank *rank)
{
	if (rank->rank >= 2)
		return 0;
	return far_note(rank, zinf_coll_open(rank->zinf, FAR_ARENA)) ? 7 : 0;
}

static int open_on_the_other(struct far_rank *rank)
{
	if (rank->rank < 2)
		return 0;
	return far_note(rank, zinf_coll_open(rank->zinf, FAR_ARENA)) ? 7 : 0;
}

Test(far_meet, a_node_that_does_not_come_is_named_by_its_ranks)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	scene.is_plain = true;
	scene.timeout_ms = SHORT_MS;
	far_start(&scene, open_on_one_node);
	for (uint32_t i = 0; i < 4; i++)
		far_join_one(&scene, i, i < 2 ? 7 : 0);
	for (uint32_t i = 0; i < 2; i++)
		far_expect_error(&scene, i, -ETIMEDOUT, "ranks 2, 3 of job 'far' did not come");
	/* The first start's store still tells what became of it. */
	scene.port = harness_free_port();
	far_start(&scene, open_on_the_other);
	for (uint32_t i = 0; i < 4; i++)
		far_join_one(&scene, i, i < 2 ? 0 : 7);
	for (uint32_t i = 2; i < 4; i++)
		far_expect_error(&scene, i, -ETIMEDOUT, "the node of rank 0 was not found");
	scene.is_plain = false;
	scene.timeout_ms = 20000;
	far_run(&scene, far_sum_once);
	far_close_scene(&scene);
}

/* Rank 0 gives up while zinf-net says nothing; rank 1, which has an hour, goes on to nothing. */
Test(far_meet, who_gives_up_while_nodes_meet_ends_it_for_all_ranks_of_its_node)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	scene.is_plain = true;
	scene.timeout_ms = LONG_MS / 2; /* less than what a worker may be silent for */
	far_start_one(&scene, 0, open_late);
	scene.timeout_ms = 3600000;
	far_start_one(&scene, 1, open_late);
	far_await_child(scene.harness[0].pid, "zinf-net");
	cr_assert_eq(kill(far_child_of(scene.harness[0].pid, "zinf-net"), SIGSTOP), 0);
	for (uint32_t i = 0; i < 2; i++) {
		far_join_one(&scene, i, 7);
		far_expect_error(&scene, i, -ETIMEDOUT,
		                 "zinf-net reports nothing about other nodes; the rendezvous is "
		                 "127.0.0.1:");
	}
	scene.is_plain = false;
	scene.timeout_ms = 20000;
	far_run(&scene, far_sum_once);
	far_close_scene(&scene);
}

Test(far_meet, a_port_in_use_is_named)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct far_scene scene;
	char port[32];

	cr_assert_geq(fd, 0);
	far_open_on_loopback(&scene, 2, 1);
	address.sin_port = htons((uint16_t)scene.port);
	cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	cr_assert_eq(listen(fd, 1), 0);
	scene.is_plain = true;
	scene.timeout_ms = SHORT_MS;
	far_start(&scene, open_late);
	far_join_one(&scene, 0, 7);
	far_join_one(&scene, 1, 7);
	(void)snprintf(port, sizeof(port), "%u", scene.port);
	far_expect_error(&scene, 0, -EADDRINUSE, port);
	(void)close(fd);
	far_close_scene(&scene);
}

/* Whichever node says so first has it: the other hears of it, and the first that some are missing
 * or that the other has gone. */
Test(far_meet, a_rank_on_two_nodes_is_named)
{
	struct far_scene scene;
	uint32_t refused_count = 0;

	far_open_on_loopback(&scene, 2, 2);
	scene.is_plain = scene.overlaps = true;
	scene.timeout_ms = 4 * SHORT_MS;
	far_start(&scene, open_late);
	for (uint32_t i = 0; i < 4; i++) {
		const struct far_report *report = &scene.shared->reports[i];

		far_join_one(&scene, i, 7);
		if (report->error != -EEXIST)
			continue;
		refused_count++;
		cr_expect(strstr(report->text, "rank 1 of job 'far' is here"), "%s", report->text);
	}
	cr_expect_geq(refused_count, 1);
	scene.is_plain = scene.overlaps = false;
	scene.timeout_ms = 20000;
	far_run(&scene, far_sum_once);
	far_close_scene(&scene);
}

/* A wrong ZINF_PORT leads to a job that goes on: to wait for its end would be in vain. */
Test(far_meet, a_store_of_another_job_is_named_long_before_the_deadline)
{
	struct far_scene scene, beside;

	far_open_on_loopback(&scene, 3, 1);
	scene.node_count = 2;
	far_start(&scene, far_sum_until_told);
	far_hear(&scene, 2);
	scene.node_count = 3;
	far_open_beside(&scene, 1, 2, &beside);
	beside.port = scene.port;
	beside.is_plain = true;
	beside.timeout_ms = FAR_JOIN_MS * 10;
	beside.incarnation = 1;
	memset(beside.shared, 0, sizeof(*beside.shared));
	far_start_one(&beside, 1, open_late); /* Not rank 0, which would serve the store. */
	far_join_one(&beside, 1, 7);
	far_expect_error(&beside, 1, -EEXIST, "this is the store of job 'far', not of 'beside'");
	__atomic_store_n(&scene.shared->is_over, 1, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < 2; i++)
		far_join_one(&scene, i, 0);
	far_close_beside(&beside);
	far_close_scene(&scene);
}

/* ---- another start of the job ---- */

/* Killed and started anew at once, and the second node's ranks first: what is left of the former
 * run is no run to join. */
Test(far_meet, a_job_without_a_name_for_its_start_begins_anew_at_once)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	scene.is_nameless = true;
	for (uint32_t round = 0; round < 3; round++) {
		far_start(&scene, far_sum_until_error);
		far_hear(&scene, far_world(&scene));
		/* None is to see another one die, and to end by itself. */
		for (uint32_t i = 0; i < 4; i++)
			cr_assert_eq(kill(scene.pids[i], SIGSTOP), 0);
		for (uint32_t i = 0; i < 4; i++)
			cr_assert_eq(kill(scene.pids[i], SIGKILL), 0);
		for (uint32_t i = 0; i < 4; i++)
			far_join_one(&scene, i, 1000 + SIGKILL);
		scene.is_backwards = true;
		far_run(&scene, far_sum_once);
		scene.is_backwards = false;
	}
	far_close_scene(&scene);
}

/* One node's ranks come, and go; they come anew while the other's have not come yet. */
Test(far_meet, a_node_that_comes_anew_before_all_have_met_is_let_in)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 3, 1);
	scene.is_nameless = true;
	far_start_one(&scene, 0, far_sum_once);
	far_start_one(&scene, 1, far_sum_once);
	far_await_child(scene.harness[1].pid, "zinf-net");
	cr_assert_eq(kill(scene.pids[1], SIGKILL), 0);
	far_join_one(&scene, 1, 1000 + SIGKILL);
	far_start_one(&scene, 1, far_sum_once);
	far_start_one(&scene, 2, far_sum_once);
	for (uint32_t i = 0; i < 3; i++)
		far_join_one(&scene, i, 0);
	far_close_scene(&scene);
}

/* ---- who does not know the secret ---- */

Test(far_meet, a_node_with_another_token_is_refused_on_both_sides)
{
	static const char *const others[] = { "sesame-2", NULL };
	char log[65536];

	for (uint32_t i = 0; i < ZI_COUNT_OF(others); i++) {
		struct far_scene scene;

		far_open_on_loopback(&scene, 2, 1);
		scene.tokens[0] = "sesame";
		scene.tokens[1] = others[i];
		scene.is_plain = true;
		scene.timeout_ms = LONG_MS; /* The first node is to hear of the second. */
		far_start(&scene, open_late);
		far_join_one(&scene, 0, 7);
		far_join_one(&scene, 1, 7);
		far_expect_error(&scene, 1, -EACCES, "set the same ZINF_TOKEN on all nodes");
		far_expect_error(&scene, 0, -ETIMEDOUT, "ranks 1 of job 'far' did not come");
		far_expect_error(&scene, 0, -ETIMEDOUT, "at 127.0.0.1 was refused");
		for (uint32_t k = 0; k < 2; k++) {
			cr_expect(!strstr(scene.shared->reports[k].text, "sesame"));
			harness_log(&scene.harness[k], log, sizeof(log));
			cr_expect(!strstr(log, "sesame"), "%s", log);
		}
		harness_log(&scene.harness[0], log, sizeof(log));
		cr_expect(strstr(log, "at 127.0.0.1 was refused"), "%s", log);
		scene.tokens[1] = "sesame";
		scene.is_plain = false;
		scene.timeout_ms = 20000;
		far_run(&scene, far_sum_once);
		far_close_scene(&scene);
	}
}

/* In what @process may write; a thread that writes there meanwhile only hides it. */
static uint32_t count_in_memory(pid_t process, const char *word)
{
	size_t word_bytes = strlen(word);
	unsigned long begin, end;
	uint32_t count = 0;
	char path[64], line[600], mode[8];
	FILE *maps;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/maps", process); /* Fits. */
	maps = fopen(path, "r");
	(void)snprintf(path, sizeof(path), "/proc/%d/mem", process); /* Fits. */
	fd = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert(maps && fd >= 0, "the memory of process %d cannot be read", process);
	while (fgets(line, sizeof(line), maps)) {
		char *copy;

		/* What ranks share is large, and theirs. */
		if (sscanf(line, "%lx-%lx %7s", &begin, &end, mode) != 3 || mode[1] != 'w' ||
		    mode[3] == 's')
			continue;
		copy = malloc(end - begin);
		cr_assert(copy);
		if (pread(fd, copy, end - begin, (off_t)begin) == (ssize_t)(end - begin))
			for (char *at = copy; (at = memmem(at, (size_t)(copy + (end - begin) - at),
			                                   word, word_bytes));
			     at++)
				count++;
		free(copy);
	}
	(void)fclose(maps);
	(void)close(fd);
	return count;
}

/* zinfd's, for groups that are made later; and that of the worker that serves the store. */
Test(far_meet, a_token_is_in_no_memory_but_where_it_is_needed)
{
	struct far_scene scene;

#ifdef ZI_SANITIZED
	cr_skip_test(
		"a sanitizer keeps what was freed, and its own memory is too large to look at");
#endif
#ifdef ZI_COVERED
	cr_skip_test("code that is not optimized leaves copies in its stack");
#endif
	far_open_on_loopback(&scene, 2, 2);
	scene.tokens[0] = scene.tokens[1] = "open-sesame-8c1f";
	far_start(&scene, far_sum_until_told);
	far_hear(&scene, 4);
	for (uint32_t i = 0; i < 2; i++) {
		pid_t daemon = scene.harness[i].pid, worker = far_child_of(daemon, "zinf-net");

		cr_assert_gt(worker, 0);
		cr_expect_eq(count_in_memory(daemon, scene.tokens[i]), 1, "node %u: %u", i,
		             count_in_memory(daemon, scene.tokens[i]));
		cr_expect_eq(count_in_memory(worker, scene.tokens[i]), i == 0 ? 1 : 0,
		             "node %u: %u", i, count_in_memory(worker, scene.tokens[i]));
	}
	__atomic_store_n(&scene.shared->is_over, 1, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < 4; i++)
		far_join_one(&scene, i, 0);
	for (uint32_t i = 0; i < 2; i++)
		cr_expect_eq(count_in_memory(scene.harness[i].pid, scene.tokens[i]), 0);
	far_close_scene(&scene);
}

/* The real, effective, saved and file system's uid of @process are @uid. */
static bool is_of(pid_t process, uid_t uid)
{
	unsigned int uids[4] = { 0 };
	char path[64], line[256];
	FILE *status;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", process); /* Fits. */
	status = fopen(path, "r");
	cr_assert(status);
	while (fgets(line, sizeof(line), status))
		if (sscanf(line, "Uid: %u %u %u %u", &uids[0], &uids[1], &uids[2], &uids[3]) == 4)
			break;
	(void)fclose(status);
	return uids[0] == uid && uids[1] == uid && uids[2] == uid && uids[3] == uid;
}

/* It parses what comes from the network: a daemon of root must not lend it its rights. */
Test(far_meet, zinf_net_of_a_users_job_is_that_users)
{
	struct far_scene scene;

	if (geteuid())
		cr_skip_test("only a daemon of root has rights that zinf-net must not have");
	far_open_on_loopback(&scene, 2, 2);
	scene.uid = 54321; /* Nobody's. */
	far_start(&scene, far_sum_until_told);
	far_hear(&scene, 4);
	for (uint32_t i = 0; i < 2; i++) {
		pid_t worker = far_child_of(scene.harness[i].pid, "zinf-net");

		cr_assert_gt(worker, 0);
		cr_expect(is_of(worker, scene.uid), "node %u", i);
	}
	__atomic_store_n(&scene.shared->is_over, 1, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < 4; i++)
		far_join_one(&scene, i, 0);
	far_close_scene(&scene);
}

Test(far_meet, ranks_of_a_node_have_one_token_and_it_is_bounded)
{
	static const char long_one[] =
		"0123456789012345678901234567890123456789012345678901234567890123";
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	scene.is_plain = true;
	scene.timeout_ms = SHORT_MS;
	scene.tokens[0] = "sesame";
	scene.odd_token = "barley"; /* of the last rank of each node */
	far_start(&scene, open_late);
	for (uint32_t i = 0; i < 4; i++)
		far_join_one(&scene, i, 7);
	far_expect_error(&scene, 0, -EINVAL, "differs from that of rank");
	far_expect_error(&scene, 1, -EINVAL, "differs from that of rank");
	scene.odd_token = NULL;
	scene.tokens[0] = scene.tokens[1] = long_one;
	far_start(&scene, open_late);
	for (uint32_t i = 0; i < 4; i++) {
		far_join_one(&scene, i, 7);
		far_expect_error(&scene, i, -EINVAL, "$ZINF_TOKEN has 64 characters: at most 63");
	}
	far_close_scene(&scene);
}
