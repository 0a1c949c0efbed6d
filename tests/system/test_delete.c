/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: an administrator ends a job that nobody uses, also one that its ranks can never go on with,
 * and is asked first; a job that is used is left alone. Method: real daemons; zctl with and without
 * a terminal; of a job over two nodes one daemon is killed.
 */
#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/ranks.h"
#include "tests/system/far_node.h"

#define NODES 2u

static struct harness harness[NODES];
static uint32_t port;
static char words[1 << 14];

TestSuite(delete, .timeout = 120);

static void start(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		system_start(&harness[i], &(struct harness_options){ .nvme_size = "64M" });
}

static void stop(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		cr_assert_eq(harness_stop(&harness[i]), 0, "node %u", i);
}

#define RUN(node, code, ...) SYSTEM_ZCTL(harness[node].socket_path, words, (code), __VA_ARGS__)

static struct trainer_settings settings_of(enum zinf_offload offload)
{
	struct trainer_settings settings = ranks_settings(&harness[0], "train", 2);

	settings.options.param_dtype = settings.options.grad_dtype = ZINF_BF16;
	settings.options.offload_optimizer = offload;
	settings.options.staging_bytes = 8 << 20;
	return settings;
}

static void expect_no_job(uint32_t node)
{
	RUN(node, 0, "--json", "jobs");
	system_expect_text(words, "[]");
}

/* ---- a terminal ---- */

/* Reads up to its end, and answers the question. Return: zctl's exit code. */
static int on_terminal(const char *answer)
{
	char program[300];
	size_t bytes = 0;
	int fd = -1, status = 0;
	bool is_answered = false;
	pid_t pid;

	(void)harness_program("zctl", program, sizeof(program));
	pid = forkpty(&fd, NULL, NULL, NULL);
	cr_assert_geq(pid, 0);
	if (!pid) {
		execl(program, program, "--socket", harness[0].socket_path, "delete", "train",
		      NULL);
		_exit(127);
	}
	for (;;) {
		struct pollfd poller = { .fd = fd, .events = POLLIN };
		ssize_t part;

		cr_assert_eq(poll(&poller, 1, 20000), 1, "zctl says nothing");
		part = read(fd, words + bytes, sizeof(words) - 1 - bytes);
		if (part <= 0)
			break; /* -EIO: it has ended. */
		bytes += (size_t)part;
		words[bytes] = '\0';
		if (is_answered || !strstr(words, "[y/N] "))
			continue;
		is_answered = true;
		cr_assert_eq(write(fd, answer, strlen(answer)), (ssize_t)strlen(answer));
	}
	(void)close(fd);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

Test(delete, asks_first_and_leaves_snapshots)
{
	struct trainer_settings settings;

	start(1);
	settings = settings_of(ZINF_OFFLOAD_NVME);
	system_train(&settings);
	RUN(0, 0, "snapshot", "train", "--name", "kept");
	RUN(0, 2, "delete", "train");
	system_expect_text(words, "is final, and there is no terminal to ask for consent: "
	                          "zctl delete train --yes");
	RUN(0, 2, "delete");
	RUN(0, 2, "delete", "train", "again");
	RUN(0, 2, "delete", "train/kept", "--yes");
	system_expect_text(words, "zctl snapshot rm train/kept");
	RUN(0, 1, "delete", "nobody", "--yes");
	system_expect_text(words, "no job 'nobody'");

	cr_assert_eq(on_terminal("n\n"), 1, "%s", words);
	system_expect_text(words, "IDLE at step 3: ");
	system_expect_text(words, "its snapshots stay");
	system_expect_text(words, "nothing was deleted");
	RUN(0, 0, "jobs", "train");
	cr_assert_eq(on_terminal("\x04"), 1, "%s", words); /* The end of what is typed. */
	cr_assert_eq(on_terminal("yes\n"), 0, "%s", words);
	system_expect_text(words, "deleted job train, step 3: ");
	expect_no_job(0);
	RUN(0, 0, "snapshot", "list", "train");
	system_expect_text(words, "train/kept");
	/* The name is free, for what the snapshot has as well. */
	settings.load = "train/kept";
	settings.steps = 4;
	system_train(&settings);
	RUN(0, 0, "--json", "delete", "train", "--yes");
	system_expect_text(words, "\"step\": 4");
	RUN(0, 0, "snapshot", "rm", "train/kept");
	stop(1);
}

/* From within a step. */
static void try_in_use(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	char pid[64];

	(void)arg;
	if (point != TRAINER_STEP_BEGUN || trainer->rank || trainer->step != 2)
		return;
	(void)snprintf(pid, sizeof(pid), "rank 0: pid %d, ", (int)getpid());
	if (harness_zctl(harness[0].socket_path,
	                 (const char *const[]){ "delete", "train", "--yes", NULL }, words,
	                 sizeof(words)) != 1 ||
	    !strstr(words, "is in use by 2 processes here") || !strstr(words, pid))
		_exit(101);
}

Test(delete, of_a_job_in_use_is_refused_with_its_pids)
{
	struct trainer_settings settings;

	start(1);
	settings = settings_of(ZINF_OFFLOAD_CPU);
	settings.hook = try_in_use;
	system_train(&settings);
	RUN(0, 0, "delete", "train", "--yes");
	stop(1);
}

/* ---- over nodes ---- */

static void at_node(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	(void)arg;
	if (point == TRAINER_BORN)
		far_set_place(&harness[trainer->rank], port, 1);
}

/* What is in memory alone went with one daemon: the other has a job that nobody can go on with. */
Test(delete, ends_a_job_whose_other_node_has_lost_its_part)
{
	struct trainer_settings settings;
	struct ranks ranks;

	far_need_net();
	start(NODES);
	port = harness_free_port();
	settings = settings_of(ZINF_OFFLOAD_CPU);
	settings.options.socket_path = NULL;
	settings.options.incarnation = "first";
	settings.hook = at_node;
	system_train(&settings);
	harness_kill(&harness[1]);
	cr_assert_eq(harness_restart(&harness[1]), 0);

	settings.options.incarnation = "second";
	cr_assert_eq(ranks_start(&ranks, &settings), 0);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(ranks_wait(&ranks, i), 1);
		cr_assert_eq(ranks.reports[i]->result, -ENODATA);
		system_expect_text(ranks.reports[i]->text, "zctl delete it there");
	}
	ranks_free(&ranks);
	RUN(0, 0, "delete", "train", "--yes");
	RUN(1, 0, "delete", "train", "--yes"); /* the lost one, which its daemon remembers */
	expect_no_job(0);
	settings.options.incarnation = "third";
	system_train(&settings);
	stop(NODES);
}
