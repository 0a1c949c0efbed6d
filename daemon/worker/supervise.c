/* SPDX-License-Identifier: Apache-2.0 */
/* zinf-net seen from the daemon; see supervise.h. Floor 3. The loop's thread. */
#include "daemon/worker/supervise.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/wire/control.h"
#include "daemon/worker/spawn.h"
#include "daemon/worker/supervise_private.h"

#define SUPERVISE_PING_NS ZI_NS_PER_S
#define SUPERVISE_PONG_NS (5 * ZI_NS_PER_S)
/* A worker tells of its own time-outs, after it has asked the others whose fault it is. */
#define SUPERVISE_GRACE_NS (4 * ZI_NS_PER_S)
/* Mapping a slab makes page tables: nothing that waits for others. */
#define SUPERVISE_MAP_MS 10000u

static_assert((int)NET_WORKER_DOWN == (int)PROCESS_DOWN, "net_worker_state()");
static_assert((int)NET_WORKER_STARTING == (int)PROCESS_STARTING, "net_worker_state()");
static_assert((int)NET_WORKER_UP == (int)PROCESS_UP, "net_worker_state()");

static struct net_worker *worker_of(struct process *process)
{
	return container_of(process, struct net_worker, process);
}

static void request_end(struct net_request *request, int error, uint32_t culprit,
                        const struct zi_text *text, uint64_t busy_ns)
{
	struct net_worker *worker = worker_of(request->base.process);

	if (request == worker->talk.request)
		supervise_talk_end(worker);
	request->error = error;
	request->culprit = culprit;
	request->text = *text;
	request->busy_ns = busy_ns;
	request->done(request); /* The request is its owner's again, who may make another. */
}

/* Documented in supervise_private.h. */
int supervise_send(struct net_worker *worker, const struct net_header *header, int fd)
{
	return err_trace(process_send(&worker->process, header, header->bytes, fd));
}

/* ---- answers ---- */

/* A daemon may run on while its programs are replaced by those of another release. */
static void handle_hello(struct net_worker *worker, uint64_t version)
{
	struct zi_text text;

	if (version == ZI_COLL_VERSION) {
		process_greeted(&worker->process);
		return;
	}
	zi_text_set(&text,
	            "%s makes collectives by version %llu, zinfd " ZINF_VERSION
	            " by version %u: restart zinfd, or install both of one release",
	            worker->options.program, (unsigned long long)version, ZI_COLL_VERSION);
	process_end(&worker->process, -EPROTONOSUPPORT, &text);
}

static void handle_done(struct net_worker *worker, const struct net_done *done)
{
	struct process_request *base = process_find(&worker->process, done->header.cookie);
	struct net_request *request;
	struct zi_text text = done->text;

	if (!base)
		return; /* One that was given up. */
	request = container_of(base, struct net_request, base);
	text.chars[sizeof(text.chars) - 1] = '\0';
	request->reply = *done;
	process_pop(base);
	request_end(request, process_errno(done->error), done->culprit, &text, done->busy_ns);
}

static void worker_ready(struct process *process)
{
	struct net_worker *worker = worker_of(process);
	union net_message message;
	struct zi_text text;
	ssize_t bytes = recv(process->control.fd, &message, sizeof(message), MSG_DONTWAIT);

	if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (bytes <= 0) {
		/* It is about to exit; or it has closed its end alone, and is of no use. */
		process_end(process, -EPIPE, NULL);
		return;
	}
	if (bytes == sizeof(message.header) && message.header.type == NET_HELLO &&
	    process->state == PROCESS_STARTING) {
		handle_hello(worker, message.header.cookie);
	} else if (bytes == sizeof(message.header) && message.header.type == NET_PONG) {
		process_answered(process);
	} else if (bytes == sizeof(message.done) && message.header.type == NET_DONE) {
		handle_done(worker, &message.done);
	} else if (bytes == sizeof(message.header) && message.header.type == NET_LATE) {
		if (worker->options.late)
			worker->options.late(worker->options.arg, (uint32_t)message.header.cookie,
			                     (uint32_t)(message.header.cookie >> 32));
	} else if (bytes == sizeof(message.late_message) &&
	           message.header.type == NET_LATE_MESSAGE) {
		if (worker->options.late_message)
			worker->options.late_message(worker->options.arg, &message.late_message);
	} else if (bytes == sizeof(message.asked) && message.header.type == NET_ASKED) {
		if (worker->options.asked)
			worker->options.asked(worker->options.arg, &message.asked);
	} else if (bytes >= (ssize_t)sizeof(message.header) &&
	           message.header.type == NET_TALK_BATCH &&
	           supervise_talked(worker, &message.talk, (uint64_t)bytes)) {
		return;
	} else {
		zi_text_set(&text,
		            "zinf-net (pid %d) sent a message of type %u, %zd bytes: none of its",
		            (int)process->pid, message.header.type, bytes);
		process_end(process, -EPROTO, &text);
	}
}

static void worker_ping(struct process *process)
{
	struct net_header ping = { NET_PING, sizeof(ping), 0 };

	/* Not sent: then there is no answer either. */
	(void)supervise_send(worker_of(process), &ping, -1);
}

static void worker_down(struct process *process)
{
	supervise_talk_end(worker_of(process));
}

static void worker_fail(struct process_request *request, int error, const struct zi_text *text)
{
	request_end(container_of(request, struct net_request, base), error, NET_CULPRIT_NONE, text,
	            0);
}

static void worker_ended(struct process *process, int error, const struct zi_text *text)
{
	struct net_worker *worker = worker_of(process);

	(void)error; /* Its requests had it. */
	if (worker->options.ended)
		worker->options.ended(worker->options.arg, text);
}

