/* SPDX-License-Identifier: Apache-2.0 */
/* A real zinfd for tests and benches (harness.h): start, readiness, stop. */
#include "tests/harness/harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fd.h"

/* Writing a store once in advance may take this long on a slow machine under a sanitizer. */
#define READY_TIMEOUT_NS (120 * ZI_NS_PER_S)

const char *harness_program(const char *name, char *buffer, size_t capacity)
{
	const char *build = getenv("ZINF_BUILD");

	(void)snprintf(buffer, capacity, "%s/bin/%s", build ? build : "build/release", name);
	return buffer;
}

static void write_store(const struct harness *harness, FILE *file, const char *section,
                        const char *name)
{
	const struct harness_options *options = &harness->options;

	fprintf(file, "[nvme %s]\nsize = %s\n%s%s", section, options->nvme_size,
	        options->is_measured ? "" : "measure = never\n",
	        options->has_second_path ? "stripe = wide\n" : "");
	if (options->nvme_path)
		fprintf(file, "path = %s\n", options->nvme_path);
	else
		fprintf(file, "path = %s/%s\n", harness->directory, name);
	fputs(options->nvme_extra ? options->nvme_extra : "", file);
}

static int write_config(struct harness *harness)
{
	const struct harness_options *options = &harness->options;
	FILE *file = fopen(harness->config_path, "we");

	if (!file)
		return -errno;
	fprintf(file, "[daemon]\nsocket = %s\nstate_dir = %s/state\n%s[tier.cpu]\ncapacity = %s\n",
	        harness->socket_path, harness->directory,
	        options->daemon_extra ? options->daemon_extra : "",
	        options->cpu_capacity ? options->cpu_capacity : "256M");
	if (options->nvme_size)
		write_store(harness, file, "disk", "store");
	if (options->nvme_size && options->has_second_path)
		write_store(harness, file, "disk2", "store2");
	fputs(options->extra ? options->extra : "", file);
	return fclose(file) ? -errno : 0;
}

/* An abstract datagram socket whose name goes into NOTIFY_SOCKET. A new name for each start:
 * children of the test may still hold the former one. */
static int make_notify_socket(struct harness *harness, char *name, size_t capacity)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int bytes = snprintf(name, capacity, "@zinf-test-%d-%p-%u", getpid(), (void *)harness,
	                     harness->start_count++);

	harness->notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (harness->notify_fd < 0)
		return -errno;
	memcpy(address.sun_path + 1, name + 1, (size_t)bytes - 1);
	if (bind(harness->notify_fd, (struct sockaddr *)&address,
	         (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)bytes)))
		return -errno;
	return 0;
}

static void join_group(const char *cgroup)
{
	char path[800];
	int fd;

	(void)snprintf(path, sizeof path, "%s/cgroup.procs", cgroup);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "0", 1) != 1)
		_exit(125);
	(void)zi_close(fd);
}

static void child_limits(const struct harness_options *options)
{
	if (options->cgroup)
		join_group(options->cgroup);
	if (options->memlock_bytes) {
		struct rlimit limit = { options->memlock_bytes, options->memlock_bytes };

		if (setrlimit(RLIMIT_MEMLOCK, &limit))
			_exit(125);
	}
	if (options->file_size_bytes) {
		struct rlimit limit = { options->file_size_bytes, options->file_size_bytes };

		if (setrlimit(RLIMIT_FSIZE, &limit))
			_exit(125);
	}
	if (options->uid && (setgid(options->uid) || setuid(options->uid)))
		_exit(125);
	/* After the change of user, which clears it. */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* A listening socket as the first of socket activation. */
static void pass_socket(const struct harness *harness)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char pid[16];
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	(void)snprintf(address.sun_path, sizeof address.sun_path, "%.107s", harness->socket_path);
	(void)unlink(harness->socket_path); /* of the start before */
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 64) ||
	    dup2(fd, 3) != 3)
		_exit(125);
	if (fd != 3)
		(void)zi_close(fd);
	(void)snprintf(pid, sizeof pid, "%d", getpid());
	(void)setenv("LISTEN_PID", pid, 1);
	(void)setenv("LISTEN_FDS", "1", 1);
}

static void exec_daemon(const struct harness *harness, const char *notify_name)
{
	char program[300];
	int log_fd = open(harness->log_path, O_WRONLY | O_CREAT | O_APPEND, 0644);

	if (log_fd < 0 || dup2(log_fd, STDERR_FILENO) < 0 || dup2(log_fd, STDOUT_FILENO) < 0)
		_exit(125);
	child_limits(&harness->options);
	(void)setenv("NOTIFY_SOCKET", notify_name, 1);
	for (const char *const *entry = harness->options.environment; entry && *entry; entry++)
		(void)putenv((char *)*entry); /* Kept by reference until execl(). */
	(void)unsetenv("LISTEN_FDS");
	if (harness->options.is_activated)
		pass_socket(harness);
	execl(harness_program("zinfd", program, sizeof program), "zinfd", "--config",
	      harness->config_path, (char *)NULL);
	_exit(126);
}

void harness_log(const struct harness *harness, char *buffer, size_t capacity)
{
	int fd = open(harness->log_path, O_RDONLY | O_CLOEXEC);
	ssize_t bytes = fd < 0 ? 0 : read(fd, buffer, capacity - 1);

	buffer[bytes > 0 ? bytes : 0] = '\0';
	(void)zi_close(fd);
}

void harness_print_log(const struct harness *harness)
{
	static char text[65536];

	harness_log(harness, text, sizeof text);
	fprintf(stderr, "---- zinfd said:\n%s----\n", text);
}

