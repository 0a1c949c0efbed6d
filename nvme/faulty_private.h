/* SPDX-License-Identifier: Apache-2.0 */
/* The fault injector and what it knows of a block. Private to faulty.c, faulty_decide.c and
 * faulty_flush.c. Floor 2, the engine's owner thread, but for flushes. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "nvme/backend.h"
#include "nvme/faulty_spec.h"

#define FAULTY_NAME_BYTES 48u

/* What was decided about a block in flight. */
struct fault {
	uint32_t whole_bytes;  /* before it was made short */
	uint64_t offset_bytes; /* before it was misplaced */
	int32_t result;        /* reported instead of the truth, where is_injected */
	bool is_injected;
	bool is_flipped;
	bool is_held;    /* the inner backend is done with it */
	bool is_torn;    /* short, but reported as whole */
	bool is_fatal;   /* the process ends when it is done */
	uint64_t due_ns; /* 0: at once */
};

struct faulty {
	struct nvme_backend backend; /* first */
	struct nvme_backend *inner;
	struct nvme_faulty_spec spec;
	char name[FAULTY_NAME_BYTES];
	int epoll_fd; /* readable when one of the next three is */
	int event_fd; /* results that never reached the inner backend */
	int timer_fd; /* the earliest stalled block */
	uint64_t random;
	uint64_t reads_count, writes_count, written_bytes;
	uint64_t free_ns;     /* bytes_per_s: when the path is done with what it was given */
	struct zi_list held;  /* done, but not yet told */
	struct fault *faults; /* by block index */
	void *sector;         /* (ZI_STORE_ALIGN_BYTES,) for damage at rest */
	/* Flushes come on threads of their own. `flush_lock` guards flush_random and what rules
	 * about flushes count, for a few instructions. */
	pthread_mutex_t flush_lock;
	uint64_t flush_random;
};

struct faulty *nvme_faulty_of(const struct nvme_backend *backend);
/* Faults are for its blocks and flushes: `path`. */
bool nvme_faulty_is_meant(const struct faulty *faulty, const struct nvme_store *store);
/* Draws from @state. */
uint64_t nvme_faulty_draw(uint64_t *state);
uint64_t nvme_faulty_random(struct faulty *faulty);
/* What becomes of @block, which is about to go out: its length and offset may change. */
void nvme_faulty_decide(struct faulty *faulty, struct nvme_block *block, struct fault *fault);
/* What becomes of a flush: the backend's `flush`. (faulty_flush.c) */
int nvme_faulty_flush(struct nvme_backend *backend, struct nvme_store *store);
