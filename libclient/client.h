/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libzinf from the inside: a rank's connection. Floor 2, private to libclient; everything belongs
 * to the thread that uses the struct zinf.
 *
 *   options.c      caller's options and environment → struct zi_attach
 *   launcher.c     rank and start of the job by the launchers' variables
 *   strategy.c     strategies by name
 *   attach.c       connect, HELLO, ATTACH, the rings; and the way back
 *   request.c      one request and its reply on the socket; NOTICE; the end of a session
 *   op.c           the table of operations
 *   submit.c       a slot into the SQ, and the doorbell
 *   wait.c         completions; spinning, sleeping
 *   call.c         both: a whole operation
 *   interrupt.c    a waiting call returns early, and goes on later
 *   model.c        units and parameters; materialize.c: their layout sent, their memory mapped
 *   set.c          sets of ranks: who trains which unit
 *   write.c        parameters made writable
 *   unit.c         unshard, reshard; grad.c: gradients acquired, handed over
 *   unused.c       parameters without a gradient
 *   step.c         steps, commits; step_options.c: their options; discard.c; blob.c: the resume
 *                  blob
 *   join.c         steps of others, shadowed by a rank without data
 *   tensor.c       activations and other blobs
 *   gpu/           units in the memory of a GPU (gpu/gpu.h)
 *   snapshot.c     snapshots of the job
 *   coll/          collectives (coll/collective.h)
 *   ticket.c       what the caller waits for itself; ticket_fd.c: a descriptor that tells of it
 *   error.c        texts
 *
 * Operations on the rings are asynchronous inside: each has an entry in a fixed table of as many
 * entries as the rings, so neither ring can overflow. What the caller does not wait for (reshard,
 * prefetch, reduce) leaves its error, if any, with its unit.
 *
 *                 submit             reaped, somebody waits
 *      FREE ───────────────▶ PENDING ───────────────▶ DONE
 *       ▲ ▲    reaped, nobody   │ │ deadline passed      │ waited for
 *       │ └─────────────────────┘ ▼                      │
 *       ├──────────────────── ABANDONED                  │
 *       └────────────────────────────────────────────────┘
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/base/text.h"
#include "common/base/types.h"
#include "common/wire/control.h"
#include "common/wire/layout.h"
#include "common/wire/ring.h"
#include "common/wire/training.h"
#include "zinf/zinf.h"

/* zinf_options.timeout_ms of 0: a collective on a large model, on a slow disk. */
#define ZI_CLIENT_TIMEOUT_MS 600000u

enum zi_client_op_state {
	ZI_CLIENT_OP_FREE = 0,
	ZI_CLIENT_OP_PENDING,
	ZI_CLIENT_OP_ABANDONED,
	ZI_CLIENT_OP_DONE,
};

/* An operation under way. Its ticket is its place in the table plus a multiple of the entries that
 * grows with each use, so that an old ticket never finds a newer operation; never 0. */
struct zi_client_op {
	uint64_t ticket;
	enum zi_client_op_state state;
	uint16_t opcode;
	bool is_kept;  /* nobody waits: an error goes to the unit */
	uint32_t unit; /* opcodes that have one */
	int result;
	uint64_t value, value1, value2; /* values[0] to [2] */
	uint64_t tensor_id;             /* TENSOR_GET with a buffer: */
	void *tensor_buffer; /* (tensor_bytes,) the caller's, filled when it is waited for */
	uint64_t tensor_bytes;
	bool is_interrupted; /* its call was, and goes on with it when it is repeated: */
	struct zi_sqe slot;  /* as it was called; written only then */
	struct zi_text text;
	struct zi_step_stats stats;
};

/* A request on the socket whose call was interrupted. Its reply may come meanwhile. */
struct zi_client_pending {
	bool is_open;
	bool has_reply; /* in `message`, with (fd_count,) `fds` */
	uint16_t type;
	uint32_t sequence;
	uint64_t digest; /* of what was asked */
	void *message;   /* (ZI_MESSAGE_BYTES_MAX,) */
	uint32_t fd_count;
	int fds[ZI_MESSAGE_FDS_MAX];
};

/* Ranks that train the same units. */
struct zi_client_set {
	struct zi_layout_entry entry;
	uint64_t grad_base_bytes, grad_bytes; /* of its units, among this rank's gradients */
};

