/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of check_gpu_faults share: the places where a fault can be, and a victim, which
 * trains on a fake GPU (zinf-gpt, one rank) while something goes wrong in its driver or in that of
 * its zinf-gpu.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tests/harness/ranks.h"

#define GPU_SITES_MAX 128u
/* Of a place that is called again and again (a query): the calls from then on are alike. */
#define GPU_CALLS_MAX 200u

/* Of the driver. */
struct gpu_site {
	char place[48];
	uint32_t call_count; /* in a sound run, at most GPU_CALLS_MAX */
};

/* One of the two processes that have a driver. */
struct gpu_side {
	const char *name; /* "rank", "worker" */
	struct gpu_site sites[GPU_SITES_MAX];
	uint32_t site_count;
	uint64_t call_count; /* of all sites */
};

struct gpu_faults {
	char directory[256];    /* traces, dumps, what the victim said */
	struct harness harness; /* the daemon of the case */
	uint32_t fd_counts[2];  /* of the daemon and its zinf-gpu, before a case */
	uint64_t cpu_bytes;     /* charged, before a case */
	char said[4096];        /* by the newest victim */
	uint32_t sound_count, told_count, killed_count, hung_count;
};

enum gpu_end {
	GPU_END_SOUND,  /* it trained to the right bits: nobody needed the call */
	GPU_END_TOLD,   /* it ended with a sentence */
	GPU_END_KILLED, /* by SIGKILL, its own */
	GPU_END_HUNG,   /* it did not end within the limit, and was killed */
	GPU_END_WRONG,
};

bool gpu_faults_says(bool is_right, const char *words, const char *detail);

/* ---- victim.c ---- */

/* The parameters that it must have, from a computation without GPU or daemon. */
bool gpu_faults_refer(struct gpu_faults *faults);
/* A daemon whose zinf-gpu has the fake driver with @words. */
bool gpu_faults_start(struct gpu_faults *faults, const char *words);
bool gpu_faults_halt(struct gpu_faults *faults);
/* @words: of its own fake driver. @limit_ms: after which it has hung. */
enum gpu_end gpu_faults_run(struct gpu_faults *faults, const char *words, uint64_t limit_ms);
/* What is open and charged now, before a victim comes. */
bool gpu_faults_note(struct gpu_faults *faults);
/* The victim's job is deleted, and all is as it was noted. @has_worker: its zinf-gpu is the one
 * that was noted. */
bool gpu_faults_is_clean(struct gpu_faults *faults, bool has_worker);
