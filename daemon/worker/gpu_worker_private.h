/* SPDX-License-Identifier: Apache-2.0 */
/* Private to gpu_worker.c and gpu_answers.c. Floor 3. The loop's thread. */
#pragma once

#include "daemon/worker/gpu_worker.h"

struct gpu_worker {
	struct gpu_worker_options options;
	struct process process;
	bool is_seen;     /* SEEN has come, of this life */
	bool wants_start; /* once the process that is ENDING has gone */
	bool has_facts;
	struct gpu_facts facts;
	uint64_t held_bytes;
	uint64_t last_id; /* of this life's chunks */
};

static inline struct gpu_worker *gpu_worker_of(struct process *process)
{
	return container_of(process, struct gpu_worker, process);
}

/* ---- gpu_worker.c ---- */

/* The oldest request; NULL: there is none. */
struct gpu_request *gpu_worker_head(const struct gpu_worker *worker);
/* The head goes out, or the rest of it. */
void gpu_worker_send(struct gpu_worker *worker, struct gpu_request *request);
/* The time for the next answer to the head begins. */
void gpu_worker_arm(struct gpu_worker *worker, struct gpu_request *request);
/* The oldest request goes out where zinf-gpu serves none. */
void gpu_worker_serve(struct gpu_worker *worker);
/* The head is over, and the next one goes out. */
void gpu_worker_finish(struct gpu_worker *worker, struct gpu_request *request, int error,
                       const struct zi_text *text);

/* ---- gpu_answers.c ---- */

/* A packet of zinf-gpu, or its end: of the process's class. */
void gpu_worker_ready(struct process *process);
