/* SPDX-License-Identifier: Apache-2.0 */
/* Nobody outlives the ranks (strays.h). Children are found by looking through /proc, for the kernel
 * names them nowhere else in every configuration. */
#include "zctl/launch/strays.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"

/* Parent of the process with this number. Return: -1: it has gone. */
static pid_t parent_of(const char *pid, char name[32])
{
	char path[300], line[512];
	const char *begin;
	char *end;

	(void)snprintf(path, sizeof(path), "/proc/%s/stat", pid); /* Fits. */
	if (zi_read_text(path, line, sizeof(line)))
		return -1;
	begin = strchr(line, '(');
	end = strrchr(line, ')'); /* "PID (NAME) STATE PARENT …", and a name may hold anything. */
	if (!begin || !end || strlen(end) < 5)
		return -1;
	*end = '\0';
	(void)snprintf(name, 32, "%.31s", begin + 1);
	return (pid_t)strtol(end + 4, NULL, 10);
}

typedef void (*child_fn)(void *arg, pid_t pid, const char *name);

static void for_each_child(child_fn seen, void *arg)
{
	DIR *directory = opendir("/proc");
	const struct dirent *entry;

	while (directory && (entry = readdir(directory))) {
		char name[32];

		if (isdigit((unsigned char)entry->d_name[0]) &&
		    parent_of(entry->d_name, name) == getpid())
			seen(arg, (pid_t)strtol(entry->d_name, NULL, 10), name);
	}
	if (directory)
		(void)closedir(directory);
}

/* ---- children of before ---- */

struct finding {
	struct launch_spared *spared;
	int r;
};

static void spare(void *arg, pid_t pid, const char *name)
{
	struct finding *finding = arg;
	struct launch_spared *spared = finding->spared;
	pid_t *pids = reallocarray(spared->pids, spared->count + 1, sizeof(*pids));

	(void)name;
	if (!pids) {
		finding->r = err_origin(-ENOMEM);
		return;
	}
	spared->pids = pids;
	spared->pids[spared->count++] = pid;
}

/* See strays.h. */
int launch_spared_find(struct launch_spared *ret_spared)
{
	struct finding finding = { .spared = ret_spared };

	*ret_spared = (struct launch_spared){ 0 };
	for_each_child(spare, &finding);
	return err_trace(finding.r);
}

/* ---- the others ---- */

/* One look at all of them. */
struct pass {
	const struct launch_strays *strays;
	bool is_first, is_last;
	uint32_t reaped_count, dying_count;
};

static bool is_spared(const struct launch_spared *spared, pid_t pid)
{
	for (size_t i = 0; i < spared->count; i++)
		if (spared->pids[i] == pid)
			return true;
	return false;
}

static void end_child(void *arg, pid_t pid, const char *name)
{
	struct pass *pass = arg;
	const struct launch_strays *strays = pass->strays;
	int error;

	if (is_spared(&strays->spared, pid))
		return;
	if (waitpid(pid, NULL, WNOHANG) == pid) {
		pass->reaped_count++; /* Having ended by itself, it needs no words. */
		return;
	}
	error = kill(pid, SIGKILL) ? -errno : 0;
	pass->dying_count += !error;
	if (pass->is_last)
		strays->told(strays->arg, pid, name, error ? error : -ETIMEDOUT);
	else if (pass->is_first && !error && !strays->is_quiet)
		strays->told(strays->arg, pid, name, 0);
}

static struct pass look(const struct launch_strays *strays, bool is_first, bool is_last)
{
	struct pass pass = { .strays = strays, .is_first = is_first, .is_last = is_last };

	for_each_child(end_child, &pass);
	return pass;
}

/* Until a child ends, or did since this was last asked: the signal is kept. */
static void await_end(const sigset_t *ends, uint64_t deadline_ns)
{
	uint64_t now_ns = zi_clock_now_ns();
	uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
	const struct timespec left = { .tv_sec = (time_t)(left_ns / ZI_NS_PER_S),
		                       .tv_nsec = (long)(left_ns % ZI_NS_PER_S) };

	(void)sigtimedwait(ends, NULL, &left);
}

/* See strays.h. */
void launch_strays_end(const struct launch_strays *strays)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(strays->wait_ns);
	sigset_t ends, before;
	struct pass pass;

	(void)sigemptyset(&ends);
	(void)sigaddset(&ends, SIGCHLD);
	(void)sigprocmask(SIG_BLOCK, &ends, &before);
	pass = look(strays, true, false);
	while ((pass.reaped_count || pass.dying_count) && zi_clock_now_ns() < deadline_ns) {
		if (!pass.reaped_count)
			await_end(&ends, deadline_ns);
		pass = look(strays, false, false);
	}
	(void)look(strays, false, true);
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
}
