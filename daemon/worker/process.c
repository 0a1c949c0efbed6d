/* SPDX-License-Identifier: Apache-2.0 */
/* The base of every worker; see process.h. Floor 3. The loop's thread. */
#include "daemon/worker/process.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/worker/spawn.h"

static void heart_due(struct zi_timer *timer);

static void beat(struct process *process, uint64_t after_ns)
{
	zi_loop_arm(process->loop, &process->heart, zi_clock_deadline_ns(after_ns), heart_due);
}

static void control_ready(struct zi_source *source, uint32_t events)
{
	struct process *process = container_of(source, struct process, control);

	(void)events; /* The end shows in what is received. */
	process->class->ready(process);
}

static void gone(struct process *process);

static void process_exited(struct zi_source *source, uint32_t events)
{
	struct process *process = container_of(source, struct process, exited);

	(void)events; /* A pidfd has one. */
	if (process->state == PROCESS_ENDING)
		gone(process);
	else
		process_end(process, -EPIPE, NULL);
}

static void heart_due(struct zi_timer *timer)
{
	struct process *process = container_of(timer, struct process, heart);
	struct zi_text text;

	if (process->is_pinged || process->state == PROCESS_STARTING) {
		uint64_t waited_ns = process->is_pinged ? process->pong_ns : process->greeting_ns;

		zi_text_set(&text, "%s (pid %d) hung: it did not answer for %lu ms", process->name,
		            (int)process->pid, (unsigned long)(waited_ns / ZI_NS_PER_MS));
		process_end(process, -ETIMEDOUT, &text);
		return;
	}
	process->is_pinged = true;
	/* A ping that cannot be sent has no answer either. */
	process->class->ping(process);
	beat(process, process->pong_ns);
}

static void limit_due(struct zi_timer *timer)
{
	struct process *process = container_of(timer, struct process_request, limit)->process;
	struct zi_text text;

	zi_text_set(&text, "%s (pid %d) hung: a request had no answer past its deadline",
	            process->name, (int)process->pid);
	process_end(process, -ETIMEDOUT, &text);
}

/* ---- life ---- */

/* Documented in the header, as are all of these. */
void process_init(struct process *process, struct zi_loop *loop,
                  const struct process_options *options)
{
	assert(options->class && options->requests_max);
	assert(options->starts_max <= PROCESS_STARTS_MAX);
	*process = (struct process){ .class = options->class,
		                     .loop = loop,
		                     .ping_ns = options->ping_ns,
		                     .pong_ns = options->pong_ns,
		                     .greeting_ns = options->greeting_ns,
		                     .linger_ns = options->linger_ns,
		                     .stop_ns = options->stop_ns,
		                     .requests_max = options->requests_max,
		                     .starts_max = options->starts_max,
		                     .starts_ns = options->starts_ns };
	(void)snprintf(process->name, sizeof(process->name), "%s", options->name); /* For people. */
	zi_list_init(&process->requests);
	zi_list_init(&process->orphans);
}

int process_may_start(const struct process *process, struct zi_text *text)
{
	uint64_t now_ns = zi_clock_now_ns();
	uint64_t oldest_ns, age_ns;

	if (!process->starts_max || process->start_count < process->starts_max)
		return 0;
	oldest_ns = process->started_ns[(process->start_count - process->starts_max) %
	                                PROCESS_STARTS_MAX];
	assert(now_ns >= oldest_ns);
	age_ns = now_ns - oldest_ns;
	if (age_ns >= process->starts_ns)
		return 0;
	return err_origin(zi_text_error(
		text, -EAGAIN,
		"%s started %u times within %llu s, and may start again in %llu s. Last end: %s",
		process->name, process->starts_max,
		(unsigned long long)(process->starts_ns / ZI_NS_PER_S),
		(unsigned long long)((process->starts_ns - age_ns) / ZI_NS_PER_S + 1),
		process->last_end.chars));
}

int process_adopt(struct process *process, const char *program, const struct spawned *spawned,
                  struct zi_text *text)
{
	int r;