struct zi_client_unit {
	char name[ZI_PARAM_NAME_BYTES];
	uint32_t set; /* with sets */
	uint32_t param_first, param_count;
	uint64_t element_count;                   /* without padding */
	uint64_t param_offset_bytes, param_bytes; /* in its plane, whole slots */
	uint64_t grad_offset_bytes, grad_bytes;   /* 0 bytes: this rank does not train it */
	uint64_t bucket_offset_bytes;             /* with buckets: where its gradient lies now */
	uint32_t unshard_count;                   /* uses that nest; the daemon knows of one */
	uint32_t reduce_count;                    /* in this step */
	uint32_t handed;                          /* the n-th unit of ours: see handed_count */
	uint64_t unshard_ticket;                  /* under way after a deadline passed; 0 none */
	bool is_part;                             /* only rows of it are unsharded, or under way: */
	uint64_t part_args[6];                    /* as UNSHARD_PART was sent */
	uint64_t acquire_ticket;
	bool is_grad_held; /* between acquire and reduce */
	bool is_frozen;    /* whole: it has no gradient; known from zinf_materialize() on */
	bool is_writable;  /* a staging copy lies over the parameters */
	bool is_apart;     /* of zinf_gpu_apart() */
	int kept_error;    /* of what nobody waited for; 0 none */
	struct zi_text kept_text;
};

struct zi_client_param {
	struct zi_layout_entry entry;
	uint32_t unit;
	uint64_t element_offset; /* in the unit */
	bool is_done;            /* its gradient was marked, and is not handed over yet */
};

/* A zinf_state_read() or zinf_state_write() that was interrupted. */
struct zi_client_state_progress {
	bool is_open, is_write;
	uint32_t param, kind;
	uint64_t done; /* elements */
};

struct zi_client_coll;
struct zi_client_gpu;

struct zinf {
	/* Hot: what an empty request touches. */
	struct zi_ring_producer sq;
	struct zi_ring_consumer cq;
	int over; /* 0, or -errno: the session has ended, every call returns it */
	uint32_t entries;
	const struct zi_downlink_header *down;
	struct zi_client_op *ops; /* (entries,) */
	uint32_t *free_indices;   /* (free_count,) of entries */
	uint32_t free_count;
	int doorbell_fd; /* rings the daemon */
	int wakeup_fd;   /* the daemon rings us: an eventfd or a pipe */

	int socket_fd;
	int end_fd;       /* eventfd, readable once `over` is set */
	int event_fd;     /* epoll over socket_fd and end_fd: for the caller's poll loops */
	int interrupt_fd; /* eventfd that zinf_interrupt() rings */
	struct zi_line *interrupt;  /* 1: an interrupt is pending. writer: any thread */
	bool holds_interrupts;      /* calls inside are not to be interrupted; they stay pending */
	uint32_t interrupted_count; /* operations in the table whose call was interrupted */
	struct zi_client_pending pending;
	int ticket_fd; /* epoll over the next, wakeup_fd and event_fd; -1: nobody asked for it */
	int ticket_event_fd; /* eventfd, rung for each ticket that completes; -1 likewise */
	uint32_t sequence;   /* of the newest request on the socket */
	uint64_t timeout_ns;
	uint32_t coll_timeout_ms; /* of collectives that give none */
	uint32_t coll_version;    /* the daemon's: zi_hello_coll_version() */
	uint64_t coll_cma_bytes;  /* see struct zi_cma */
	uint64_t features;        /* both sides have */
	void *message;            /* (ZI_MESSAGE_BYTES_MAX,) the newest that was received, */
	uint32_t fd_count;        /* and how many descriptors came with a reply */

	void *uplink;
	const void *downlink;
	uint64_t uplink_bytes, downlink_bytes;

	struct zi_attach attach;         /* as sent: job, rank, configuration; */
	struct zi_job_training training; /* and its tail, where the daemon knows it */
	char path[ZINF_NAME_BYTES * 2];  /* of the socket */
	struct zi_text text;             /* of the last failure, */
	int text_error;                  /* and what it was; 0: none yet */
	bool is_breached;                /* by the daemon: nothing it says is believed */
	struct zi_text over_text;

