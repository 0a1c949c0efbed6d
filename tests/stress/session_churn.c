/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: clients that come and go have no data race with each other, whoever leaves how: with a
 * word, with a closed socket, by SIGKILL, in the middle of anything; and when all have gone nothing
 * of them is left. Method: both halves of the sessions on threads of their own over a real zero
 * with pool and commit threads; client threads of this process, and processes that a helper forks
 * and kills, attach, train a step, ask, send garbage and vanish. Meant for TSan; a plain main,
 * because a Criterion binary does not start under it. Exits 0, or aborts.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "daemon/session/sess.h"
#include "daemon/zero/job/job.h"
#include "libclient/client.h"
#include "tests/guard/guard.h"

#define CLIENTS    6u
#define ROUNDS     40u
#define KILLS      40u
#define SESSIONS   16u
#define MIB        (1ull << 20)
#define TIMEOUT_MS 60000u

/* A failed check must stop NDEBUG builds too. */
static void check(bool is_true, const char *what)
{
	if (is_true)
		return;
	(void)fprintf(stderr, "session_churn: %s\n", what);
	abort();
}

struct churn {
	char directory[64], socket_path[96];
	struct zi_loop *control_loop, *shard_loop;
	struct zi_thread control_thread, shard_thread;
	struct catalog *catalog;
	struct tier cpu;
	struct dev *device;
	struct tier_holders *holders;
	struct zero *zero;
	struct sess_facts facts;
	struct sess_shard *shard;
	struct sess_control *control;
	struct zi_post stop_control, stop_shard, quiet;
	bool is_quiet, is_empty; /* control thread */
};

static struct churn churn;

static uint32_t draw(uint64_t *random, uint32_t below)
{
	uint64_t x = *random += 0x9e3779b97f4a7c15ull;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return (uint32_t)((x ^ (x >> 31)) % below);
}

/* ---- clients ---- */

/* What the clients of this process got done, added up at their ends. */
struct tally {
	uint32_t attach_count, step_count;
};

/* A step of a small job, as far as it gets: another one may take it over at any moment. Whether it
 * was committed. */
static bool train(struct zinf *zinf)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	const uint64_t shape = 20000;
	zinf_ticket ticket;
	uint32_t index;
	int r;

	r = zinf_unit_add(zinf, "unit", &index);
	if (!r)
		r = zinf_param_add(zinf, "weight", 1, &shape, &index);
	if (!r)
		r = zinf_materialize(zinf);
	if (!r && zinf_committed_step(zinf) < 0)
		r = zinf_commit(zinf, "first", 5);
	if (!r)
		r = zinf_step_begin(zinf, &options);
	if (!r)
		r = zinf_grad_acquire(zinf, 0);
	if (!r) {
		memset(zinf_grad_data(zinf, 0), 0, shape * sizeof(float));
		r = zinf_reduce(zinf, 0);
	}
	if (!r)
		r = zinf_step(zinf, "blob", 4, &ticket);
	if (!r)
		r = zinf_wait(zinf, ticket, NULL);
	check(r != -ETIMEDOUT && r != -EPROTO, zinf_error_text(zinf));
	return !r;
}

static void attach_and_leave(uint64_t *random, const char *job, struct tally *tally)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	struct zinf *zinf = NULL;
	int r;

	options.socket_path = churn.socket_path;
	options.job = job;
	options.rank = 0;
	options.world_size = 1;
	options.takeover = true;
	options.wait_for_daemon = true;
	options.timeout_ms = TIMEOUT_MS;
	r = zinf_attach(&options, &zinf);
	check(r != -ETIMEDOUT && r != -EPROTO, zinf_attach_error());
	if (r)
		return; /* Every session may be in use. */
	tally->attach_count++;
	if (draw(random, 2))
		tally->step_count += train(zinf);
	else
		(void)zinf_ping(zinf); /* It may have been replaced. */
	/* Without a word. */
	if (draw(random, 2))
		(void)shutdown(zinf->socket_fd, SHUT_RDWR);
	zinf_detach(zinf);
}

/* Greets, asks or says nothing sensible, and does not wait for an answer. */
static void be_rude(uint64_t *random)
{
	struct zi_hello hello = { .major = ZI_PROTOCOL_MAJOR };
	struct zi_admin admin = { .command = "jobs" };
	int fd = -1;

	if (zi_control_connect(churn.socket_path, &fd))
		return;
	if (draw(random, 3)) {
		zi_message_init(&hello.header, ZI_MESSAGE_HELLO, sizeof(hello), 1);
		(void)zi_message_send(fd, &hello.header, NULL, 0); /* Refused: as well. */
		zi_message_init(&admin.header, ZI_MESSAGE_ADMIN, sizeof(admin), 2);
		(void)zi_message_send(fd, &admin.header, NULL, 0);
	} else {
		(void)!send(fd, "garbage", 7, MSG_NOSIGNAL);
	}
	fd = zi_close(fd);
}

