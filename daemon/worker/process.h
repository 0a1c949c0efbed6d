/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The base of every worker: a process of the daemon's, watched and ended. Floor 3. A worker belongs
 * to its loop's thread. The proxy of a worker program (supervise.h: zinf-net; gpu_worker.h:
 * zinf-gpu) embeds it, starts the program by spawn.h, and knows its messages.
 *
 *            adopt            greeted      exits, hangs, breaks the protocol          has gone
 *   DOWN ──────────▶ STARTING ──────▶ UP ────────────────────────────────▶ ENDING ──────────▶ DOWN
 *
 * The end of the process fails its requests, with the reason, and nothing else. A process that does
 * not answer to a ping, or a request that is not answered past its deadline, ends it.
 *
 * The end is SIGKILL. A process that calls no driver is taken away by the kernel at once: its end
 * is awaited on the spot (linger_ns is 0). A process in a call of a driver may not end before that
 * call returns, or never: it is ENDING, the loop watches its pidfd, and it is stuck after
 * linger_ns. What it holds is not free while it is ENDING. Requests that come meanwhile wait for
 * its end; they fail when it is stuck.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/list.h"
#include "common/base/loop.h"
#include "common/base/text.h"

struct process;
struct spawned;

#define PROCESS_NAME_BYTES 96u
#define PROCESS_STARTS_MAX 8u
/* Of a request without a deadline. */
#define PROCESS_NO_LIMIT UINT64_MAX
/* Linux has no errno beyond it. */
#define PROCESS_ERRNO_MAX 4095

/* Of process_stop(): the process was killed and has not ended. */
#define PROCESS_E_STUCK 1

enum process_state { PROCESS_DOWN, PROCESS_STARTING, PROCESS_UP, PROCESS_ENDING };

/* Embedded in the proxy's own request. */
struct process_request {
	struct process *process;
	struct zi_list link;
	struct zi_timer limit;
	uint64_t cookie; /* names it in messages: 1, 2, … */
};

/* What a proxy does for its process; all from the loop. */
struct process_class {
	/* A packet, or the end of all packets, can be received from process->control.fd. */
	void (*ready)(struct process *process);
	/* Asks the process for an answer, which is given to process_answered(). */
	void (*ping)(struct process *process);
	/* Optional: the process has gone (DOWN), or was killed (ENDING); its requests fail next. */
	void (*down)(struct process *process);
	/* @request is over by the end of its process, and out of the list. It may start the process
	 * anew and make other requests. */
	void (*fail)(struct process_request *request, int error, const struct zi_text *text);
	/* Optional, after its requests. */
	void (*ended)(struct process *process, int error, const struct zi_text *text);
	/* Optional: the process was ENDING, and has gone. */
	void (*gone)(struct process *process);
	/* Optional: the process is ENDING for linger_ns, as @text says. */
	void (*stuck)(struct process *process, const struct zi_text *text);
};

struct process_options {
	const struct process_class *class;
	const char *name;      /* for messages: "zinf-net" */
	uint32_t requests_max; /* requests that are not answered */
	uint64_t ping_ns;      /* between two pings */
	uint64_t pong_ns;      /* the time for an answer to a ping */
	uint64_t greeting_ns;  /* the time from the start to process_greeted() */
	uint64_t linger_ns; /* from its kill until it is stuck; 0: its end is awaited on the spot */
	uint64_t stop_ns;   /* that process_stop() waits for the end, from the kill on */
	uint32_t starts_max; /* within starts_ns, at most PROCESS_STARTS_MAX; 0: no limit */
	uint64_t starts_ns;
};

struct process {
	const struct process_class *class;
	struct zi_loop *loop;
	enum process_state state;
	pid_t pid; /* 0 when DOWN */
	struct zi_source control, exited;
	struct zi_timer heart; /* the next ping, or the end of patience: with its answer, its end */
	bool is_pinged;
	bool is_told;       /* ENDING: its requests have failed with the reason */
	bool is_stuck;      /* ENDING for linger_ns */
	int end_error;      /* ENDING: of the requests */
	uint64_t killed_ns; /* ENDING: when it was killed */
	uint64_t ping_ns, pong_ns, greeting_ns, linger_ns, stop_ns;
	struct zi_list requests; /* in the order of process_push() */
	struct zi_list orphans;  /* ENDING: those of the process that was killed */
	uint32_t request_count, requests_max;
	uint64_t cookie;
	uint32_t starts_max, start_count; /* start_count: of all starts */
	uint64_t starts_ns;
	uint64_t started_ns[PROCESS_STARTS_MAX]; /* a ring of the last starts */
	char name[PROCESS_NAME_BYTES];
	struct zi_text last_end; /* "" before the first one */
};

void process_init(struct process *process, struct zi_loop *loop,
                  const struct process_options *options);
/**
 * process_stop() - end the process for good, and wait for it
 * @why: of its requests, which fail with -ESHUTDOWN: none is left
 * @text: what is stuck
 *
 * Returns stop_ns after the kill at the latest. A process that is stuck stays behind, and init
 * takes its status when this process has ended.
 * Return: 0 DOWN; PROCESS_E_STUCK with @text.
 */
int process_stop(struct process *process, const struct zi_text *why, struct zi_text *text);
/* process_stop(), unless it is DOWN. */
void process_deinit(struct process *process, const struct zi_text *text);

/**
 * process_may_start() - whether one more start is within the limit of starts
 *
 * Return: 0; -EAGAIN with @text: the reason of the last end, and when a start is possible.
 */
int process_may_start(const struct process *process, struct zi_text *text);
/* DOWN to STARTING. @spawned: becomes the process's, also after a failure. @program: for people.
 * Return: 0; -ENOMEM, -ENOSPC, … with @text. */
int process_adopt(struct process *process, const char *program, const struct spawned *spawned,
                  struct zi_text *text);
/* STARTING to UP. */
void process_greeted(struct process *process);
/* The answer to a ping has come. */
void process_answered(struct process *process);
/* Kills it: ENDING, or DOWN where it has gone. Requests fail with @error. @why: NULL for how it
 * ended, in words: "zinf-net (pid 7) was killed by signal 9 (Killed)"; then they fail when that is
 * known. Precondition: STARTING or UP. */
void process_end(struct process *process, int error, const struct zi_text *why);
/* ENDING in one sentence: "zinf-gpu of GPU 0 (pid 7) was killed 5 s ago and has not ended: …". */
void process_describe_ending(const struct process *process, struct zi_text *text);

/* One packet, with @fd unless negative. Return: 0; -EBUSY the socket is full, -ENOTCONN. */
int process_send(struct process *process, const void *message, size_t bytes, int fd);
/* Whether a request may be made. Return: 0; -ENOTCONN it is DOWN, -EBUSY there are requests_max. */
int process_admits(const struct process *process);
uint64_t process_next_cookie(struct process *process);
/* @limit_ns: deadline of the answer, on the clock; PROCESS_NO_LIMIT. */
void process_push(struct process *process, struct process_request *request, uint64_t cookie,
                  uint64_t limit_ns);
/* Sets another deadline. */
void process_limit(struct process_request *request, uint64_t limit_ns);
/* NULL: none has that cookie; it was given up. */
struct process_request *process_find(struct process *process, uint64_t cookie);
/* Out of the list; it is its owner's again. */
void process_pop(struct process_request *request);
/* 0, or such an errno as Linux has; -EPROTO else: of what a process says. */
int process_errno(int32_t error);
