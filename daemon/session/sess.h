/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client, and the private parts of the two halves that own it in turn. Floor 6, private to
 * daemon/session.
 *
 *   control thread   accept → greet → admin/ask; control is the table in which sessions live
 *   shard thread     shard → attach → rings; poll → dispatch → complete is the way of a request on
 *                    the rings, request that of one on the socket; reaper is the end
 *   admin/           what zctl asks: ask_words reads it, answer*, export, import answer it on the
 *                    shard thread
 *
 *             accept           HELLO             ATTACH           taken in
 *      FREE ────────▶ CONNECTED ─────▶ GREETED ────────▶ MOVING ──────────▶ ATTACHED
 *       ▲ ▲               │           │ ▲  ADMIN │ ▲        │                  │ socket, pidfd,
 *       │ └───────────────┴───────────┘ │ reply  ▼ │        │ refused          │ DETACH, a breach
 *       │    gone, garbage, silent      └───── ASKING       ▼                  ▼
 *       └──────────────────────────── LEAVING ◀────────────────────────── ENDING
 *         posted back to control                 every operation has come back
 *
 * Control thread: FREE, CONNECTED, GREETED, ASKING. Shard thread: ATTACHED, ENDING. MOVING, LEAVING
 * and (for what ADMIN asks) ASKING are on their way in a post, which orders memory between the two.
 * A slot is reused only after LEAVING, so a pointer to a session stays good within a turn.
 */
#pragma once

#include <jansson.h>

#include "common/base/list.h"
#include "common/base/log.h"
#include "common/base/pool.h"
#include "common/wire/control.h"
#include "common/wire/gpu.h"
#include "common/wire/ring.h"
#include "daemon/device/device.h"
#include "daemon/session/session.h"
#include "daemon/session/uid.h"
#include "daemon/tier/arena.h"
#include "daemon/tier/holder.h"
#include "daemon/tier/segment.h"
#include "daemon/zero/zero.h"

/* Connections that are not attached and have a place beyond limits.connections: of root and the
 * daemon's own uid only, so that a flood of others does not keep an administrator out. */
#define SESS_RESERVED_MAX 4u
/* Messages of one socket, and slots of one ring, that are taken in one turn: no client starves the
 * others. A LAYOUT stream of a large model is a few messages; 32 slots take about 2 us. */
#define SESS_MESSAGES_PER_TURN 16u
#define SESS_SLOTS_PER_TURN    32u
/* Extents of an export or a load that are under way at once, each in a window of its own: one that
 * the client has in hand, and enough for the disk not to wait for it. */
#define SESS_WINDOWS 4u

enum sess_state {
	SESS_FREE = 0,
	SESS_CONNECTED,
	SESS_GREETED,
	SESS_ASKING,
	SESS_MOVING,
	SESS_ATTACHED,
	SESS_ENDING,
	SESS_LEAVING,
	_SESS_STATE_COUNT,
};

struct sess_export;
struct sess_import;

enum sess_question {
	SESS_ASK_STATUS = 1,
	SESS_ASK_TIERS,
	SESS_ASK_JOBS,
	SESS_ASK_DELETE,
	SESS_ASK_LIMITS,
	SESS_ASK_TOPO,
	SESS_ASK_BENCH,
	SESS_ASK_DRAIN,
	SESS_ASK_UNDRAIN,
	SESS_ASK_SNAPSHOT_CREATE,
	SESS_ASK_SNAPSHOT_LIST,
	SESS_ASK_SNAPSHOT_REMOVE,
	SESS_ASK_SNAPSHOT_RESTORE,
	SESS_ASK_EXPORT_OPEN,
	SESS_ASK_EXPORT_READ,
	SESS_ASK_EXPORT_WAIT,
	SESS_ASK_LOAD_OPEN,
	SESS_ASK_LOAD_DESCRIBE,
	SESS_ASK_LOAD_PUT,
	SESS_ASK_LOAD_WAIT,
	SESS_ASK_LOAD_END,
};

/* Of each uid one question of a lane is worked on, and the others wait: what a uid asks for costs
 * the others little, however many clients ask. */
enum sess_lane {
	SESS_LANE_NONE = 0, /* waits for disks, in windows of its own; or is for administrators */
	SESS_LANE_SHOW,     /* is answered from what the daemon knows */
	SESS_LANE_OPEN,     /* of an export or a load: descriptions and memory */
	SESS_LANE_CHANGE,   /* of what is stored */
};

