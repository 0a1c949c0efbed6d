/* SPDX-License-Identifier: Apache-2.0 */
/* Daemons and ranks of check_crash_nodes (crew.h). */
#include "tests/far/crew.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/fd.h"
#include "tests/harness/port.h"

bool crew_says(bool is_right, const char *format, ...)
{
	va_list list;

	if (is_right)
		return true;
	va_start(list, format);
	fputs("check_crash_nodes: ", stderr);
	vfprintf(stderr, format, list);
	fputc('\n', stderr);
	va_end(list);
	return false;
}

uint32_t crew_node_of(const struct crew *crew, uint32_t rank)
{
	uint32_t node = 0;

	while (rank >= crew->kind.counts[node])
		rank -= crew->kind.counts[node++];
	return node;
}

/* ---- what ranks do ---- */

static void set_number(const char *name, uint32_t number)
{
	char text[16];

	(void)snprintf(text, sizeof(text), "%u", number); /* Fits. */
	(void)setenv(name, text, 1);                      /* Memory is there. */
}

/* A rank learns where it is as launchers tell it. */
static void be_born(const struct crew *crew, uint32_t rank)
{
	uint32_t node = crew_node_of(crew, rank);

	(void)setenv("ZINF_SOCKET", crew->harness[crew->node_order[node]].socket_path, 1);
	(void)setenv("MASTER_ADDR", "127.0.0.1", 1); /* Memory is there. */
	set_number("ZINF_PORT", crew->port);
	set_number("LOCAL_WORLD_SIZE", crew->kind.counts[node]);
}

static void hook(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	struct crew *crew = arg;
	struct crew_diary *diary = crew->diary;
	uint32_t rank = trainer->rank;
	uint64_t deadline_ns = zi_clock_deadline_ns(CREW_PATIENCE_MS * ZI_NS_PER_MS);

	if (point == TRAINER_BORN)
		be_born(crew, rank);
	if (point == TRAINER_MATERIALIZED)
		diary->resumed[rank] = trainer->step;
	if (point == TRAINER_COMMITTED)
		diary->acknowledged[rank] = ZI_MAX(diary->acknowledged[rank], 0);
	if (point == TRAINER_WAITED)
		diary->acknowledged[rank] =
			ZI_MAX(diary->acknowledged[rank],
		               trainer->report->stats[trainer->report->step].committed_step);
	if (point != crew->point || rank != crew->point_rank || trainer->step != crew->point_step)
		return;
	if (write(crew->tell_fds[1], "x", 1) != 1)
		abort();
	if (crew->is_leaving) {
		zinf_detach(trainer->zinf);
		_exit(0);
	}
	while (crew->is_waiting && !__atomic_load_n(&diary->is_struck, __ATOMIC_ACQUIRE))
		if (zi_clock_now_ns() > deadline_ns)
			abort();
}

static struct trainer_settings settings_of(struct crew *crew)
{
	const struct crew_kind *kind = &crew->kind;
	struct trainer_settings settings = ranks_settings(&crew->harness[0], "far", kind->world);

	settings.options.socket_path = NULL;
	settings.options.timeout_ms = CREW_CALL_MS;
	settings.options.strategy = kind->strategy;
	settings.options.param_dtype = settings.options.grad_dtype = kind->dtype;
	settings.options.offload_optimizer = kind->offload;
	settings.options.offload_param = kind->offload_param;
	settings.options.grad_reduction = kind->grad_reduction;
	settings.options.commit_interval = kind->commit_interval;
	if (kind->offload == ZINF_OFFLOAD_NVME)
		settings.options.staging_bytes = 12 << 20;
	settings.step.max_norm = kind->max_norm;
	settings.step.want_norm = kind->infinite_step != 0;
	settings.step.unscale = kind->unscale;
	settings.step.skip_nonfinite = kind->infinite_step != 0;
	settings.accumulate = kind->accumulate;
	settings.infinite_step = kind->infinite_step;
	settings.is_eager = kind->is_eager;
	settings.steps = CREW_STEPS;
	settings.hook = hook;
	settings.hook_arg = crew;
	return settings;
}

/* ---- daemons ---- */

