/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: what zinf-net answers to zinfd, packet by packet, while zinfd asks. Each request
 * that was accepted ends once, what is passed on lies within its bounds, and a packet that no
 * zinf-net sends ends the worker with a reason. The worker is a socket that the target holds.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "common/wire/control.h"
#include "daemon/worker/supervise.h"
#include "tests/fuzz/fuzz.h"

#define REQUESTS    20u /* more than a worker takes */
#define ACTIONS_MAX 64u

static struct zi_loop *loop;
static struct net_worker *worker;
static int worker_fd = -1; /* the end of zinf-net */
static struct net_request requests[REQUESTS];
static int is_out[REQUESTS]; /* accepted, and not done */
static uint64_t cookies;     /* of requests so far */
static int slab_fd;

/* ---- doubles ---- */

/* In place of spawn_worker() and spawn_reap() (fuzz.mk). The eventfd never becomes readable, and
 * no signal goes to it. */
int __wrap_spawn_worker(const char *program, uid_t uid, struct zi_text *text, int *ret_fd,
                        int *ret_pidfd, pid_t *ret_pid);
int __wrap_spawn_worker(const char *program, uid_t uid, struct zi_text *text, int *ret_fd,
                        int *ret_pidfd, pid_t *ret_pid)
{
	int fds[2];

	(void)program;
	(void)uid;
	(void)text;
	fuzz_check(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds),
	           "socketpair");
	*ret_fd = fds[0];
	worker_fd = fds[1];
	*ret_pidfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	fuzz_check(*ret_pidfd >= 0, "eventfd");
	*ret_pid = 4242;
	return 0;
}

void __wrap_spawn_reap(int pidfd, struct zi_text *text);
void __wrap_spawn_reap(int pidfd, struct zi_text *text)
{
	(void)pidfd;
	zi_text_set(text, "was killed by signal 9 (Killed)");
}

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	fuzz_check(!zi_loop_new(&loop), "zi_loop_new");
	slab_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	fuzz_check(slab_fd >= 0, "/dev/null");
	return 0;
}

/* ---- the daemon ---- */

static void note_done(struct net_request *request)
{
	size_t index = (size_t)(request - requests);

	fuzz_check(is_out[index], "a request that is not out ends");
	fuzz_check(request->error <= 0 && request->error >= -4095, "an error that is no errno");
	fuzz_check(memchr(request->text.chars, '\0', sizeof(request->text.chars)) != NULL,
	           "a text without end");
	is_out[index] = 0;
}

static void note_ended(void *arg, const struct zi_text *text)
{
	(void)arg;
	fuzz_check(text->chars[0] != '\0', "an end without words");
	for (uint32_t i = 0; i < REQUESTS; i++)
		fuzz_check(!is_out[i], "a request outlives its worker");
}

static void note_late(void *arg, uint32_t sequence, uint32_t member)
{
	(void)arg;
	(void)sequence;
	(void)member; /* Hearsay. */
}

static void note_late_message(void *arg, const struct net_late_message *late)
{
	(void)arg;
	fuzz_check(late->header.bytes <= UINT32_MAX, "a message");
}

static void note_asked(void *arg, const struct net_asked *asked)
{
	(void)arg;
	fuzz_check(asked->header.bytes <= UINT32_MAX, "a message");
}

static void note_talked(void *arg, const struct talk_entry *entries, uint32_t count)
{
	(void)arg;
	fuzz_check(count && count <= TALK_BATCH_MAX, "entries");
	for (uint32_t i = 0; i < count; i++)
		fuzz_check(talk_kind_is_heard(entries[i].kind) &&
		                   entries[i].node < SUBTREE_NODES_MAX &&
		                   entries[i].data_bytes <= sizeof(entries[i].data),
		           "an entry");
}

static void note_writable(void *arg)
{
	(void)arg;
}

static int ask(struct net_request *request, uint8_t what)
{
	static union net_message message;

	memset(&message, 0, sizeof(message));
	message.join.timeout_ms = 1000;
	switch (what % 7) {
	case 0:
		message.meet.timeout_ms = 1000;
		return net_worker_meet(worker, request, &message.meet);
	case 1:
		message.agree.timeout_ms = 1000;
		return net_worker_agree(worker, request, &message.agree);
	case 2:
		return net_worker_join(worker, request, &message.join);
	case 3:
		return net_worker_follow(worker, request, &message.follow);
	case 4:
		return net_worker_map(worker, request, what / 7 % 8, slab_fd, 4096);
	case 5:
		message.exchange.timeout_ms = 1000;
		return net_worker_exchange(worker, request, &message.exchange);
	default:
		return net_worker_talk(worker, request);
	}
}

static void submit(struct fuzz_input *input)
{
	uint8_t what = fuzz_u8(input);
	uint32_t index = 0;
	int r;

	while (index < REQUESTS && is_out[index])
		index++;
	if (index == REQUESTS)
		return;
	requests[index] = (struct net_request){ .done = note_done };
	r = ask(&requests[index], what);
	fuzz_check(!r || r == -ENOTCONN || r == -EBUSY, "a request");
	is_out[index] = !r;
	cookies += !r;
}