	assert(process->state == PROCESS_DOWN);
	r = zi_loop_add(process->loop, &process->control, spawned->fd, EPOLLIN, control_ready);
	if (!r) {
		r = zi_loop_add(process->loop, &process->exited, spawned->pidfd, EPOLLIN,
		                process_exited);
		if (r)
			zi_loop_remove(&process->control);
	}
	if (r) {
		struct zi_text fate;

		(void)zi_close(spawned->fd);
		/* It may be about to hang in a driver. */
		(void)syscall(SYS_pidfd_send_signal, spawned->pidfd, SIGKILL, NULL, 0);
		spawn_reap(spawned->pidfd, &fate);
		(void)zi_close(spawned->pidfd);
		return err_trace(zi_text_error(text, r, "watching %s: %s", program, strerror(-r)));
	}
	process->pid = spawned->pid;
	process->is_pinged = false;
	process->started_ns[process->start_count++ % PROCESS_STARTS_MAX] = zi_clock_now_ns();
	process->state = PROCESS_STARTING;
	beat(process, process->greeting_ns);
	return 0;
}

void process_greeted(struct process *process)
{
	assert(process->state == PROCESS_STARTING);
	process->state = PROCESS_UP;
	beat(process, process->ping_ns);
}

void process_answered(struct process *process)
{
	process->is_pinged = false;
	beat(process, process->ping_ns);
}

/* ---- its end ---- */

/* Those that are in @list when this begins: the requests that they make are not among them. */
static void fail_all(struct process *process, struct zi_list *list, int error,
                     const struct zi_text *text)
{
	struct zi_list failing;

	zi_list_init(&failing);
	zi_list_for_each_safe(link, list) {
		zi_list_remove(link);
		zi_list_push_back(&failing, link);
	}
	while (!zi_list_is_empty(&failing)) {
		struct process_request *request =
			container_of(failing.next, struct process_request, link);

		process_pop(request);
		process->class->fail(request, error, text);
	}
}

/* The reason is known: the requests of the process fail. */
static void tell(struct process *process, const struct zi_text *text)
{
	/* A request may start another process, with an end of its own. */
	struct zi_text copy = *text;
	int error = process->end_error;

	assert(!process->is_told);
	process->is_told = true;
	process->last_end = copy;
	fail_all(process, &process->orphans, error, &copy);
	if (process->class->ended)
		process->class->ended(process, error, &copy);
}

/* The kernel has taken it away, or is about to. @text: how it ended. */
static void bury(struct process *process, struct zi_text *text)
{
	struct zi_text fate;

	zi_loop_remove(&process->exited);
	spawn_reap(process->exited.fd, &fate);
	(void)zi_close(process->exited.fd);
	zi_text_set(text, "%s (pid %d) %s", process->name, (int)process->pid, fate.chars);
	process->state = PROCESS_DOWN;
	process->pid = 0;
}

/* It was ENDING. */
static void gone(struct process *process)
{
	struct zi_text text;

	assert(process->state == PROCESS_ENDING);
	zi_loop_disarm(&process->heart);
	bury(process, &text);
	if (!process->is_told)
		tell(process, &text);
	if (process->class->gone)
		process->class->gone(process);
}

static void linger_due(struct zi_timer *timer)
{
	struct process *process = container_of(timer, struct process, heart);
	struct zi_text text;

	assert(process->state == PROCESS_ENDING);
	process->is_stuck = true;
	process_describe_ending(process, &text);
	if (!process->is_told)
		tell(process, &text);
	fail_all(process, &process->requests, -EAGAIN, &text);
	if (process->class->stuck)
		process->class->stuck(process, &text);
}

void process_end(struct process *process, int error, const struct zi_text *why)
{
	struct zi_text text;
	bool is_gone;

	assert(process->state == PROCESS_STARTING || process->state == PROCESS_UP);
	assert(zi_list_is_empty(&process->orphans));
	zi_loop_disarm(&process->heart);
	zi_loop_remove(&process->control);
	(void)zi_close(process->control.fd);
	/* By the pidfd, which names this process whatever became of its number. */
	(void)syscall(SYS_pidfd_send_signal, process->exited.fd, SIGKILL, NULL, 0);
	process->state = PROCESS_ENDING;
	process->killed_ns = zi_clock_now_ns();
	process->end_error = error;
	process->is_told = process->is_stuck = false;
	zi_list_for_each_safe(link, &process->requests) {
		zi_loop_disarm(&container_of(link, struct process_request, link)->limit);
		zi_list_remove(link);
		zi_list_push_back(&process->orphans, link);
	}
	is_gone = !process->linger_ns || spawn_has_ended(process->exited.fd, 0);
	if (is_gone)
		bury(process, &text);
	else
		zi_loop_arm(process->loop, &process->heart,
		            zi_clock_deadline_ns(process->linger_ns), linger_due);
	if (process->class->down)
		process->class->down(process);
	if (why)
		tell(process, why);
	else if (is_gone)
		tell(process, &text);
}