/* What ADMIN asked; filled on the control thread, answered on the shard's. */
struct sess_inquiry {
	enum sess_question question;
	enum sess_lane lane;
	bool has_job;
	bool wants_collectives;   /* JOBS */
	char job[ZI_NAME_BYTES];  /* or, for BENCH, DRAIN, UNDRAIN, a store */
	char name[ZI_NAME_BYTES]; /* of a snapshot */
	char as[ZI_NAME_BYTES];   /* SNAPSHOT_RESTORE: of a new job; "": none */
	uint64_t duration_ns;     /* BENCH */
	bool is_automatic;
	uint32_t keep_count;
	uint32_t index;      /* EXPORT_READ, LOAD_PUT */
	uint32_t window;     /* the same, and EXPORT_WAIT, LOAD_WAIT */
	uint32_t byte_count; /* LOAD_OPEN, LOAD_DESCRIBE */
	uint64_t digest;     /* LOAD_PUT */
	struct zero_snapshot_op snapshot_op;
	uint32_t sequence;
	uint64_t started_ns;                    /* the daemon's */
	void (*answered)(struct zi_post *post); /* control thread: of session->post */
	void (*held)(struct zi_post *post);     /* the same: EXPORT_OPEN goes on in its lane */
	json_t *answer;                         /* NULL: refused */
	int result;                             /* then: -ENOENT no such job, -ENOMEM; and why */
	struct zi_text text;
};

struct sess {
	/* Hot: what polling an idle ring touches comes first. */
	struct zi_ring_consumer sq;
	struct zi_ring_producer cq;
	uint32_t credit_count;   /* slots that may be popped before cq_head is looked at again */
	uint32_t inflight_count; /* ring operations that have not completed */
	enum sess_state state;
	bool is_wake_due;   /* completions were pushed since the client was last woken */
	bool is_stalled;    /* no credit: the SQ is not popped */
	bool is_doomed;     /* ends at the end of this turn */
	bool is_clean;      /* … after DETACH or DESTROY */
	bool is_requesting; /* `request` is pending */
	bool is_socket_gone;
	uint32_t unit_count; /* of the materialised layout */
	uint32_t text_next;  /* next text slot of the downlink */
	int broken;          /* 0, or -errno: the group is over */
	struct sess_shard *shard;
	struct zero_rank *rank;
	uint32_t polled_index;
	uint32_t ref_count; /* being attached, and each operation */

	/* Both halves, one at a time. */
	struct sess_control *control;
	uint64_t id;
	uint64_t features;     /* that both sides have */
	uint32_t coll_version; /* the client's: zi_hello_coll_version() */
	int socket_fd;
	int pidfd;
	pid_t pid;
	uid_t uid;
	struct zi_post post;
	struct zi_source socket_source;
	struct zi_timer timer; /* control: silence; shard: waiting for the pidfd after a hang-up */

	/* Control. */
	bool is_used;        /* not FREE: `state` is the other thread's from MOVING on */
	bool is_counted;     /* from MOVING until it came back */
	bool is_asked;       /* ASKING, and the question is out: `post` is in use */
	bool is_withdrawing; /* the shard is told that the client has gone: `gone_post` is in use */
	struct zi_post gone_post;
	/* control->waiting, ->unread, ->queued or ->asked: oldest first */
	struct zi_list waiting_link;
	struct sess_inquiry inquiry;
	struct dev_task dump_task; /* the worker writes out the answer */
	char *reply;               /* text of an ADMIN_REPLY under way */
	size_t reply_bytes, reply_sent_bytes;
	uint64_t answer_bytes;      /* counted for the uid while the reply is under way */
	int reply_fd;               /* goes with the first piece, and stays its owner's; -1: none */
	struct sess_export *export; /* the shard's while a question is out; NULL: none */
	struct sess_import *import; /* the same */
	struct zi_attach attach;    /* copied out for the shard, as is the next */
	struct zi_job_training training;

