/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of one side of suite `coll`; see coll_side.h. */
#include "bench/coll_side.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/fd.h"
#include "tests/harness/patience.h"

/* Python and its packages come off a cold disk. */
#define START_NS (180 * ZI_NS_PER_S)
/* One order; the slowest takes seconds. */
#define ORDER_S 120
/* After the end of its orders a side has this long, then it is told to end, then killed. */
#define STOP_NS (20 * ZI_NS_PER_S)

static void set_number(const char *name, unsigned value)
{
	char text[16];

	(void)snprintf(text, sizeof text, "%u", value);
	(void)setenv(name, text, 1);
}

static void exec_process(const struct coll_side_options *options, const char *socket_path,
                         unsigned rank)
{
	char store[256];
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	(void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* nothing stays behind */
	(void)snprintf(store, sizeof store, "%s/%s-%u.store", options->directory, options->name,
	               options->world);
	(void)setenv("COLL_SOCKET", socket_path, 1);
	(void)setenv("COLL_STORE", store, 1);
	set_number("RANK", rank);
	set_number("WORLD_SIZE", options->world);
	if (options->enter)
		options->enter(options->enter_arg, rank);
	/* What peers print is theirs: to the terminal, not into the table. */
	if (dup2(null, STDIN_FILENO) < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		_exit(127);
	(void)execvp(options->argv[0], (char *const *)options->argv);
	_exit(127);
}

static int listen_at(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	(void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	(void)unlink(path); /* of a side that was here before */
	if (fd >= 0 &&
	    (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, COLL_RANKS_MAX)))
		return zi_close(fd);
	return fd;
}

static bool is_any_gone(struct coll_side *side)
{
	for (unsigned i = 0; i < side->process_count; i++)
		if (side->pids[i] && waitpid(side->pids[i], NULL, WNOHANG) == side->pids[i]) {
			side->pids[i] = 0;
			return true;
		}
	return false;
}

/* A packet, NUL-terminated; false: the rank is gone. */
static bool packet_read(int fd, char text[static COLL_PACKET_BYTES])
{
	ssize_t bytes = recv(fd, text, COLL_PACKET_BYTES - 1, 0);

	if (bytes <= 0)
		return false;
	text[bytes] = '\0';
	return true;
}

/* One rank's hello. False after putting the reason into side->words. */
static bool greet(struct coll_side *side, int listener, uint64_t deadline_ns)
{
	const struct timeval limit = { .tv_sec = (time_t)(ORDER_S * patience()) };
	_cleanup_(zi_closep) int fd = -1;
	char text[COLL_PACKET_BYTES], word[8];
	unsigned rank;
	int words_at = 0;

	while (fd < 0) {
		struct pollfd poll_fd = { .fd = listener, .events = POLLIN };

		if (poll(&poll_fd, 1, 200) > 0)
			fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		else if (is_any_gone(side) || zi_clock_now_ns() >= deadline_ns) {
			(void)snprintf(side->words, sizeof side->words,
			               "a rank ended, or did not come, before it was ready");
			return false;
		}
	}
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	if (!packet_read(fd, text) || sscanf(text, "%u %7s %n", &rank, word, &words_at) != 2 ||
	    rank >= side->world || side->sockets[rank] >= 0) {
		(void)snprintf(side->words, sizeof side->words, "a rank said no hello");
		return false;
	}
	memcpy(side->words, text + words_at, strlen(text + words_at) + 1);
	side->sockets[rank] = zi_steal_fd(fd);
	return !strcmp(word, "ready");
}

void coll_side_start(struct coll_side *side, const struct coll_side_options *options)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(patient_ns(START_NS));
	char path[100];
	_cleanup_(zi_closep) int listener = -1;
	bool is_ready = true;

	*side = (struct coll_side){ .name = options->name,
		                    .world = options->world,
		                    .process_count = options->process_count };
	for (unsigned i = 0; i < COLL_RANKS_MAX; i++)
		side->sockets[i] = -1;
	(void)snprintf(path, sizeof path, "%s/%s-%u.sock", options->directory, options->name,
	               options->world);
	listener = listen_at(path);
	if (listener < 0) {
		printf("skipped: %s: a socket at %s: %s\n", side->name, path, strerror(errno));
		return;
	}
	for (unsigned i = 0; i < side->process_count; i++) {
		side->pids[i] = fork();
		if (side->pids[i] == 0)
			exec_process(options, path, i);
	}
	for (unsigned i = 0; i < side->world && is_ready; i++)
		is_ready = greet(side, listener, deadline_ns);
	side->is_ready = is_ready;
	printf("%s: %s, %u ranks: %s\n", is_ready ? "ready" : "skipped", side->name, side->world,
	       side->words);
	if (!is_ready)
		coll_side_stop(side);
}

/* Of @pid so far; 0: it has gone. */
static double cpu_seconds_of(pid_t pid)
{
	struct timespec used;
	clockid_t clock;

	if (pid <= 0 || clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &used))
		return 0;
	return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

static double cpu_seconds(const struct coll_side *side)
{
	double seconds = 0;

	for (unsigned i = 0; i < side->process_count; i++)
		seconds += cpu_seconds_of(side->pids[i]);
	for (unsigned i = 0; i < side->helper_count; i++)
		seconds += cpu_seconds_of(side->helpers[i]);
	return seconds;
}

double coll_side_seconds(struct coll_side *side, const struct coll_order *order)
{
	char text[COLL_PACKET_BYTES];
	double used_seconds = cpu_seconds(side);
	uint64_t first_ns = UINT64_MAX, last_ns = 0;
	bool is_refused = false;

	coll_order_print(order, text);
	for (unsigned i = 0; i < side->world; i++)
		if (send(side->sockets[i], text, strlen(text), MSG_NOSIGNAL) < 0)
			return -1;
	for (unsigned i = 0; i < side->world; i++) {
		uint64_t started_ns, ended_ns;

		if (!packet_read(side->sockets[i], text))
			return -1;
		if (sscanf(text, "%" SCNu64 " %" SCNu64, &started_ns, &ended_ns) != 2) {
			if (!i)
				printf("%s has no %s: %s\n", side->name,
				       coll_operation_name(order->operation), text);
			is_refused = true;
			continue;
		}
		first_ns = ZI_MIN(first_ns, started_ns);
		last_ns = ZI_MAX(last_ns, ended_ns);
	}
	side->cpu_seconds = (cpu_seconds(side) - used_seconds) / order->iterations;
	if (is_refused)
		return 0;
	return (double)(last_ns - first_ns) / 1e9 / order->iterations;
}

/* Waits for the end of @pid. False: it goes on after @deadline_ns. */
static bool has_ended(pid_t pid, uint64_t deadline_ns)
{
	_cleanup_(zi_closep) int pidfd = -1;
	struct pollfd poll_fd = { .events = POLLIN };

	if (zi_pidfd_open(pid, &pidfd))
		return false;
	poll_fd.fd = pidfd;
	return poll(&poll_fd, 1, zi_clock_poll_ms(deadline_ns)) > 0;
}

void coll_side_stop(struct coll_side *side)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(patient_ns(STOP_NS));

	if (!side->world)
		return; /* never started, or stopped */
	for (unsigned i = 0; i < COLL_RANKS_MAX; i++)
		side->sockets[i] = zi_close(side->sockets[i]);
	for (unsigned i = 0; i < side->process_count; i++) {
		if (side->pids[i] <= 0)
			continue;
		if (!has_ended(side->pids[i], deadline_ns)) {
			(void)kill(side->pids[i], SIGTERM); /* mpirun ends its ranks */
			if (!has_ended(side->pids[i], zi_clock_deadline_ns(patient_ns(STOP_NS))))
				(void)kill(side->pids[i], SIGKILL);
		}
		while (waitpid(side->pids[i], NULL, 0) < 0 && errno == EINTR)
			;
	}
	*side = (struct coll_side){ 0 };
}