void process_describe_ending(const struct process *process, struct zi_text *text)
{
	assert(process->state == PROCESS_ENDING);
	zi_text_set(text,
	            "%s (pid %d) was killed %llu s ago and has not ended: it hangs in the driver",
	            process->name, (int)process->pid,
	            (unsigned long long)((zi_clock_now_ns() - process->killed_ns) / ZI_NS_PER_S));
}

/* It is ENDING, and the loop is not turned any more. Return: 0; PROCESS_E_STUCK. */
static int await_end(struct process *process, struct zi_text *text)
{
	uint64_t limit_ns = process->killed_ns + process->stop_ns, now_ns = zi_clock_now_ns();
	uint64_t wait_ns = limit_ns - ZI_MIN(limit_ns, now_ns);
	struct zi_text fate;
	bool is_gone = spawn_has_ended(process->exited.fd,
	                               (int)((wait_ns + ZI_NS_PER_MS - 1) / ZI_NS_PER_MS));

	zi_loop_disarm(&process->heart);
	process_describe_ending(process, &fate);
	*text = fate;
	if (is_gone) {
		bury(process, &fate);
	} else {
		zi_loop_remove(&process->exited);
		(void)zi_close(process->exited.fd);
		process->state = PROCESS_DOWN;
		process->pid = 0;
	}
	if (!process->is_told)
		tell(process, &fate);
	return is_gone ? 0 : PROCESS_E_STUCK;
}

int process_stop(struct process *process, const struct zi_text *why, struct zi_text *text)
{
	int r = 0;

	if (process->state == PROCESS_STARTING || process->state == PROCESS_UP)
		process_end(process, -ESHUTDOWN, why);
	if (process->state == PROCESS_ENDING)
		r = await_end(process, text);
	fail_all(process, &process->requests, -ESHUTDOWN, why);
	return r;
}

void process_deinit(struct process *process, const struct zi_text *text)
{
	struct zi_text stuck;

	(void)process_stop(process, text, &stuck); /* Who wants to know has called it before. */
	assert(!process->request_count);
}

/* ---- requests ---- */

int process_send(struct process *process, const void *message, size_t bytes, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = { 0 };
	struct iovec part = { (void *)message, bytes }; /* Only read. */
	struct msghdr packet = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t r;

	assert(process->state == PROCESS_STARTING || process->state == PROCESS_UP);
	if (fd >= 0)
		zi_fd_pass(&packet, control, &fd, 1);
	do
		r = sendmsg(process->control.fd, &packet, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (r < 0 && errno == EINTR);
	if (r < 0 && (errno == EAGAIN || errno == ENOBUFS))
		return err_origin(-EBUSY);
	return r < 0 ? err_origin(-ENOTCONN) : 0; /* Its end is on its way to us. */
}

int process_admits(const struct process *process)
{
	if (process->state == PROCESS_DOWN)
		return err_origin(-ENOTCONN);
	return process->request_count >= process->requests_max ? err_origin(-EBUSY) : 0;
}

uint64_t process_next_cookie(struct process *process)
{
	return ++process->cookie;
}

void process_limit(struct process_request *request, uint64_t limit_ns)
{
	zi_loop_disarm(&request->limit);
	if (limit_ns != PROCESS_NO_LIMIT)
		zi_loop_arm(request->process->loop, &request->limit, limit_ns, limit_due);
}

void process_push(struct process *process, struct process_request *request, uint64_t cookie,
                  uint64_t limit_ns)
{
	assert(process->request_count < process->requests_max);
	*request = (struct process_request){ .process = process, .cookie = cookie };
	process_limit(request, limit_ns);
	zi_list_push_back(&process->requests, &request->link);
	process->request_count++;
}

struct process_request *process_find(struct process *process, uint64_t cookie)
{
	zi_list_for_each(link, &process->requests) {
		struct process_request *request = container_of(link, struct process_request, link);

		if (request->cookie == cookie)
			return request;
	}
	return NULL;
}

void process_pop(struct process_request *request)
{
	struct process *process = request->process;

	assert(process->request_count > 0);
	zi_loop_disarm(&request->limit);
	zi_list_remove(&request->link);
	process->request_count--;
}

int process_errno(int32_t error)
{
	return error > 0 || error < -PROCESS_ERRNO_MAX ? -EPROTO : error;
}
