/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: ranks meet at an address and port that are free, and run where their memory is; what cannot
 * be is told. Method: the real zctl; ports that the test itself occupies, topologies of hwloc's
 * making (dry runs), and this machine's own.
 */
#include <jansson.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/system/launch.h"

TestSuite(launch_place, .timeout = 180);

/* ---- ports ---- */

/* Listens. @port: 0: any. Return: its port; 0: another process has it. */
static uint16_t occupy(uint16_t port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	socklen_t bytes = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	cr_assert_geq(fd, 0);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 1)) {
		(void)close(fd);
		return 0;
	}
	cr_assert_eq(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
	return ntohs(address.sin_port);
}

Test(launch_place, a_port_in_use_is_told_and_only_the_default_gives_way)
{
	char port[8], words[100];
	bool is_ours;

	(void)snprintf(port, sizeof(port), "%u", occupy(0));
	RUN(1, "--master-port", port, "true");
	(void)snprintf(words, sizeof(words), "port %s of 127.0.0.1 is in use", port);
	expect_words(err, words);
	expect_words(err, "--standalone");
	/* A job of another test may have the port, and may end before ours looks. */
	do {
		launched_free(&launched);
		is_ours = occupy(29500) != 0;
		RUN(0, "sh", "-c", "echo port $MASTER_PORT");
	} while (!is_ours && !strstr(err, "port 29500 is in use"));
	expect_words(err, "port 29500 is in use; MASTER_PORT is ");
	cr_expect_eq(launch_number(out, "port "), launch_number(err, "MASTER_PORT is "));
	launched_free(&launched);
	RUN(0, "--standalone", "sh", "-c", "echo port $MASTER_PORT $ZINF_PORT");
	cr_expect_neq(launch_number(out, "port "), 29500);
	launched_free(&launched);
}

Test(launch_place, an_address_of_another_machine_is_refused)
{
	RUN(1, "--master-addr", "192.0.2.1", "true");
	expect_words(err, "192.0.2.1 is no address of this machine");
	launched_free(&launched);
	RUN(1, "--master-addr", "no.such.host.invalid", "true");
	expect_words(err, "--master-addr no.such.host.invalid: ");
	launched_free(&launched);
	RUN(0, "--local-addr", "localhost", "sh", "-c", "echo at $MASTER_ADDR");
	cr_expect_str_eq(out, "[rank 0]: at localhost\n");
	launched_free(&launched);
}

/* ---- places ---- */

Test(launch_place, a_dry_run_shows_where_ranks_would_run)
{
	static const char *const cpus[] = { "0-3", "0-3", "4-7", "4-7" };
	json_t *json, *rank;
	size_t index;

	cr_assert_eq(setenv("HWLOC_SYNTHETIC", "numa:2 core:4 pu:1", 1), 0);
	RUN(0, "--dry-run", "--nproc-per-node", "4", "train.py", "--lr", "1");
	expect_words(out, "python3 -u train.py --lr 1\n");
	expect_words(out, "rank 0: on CPUs 0-3, memory of NUMA node 0\n  RANK=0\n");
	expect_words(out, "rank 3: on CPUs 4-7, memory of NUMA node 1\n  RANK=3\n");
	launched_free(&launched);
	/* zctl's own option stands before the command. */
	{
		char *words = calloc(1, 1 << 20);

		cr_assert_eq(harness_zctl("/nowhere",
		                          (const char *const[]){ "--json", "launch", "--dry-run",
		                                                 "--nproc-per-node", "4", "x",
		                                                 "--json", NULL },
		                          words, 1 << 20),
		             0);
		json = json_loads(words, 0, NULL);
		cr_assert_not_null(json, "%s", words);
		free(words);
	}
	cr_expect_eq(json_array_size(json_object_get(json, "command")), 2);
	json_array_foreach(json_object_get(json, "ranks"), index, rank)
	{
		const json_t *environment = json_object_get(rank, "environment");

		cr_expect_str_eq(json_string_value(json_object_get(rank, "cpus")), cpus[index]);
		cr_expect_eq(atoi(json_string_value(json_object_get(environment, "RANK"))),
		             (int)index);
		cr_expect_str_eq(json_string_value(json_object_get(environment, "ZINF_SOCKET")),
		                 "/nowhere");
	}
	cr_expect_eq(index, 4);
	json_decref(json);
}

Test(launch_place, fewer_ranks_than_nodes_have_several_each)
{
	cr_assert_eq(setenv("HWLOC_SYNTHETIC", "numa:5 core:1 pu:1", 1), 0);
	RUN(0, "--dry-run", "--nproc-per-node", "2", "true");
	expect_words(out, "rank 0: on CPUs 0-1, memory of NUMA node 0-1\n");
	expect_words(out, "rank 1: on CPUs 2-4, memory of NUMA node 2-4\n");
	launched_free(&launched);
	RUN(0, "--dry-run", "--nproc-per-node", "2", "--numa-binding", "none", "true");
	expect_words(out, "rank 1: on any CPU, memory of any NUMA node\n");
	launched_free(&launched);
	cr_assert_eq(setenv("HWLOC_SYNTHETIC", "numa:1 core:4 pu:1", 1), 0);
	RUN(0, "--dry-run", "true");
	expect_words(out, "rank 0: on any CPU");
	launched_free(&launched);
	/* A faked node is shown, and not bound to. */
	RUN(0, "--numa-binding", "node", "true");
	launched_free(&launched);
}

Test(launch_place, a_rank_is_bound_to_its_nodes_cpus_and_memory)
{
	char expected[200];

	cr_assert_eq(unsetenv("HWLOC_SYNTHETIC"), 0);
	RUN(0, "--dry-run", "--numa-binding", "node", "true");
	(void)snprintf(expected, sizeof(expected), "Cpus_allowed_list:\t%.*s\n",
	               (int)strcspn(strstr(out, "on CPUs ") + 8, ","), strstr(out, "on CPUs ") + 8);
	launched_free(&launched);
	BEGIN("--numa-binding", "node", "cat", "/proc/self/status", "/proc/self/numa_maps");
	if (launched_end(&launched)) {
		/* A container that forbids it. */
		expect_words(err, "failed: Operation not permitted; --numa-binding none");
	} else {
		expect_words(out, expected);
		expect_words(out, " prefer:"); /* of the mappings */
	}
	launched_free(&launched);
}

Test(launch_place, a_node_that_cannot_be_bound_to_is_an_error_only_when_asked_for)
{
	/* Nodes that this machine has not, on CPUs that it has. */
	cr_assert_eq(setenv("HWLOC_SYNTHETIC", "numa:2(indexes=61,62) core:1 pu:1", 1), 0);
	cr_assert_eq(setenv("HWLOC_THISSYSTEM", "1", 1), 0);
	RUN(1, "--nproc-per-node", "2", "--numa-binding", "node", "true");
	expect_words(err, "zctl: binding rank 0 to NUMA node 61 failed: ");
	expect_words(err, "; --numa-binding none leaves it unbound\n");
	launched_free(&launched);
	RUN(0, "--nproc-per-node", "2", "true");
	launched_free(&launched);
}