static void talk(struct fuzz_input *input)
{
	static const uint8_t kinds[] = { TALK_ROUND, TALK_PULL, TALK_SERVE, TALK_REFUSED };
	struct talk_entry entries[TALK_BATCH_MAX];
	uint32_t count = 1 + fuzz_u8(input) % TALK_BATCH_MAX;
	int r;

	memset(entries, 0, sizeof(entries));
	for (uint32_t i = 0; i < count; i++) {
		uint8_t how = fuzz_u8(input);

		entries[i].kind = kinds[how % 4];
		entries[i].node = how / 4 % 4;
		entries[i].tag = i;
	}
	r = net_worker_talk_send(worker, entries, count);
	fuzz_check(!r || r == -EAGAIN || r == -ENOTCONN, "entries to send");
}

/* ---- the worker ---- */

static uint32_t length_of(uint32_t type)
{
	static const uint32_t bytes[_NET_TYPE_COUNT] = {
		[NET_HELLO] = sizeof(struct net_header),
		[NET_PONG] = sizeof(struct net_header),
		[NET_DONE] = sizeof(struct net_done),
		[NET_LATE] = sizeof(struct net_header),
		[NET_LATE_MESSAGE] = sizeof(struct net_late_message),
		[NET_ASKED] = sizeof(struct net_asked),
	};

	return type < _NET_TYPE_COUNT && bytes[type] ? bytes[type] : sizeof(struct net_header);
}

static uint32_t fill_batch(struct fuzz_input *input, struct net_talk_batch *batch)
{
	uint8_t how = fuzz_u8(input);

	batch->count = how & 64 ? fuzz_u32(input) : how % (TALK_BATCH_MAX + 1);
	batch->node = how & 128 ? fuzz_u32(input) : fuzz_u8(input) % 4;
	batch->taken = fuzz_u8(input);
	for (uint32_t i = 0; i < batch->count && i < TALK_BATCH_MAX; i++) {
		struct talk_entry *entry = &batch->entries[i];

		entry->kind = fuzz_u8(input) % (_TALK_KIND_COUNT + 1);
		entry->node = fuzz_u8(input) % 8 ? batch->node % 4 : fuzz_u8(input) * 257u;
		entry->data_bytes = fuzz_u8(input);
		entry->error = -(int32_t)fuzz_u8(input);
	}
	return net_talk_batch_bytes(batch->count % (TALK_BATCH_MAX + 1));
}

static void answer(struct fuzz_input *input)
{
	static union net_message message;
	uint8_t how = fuzz_u8(input);
	uint32_t type = how % (_NET_TYPE_COUNT + 1);
	uint32_t bytes = length_of(type);

	if (worker_fd < 0)
		return;
	memset(&message, 0, sizeof(message));
	if (type == NET_TALK_BATCH)
		bytes = fill_batch(input, &message.talk);
	else
		fuzz_take(input, (char *)&message + sizeof(message.header),
		          bytes - sizeof(message.header) < 64 ? bytes - sizeof(message.header)
		                                              : 64);
	message.header = (struct net_header){ type, bytes, cookies - fuzz_u8(input) % 4 };
	if (type == NET_HELLO)
		message.header.cookie = ZI_COLL_VERSION + (how & 64 ? fuzz_u8(input) : 0);
	if (type == NET_DONE && how & 64)
		memset(message.done.text.chars, 'x', sizeof(message.done.text.chars));
	if (how & 128)
		bytes = fuzz_u8(input) * 8u % sizeof(message);
	(void)!send(worker_fd, &message, bytes, MSG_NOSIGNAL | MSG_DONTWAIT); /* Or full. */
}

/* ---- both ---- */

static void turn(void)
{
	zi_loop_stop(loop);
	fuzz_check(!zi_loop_run(loop), "zi_loop_run");
}

static void read_all(void)
{
	static union net_message message;

	while (worker_fd >= 0 && recv(worker_fd, &message, sizeof(message), MSG_DONTWAIT) > 0)
		;
}

static void act(struct fuzz_input *input)
{
	struct zi_text text = { "broken off" };
	uint8_t what = fuzz_u8(input);

	switch (what % 8) {
	case 0:
	case 1:
		submit(input);
		break;
	case 2:
		talk(input);
		break;
	case 3:
		read_all();
		break;
	case 4:
		if (what & 128)
			worker_fd = zi_close(worker_fd);
		else
			net_worker_abort(worker, -ECANCELED, &text);
		break;
	default:
		answer(input);
		break;
	}
	turn();
	if (net_worker_state(worker) == NET_WORKER_DOWN && what & 64) {
		worker_fd = zi_close(worker_fd);
		fuzz_check(!net_worker_start(worker, &text), "a start");
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	static const struct net_worker_options options = { .program = "zinf-net",
		                                           .ended = note_ended,
		                                           .late = note_late,
		                                           .late_message = note_late_message,
		                                           .asked = note_asked,
		                                           .talked = note_talked,
		                                           .writable = note_writable };
	struct fuzz_input input = { bytes, byte_count };
	struct zi_text text;

	cookies = 0;
	fuzz_check(!net_worker_new(loop, &options, &worker), "net_worker_new");
	fuzz_check(!net_worker_start(worker, &text), "net_worker_start");
	for (uint32_t i = 0; i < ACTIONS_MAX && input.byte_count; i++)
		act(&input);
	worker = net_worker_free(worker);
	for (uint32_t i = 0; i < REQUESTS; i++)
		fuzz_check(!is_out[i], "a request never ends");
	worker_fd = zi_close(worker_fd);
	return 0;
}
