/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test double of zinfd for libclient: a thread that listens on a socket of its own and speaks the
 * protocol to one client at a time, a job of one rank whose state is the param plane in memory. It
 * does what it is told to do wrong: refuse, lie, fall silent, break the group, or die.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/wire/control.h"
#include "common/wire/layout.h"
#include "common/wire/training.h"

enum fake_lie {
	FAKE_LIE_NONE = 0,
	FAKE_LIE_GARBAGE,    /* an answer that is no message */
	FAKE_LIE_SHAPE,      /* … of the right type and another length */
	FAKE_LIE_TYPE,       /* DONE to everything */
	FAKE_LIE_SEQUENCE,   /* answers to the next request */
	FAKE_LIE_FDS,        /* one descriptor too few */
	FAKE_LIE_ENTRIES,    /* a ring of 3 */
	FAKE_LIE_RING_BYTES, /* an uplink said to be one page */
	FAKE_LIE_UNSEALED,   /* regions without seals */
	FAKE_LIE_READONLY,   /* an uplink that cannot be written */
	FAKE_LIE_MAGIC,      /* a downlink without header */
	FAKE_LIE_SLOT,       /* slot_bytes of 5000 */
	FAKE_LIE_PARAM_MORE, /* a plane said to be larger than it can be */
	FAKE_LIE_PARAM_LESS,
	FAKE_LIE_PARAM_SHORT_FILE, /* the right figure, less memory */
	FAKE_LIE_STEP,             /* committed step -5 */
	FAKE_LIE_SCALE,            /* a loss scale of 0 */
	FAKE_LIE_FLAGS,            /* one of MATERIALIZED that nobody knows */
	FAKE_LIE_GRADS,            /* gradients to who asked for none */
	FAKE_LIE_GRAD_BYTES,       /* bytes of them alone */
	FAKE_LIE_POOL_SMALL,       /* a pool that does not hold the largest unit */
	FAKE_LIE_POOL_OUTSIDE,     /* a unit that ends behind the pool */
	FAKE_LIE_POOL_MISALIGNED,  /* a unit that does not begin on a slot */
	FAKE_LIE_STAGING,          /* a staging copy too short */
	FAKE_LIE_BLOB_TOTAL,       /* a blob shorter than it says */
	FAKE_LIE_BLOB_HUGE,
	FAKE_LIE_CQ_TAIL,     /* more completions than slots */
	FAKE_LIE_CQE_UNKNOWN, /* a completion of nothing */
	FAKE_LIE_CQE_TWICE,
	FAKE_LIE_CQE_TEXT, /* text slot 17 of 16 */
	FAKE_LIE_SQ_HEAD,
	FAKE_LIE_TENSOR_OUTSIDE, /* a tensor that ends behind its memory */
	FAKE_LIE_TENSOR_SHORT,   /* less memory than was asked for */
	FAKE_LIE_STATE_SHORT,    /* a window for optimizer state that is too short */
	FAKE_LIE_COLL_ARENA,     /* arenas smaller than was asked for */
	FAKE_LIE_COLL_VERDICT,   /* verdicts of 64 bytes */
	FAKE_LIE_COLL_BOARD,     /* a board of one page */
	FAKE_LIE_COLL_MEMBERS,   /* one member too many */
	FAKE_LIE_GROUP_NUMBER,   /* a group with the number of the world */
	FAKE_LIE_GROUP_SELF,     /* another member than this rank */
	FAKE_LIE_GPU_FIGURES,    /* chunks that may have 4 KiB */
	FAKE_LIE_GPU_COUNTS,     /* one chunk more than was asked for */
	FAKE_LIE_GPU_ORDER,      /* chunks that came before */
	FAKE_LIE_GPU_MORE,       /* chunks of no arena */
};

/* Opcodes and message types in one number, for "when". */
#define FAKE_ON_OP(opcode)    (1u + (opcode))
#define FAKE_ON_MESSAGE(type) (0x100u + (type))

struct fake_daemon_options {
	uint16_t hello_major; /* 0: ours */
	uint64_t features;
	uint32_t coll_version; /* 0: ours; counts with ZI_FEATURE_COLL_VERSION */
	uint32_t ring_entries; /* 0: 16 */
	uint64_t slot_bytes;   /* 0: 4096 */
	uint32_t spin_us;
	int64_t committed_step; /* 0 means 0; -1 a new job */
	bool has_lost;          /* with ZI_FEATURE_LOST: the state of lost_step; else -1 */
	int64_t lost_step;
	uint32_t blob_bytes; /* of the resume blob: byte i is i mod 251 */
	bool has_buckets;    /* gradients: below */
	bool has_pool;       /* parameters, though offload_param is not nvme: below */
	/* GPU memory that the rank may have, with ZI_FEATURE_GPU; 0: there is no GPU. Chunks are
	 * memory of the fake driver's first GPU. */
	uint64_t gpu_bytes;
	bool has_steps;  /* f32 parameters and gradients: below */
	bool is_eventfd; /* wakes the client by an eventfd; else by a pipe */
	enum fake_lie lie;
	unsigned die_on;    /* FAKE_ON_*: closes everything */
	unsigned last_on;   /* completes it, and closes everything without waking the client */
	unsigned silent_on; /* takes it, never answers */
	unsigned hold_on;   /* takes it; does nothing from then on until fake_daemon_release() */
	void (*on_hold)(void *arg); /* on its thread, when it has taken that; NULL: none */
	void *hold_arg;
	unsigned late_on;     /* answers it when the next request comes */
	unsigned break_on;    /* the group breaks: -EPIPE by rank 1 */
	bool is_break_silent; /* … without NOTICE */
	unsigned fail_on;     /* completes with `fail_error`, `fail_text` */
	int fail_error;
	const char *fail_text; /* NULL: none */
};