static const struct process_class supervise_class = { .ready = worker_ready,
	                                              .ping = worker_ping,
	                                              .down = worker_down,
	                                              .fail = worker_fail,
	                                              .ended = worker_ended };

/* ---- requests ---- */

/* The oldest is served first: those before it have their time, too. */
static uint64_t limit_ns(const struct net_worker *worker, uint64_t timeout_ms)
{
	uint64_t latest_ns = zi_clock_now_ns();

	if (!zi_list_is_empty(&worker->process.requests))
		latest_ns = ZI_MAX(latest_ns, container_of(worker->process.requests.prev,
		                                           struct process_request, link)
		                                      ->limit.deadline_ns);
	return latest_ns + timeout_ms * ZI_NS_PER_MS + SUPERVISE_GRACE_NS;
}

/* Documented in supervise_private.h. */
int supervise_submit(struct net_worker *worker, struct net_request *request,
                     struct net_header *header, uint32_t type, uint32_t bytes, uint64_t timeout_ms,
                     int fd)
{
	struct process *process = &worker->process;
	int r;

	assert(request->done);
	r = process_admits(process);
	if (r)
		return err_trace(r);
	*header = (struct net_header){ type, bytes, process_next_cookie(process) };
	r = supervise_send(worker, header, fd);
	if (r)
		return err_trace(r);
	process_push(process, &request->base, header->cookie,
	             timeout_ms == SUPERVISE_NO_LIMIT ? PROCESS_NO_LIMIT
	                                              : limit_ns(worker, timeout_ms));
	return 0;
}

/* Documented in the header, as are all of these. */
int net_worker_join(struct net_worker *worker, struct net_request *request, struct net_join *join)
{
	return err_trace(supervise_submit(worker, request, &join->header, NET_JOIN, sizeof(*join),
	                                  join->timeout_ms, -1));
}

int net_worker_meet(struct net_worker *worker, struct net_request *request, struct net_meet *meet)
{
	return err_trace(supervise_submit(worker, request, &meet->header, NET_MEET, sizeof(*meet),
	                                  meet->timeout_ms, -1));
}

int net_worker_agree(struct net_worker *worker, struct net_request *request,
                     struct net_agree *agree)
{
	return err_trace(supervise_submit(worker, request, &agree->header, NET_AGREE,
	                                  sizeof(*agree), agree->timeout_ms, -1));
}

int net_worker_follow(struct net_worker *worker, struct net_request *request,
                      struct net_follow *follow)
{
	return err_trace(supervise_submit(worker, request, &follow->header, NET_FOLLOW,
	                                  sizeof(*follow), SUPERVISE_NO_LIMIT, -1));
}

int net_worker_map(struct net_worker *worker, struct net_request *request, uint32_t slab, int fd,
                   uint64_t bytes)
{
	struct net_map map = { .slab = slab, .bytes = bytes };

	return err_trace(supervise_submit(worker, request, &map.header, NET_MAP, sizeof(map),
	                                  SUPERVISE_MAP_MS, fd));
}

int net_worker_exchange(struct net_worker *worker, struct net_request *request,
                        struct net_exchange *exchange)
{
	return err_trace(supervise_submit(worker, request, &exchange->header, NET_EXCHANGE,
	                                  sizeof(*exchange), exchange->timeout_ms, -1));
}

void net_worker_abort(struct net_worker *worker, int error, const struct zi_text *text)
{
	struct net_abort message = { .header = { NET_ABORT, sizeof(message), 0 },
		                     .error = error,
		                     .text = *text };

	/* One that takes no message hangs, and is ended for that. */
	if (worker->process.state == PROCESS_UP)
		(void)supervise_send(worker, &message.header, -1);
}

void net_worker_kill(struct net_worker *worker, const struct zi_text *text)
{
	if (worker->process.state != PROCESS_DOWN)
		process_end(&worker->process, -ECANCELED, text);
}

/* ---- life ---- */

int net_worker_new(struct zi_loop *loop, const struct net_worker_options *options,
                   struct net_worker **ret_worker)
{
	struct net_worker *worker = calloc(1, sizeof(*worker));
	uint64_t pong_ns;

	if (!worker)
		return err_origin(-ENOMEM);
	worker->options = *options;
	pong_ns = options->pong_ns ? options->pong_ns : SUPERVISE_PONG_NS;
	process_init(&worker->process, loop,
	             &(struct process_options){
			     .class = &supervise_class,
			     .name = "zinf-net",
			     .requests_max = NET_QUEUE_MAX,
			     .ping_ns = options->ping_ns ? options->ping_ns : SUPERVISE_PING_NS,
			     .pong_ns = pong_ns,
			     .greeting_ns = pong_ns,
		     });
	*ret_worker = worker;
	return 0;
}

struct net_worker *net_worker_free(struct net_worker *worker)
{
	static const struct zi_text text = { "the daemon lets zinf-net go" };

	if (!worker)
		return NULL;
	worker->options.ended = NULL;
	process_deinit(&worker->process, &text);
	free(worker);
	return NULL;
}

int net_worker_start(struct net_worker *worker, struct zi_text *text)
{
	struct spawned spawned;
	int r;

	assert(worker->process.state == PROCESS_DOWN);
	r = spawn_worker(worker->options.program, worker->options.uid, text, &spawned.fd,
	                 &spawned.pidfd, &spawned.pid);
	if (r)
		return err_trace(r);
	return err_trace(process_adopt(&worker->process, worker->options.program, &spawned, text));
}

enum net_worker_state net_worker_state(const struct net_worker *worker)
{
	return (enum net_worker_state)worker->process.state;
}

pid_t net_worker_pid(const struct net_worker *worker)
{
	return worker->process.pid;
}
