/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of trainer.h as processes (ranks.h). */
#include "tests/harness/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "tests/harness/reference.h"

/* What no call of one takes, nor a daemon that comes back, for which ranks may wait. */
#define CALL_TIMEOUT_MS 60000u
/* The longest that a rank of any test may take, under a sanitizer on a busy machine. */
#define RANK_TIMEOUT_MS 120000u

struct trainer_settings ranks_settings(const struct harness *harness, const char *job,
                                       uint32_t world)
{
	struct trainer_settings settings = {
		.options = ZINF_OPTIONS_INIT,
		.step = ZINF_STEP_OPTIONS_INIT,
		.model = &trainer_small,
		.accumulate = 1,
		.steps = 3,
	};

	settings.options.socket_path = harness->socket_path;
	settings.options.job = job;
	settings.options.incarnation = "first";
	settings.options.world_size = (int32_t)world;
	settings.options.timeout_ms = CALL_TIMEOUT_MS;
	settings.step.lr = 1e-2;
	settings.step.weight_decay = 0.1;
	return settings;
}

static struct trainer_report *map_report(const struct trainer_settings *settings)
{
	void *map = mmap(NULL, sizeof(struct trainer_report) + trainer_dump_bytes(settings),
	                 PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return map == MAP_FAILED ? NULL : map;
}

static void unmap_report(struct trainer_report *report, const struct trainer_settings *settings)
{
	if (report)
		(void)munmap(report, sizeof(*report) + trainer_dump_bytes(settings));
}

struct rank_start {
	const struct ranks *ranks;
	uint32_t rank;
};

static int run_rank(void *arg)
{
	const struct rank_start *start = arg;

	return trainer_run(&start->ranks->settings, start->rank,
	                   start->ranks->reports[start->rank]) != 0;
}

int ranks_start_one(struct ranks *ranks, uint32_t rank)
{
	struct rank_start start = { ranks, rank };

	memset(ranks->reports[rank], 0, sizeof(*ranks->reports[rank]));
	ranks->pids[rank] = harness_fork(run_rank, &start);
	if (ranks->pids[rank] < 0) {
		ranks->pids[rank] = 0;
		return -errno;
	}
	return 0;
}

int ranks_start(struct ranks *ranks, const struct trainer_settings *settings)
{
	*ranks = (struct ranks){ .settings = *settings,
		                 .world = (uint32_t)settings->options.world_size };
	for (uint32_t rank = 0; rank < ranks->world; rank++) {
		ranks->reports[rank] = map_report(settings);
		if (!ranks->reports[rank] || ranks_start_one(ranks, rank)) {
			ranks_free(ranks);
			return -ENOMEM;
		}
	}
	return 0;
}

int ranks_wait(struct ranks *ranks, uint32_t rank)
{
	pid_t pid = ranks->pids[rank];

	ranks->pids[rank] = 0;
	return pid ? harness_wait(pid, RANK_TIMEOUT_MS) : -ESRCH;
}

int ranks_join(struct ranks *ranks)
{
	int result = 0;

	for (uint32_t rank = 0; rank < ranks->world; rank++) {
		const struct trainer_report *report = ranks->reports[rank];
		int code = ranks_wait(ranks, rank);

		if (!code)
			continue;
		fprintf(stderr, "rank %u of '%s' ended with %d after step %lld: %s: %s (%s)\n",
		        rank, ranks->settings.options.job, code, (long long)report->step,
		        report->call, strerror(-report->result), report->text);
		result = 1;
	}
	return result;
}

void ranks_free(struct ranks *ranks)
{
	for (uint32_t rank = 0; rank < ranks->world; rank++) {
		if (ranks->pids[rank]) {
			(void)kill(ranks->pids[rank], SIGKILL);
			(void)waitpid(ranks->pids[rank], NULL, 0);
		}
		unmap_report(ranks->reports[rank], &ranks->settings);
	}
	*ranks = (struct ranks){ 0 };
}

int ranks_train(struct ranks *ranks, const struct trainer_settings *settings)
{
	int r = ranks_start(ranks, settings);

	return r ? r : ranks_join(ranks);
}

bool ranks_are_right(const struct ranks *ranks)
{
	const struct trainer_report *first = ranks->reports[0];
	const char *difference = NULL;

	for (uint32_t rank = 1; rank < ranks->world && !difference; rank++)
		if (!ranks->reports[rank]->is_dumped ||
		    memcmp(ranks->reports[rank]->dump, first->dump,
		           trainer_dump_bytes(&ranks->settings)))
			difference = "two ranks see different parameters";
	if (!difference)
		difference = first->is_dumped ? reference_difference(&ranks->settings, first->dump)
		                              : "there is no dump";
	if (difference)
		fprintf(stderr, "job '%s': %s\n", ranks->settings.options.job, difference);
	return !difference;
}

/* ---- a neighbour ---- */

struct neighbour_start {
	struct neighbour *neighbour;
	int ask_fd, answer_fd;
};

/* 's': a step; 'q' or the end of the test: dump and go. Answers each step with its result. */
static int run_neighbour(void *arg)
{
	const struct neighbour_start *start = arg;
	struct trainer trainer = { 0 };
	int r = trainer_open(&trainer, &start->neighbour->settings, 0, start->neighbour->report);
	char word = 's';

	while (word == 's' && write(start->answer_fd, &r, sizeof(r)) == sizeof(r) && !r) {
		if (read(start->ask_fd, &word, 1) != 1)
			word = 'q';
		if (word == 's')
			r = trainer_step(&trainer);
	}
	if (!r)
		r = trainer_dump(&trainer);
	trainer_close(&trainer);
	return r != 0;
}

static bool neighbour_answers(struct neighbour *neighbour)
{
	struct pollfd poller = { .fd = neighbour->answer_fd, .events = POLLIN };
	int result = -ETIMEDOUT;

	if (poll(&poller, 1, RANK_TIMEOUT_MS) == 1 &&
	    read(neighbour->answer_fd, &result, sizeof(result)) != sizeof(result))
		result = -ECHILD;
	if (result)
		fprintf(stderr, "the neighbour failed after %u steps: %s: %s (%s)\n",
		        neighbour->step_count, neighbour->report->call, strerror(-result),
		        neighbour->report->text);
	return !result;
}

int neighbour_start(struct neighbour *neighbour, const struct trainer_settings *settings)
{
	struct neighbour_start start = { .neighbour = neighbour };
	int ask[2], answer[2];

	(void)signal(SIGPIPE, SIG_IGN); /* of one that is gone: told as an error */
	*neighbour = (struct neighbour){ .settings = *settings };
	neighbour->settings.options.world_size = 1;
	neighbour->report = map_report(settings);
	if (!neighbour->report || pipe2(ask, O_CLOEXEC) || pipe2(answer, O_CLOEXEC))
		return -ENOMEM;
	start.ask_fd = ask[0];
	start.answer_fd = answer[1];
	neighbour->ask_fd = ask[1];
	neighbour->answer_fd = answer[0];
	neighbour->pid = harness_fork(run_neighbour, &start);
	(void)zi_close(ask[0]);
	(void)zi_close(answer[1]);
	return neighbour->pid > 0 && neighbour_answers(neighbour) ? 0 : -ECHILD;
}

bool neighbour_steps(struct neighbour *neighbour)
{
	if (write(neighbour->ask_fd, "s", 1) != 1 || !neighbour_answers(neighbour))
		return false;
	neighbour->step_count++;
	return true;
}

bool neighbour_stop(struct neighbour *neighbour)
{
	const char *difference = NULL;
	int code;

	if (write(neighbour->ask_fd, "q", 1) != 1)
		difference = "it is gone";
	code = harness_wait(neighbour->pid, RANK_TIMEOUT_MS);
	neighbour->settings.steps = neighbour->step_count;
	if (!difference && (code || !neighbour->report->is_dumped))
		difference = "it did not end well";
	if (!difference)
		difference = reference_difference(&neighbour->settings, neighbour->report->dump);
	if (difference)
		fprintf(stderr, "the neighbour after %u steps: %s (%d)\n", neighbour->step_count,
		        difference, code);
	(void)zi_close(neighbour->ask_fd);
	(void)zi_close(neighbour->answer_fd);
	unmap_report(neighbour->report, &neighbour->settings);
	return !difference;
}
