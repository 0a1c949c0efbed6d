/* SPDX-License-Identifier: Apache-2.0 */
/* The life of what spans nodes; see across.h. Floor 5, shard thread. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/tier/segment.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/agree/keep.h"
#include "daemon/zero/across/talk/meeting.h"
#include "daemon/zero/across/talk/program.h"
#include "daemon/zero/collectives/far.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/materialize.h"

/* Nodes that do not come are named so long before the ranks' own deadlines. */
#define ACROSS_MARGIN_NS (500 * ZI_NS_PER_MS)
/* Its meshes are numbered beside those of collectives. */
#define ACROSS_EPOCH (1ull << 32)

/* ---- what it is ---- */

/* Documented in the header, as are all that are not static. */
bool across_talks(const struct zero_job *job)
{
	return job->across && job->across->phase == ACROSS_TALKING && !job->across->error;
}

uint32_t across_node(const struct zero_job *job)
{
	return job->across->node;
}

uint32_t across_node_count(const struct zero_job *job)
{
	return job->across->node_count;
}

uint64_t across_line(const struct zero_job *job)
{
	return job->across->line;
}

uint32_t across_node_of(const struct zero_job *job, uint32_t rank)
{
	return job->across->nodes[rank];
}

void across_place(const struct zero_job *job, struct catalog_placement *placement)
{
	const struct across *across = job->across;

	placement->node_count = across->node_count;
	placement->node = (uint8_t)across->node;
	memcpy(placement->nodes, across->nodes, job->world);
}

uint64_t across_held_bytes(const struct zero_job *job)
{
	return job->across && job->across->slab ? job->across->slab->bytes : 0;
}

const char *across_host(const struct zero_job *job, uint32_t node)
{
	return job->across && job->across->peers ? job->across->peers[node].host : "";
}

struct zi_text across_name(const struct zero_job *job, uint32_t node)
{
	const char *comma = "";
	struct zi_text text;

	zi_text_set(&text, "node %u (ranks ", node);
	for (uint32_t i = 0; i < job->group.world_size; i++) {
		if ((job->across ? job->across->nodes : job->meeting.nodes)[i] != node)
			continue;
		zi_text_append(&text, "%s%u", comma, i);
		comma = ", ";
	}
	zi_text_append(&text, "%s%.40s)", across_host(job, node)[0] ? "; " : "",
	               across_host(job, node));
	return text;
}

/* Documented in across_private.h. */
struct zi_text across_where(const struct across *across, const struct zi_text *text)
{
	char host[ZI_NAME_BYTES] = "another node";
	struct zi_text told, where;

	(void)gethostname(host, sizeof(host) - 1); /* For people. */
	zi_text_set(&where, " (on node %u, %.40s)", across->node, host);
	zi_text_set(&told, "%.*s%s", (int)(sizeof(told.chars) - 1 - strlen(where.chars)),
	            text->chars, where.chars);
	return told;
}

/* ---- from phase to phase ---- */

static uint64_t left_ms(const struct across *across)
{
	uint64_t now_ns = zi_clock_now_ns();

	return across->deadline_ns > now_ns ? (across->deadline_ns - now_ns) / ZI_NS_PER_MS + 1 : 1;
}

static int ask_meet(struct across *across)
{
	const struct zero_job *job = across->job;
	struct net_meet message = {
		.ranks = across->ranks,
		.world_size = job->group.world_size,
		.opening = 1 + job->meeting.failed_count,
		.failed = job->meeting.failed_count,
		.error = job->meeting.failed_error,
		.timeout_ms = left_ms(across),
		.text = job->meeting.failed_text,
	};
	int r;

	meeting_way(job, &message.way);
	r = net_worker_meet(across->worker, &across->request, &message);
	explicit_bzero(message.way.token, sizeof(message.way.token));
	return err_trace(r);
}

static int ask_join(struct across *across)
{
	const struct zero_job *job = across->job;
	struct net_join message = {
		.node = job->meeting.node,
		.node_count = job->meeting.node_count,
		.epoch = across->epoch,
		.timeout_ms = left_ms(across),
		.flags = NET_JOIN_AS_CLIENT, /* It is served since they met. */
	};
	int r;

	across->phase = ACROSS_JOINING;
	across->node = message.node;
	across->node_count = message.node_count;
	memcpy(across->nodes, job->meeting.nodes, sizeof(across->nodes));
	across->peers = calloc(across->node_count, sizeof(*across->peers));
	if (!across->peers || rounds_init(&across->rounds, across->node, across->node_count))
		return err_origin(-ENOMEM);
	meeting_way(job, &message.way);
	r = net_worker_join(across->worker, &across->request, &message);
	explicit_bzero(message.way.token, sizeof(message.way.token));
	return err_trace(r);
}

static int ask_map(struct across *across)
{
	const struct zi_region *region = &across->slab->region;

	return err_trace(net_worker_map(across->worker, &across->request, NET_SLAB_TALK, region->fd,
	                                region->bytes));
}