/* Until the daemon tells its manager @words, or its end. */
static int await_words(struct harness *harness, const char *words)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(READY_TIMEOUT_NS);
	int pidfd = -1;
	int r = zi_pidfd_open(harness->pid, &pidfd);

	while (!r) {
		struct pollfd pollers[2] = { { .fd = harness->notify_fd, .events = POLLIN },
			                     { .fd = pidfd, .events = POLLIN } };
		char message[1024];
		ssize_t bytes;

		if (poll(pollers, 2, zi_clock_poll_ms(deadline_ns)) <= 0) {
			r = -ETIMEDOUT;
			break;
		}
		if (!(pollers[0].revents & POLLIN)) {
			r = -ECHILD;
			break;
		}
		bytes = recv(harness->notify_fd, message, sizeof message - 1, 0);
		message[bytes > 0 ? bytes : 0] = '\0';
		if (strstr(message, words))
			break;
	}
	(void)zi_close(pidfd);
	return r;
}

static int spawn(struct harness *harness)
{
	char name[64];
	int r;

	harness->notify_fd = zi_close(harness->notify_fd);
	r = write_config(harness);
	if (!r)
		r = make_notify_socket(harness, name, sizeof name);
	if (r)
		return r;
	harness->pid = fork();
	if (harness->pid < 0)
		return -errno;
	if (!harness->pid)
		exec_daemon(harness, name);
	return 0;
}

int harness_restart(struct harness *harness)
{
	int r = spawn(harness);

	if (r)
		return r;
	r = await_words(harness, "READY=1");
	if (r) {
		if (!harness->options.is_quiet) {
			fprintf(stderr, "harness: zinfd did not become ready: %s\n", strerror(-r));
			harness_print_log(harness);
		}
		harness_kill(harness);
	}
	return r;
}

/* The directory, with everything that a daemon needs in it. */
static int settle_in(struct harness *harness, const struct harness_options *options)
{
	const char *parent = options->directory_in ? options->directory_in : getenv("TMPDIR");

	*harness = (struct harness){ .options = *options, .notify_fd = -1 };
	(void)snprintf(harness->directory, sizeof harness->directory, "%s/zinf-test.XXXXXX",
	               parent ? parent : "/var/tmp");
	if (!mkdtemp(harness->directory))
		return -errno;
	if (options->uid && chown(harness->directory, options->uid, options->uid))
		return -errno;
	if (chmod(harness->directory, 0755)) /* other users' clients reach the socket */
		return -errno;
	(void)snprintf(harness->socket_path, sizeof harness->socket_path, "%s/zinfd.sock",
	               harness->directory);
	(void)snprintf(harness->config_path, sizeof harness->config_path, "%s/zinfd.conf",
	               harness->directory);
	(void)snprintf(harness->log_path, sizeof harness->log_path, "%s/log", harness->directory);
	return write_config(harness);
}

int harness_start(struct harness *harness, const struct harness_options *options)
{
	int r = settle_in(harness, options);

	if (!r)
		r = harness_restart(harness);
	if (r)
		harness_remove(harness);
	return r;
}

int harness_start_until(struct harness *harness, const struct harness_options *options,
                        const char *words)
{
	int r = settle_in(harness, options);

	if (!r)
		r = spawn(harness);
	if (!r)
		r = await_words(harness, words);
	if (r)
		harness_remove(harness);
	return r;
}

int harness_halt(struct harness *harness)
{
	pid_t pid = harness->pid;

	if (!pid)
		return -ESRCH;
	(void)kill(pid, SIGTERM); /* gone already: harness_wait() tells */
	harness->pid = 0;
	return harness_wait(pid, 60000);
}

int harness_await_end(struct harness *harness)
{
	pid_t pid = harness->pid;

	harness->pid = 0;
	return pid ? harness_wait(pid, 60000) : -ESRCH;
}

void harness_kill(struct harness *harness)
{
	if (!harness->pid)
		return;
	(void)kill(harness->pid, SIGKILL);
	(void)waitpid(harness->pid, NULL, 0);
	harness->pid = 0;
}

static int remove_entry(const char *path, const struct stat *status, int flag, struct FTW *ftw)
{
	(void)status;
	(void)flag;
	(void)ftw;
	return remove(path);
}

int harness_remove_folder(const char *path)
{
	return nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

void harness_remove(struct harness *harness)
{
	harness_kill(harness);
	harness->notify_fd = zi_close(harness->notify_fd);
	(void)harness_remove_folder(harness->directory); /* best effort */
}

/* What a stopped daemon may leave in its directory. */
static bool is_expected(const char *name)
{
	static const char *const names[] = { ".",     "..",    "zinfd.conf", "log",
		                             "state", "store", "store2" };

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!strcmp(names[i], name))
			return true;
	return false;
}

int harness_stop(struct harness *harness)
{
	int code = harness_halt(harness);
	DIR *directory = opendir(harness->directory);
	struct dirent *entry;
	int result = 0;

	if (harness->options.is_activated)
		(void)unlink(harness->socket_path); /* ours, not the daemon's */

	if (code) {
		fprintf(stderr, "harness: zinfd ended with %d\n", code);
		harness_print_log(harness);
		result = 1;
	}
	while (directory && (entry = readdir(directory)))
		if (!is_expected(entry->d_name)) {
			fprintf(stderr, "harness: zinfd left '%s' behind\n", entry->d_name);
			result = 1;
		}
	if (directory)
		closedir(directory);
	harness_remove(harness);
	return result;
}