struct fake_daemon;

/* Listens when this returns. @options are copied. */
struct fake_daemon *fake_daemon_start(const struct fake_daemon_options *options);
/* Returns NULL; the socket and its folder are gone. */
struct fake_daemon *fake_daemon_stop(struct fake_daemon *fake);
const char *fake_daemon_path(const struct fake_daemon *fake);
/* Closes the client's socket as a killed daemon would; returns when it is done. */
void fake_daemon_die(struct fake_daemon *fake);

/* Goes on with what hold_on names, and all that came since; later ones are answered at once. */
void fake_daemon_release(struct fake_daemon *fake);

/* With offload_param nvme, or has_pool, its pool holds two units: a unit lies in the one or the
 * other half, turn by turn, filled with the number of the unshard (from 1). */

/* With has_buckets this rank's segment of gradients holds two units (of one dtype with the
 * parameters): each acquire lies in the one or the other half, turn by turn. Lies about the pool
 * are told of both. */

/* With has_steps the parameters are fake_value() at first. A STEP subtracts each unit's gradients,
 * as they were when its REDUCEs came. A pool gives a unit a half that is free: the rank must not
 * hold three. */
static inline float fake_value(uint64_t element)
{
	return (float)(element % 8191) / 64;
}
/* (elements,) of the unit, as they are now. */
const float *fake_daemon_values(const struct fake_daemon *fake, uint32_t unit);

/* From now on each RESHARD, and REDUCE, notes whether the byte at @address can be read. */
void fake_daemon_watch(struct fake_daemon *fake, const void *address);
bool fake_daemon_saw_readable(const struct fake_daemon *fake);

/* What it saw; call after an answer to something later, or after fake_daemon_stop(). */
uint32_t fake_daemon_count(const struct fake_daemon *fake, unsigned on);
/* Flags of the last PARAM_WRITE_END. */
uint16_t fake_daemon_write_flags(const struct fake_daemon *fake);
const struct zi_attach *fake_daemon_attach(const struct fake_daemon *fake);
/* Its tail; NULL: it had none. */
const struct zi_job_training *fake_daemon_training(const struct fake_daemon *fake);
/* (ZI_PARAM_GROUPS_MAX,) of the newest STEP_BEGIN, or STEP_OPTIONS, as are the next two. */
const struct zi_step_group *fake_daemon_step_groups(const struct fake_daemon *fake);
const struct zi_step_betas *fake_daemon_step_betas(const struct fake_daemon *fake);
const struct zi_step_options *fake_daemon_step_options(const struct fake_daemon *fake);
/* The blob of the newest STEP or COMMIT. */
const void *fake_daemon_blob(const struct fake_daemon *fake, uint64_t *ret_bytes);
/* The newest COLL_FAIL. It is answered by fail_error, or by -ETIMEDOUT "rank 0 (pid 4711) did not
 * come". Peers of this rank never come: nobody writes their boards. */
const struct zi_coll_fail *fake_daemon_coll_fail(const struct fake_daemon *fake);
/* The newest COLL_ABORT. */
const struct zi_coll_abort *fake_daemon_coll_abort(const struct fake_daemon *fake);
/* The newest COLL_GROUP that its rank refuses itself: it is answered by its error. So is such a
 * COLL_OPEN, of which error, reason and nothing else are in it. */
const struct zi_coll_group *fake_daemon_coll_refusal(const struct fake_daemon *fake);
/* Name of the newest COLL_GROUP; "": none. */
const char *fake_daemon_coll_name(const struct fake_daemon *fake);
/* The training group breaks now, as by break_on. */
void fake_daemon_break(struct fake_daemon *fake);
/* Gives a verdict, a positive errno, and wakes who sleeps. After COLL_OPENED. */
void fake_daemon_judge(struct fake_daemon *fake, uint32_t group, uint32_t verdict);
/* Names of the LAYOUT stream, in order, with a blank between. */
const char *fake_daemon_layout(const struct fake_daemon *fake);