/* The next thing to ask of the worker, when the last one went well. Return: 0, or an error. */
static int advance(struct across *across, struct zi_text *text)
{
	struct zero_job *job = across->job;
	int r;

	if (across->phase == ACROSS_MEETING) {
		r = meeting_take(job, &across->request.reply, text);
		return r ? err_trace(r) : err_trace(ask_join(across));
	}
	if (across->phase == ACROSS_JOINING) {
		across->phase = ACROSS_MAPPING;
		r = pull_prepare(across, text);
		return r ? err_trace(r) : err_trace(ask_map(across));
	}
	assert(across->phase == ACROSS_MAPPING);
	r = net_worker_talk(across->worker, &across->request);
	if (r)
		return err_trace(r);
	across->phase = ACROSS_TALKING;
	job_unbusy(job);
	across->joined(job, 0, NULL);
	return 0;
}

/* The worker's answer says that all is over. */
static void take_answer(struct across *across)
{
	if (!across->is_answered || across->error)
		return;
	across->error = across->request.error;
	across->text = across->request.text;
	if (across->phase < ACROSS_TALKING || across->error)
		return;
	across->error = -EPROTO;
	zi_text_set(&across->text, "zinf-net talks no more");
}

static void next_due(struct zi_timer *timer)
{
	struct across *across = container_of(timer, struct across, next);
	struct zero *zero = across->zero;
	struct zi_text text = { "" };
	char name[ZI_NAME_BYTES];
	int r;

	memcpy(name, across->name, sizeof(name));
	take_answer(across);
	if (across_end_detached(across)) {
		materialize_look(zero, name); /* May end it. */
		zero_drain(zero);
		return;
	}
	if (across->fault && !across->error)
		across_fail(across, across->fault, UINT32_MAX, &across->fault_text);
	if (!across->error && across->phase < ACROSS_TALKING) {
		across->is_answered = false;
		r = advance(across, &text);
		if (r && !text.chars[0])
			zi_text_set(&text, "zinf-net cannot be asked: %s", zi_err_name(r));
		if (r) {
			across->error = r;
			across->text = text;
		}
	} else if (!across->error) {
		rounds_end(&across->rounds);
		keep_release(across);
	}
	if (across->error)
		across_end(across);
	zero_drain(zero);
}

void across_go_on(struct across *across)
{
	zi_loop_arm(across->zero->options.loop, &across->next, 0, next_due);
}

static void answered(struct net_request *request)
{
	struct across *across = container_of(request, struct across, request);

	across->is_answered = true;
	if (across->phase != ACROSS_OVER || across->is_detached)
		across_go_on(across);
}

/* ---- life ---- */

/* When the first of the ranks that wait gives up; the worker does a little before. */
static uint64_t deadline_of(const struct zero_job *job)
{
	uint64_t now_ns = zi_clock_now_ns(), earliest_ns = ZI_DEADLINE_NEVER, left_ns;

	for (uint32_t i = 0; i < job->group.world_size; i++) {
		const struct zero_rank *rank = job->group.ranks[i];
		const struct zero_op *op = rank ? rank->gathered[ZERO_GATHER_MATERIALIZE] : NULL;

		if (op)
			earliest_ns = ZI_MIN(earliest_ns, op_deadline_ns(op));
	}
	left_ns = earliest_ns > now_ns ? earliest_ns - now_ns : 0;
	return earliest_ns - ZI_MIN(left_ns / 4, ACROSS_MARGIN_NS);
}

static int start(struct across *across, struct zi_text *text)
{
	struct net_worker_options options = { .program = across->program,
		                              .uid = across->job->uid,
		                              .talked = across_talked,
		                              .writable = across_writable,
		                              .arg = across };
	int r = net_program(across->program, sizeof(across->program), text);

	if (!r && tier_account_take_fds(&across->job->account->account, ZERO_WORKER_FDS, text))
		r = err_origin(-EDQUOT);
	if (!r)
		across->fd_account = &across->job->account->account;
	if (!r)
		r = net_worker_new(across->zero->options.loop, &options, &across->worker);
	if (!r)
		r = net_worker_start(across->worker, text);
	if (!r)
		r = across->phase == ACROSS_MEETING ? ask_meet(across) : ask_join(across);
	return err_trace(r);
}

int across_open(struct zero_job *job, const struct zero_op *op, across_joined_fn joined,
                struct zi_text *text)
{
	bool has_met = job->meeting.node_count;
	struct across *across;
	int r;

	assert(!job->across);
	assert(job_spans_nodes(job));
	across_forget(job->zero, job->name);
	if (!has_met) {
		far_forget(job->zero, job->name); /* The store's port is wanted. */
		r = meeting_place(job, op, text);
		if (r)
			return err_trace(r);
		far_forget_openings(job->zero, job->meeting.place->rendezvous_port);
	}
	across = calloc(1, sizeof(*across));
	if (!across)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for a worker"));
	across->job = job;
	across->zero = job->zero;
	across->joined = joined;
	across->request.done = answered;
	across->phase = has_met ? ACROSS_JOINING : ACROSS_MEETING;
	across->has_called = !has_met;
	across->ranks = meeting_here_mask(job);
	across->epoch = ACROSS_EPOCH + ++job->meeting.talk_count;
	across->deadline_ns = deadline_of(job);
	zi_list_init(&across->link);
	zi_list_init(&across->waiting);
	zi_list_init(&across->keep.asks);
	zi_list_init(&across->pulls);
	memcpy(across->name, job->name, sizeof(across->name));
	r = start(across, text);
	if (r) {
		across->error = r;
		across->text = *text;
		across_unmeet(across);
		(void)across_destroy(across);
		return err_trace(r);
	}
	job->across = across;
	job_busy(job);
	return 0;
}