static void *client_main(void *arg)
{
	static struct tally tallies[CLIENTS];
	struct tally *tally = &tallies[(uintptr_t)arg];
	uint64_t random = (uintptr_t)arg;
	char job[32];

	/* Two share one, with some that are killed, and take it from each other. */
	(void)snprintf(job, sizeof(job), "job%u", (unsigned)((uintptr_t)arg % (CLIENTS - 1)));
	for (uint32_t i = 0; i < ROUNDS; i++) {
		if (draw(&random, 4) == 0)
			be_rude(&random);
		else
			attach_and_leave(&random, job, tally);
	}
	return tally;
}

/* A process of its own, from before there were threads: forks trainers, and kills them after up to
 * 30 ms of whatever they are doing. */
static int kill_trainers(void)
{
	uint64_t random = 77;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (uint32_t i = 0; i < KILLS; i++) {
		pid_t pid = fork();
		int pidfd = -1;
		struct pollfd gone = { .events = POLLIN };

		check(pid >= 0, "fork");
		if (!pid) {
			struct tally tally = { 0 };
			uint64_t own = i;

			(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				attach_and_leave(&own, i % 2 ? "job0" : "killed", &tally);
		}
		check(!zi_pidfd_open(pid, &pidfd), "zi_pidfd_open");
		gone.fd = pidfd;
		check(poll(&gone, 1, (int)draw(&random, 30)) == 0, "a trainer ended by itself");
		(void)kill(pid, SIGKILL);
		check(waitpid(pid, NULL, 0) == pid, "waitpid");
		pidfd = zi_close(pidfd);
	}
	return 0;
}

/* ---- the house ---- */

static int run_loop(void *arg)
{
	return zi_loop_run(arg);
}

static void make_zero(void)
{
	struct zi_text text = { "" };

	check(!catalog_open(churn.directory, &text, &churn.catalog), text.chars);
	/* This process holds all it ever received. */
	tier_init_cpu(&churn.cpu, 0, 4096 * MIB, NULL, false);
	check(!dev_host_new(NULL, NULL, 2, &churn.device), "dev_host_new");
	check(!tier_holders_new(&churn.holders), "tier_holders_new");
	check(!zero_new(&(struct zero_options){ .loop = churn.shard_loop,
	                                        .catalog = churn.catalog,
	                                        .holders = churn.holders,
	                                        .cpu_tiers = &churn.cpu,
	                                        .cpu_tier_count = 1,
	                                        .devices = &churn.device,
	                                        .default_staging_bytes = MIB,
	                                        .uid_cpu_limit_bytes = UINT64_MAX,
	                                        .uid_nvme_limit_bytes = UINT64_MAX,
	                                        .jobs_max = 8,
	                                        .jobs_per_uid_max = 8,
	                                        .units_max = 4,
	                                        .params_max = 4 },
	                &churn.zero),
	      "zero_new");
	check(!catalog_start(churn.catalog), "catalog_start");
}

static void begin(void)
{
	const struct sess_limits limits = { .sessions_max = SESSIONS,
		                            .sessions_per_uid_max = SESSIONS,
		                            .connections_max = 64,
		                            .connections_per_uid_max = 64,
		                            .answers_per_uid_max = 64,
		                            .answer_bytes_per_uid_max = 16 << 20,
		                            .units_max = 4,
		                            .params_max = 4,
		                            .ring_entries = 16,
		                            .inflight_ops_max = 16 * SESSIONS,
		                            .handshake_ns = 10 * ZI_NS_PER_S };
	struct zi_text text = { "" };
	int listen_fd = -1;

	check(!zi_loop_new(&churn.control_loop) && !zi_loop_new(&churn.shard_loop), "zi_loop_new");
	make_zero();
	churn.facts = (struct sess_facts){ .socket_path = churn.socket_path,
		                           .state_dir = churn.directory,
		                           .isa = "ref",
		                           .cpu_tiers = &churn.cpu,
		                           .cpu_tier_count = 1 };
	check(!sess_shard_new(&(struct sess_shard_options){ .loop = churn.shard_loop,
	                                                    .zero = churn.zero,
	                                                    .ring_tier = &churn.cpu,
	                                                    .holders = churn.holders,
	                                                    .worker = churn.device,
	                                                    .limits = &limits,
	                                                    .cpu_count = 2,
	                                                    .pool_threads = 2 },
	                      &churn.shard),
	      "sess_shard_new");
	check(!sess_control_new(&(struct sess_control_options){ .loop = churn.control_loop,
	                                                        .shard_loop = churn.shard_loop,
	                                                        .shard = churn.shard,
	                                                        .limits = &limits,
	                                                        .facts = &churn.facts },
	                        &churn.control),
	      "sess_control_new");
	check(!zi_control_listen(churn.socket_path, 0600, &text, &listen_fd), text.chars);
	check(!sess_control_listen(churn.control, listen_fd), "sess_control_listen");
	check(!zi_thread_start(&churn.shard_thread, "shard", run_loop, churn.shard_loop), "thread");
	check(!zi_thread_start(&churn.control_thread, "control", run_loop, churn.control_loop),
	      "thread");
}

/* ---- the end, as the daemon does it ---- */

static void end_when_still(void)
{
	if (!churn.is_quiet || !churn.is_empty)
		return;
	zi_loop_stop(churn.shard_loop);
	zi_loop_stop(churn.control_loop);
}

static void control_quiet(struct zi_post *post)
{
	(void)post;
	churn.is_quiet = true;
	end_when_still();
}

/* Context: shard thread. */
static void shard_quiet(void *arg)
{
	(void)arg;
	sess_shard_stop(churn.shard, "the churn is over");
	zi_loop_post(churn.control_loop, &churn.quiet, control_quiet);
}

static void stop_shard(struct zi_post *post)
{
	(void)post;
	zero_quiesce(churn.zero, shard_quiet, NULL);
}

static void control_empty(void *arg)
{
	(void)arg;
	churn.is_empty = true;
	end_when_still();
}

static void stop_control(struct zi_post *post)
{
	(void)post;
	zi_loop_post(churn.shard_loop, &churn.stop_shard, stop_shard);
	sess_control_stop(churn.control, control_empty, NULL);
}

static void drain(struct zi_loop *loop)
{
	zi_loop_stop(loop);
	check(!zi_loop_run(loop), "zi_loop_run");
}

static void end(void)
{
	char file[96];

	zi_loop_post(churn.control_loop, &churn.stop_control, stop_control);
	check(!zi_thread_join(&churn.control_thread) && !zi_thread_join(&churn.shard_thread),
	      "a loop failed");
	churn.device = dev_free(churn.device);
	churn.catalog = catalog_close(churn.catalog);
	drain(churn.shard_loop);
	drain(churn.control_loop);
	churn.control = sess_control_free(churn.control);
	churn.shard = sess_shard_free(churn.shard);
	churn.zero = zero_free(churn.zero);
	churn.holders = tier_holders_free(churn.holders);
	check(!churn.cpu.used_bytes, "something is still charged");
	tier_deinit(&churn.cpu);
	churn.shard_loop = zi_loop_free(churn.shard_loop);
	churn.control_loop = zi_loop_free(churn.control_loop);
	(void)unlink(churn.socket_path);
	(void)snprintf(file, sizeof(file), "%s/catalog.db", churn.directory); /* Fits. */
	(void)unlink(file);
	(void)snprintf(file, sizeof(file), "%s/catalog.db-mark", churn.directory); /* Fits. */
	(void)unlink(file);
	check(!rmdir(churn.directory), "something was left in the directory");
}

int main(void)
{
	struct tally sum = { 0 };
	pthread_t clients[CLIENTS];
	pid_t killer;
	int status = 0;

	(void)signal(SIGPIPE, SIG_IGN); /* As the daemon's main thread does. */
	zi_log_set_level(ZI_LOG_ERROR);
	check(mkdtemp(guard_path(churn.directory, sizeof(churn.directory), "stress")) != NULL,
	      "mkdtemp");
	(void)snprintf(churn.socket_path, sizeof(churn.socket_path), "%s/s", churn.directory);
	killer = fork();
	check(killer >= 0, "fork");
	if (!killer)
		_exit(kill_trainers());
	begin();
	for (uintptr_t i = 0; i < CLIENTS; i++)
		check(!pthread_create(&clients[i], NULL, client_main, (void *)i), "pthread_create");
	for (uint32_t i = 0; i < CLIENTS; i++) {
		void *tally;

		check(!pthread_join(clients[i], &tally), "pthread_join");
		sum.attach_count += ((const struct tally *)tally)->attach_count;
		sum.step_count += ((const struct tally *)tally)->step_count;
	}
	check(waitpid(killer, &status, 0) == killer && !status, "the killer failed");
	end();
	printf("session_churn: %u attached, %u steps committed, %u killed\n", sum.attach_count,
	       sum.step_count, KILLS);
	check(sum.attach_count > CLIENTS && sum.step_count > 0, "hardly anything was done");
	return 0;
}
