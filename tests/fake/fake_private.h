/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the test double of zinfd: fake_daemon.c is its thread and life, fake_socket.c answers
 * messages, fake_coll.c those of collectives, fake_arena.c those of GPU memory, fake_ring.c
 * operations. */
#pragma once

#include <stdlib.h>

#include "common/base/thread.h"
#include "common/wire/gpu.h"
#include "common/wire/region.h"
#include "common/wire/ring.h"
#include "tests/fake/fake_daemon.h"

#define FAKE_COUNTS 0x140u
#define FAKE_GROUPS 4u

/* What a test double cannot do without; NDEBUG builds too. */
#define must(condition) ((condition) ? (void)0 : abort())

struct fake_daemon {
	struct fake_daemon_options options;
	struct zi_thread thread;
	char folder[64], path[96];
	int listen_fd, stop_fd, dead_fd;
	int release_fd; /* an eventfd */
	bool is_released;
	int socket_fd;
	bool is_dying; /* asked by the test; written before stop_fd */

	struct zi_region up, down, param, grad, staging, tensors, state;
	float kept_state[32]; /* what the last STATE_WRITE brought; the last STATE_READ gets it */
	uint16_t write_flags; /* of the last PARAM_WRITE_END */
	struct zi_region verdicts, arenas, boards[FAKE_GROUPS];
	uint32_t group_count;                /* the world's among them */
	struct zi_coll_fail coll_fail;       /* the newest */
	struct zi_coll_abort coll_abort;     /* so */
	struct zi_coll_group coll_refusal;   /* so */
	char coll_name[ZI_GROUP_NAME_BYTES]; /* of the newest COLL_GROUP */
	uint64_t tensor_bytes;               /* of the last put */
	int doorbell_fd, wakeup_fd, wakeup_client_fd;
	bool has_rings;
	struct zi_ring_consumer sq;
	struct zi_ring_producer cq;

	uint32_t counts[FAKE_COUNTS];
	struct zi_attach attach;
	struct zi_job_training training; /* zero: ATTACH had no tail, */
	bool has_training;               /* or one of zeros */
	struct zi_step_options step_options;
	struct zi_step_group step_groups[ZI_PARAM_GROUPS_MAX];
	struct zi_step_betas step_betas[ZI_PARAM_GROUPS_MAX];
	char blob[ZI_BLOB_BYTES];
	uint64_t blob_bytes;
	char layout[4096];
	uint64_t unit_elements[64];
	uint64_t set_mask;   /* of units to come; 0: of all ranks */
	bool is_foreign[64]; /* the rank does not train it */
	uint32_t unit_count;
	uint32_t text_next;
	uint32_t unshard_count, acquire_count;
	struct zi_gpu_opened arena; /* chunk_bytes 0: none */
	float *values, *sums;       /* (plane,) with has_steps */
	bool is_half_taken[2];      /* of the pool */
	uint32_t half_units[2];
	uint64_t buckets[64]; /* of units: where in the segment, as it was told last */
	_Atomic(const void *) watched;
	bool is_seen_readable; /* ordered by the completion of the RESHARD */
	int64_t committed_step;
	struct zi_message_header late; /* bytes 0: none */
	void *message;                 /* (ZI_MESSAGE_BYTES_MAX,) received */
	void *reply;                   /* (ZI_MESSAGE_BYTES_MAX,) to be sent */
};

/* The reply to the newest request; header and lies are added here. */
void fake_reply(struct fake_daemon *fake, void *message, enum zi_message_type type, uint32_t bytes,
                const int *fds, uint32_t fd_count);
void fake_reply_error(struct fake_daemon *fake, int error, const char *text);
/* The caller's to close. */
int fake_region_fd(struct fake_daemon *fake, const struct zi_region *region, bool is_readonly);
/* fake_arena.c */
void fake_gpu_open(struct fake_daemon *fake);
void fake_gpu_chunks(struct fake_daemon *fake);
void fake_steps_init(struct fake_daemon *fake, uint64_t bytes);
void fake_steps_deinit(struct fake_daemon *fake);
uint64_t fake_steps_place(struct fake_daemon *fake, uint32_t unit);
void fake_steps_free(struct fake_daemon *fake, uint32_t unit);
void fake_steps_add(struct fake_daemon *fake, uint32_t unit);
void fake_steps_apply(struct fake_daemon *fake);
/* fake_coll.c */
void fake_coll_open(struct fake_daemon *fake);
void fake_coll_group(struct fake_daemon *fake);
void fake_coll_fail(struct fake_daemon *fake);
/* Closes the client's socket. */
void fake_hang_up(struct fake_daemon *fake);
void fake_wake(struct fake_daemon *fake);
void fake_break_group(struct fake_daemon *fake);
/* True when the options want something else than an answer. */
bool fake_misbehave(struct fake_daemon *fake, unsigned on);
bool fake_is_pooled(const struct fake_daemon *fake);
/* Of the unit in the plane of parameters. */
uint64_t fake_plane_offset(const struct fake_daemon *fake, uint32_t unit);
uint64_t fake_unit_bytes(const struct fake_daemon *fake, uint32_t unit);
void fake_take_message(struct fake_daemon *fake);
/* Takes one slot. False: there is none. */
bool fake_take_slot(struct fake_daemon *fake);
