/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real zinfd for tests and benches: in a private directory, ready when it says so (NOTIFY_SOCKET:
 * READY=1), never slept for. The directory and everything in it goes with harness_stop(). The
 * daemon dies with the test (PDEATHSIG), so no process stays behind whatever happens.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* For ->extra: each step reads all of its state, which is what the test is about. */
#define HARNESS_COLD "[step]\nstaging_kept = no\n"

struct harness_options {
	const char *cpu_capacity; /* "256M" when NULL */
	const char *nvme_size;    /* NULL: no NVMe tier */
	bool is_measured;         /* a new store is measured at start, as by default */
	const char *nvme_path;    /* NULL: DIRECTORY/store */
	bool has_second_path;     /* the tier is a stripe of DIRECTORY/store and DIRECTORY/store2 */
	const char *nvme_extra;   /* more lines of its section ("backend = …\n"), or NULL */
	const char *extra;        /* more sections of the configuration, or NULL */
	const char *daemon_extra; /* more lines of [daemon], or NULL */
	const char
		*directory_in;  /* where the private directory is made; NULL: $TMPDIR or /var/tmp */
	uint32_t uid;           /* run the daemon as this user; 0: as the caller */
	uint64_t memlock_bytes; /* RLIMIT_MEMLOCK of the daemon; 0: as the caller's */
	uint64_t file_size_bytes; /* RLIMIT_FSIZE of the daemon; 0: as the caller's */
	const char *cgroup;       /* folder of a control group the daemon starts in; NULL: ours */
	/* "NAME=VALUE" for the daemon alone, ended by NULL; or NULL. */
	const char *const *environment;
	bool is_quiet;     /* a start that fails is no news: nothing is printed */
	bool is_activated; /* the socket is made here and passed (LISTEN_FDS) */
};

struct harness {
	struct harness_options options;
	char directory[256];
	char socket_path[300];
	char config_path[300];
	char log_path[300];
	pid_t pid; /* 0: not running */
	int notify_fd;
	uint32_t start_count;
};

/* Starts and waits for readiness. 0, or -errno after printing the daemon's words. */
int harness_start(struct harness *harness, const struct harness_options *options);
/* As above, but returns as soon as the daemon tells its manager @words ("Writing store"). */
int harness_start_until(struct harness *harness, const struct harness_options *options,
                        const char *words);
/* Again in the same directory, after harness_kill() or harness_halt(), with harness->options as
 * they are now. */
int harness_restart(struct harness *harness);
/* SIGTERM, waits. The exit code; negative: -errno, or minus 1000 minus the signal that ended it. */
int harness_halt(struct harness *harness);
void harness_kill(struct harness *harness); /* SIGKILL, reaped */
/* Waits for a daemon that ends by itself or by another's hand; as harness_wait(). */
int harness_await_end(struct harness *harness);
/* harness_halt(), then the directory is removed. 0 when the exit code was 0 and the directory held
 * nothing but what belongs there; else 1 after saying what. */
int harness_stop(struct harness *harness);
/* As harness_stop() for a daemon that was expected to die. */
void harness_remove(struct harness *harness);
/* A folder, and what is in it. Return: 0; nonzero: something of it stays. */
int harness_remove_folder(const char *path);

/* Runs zinfd in the foreground until it exits by itself (bad configuration …), with the
 * configuration text given; its words go to @words. The exit code. */
int harness_run(const char *config_text, const char *const *arguments, char *words,
                size_t capacity);

/* Runs zctl with these words after --socket; both its streams go to @words. The exit code. */
int harness_zctl(const char *socket_path, const char *const *arguments, char *words,
                 size_t capacity);
/* zctl's question; NULL after printing why not. */
json_t *harness_admin(struct harness *harness, const char *command);
/* Everything the daemon has printed so far, NUL-terminated (truncated at capacity). */
void harness_log(const struct harness *harness, char *buffer, size_t capacity);
/* … to stderr. */
void harness_print_log(const struct harness *harness);
/* Bytes charged to CPU tiers now; UINT64_MAX when the daemon does not answer. */
uint64_t harness_cpu_bytes(struct harness *harness);
/* True once that many bytes are charged to CPU tiers: asks again until @timeout_ms has passed (each
 * question is a round trip, not a sleep). */
bool harness_charges_return(struct harness *harness, uint64_t expected_cpu_bytes,
                            uint32_t timeout_ms);

/* Forks a child that runs @body and exits with its result (as a test rank). */
typedef int (*harness_body_fn)(void *arg);
pid_t harness_fork(harness_body_fn body, void *arg);
/* Waits at most @timeout_ms (by pidfd); the exit code, 1000 + signal, or -ETIMEDOUT (killed
 * then). */
int harness_wait(pid_t pid, uint32_t timeout_ms);
/* Path of a program of this build: "zinfd", "zctl", "zinf-gpt". */
const char *harness_program(const char *name, char *buffer, size_t capacity);