	/* The model. */
	struct zi_client_set *sets; /* (ZI_SETS_MAX,) NULL: every unit is of all ranks */
	uint32_t set_count;
	uint32_t set; /* of units to come */
	struct zi_client_unit *units;
	struct zi_client_param *params;
	uint32_t unit_count, unit_capacity;
	uint32_t param_count, param_capacity;
	uint32_t layout_packets; /* of the layout that were sent: they cannot be taken back */
	bool is_layout_sent;     /* all of it: materialize may be called again */
	bool is_materialized;
	int64_t committed_step;
	int64_t lost_step;    /* see zinf_lost_step() */
	int64_t update_count; /* -1: nobody said */
	double loss_scale;    /* of the next step */
	void *param_base;     /* whole life; units may lie under a staging copy */
	void *grad_base;
	uint64_t param_bytes, grad_bytes;
	int param_fd; /* to put a unit's read-only pages back; offload_param nvme: the pool */
	uint64_t slot_bytes;
	uint64_t pool_bytes; /* with a pool: what is behind param_base is unit by unit */
	int copy_fd; /* of the last writable copy of a unit; -1: none, or its pages are gone */
	int grad_fd; /* with buckets; else -1, as what is mapped is enough */
	uint64_t bucket_bytes; /* with buckets: of all of them; what is behind grad_base is unit by
	                        * unit; else 0 */

	void *tensor_base; /* whole session; NULL: zinf_tensor_open() was not called */
	uint64_t tensor_bytes;

	void *state_base; /* the window of optimizer state; NULL: none was opened */
	uint64_t state_bytes;
	struct zi_client_state_progress state_progress;

	struct zi_client_coll *coll; /* NULL: zinf_coll_open() was not called */
	struct zi_client_gpu *gpu;   /* NULL: zinf_gpu_open() was not called */

	/* The step. */
	bool is_step_begun;
	uint32_t steps_pending;       /* tickets of steps that were not waited for */
	bool is_early;                /* update_early was promised */
	bool is_step_late;            /* the deadline of its zinf_step() passed: has it ended? */
	struct zi_step_options begun; /* as it was sent */
	uint32_t micro_batches;
	uint32_t no_sync_count; /* zinf_no_sync_begin() without its end */
	bool marks_grads;       /* zinf_grad_done() was called, ever */
	bool is_step_ending;    /* in zinf_step(): what is held is not written any more */
	/* Units that this rank's own newest step handed over: units[n].handed, in that order. */
	uint32_t handed_count;
	bool is_shadowing;       /* it is another's: this rank has joined */
	zinf_ticket join_ticket; /* of its end; 0: none is waited for */
	bool is_blob_loose;      /* a blob was handed over; nothing later has completed since */
};

/* error.c */
/* Keeps the sentence as the text of the last failure, and raises @error. */
/* -EINVAL: "zinf_step: ret_ticket is NULL". @zinf: NULL, zinf_error_text(NULL) and
 * zinf_attach_error() say it. */
int zi_client_null(struct zinf *zinf, const char *function, const char *name);
/* The first lines of a public function: unless @is_given holds, it ends with -EINVAL, and names its
 * argument @name. */