	/* Shard. */
	struct zi_source pidfd_source;
	struct zi_source doorbell_source; /* rung by the client, never read */
	int doorbell_fd;                  /* the client rings it */
	int client_doorbell_fd;           /* we ring it: write end of a pipe */
	struct tier_segment *uplink, *downlink;
	uint32_t fd_count;      /* descriptors that are counted for the uid, beside the rings' */
	struct zero_op request; /* the request on the socket that is pending */
	struct zero_snapshot_op snapshot_op;        /* the same, of SNAPSHOT */
	int (*request_reply)(struct sess *session); /* answers that it has succeeded; NULL: DONE */
	uint16_t request_type;
	uint32_t request_sequence;
	/* of COLL_OPEN */
	char rendezvous_host[ZI_RENDEZVOUS_BYTES], interface[ZI_INTERFACE_BYTES];
	char group_name[ZI_GROUP_NAME_BYTES]; /* of COLL_GROUP */
	char token[ZI_TOKEN_BYTES];
	struct tier_arena *arena;    /* GPU memory; NULL: none */
	struct zi_gpu_open gpu_open; /* the last one, and its place in shard->gpu_waiting */
	struct zi_list gpu_link;
	uint32_t unit_entry_count, param_entry_count; /* of the LAYOUT stream */
	bool is_unit_frozen, has_unit_params;         /* the newest unit of it, so far; */
	bool has_frozen_unit;                         /* one before is frozen whole */
	int layout_error;
	struct zi_text layout_text; /* why MATERIALIZE will be refused */
	struct zi_text broken_text;
	char end_reason[128]; /* why a doomed session ends */
};

/* A pending ring operation, from the shard's pool. */
struct sess_op {
	struct zero_op op;
	struct sess *session;
	uint64_t user_data;
	uint16_t opcode;
};

struct sess_shard {
	struct zi_loop *loop;
	struct zero *zero;
	struct tier *ring_tier;
	struct tier_holders *holders;
	struct tier_arenas *arenas; /* NULL: there is no GPU */
	struct zi_list gpu_waiting; /* GPU_OPEN, until the GPUs were opened, after the start */
	struct dev *worker;
	struct sess_uids *uids;
	struct sess_limits limits;
	uint32_t cpu_count, pool_threads;
	uint32_t inflight_per_session_max;

	struct sess **polled; /* (polled_count,) of sessions_max */
	uint32_t polled_count;
	uint32_t ending_count;    /* left `polled`, operations pending */
	uint32_t doomed_count;    /* in `polled` with is_doomed */
	uint32_t waiting_count;   /* STEP and COMMIT pending: their ranks sleep */
	uint32_t computing_count; /* operations pending that keep pool threads busy */
	struct zi_pool ops;
	struct zi_timer stall_timer;
	bool is_stopping;
	char stop_reason[64];
	uint64_t request_count, wakeup_count; /* since the start, for admin */

	struct zi_text text;                                   /* scratch of the thread */
	struct zi_step_group step_groups[ZI_PARAM_GROUPS_MAX]; /* as are these, and the next two */
	struct zi_step_betas step_betas[ZI_PARAM_GROUPS_MAX];
	void *message; /* (ZI_MESSAGE_BYTES_MAX,) received */
};

struct sess_control {
	struct zi_loop *loop;
	struct zi_loop *shard_loop;
	struct sess_shard *shard;
	struct sess_limits limits;
	const struct sess_facts *facts;
	struct zi_source listen_source;
	struct zi_timer idle_timer; /* since nobody is connected */
	int listen_fd;
	struct sess *sessions; /* (slot_count,) */
	uint32_t slot_count;
	uint32_t used_count;     /* slots not FREE */
	uint32_t attached_count; /* MOVING … LEAVING */
	struct zi_list waiting;  /* CONNECTED, GREETED: what is silent longest comes first */
	struct zi_list queued;   /* ASKING, behind a question of the same uid and lane */
	struct zi_list asked;    /* ASKING, the question is out */
	struct zi_list unread;   /* ASKING, the reply is under way: what read last comes last */
	uint64_t next_id;
	uint64_t started_ns;
	bool is_stopping;
	void (*stopped)(void *arg);
	void *stopped_arg;
	struct zi_log_limit log_limit; /* of connections that no session was made of */
	int spare_fd;  /* closed to be able to accept, and so refuse, when descriptors run out */
	void *message; /* (ZI_MESSAGE_BYTES_MAX,) received, then sent */
};

/* sess.c: what both halves need. */
void sess_set_state(struct sess *session, enum sess_state state);
/* Errors of sending: -EAGAIN is a client that does not read, and ends the session like -EPIPE. */
int sess_send_error(struct sess *session, uint32_t sequence, int error, const char *text);
int sess_send_plain(struct sess *session, enum zi_message_type type, uint32_t sequence);
/* The answer to session->inquiry is there (or session->reply, written out already), or why there is
 * none. Shard thread, once a question. */
void sess_answered(struct sess *session);
/* The same of an answer that may be long: a thread of the worker writes it out first. */
void sess_answered_at_length(struct sess *session);
/* Any thread: the answer as text, into session->reply. NULL there: no memory. */
void sess_write_out(struct sess *session);
/* The thread that made it. */
void sess_free_answer(struct sess *session);