bool crew_open(struct crew *crew, const struct crew_kind *kind)
{
	*crew = (struct crew){ .kind = *kind, .port = harness_free_port() };
	crew->diary = mmap(NULL, sizeof(*crew->diary), PROT_READ | PROT_WRITE,
	                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (crew->diary == MAP_FAILED || pipe(crew->tell_fds))
		return crew_says(false, "no memory");
	for (uint32_t i = 0; i < kind->node_count; i++) {
		crew->node_order[i] = i;
		if (!crew_says(!harness_start(&crew->harness[i],
		                              &(struct harness_options){ .nvme_size = "32M" }),
		               "no daemon"))
			return false;
		crew->idle_cpu_bytes[i] = harness_cpu_bytes(&crew->harness[i]);
	}
	crew->settings = settings_of(crew);
	return true;
}

bool crew_close(struct crew *crew)
{
	bool is_right = true;

	if (crew->ranks.world)
		ranks_free(&crew->ranks);
	for (uint32_t i = 0; i < crew->kind.node_count; i++) {
		if (crew->harness[i].pid)
			is_right &= crew_says(harness_stop(&crew->harness[i]) == 0, "node %u", i);
		else
			harness_remove(&crew->harness[i]);
	}
	(void)zi_close(crew->tell_fds[0]);
	(void)zi_close(crew->tell_fds[1]);
	(void)munmap(crew->diary, sizeof(*crew->diary));
	return is_right;
}

bool crew_restart(struct crew *crew)
{
	for (uint32_t i = 0; i < crew->kind.node_count; i++)
		if (!crew->harness[i].pid &&
		    !crew_says(!harness_restart(&crew->harness[i]),
		               "the daemon of node %u does not start again", i))
			return false;
	return true;
}

uint32_t crew_workers(const struct crew *crew, uint32_t node, pid_t *pids, uint32_t capacity)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	uint32_t count = 0;

	while (proc && (entry = readdir(proc)) && count < capacity) {
		char path[300], line[600], comm[64] = "";
		int pid = atoi(entry->d_name), parent = 0;
		FILE *file;

		(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid); /* Fits. */
		file = pid > 0 ? fopen(path, "re") : NULL;
		if (!file)
			continue;
		if (fgets(line, sizeof(line), file) &&
		    sscanf(line, "%*d (%63[^)]) %*c %d", comm, &parent) == 2 &&
		    parent == crew->harness[node].pid && !strcmp(comm, "zinf-net"))
			pids[count++] = pid;
		(void)fclose(file);
	}
	if (proc)
		(void)closedir(proc);
	return count;
}

/* ---- starts ---- */

bool crew_start(struct crew *crew)
{
	if (crew->ranks.world)
		ranks_free(&crew->ranks);
	(void)snprintf(crew->incarnation, sizeof(crew->incarnation), "start%u",
	               crew->start_count++);
	crew->settings.options.incarnation = crew->incarnation;
	crew->settings.options.world_size = (int32_t)crew->kind.world;
	for (uint32_t i = 0; i < CREW_WORLD; i++)
		crew->diary->resumed[i] = -2;
	return crew_says(!ranks_start(&crew->ranks, &crew->settings), "no ranks");
}

static void tell_all(struct crew *crew)
{
	for (uint32_t i = 0; i < crew->ranks.world; i++) {
		const struct trainer_report *report = crew->ranks.reports[i];

		fprintf(stderr, "  rank %u: step %lld, %s: %s (%s)\n", i, (long long)report->step,
		        report->call, strerror(-report->result), report->text);
	}
}

bool crew_await(struct crew *crew, int codes[CREW_WORLD])
{
	uint64_t deadline_ns = zi_clock_deadline_ns(CREW_PATIENCE_MS * ZI_NS_PER_MS);
	bool is_right = true;

	for (uint32_t i = 0; i < crew->ranks.world; i++) {
		int left_ms = zi_clock_poll_ms(deadline_ns);

		codes[i] = harness_wait(crew->ranks.pids[i], left_ms > 0 ? (uint32_t)left_ms : 1);
		crew->ranks.pids[i] = 0;
		is_right &= crew_says(codes[i] == 0 || codes[i] == 1 || codes[i] == 1000 + SIGKILL,
		                      "rank %u ended with %d%s", i, codes[i],
		                      codes[i] == -ETIMEDOUT ? ": it hung" : "");
		is_right &= crew_says(codes[i] != 1 || crew->ranks.reports[i]->text[0],
		                      "rank %u failed without a word", i);
	}
	if (!is_right || getenv("VERBOSE"))
		tell_all(crew);
	return is_right;
}

bool crew_train(struct crew *crew)
{
	int codes[CREW_WORLD];
	bool is_right = crew_start(crew) && crew_await(crew, codes);

	for (uint32_t i = 0; i < crew->kind.world && is_right; i++)
		is_right = crew_says(codes[i] == 0, "rank %u of an undisturbed start ended with %d",
		                     i, codes[i]);
	if (!is_right && !getenv("VERBOSE"))
		tell_all(crew);
	return is_right;
}

bool crew_is_refused(struct crew *crew, const char *what, const int *errors)
{
	int codes[CREW_WORLD];
	bool is_right = crew_start(crew) && crew_await(crew, codes);

	for (uint32_t i = 0; i < crew->kind.world && is_right; i++) {
		const struct trainer_report *report = crew->ranks.reports[i];
		bool is_known = false;

		for (const int *error = errors; *error; error++)
			is_known |= report->result == *error;
		is_right = crew_says(codes[i] == 1 && is_known,
		                     "%s: rank %u ended with %d, %s: %s (%s)", what, i, codes[i],
		                     report->call, strerror(-report->result), report->text) &&
		           crew_says(strpbrk(report->text, "0123456789"), "%s: no figure in: %s",
		                     what, report->text);
		if (i == 0 && (getenv("VERBOSE") || getenv("TEXTS")))
			fprintf(stderr, "  refused, %s: %s: %s\n", what, strerror(-report->result),
			        report->text);
	}
	return is_right;
}