#define ZI_CLIENT_NEED(zinf, name, is_given)                            \
	do {                                                            \
		if (!(is_given))                                        \
			return zi_client_null((zinf), __func__, #name); \
	} while (0)
int zi_client_error(struct zinf *zinf, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The same with words that are there already. Return: @error, which was raised elsewhere. */
int zi_client_tell(struct zinf *zinf, int error, const struct zi_text *text);
void zi_client_set_attach_error(const struct zi_text *text);

/* options.c: everything of ATTACH but its header, the socket's path, deadlines. */
int zi_client_options(const struct zinf_options *options, struct zinf *zinf);

/* scaler.c: of any version, checked. */
int zi_client_take_scaler(const struct zinf_scaler_options *options,
                          struct zi_scaler_options *ret_options, struct zi_text *text);

/* launcher.c: what the launchers' variables say */
const char *zi_client_environment(const char *name);
/* The whole number @text, the value of variable @name. 0; -EINVAL. */
int zi_client_parse_count(struct zinf *zinf, const char *name, const char *text,
                          uint32_t *ret_count);
int zi_client_resolve_rank(struct zinf *zinf, int32_t rank, int32_t world_size);
/* Where the nodes of a job meet, as the launcher says. Return: 0; -EINVAL. */
int zi_client_rendezvous(struct zinf *zinf, struct zi_rendezvous *ret_rendezvous);
int zi_client_resolve_incarnation(struct zinf *zinf, const char *named);

/* request.c */
/* The session is over: every further call returns @error. @text: why. The first reason stays. */
int zi_client_over(struct zinf *zinf, int error, const struct zi_text *text);
/* The daemon is gone, or broke the protocol. */
int zi_client_gone(struct zinf *zinf);
int zi_client_breach(struct zinf *zinf, const char *what);
/* 0, or why there is no session any more. */
int zi_client_check_session(struct zinf *zinf);
/* What lies on the socket without being asked for. 0, or why the session is over. */
int zi_client_read_notices(struct zinf *zinf);
int zi_client_send(struct zinf *zinf, const struct zi_message_header *message,
                   uint64_t deadline_ns);
/* The next reply to the newest request: of @type, else -EPROTO; ERROR is returned as its errno.
 * @fds: NULL, or (ZI_MESSAGE_FDS_MAX,) for exactly @fd_count descriptors; ZI_CLIENT_FDS_ANY: for
 * zinf->fd_count of them, as many as come. */
#define ZI_CLIENT_FDS_ANY UINT32_MAX
int zi_client_receive(struct zinf *zinf, enum zi_message_type type, uint64_t deadline_ns,
                      const struct zi_message_header **ret_message, int *fds, uint32_t fd_count);
/* 0; -EBUSY a call was interrupted whose request is still pending: no other can be sent. */
int zi_client_check_pending(struct zinf *zinf);
/* At the end of the connection. */
void zi_client_pending_deinit(struct zinf *zinf);
/* A whole exchange. @request: header is filled here. */
int zi_client_request(struct zinf *zinf, struct zi_message_header *request,
                      enum zi_message_type type, uint32_t bytes, enum zi_message_type reply_type,
                      const struct zi_message_header **ret_reply, int *fds, uint32_t fd_count);
/* The same with @flags in the header. */
int zi_client_request_with(struct zinf *zinf, struct zi_message_header *request,
                           enum zi_message_type type, uint16_t flags, uint32_t bytes,
                           enum zi_message_type reply_type,
                           const struct zi_message_header **ret_reply, int *fds, uint32_t fd_count);
uint64_t zi_client_deadline_ns(const struct zinf *zinf);

/* op.c */
int zi_client_ops_init(struct zinf *zinf);
void zi_client_ops_free(struct zinf *zinf);
/* NULL: no such operation. */
struct zi_client_op *zi_client_find(struct zinf *zinf, uint64_t ticket);
void zi_client_op_free(struct zinf *zinf, struct zi_client_op *op);

/* submit.c */
int zi_client_submit(struct zinf *zinf, enum zi_opcode opcode, uint32_t unit, uint64_t arg,
                     bool is_kept, struct zi_client_op **ret_op);
/* The same with every word of the slot but user_data given. */
int zi_client_submit_slot(struct zinf *zinf, const struct zi_sqe *slot, bool is_kept,
                          struct zi_client_op **ret_op);
/* wait.c */
/* Takes in what has completed. 0, or -EPROTO and the session is over. */
int zi_client_reap(struct zinf *zinf);
/* Until @op is done (its result; still to be freed), or the deadline, or the end of the session.
 * On failure of waiting itself *ret_is_done stays false. */
int zi_client_wait_op(struct zinf *zinf, struct zi_client_op *op, bool is_spinning,
                      bool *ret_is_done);
/* Until there is room in the table, or nothing under way that could make some. */
int zi_client_wait_any(struct zinf *zinf);
/* As zi_client_wait_op(), at most @timeout_ns; the daemon's own deadline is not waited for. */
int zi_client_wait_op_for(struct zinf *zinf, struct zi_client_op *op, uint64_t timeout_ns,
                          bool *ret_is_done);

/* Until @is_enough(zinf, @arg), which is asked after each look for finished copies of the GPU.
 * -ETIMEDOUT: the session's deadline. */
typedef bool (*zi_client_enough_fn)(const struct zinf *zinf, const void *arg);
int zi_client_wait_until(struct zinf *zinf, zi_client_enough_fn is_enough, const void *arg);

/* ticket_fd.c: a ticket has completed; see there. */
void zi_client_ring_tickets(const struct zinf *zinf);
void zi_client_ticket_fd_deinit(struct zinf *zinf);
/* wait.c: takes the rings of the daemon's doorbell, if there are any. Never waits. */
void zi_client_drain_doorbell(struct zinf *zinf);
/* coll/open.c: from now on tickets of collectives ring, too. */
void zi_client_coll_notify(struct zinf *zinf);
/* interrupt.c */
/* After either, zi_client_interrupt_deinit(). */
int zi_client_interrupt_init(struct zinf *zinf);
void zi_client_interrupt_deinit(struct zinf *zinf);
/* Before each sleep of a waiting call: whether an interrupt was pending, which is used up now.
 * Never while they are held. */
bool zi_client_take_interrupt(struct zinf *zinf);
/* -EINTR, with the text. */
int zi_client_interrupted(struct zinf *zinf);
/* For poll(): -1 while interrupts are held. */
static inline int zi_client_interrupt_fd(const struct zinf *zinf)
{
	return zinf->holds_interrupts ? -1 : zinf->interrupt_fd;
}

/* call.c: first thing in a call: 0, or why there is no session any more. With a GPU finished copies
 * are looked for: an errno of its driver. */
int zi_client_enter(struct zinf *zinf);
/* call.c: submits, waits, frees. */
/* The operation of @opcode whose call was interrupted, or NULL. */
struct zi_client_op *zi_client_open_call(struct zinf *zinf, enum zi_opcode opcode);
/* Forgets an interrupted call of this kind, if there is one: nobody repeats it any more. */
void zi_client_forget_call(struct zinf *zinf, enum zi_opcode opcode);
/* As zi_client_call_slot(), but that on success *@ret_op is DONE and the caller's to free. */
int zi_client_call_op(struct zinf *zinf, const struct zi_sqe *slot, struct zi_client_op **ret_op);
int zi_client_call(struct zinf *zinf, enum zi_opcode opcode, uint32_t unit, uint64_t arg,
                   uint64_t *ret_value);
int zi_client_call_slot(struct zinf *zinf, const struct zi_sqe *slot, uint64_t *ret_value);

/* step_options.c: of any version, checked, and put where the daemon reads them. */
int zi_client_put_step_begin(struct zinf *zinf, const struct zinf_step_options *options,
                             struct zi_step_options *ret_wire);
int zi_client_put_step_with(struct zinf *zinf, const struct zinf_step_options *options);
/* 0; -EOPNOTSUPP: @call is not known to the daemon, which is older. */
int zi_client_check_late_steps(struct zinf *zinf, const char *call);
/* discard.c: of the step under way, also of one that is another's. */
int zi_client_discard(struct zinf *zinf);
/* step.c: first thing in a call of a step. */
int zi_client_enter_step(struct zinf *zinf, const char *call);
/* Puts a step's options, with (group_count,) @groups and @betas (NULL: none), where the daemon
 * reads them, for the operation @opcode that follows. 0; -EBUSY one with others was interrupted. */
int zi_client_put_options(struct zinf *zinf, enum zi_opcode opcode,
                          const struct zi_step_options *options, const struct zi_step_group *groups,
                          const struct zi_step_betas *betas);
/* A step's ticket has completed with @result. */
void zi_client_step_over(struct zinf *zinf, const struct zi_client_op *op, int result,
                         struct zinf_step_stats *ret_stats);
/* tensor.c: a tensor's ticket has. Its own result, or why what came with it cannot be used. */
int zi_client_tensor_over(struct zinf *zinf, const struct zi_client_op *op);
bool zi_client_is_tensor_op(uint16_t opcode);
void zi_client_unmap_tensors(struct zinf *zinf);
/* state.c: the window, if there is one. */
void zi_client_unmap_state(struct zinf *zinf);
/* write.c: as zinf_param_write_end(), or with @keeps_state as zinf_param_write_keep(). */
int zi_client_write_end(struct zinf *zinf, uint32_t unit, int32_t root, bool keeps_state);
/* coll/ticket.c: tickets of collectives. @timeout_ns 0: until the call's own deadline. */
bool zi_client_coll_is_ticket(uint64_t ticket);
int zi_client_coll_wait(struct zinf *zinf, uint64_t ticket, uint64_t timeout_ns);
int zi_client_coll_test(struct zinf *zinf, uint64_t ticket, bool *ret_is_done);
int zi_client_coll_cancel(struct zinf *zinf, uint64_t ticket);
/* coll/open.c: before this rank detaches; see zi_client_group_settle(). */
void zi_client_coll_settle(struct zinf *zinf);
/* Unmaps and frees; nothing is fine. */
void zi_client_coll_close(struct zinf *zinf);
/* write.c: bare read-only parameters again. */
int zi_client_unwrite(struct zinf *zinf, uint32_t unit);
void zi_client_forget_copy(struct zinf *zinf);
/* model.c */
/* Parameters come and go: behind a unit that is not unsharded lies nothing. */
static inline bool zi_client_is_pooled(const struct zinf *zinf)
{
	return zinf->pool_bytes > 0;
}
static inline void *zi_client_unit_address(const struct zinf *zinf,
                                           const struct zi_client_unit *unit)
{
	return (char *)zinf->param_base + unit->param_offset_bytes;
}
int zi_client_check_unit(struct zinf *zinf, uint32_t unit);
/* Before zinf_materialize() only. */
int zi_client_enter_forming(struct zinf *zinf, const char *function);
/* @target: (ZI_PARAM_NAME_BYTES,) */
int zi_client_put_name(struct zinf *zinf, char *target, const char *name);
/* set.c */
bool zi_client_is_member(const struct zinf *zinf, const struct zi_client_unit *unit);
/* Of its gradient there is one here: a member, of a unit that is not frozen whole. */
bool zi_client_trains(const struct zinf *zinf, const struct zi_client_unit *unit);
/* 0; -EPERM @call is of a step, and this rank attached forward only. */
int zi_client_check_steps(struct zinf *zinf, const char *call);
/* 0; -EPERM a gradient of a unit that this rank does not train. */
int zi_client_check_trains(struct zinf *zinf, const struct zi_client_unit *unit);
/* Gradients come and go: behind a unit that is not acquired lies nothing. */
static inline bool zi_client_has_buckets(const struct zinf *zinf)
{
	return zinf->bucket_bytes > 0;
}
/* unit.c: the unit's pages come behind its CPU address, and go. In a rank with a GPU only while no
 * copy of it is under way. */
int zi_client_show_unit(struct zinf *zinf, uint32_t unit);
int zi_client_hide_unit(struct zinf *zinf, uint32_t unit);
/* Whether @offset_bytes can be the unit's place in the pool. */
bool zi_client_is_in_pool(const struct zinf *zinf, const struct zi_client_unit *unit,
                          uint64_t offset_bytes);
/* unit.c: first thing in a call on a unit that waits: what nobody waited for is told here. */
int zi_client_enter_unit(struct zinf *zinf, uint32_t unit);
/* Reductions of each unit in a step. */
uint32_t zi_client_reduce_max(const struct zinf *zinf);
/* Submits, or joins what is under way; *@ticket is 0 again when it is over. *@ret_value: values[0]
 * of its completion. */
int zi_client_finish(struct zinf *zinf, enum zi_opcode opcode, uint32_t unit, uint64_t *ticket,
                     uint64_t *ret_value);
/* unused.c: of a unit that is about to be handed over. */
/* -ENODATA naming what was not marked, where all have to be. */
int zi_client_check_done(struct zinf *zinf, const struct zi_client_unit *unit);
/* What was not marked is zeros, and the daemon is to know it: finds_unused. Before its bucket is
 * unmapped; after that, and before the REDUCE. */
void zi_client_clear_unused(struct zinf *zinf, const struct zi_client_unit *unit);
int zi_client_say_unused(struct zinf *zinf, uint32_t unit);
/* finds_unused: the parameter has no gradient, and its bytes are to be zeros. */
bool zi_client_is_unused(const struct zinf *zinf, const struct zi_client_param *param);
/* The next gradient of the unit is marked anew. */
void zi_client_forget_done(struct zinf *zinf, const struct zi_client_unit *unit);
/* finds_unused: hands over what has been left out of the step's first @micro_count micro-batches;
 * before it ends, of all. */
int zi_client_reduce_unused(struct zinf *zinf, uint32_t micro_count);
int zi_client_end_unused(struct zinf *zinf);
/* grad.c */
int zi_client_grad_acquire(struct zinf *zinf, uint32_t unit);
/* The unit's gradient lies in CPU memory: the daemon gets it. */
int zi_client_grad_hand_over(struct zinf *zinf, uint32_t unit);
/* This rank has the unit's gradient no more, and nothing is behind its address. */
int zi_client_grad_drop(struct zinf *zinf, uint32_t unit);
/* materialize.c */
void zi_client_unmap_model(struct zinf *zinf);
