/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that ask the daemon as fast as it answers, and loops that do nothing but take CPU: what a
 * job's step is measured beside. Each is a process; a flood of questions for administrators comes
 * from a uid for each client where this program may become them.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#define FLOOD_CLIENTS 6u
/* Of the job that is exported and of the model that is loaded, each the only parameters of a unit
 * of its own model. */
#define FLOOD_PARAMS 20000u
#define FLOOD_JOB    "flood"

enum flood_kind {
	FLOOD_BUSY,   /* loops */
	FLOOD_SHOW,   /* status, jobs, limits */
	FLOOD_EXPORT, /* export open of FLOOD_JOB, of this uid */
	FLOOD_LOAD,   /* load open and describe: FLOOD_PARAMS parameters */
	FLOOD_HUGE,   /* load open and describe: the largest, with more parameters than allowed */
};

struct flood {
	pid_t pids[FLOOD_CLIENTS];
	uint32_t count;
};

/* All of them have been answered once when this returns. 0; -1 after saying why. */
int flood_start(struct flood *flood, enum flood_kind kind, const char *socket_path);
void flood_stop(struct flood *flood);
