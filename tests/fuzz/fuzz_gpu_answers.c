/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: what zinf-gpu answers to zinfd, packet by packet and with descriptors, while zinfd
 * asks. Each request that was accepted ends once. After a success each chunk has a descriptor, and
 * after an error none has. No descriptor is lost. The worker is a socket that the target holds.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/fd.h"
#include "daemon/worker/gpu_worker.h"
#include "daemon/worker/spawn.h"
#include "tests/fuzz/fuzz.h"

#define REQUESTS    4u
#define CHUNKS_MAX  80u
#define ACTIONS_MAX 64u
#define BATCH_MAX   10u /* descriptors of a packet: more than are allowed */

static struct zi_loop *loop;
static struct gpu_worker *worker;
static int worker_fd = -1; /* the end of zinf-gpu */
static int gone_fd = -1;   /* of the double of its pidfd: written, it has gone */
static int null_fd;
static struct gpu_request requests[REQUESTS];
static struct gpu_chunk chunks[REQUESTS][CHUNKS_MAX];
static int is_out[REQUESTS];  /* accepted, and not done */
static int is_next[REQUESTS]; /* accepted while a killed process had not gone: for the next one */
static uint64_t cookies, ids; /* of requests, and chunks, so far */

/* ---- doubles ---- */

/* The eventfd in place of a pidfd becomes readable when the target wants, and takes no signal. */
static int spawn_double(const struct spawn_options *options, struct zi_text *text,
                        struct spawned *ret_spawned)
{
	int fds[2];

	(void)text;
	fuzz_check(options->arguments && options->variables, "words");
	fuzz_check(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds),
	           "socketpair");
	worker_fd = zi_close(worker_fd);
	worker_fd = fds[1];
	*ret_spawned = (struct spawned){ .fd = fds[0],
		                         .pidfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
		                         .pid = 4242 };
	fuzz_check(ret_spawned->pidfd >= 0, "eventfd");
	gone_fd = zi_close(gone_fd);
	gone_fd = dup(ret_spawned->pidfd);
	fuzz_check(gone_fd >= 0, "dup");
	ids = 0;
	return 0;
}

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	fuzz_check(!zi_loop_new(&loop), "zi_loop_new");
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	fuzz_check(null_fd >= 0, "/dev/null");
	return 0;
}

/* ---- the daemon ---- */

static void note_done(struct gpu_request *request)
{
	size_t index = (size_t)(request - requests);

	fuzz_check(is_out[index], "a request that is not out ends");
	fuzz_check(request->error <= 0 && request->error >= -4095, "an error that is no errno");
	fuzz_check(memchr(request->text.chars, '\0', sizeof(request->text.chars)) != NULL,
	           "a text without end");
	is_out[index] = is_next[index] = 0;
	for (uint32_t i = 0; request->chunk_bytes && !request->error && i < request->count; i++) {
		fuzz_check(fcntl(request->chunks[i].fd, F_GETFD) >= 0, "a chunk's descriptor");
		request->chunks[i].fd = zi_close(request->chunks[i].fd);
	}
}

static void note_greeted(void *arg, const struct gpu_facts *facts)
{
	(void)arg;
	fuzz_check(zi_gpu_is_uuid(facts->uuid) && facts->bytes && facts->granularity_bytes &&
	                   facts->index < facts->count,
	           "facts");
}

static void note_ended(void *arg, int error, const struct zi_text *text)
{
	(void)arg;
	fuzz_check(error < 0 && text->chars[0] != '\0', "an end without words");
	for (uint32_t i = 0; i < REQUESTS; i++)
		fuzz_check(!is_out[i] || is_next[i], "a request outlives its worker");
}

static void note_ending(void *arg, bool is_ending)
{
	(void)arg;
	fuzz_check(is_ending || !gpu_worker_held_bytes(worker), "bytes of a process that has gone");
	for (uint32_t i = 0; i < REQUESTS && !is_ending; i++)
		is_next[i] = 0;
}

static void note_stuck(void *arg, const struct zi_text *text)
{
	(void)arg;
	fuzz_check(text->chars[0] != '\0', "no words");
	for (uint32_t i = 0; i < REQUESTS; i++)
		fuzz_check(!is_out[i], "a request waits for a process that is stuck");
}

static void note_seen(void *arg, uint32_t count)
{
	(void)arg;
	fuzz_check(count <= ZI_GPU_DEVICES_MAX, "a number of GPUs");
}

/* The kernel takes a process that was killed. */
static void let_go(void)
{
	uint64_t one = 1;

	if (gpu_worker_state(worker) == GPU_WORKER_ENDING)
		fuzz_check(write(gone_fd, &one, sizeof(one)) == sizeof(one), "the double's end");
}

static void submit(struct fuzz_input *input)
{
	uint8_t what = fuzz_u8(input);
	uint32_t count = fuzz_u8(input) % (CHUNKS_MAX + 1);
	uint32_t index = 0;
	int r;

	while (index < REQUESTS && is_out[index])
		index++;
	if (index == REQUESTS)
		return;
	requests[index] =
		(struct gpu_request){ .done = note_done, .count = count, .chunks = chunks[index] };
	if (what % 2) {
		requests[index].chunk_bytes = 2u << 20;
		r = gpu_worker_create(worker, &requests[index]);
		fuzz_check(!r || r == -EINVAL || r == -ENOSPC || r == -EBUSY || r == -EAGAIN,
		           "a create");
	} else {
		requests[index].count += !count;
		for (uint32_t i = 0; i < requests[index].count; i++)
			chunks[index][i] = (struct gpu_chunk){ .id = i + 1,
				                               .life = gpu_worker_life(worker),
				                               .fd = -1 };
		r = gpu_worker_release(worker, &requests[index]);
		fuzz_check(!r || r == GPU_WORKER_E_GONE || r == GPU_WORKER_E_ENDING || r == -EBUSY,
		           "a release");
	}
	is_out[index] = !r;
	is_next[index] = !r && gpu_worker_state(worker) == GPU_WORKER_ENDING;
	cookies += !r;
}

/* ---- the worker ---- */

static void fill_hello(struct gpu_hello *hello, uint8_t how)
{
	(void)snprintf(hello->uuid, sizeof(hello->uuid),
	               "GPU-00000000-0000-4000-8000-00000000000%u", how % 2);
	hello->bytes = 1ull << 28;
	hello->granularity_bytes = 2u << 20;
	hello->driver_version = 12040;
	hello->count = 1;
	hello->flags = how % GPU_FLAGS;
}

/* Return: how many descriptors go with it. */
static uint32_t fill(struct fuzz_input *input, uint32_t type, uint8_t how,
                     union gpu_message *message)
{
	uint8_t word = fuzz_u8(input);

	switch (type) {
	case GPU_HELLO:
		fill_hello(&message->hello, word);
		return 0;
	case GPU_FAILED:
		message->failed.error = -(int32_t)word;
		memset(&message->failed.text, 'x', how & 64 ? sizeof(message->failed.text) : 9);
		return 0;
	case GPU_SEEN:
		message->seen.count = word;
		return 0;
	case GPU_CHUNKS:
		message->chunks.first = fuzz_u8(input);
		message->chunks.count = how & 64 ? fuzz_u32(input) : word % (GPU_FDS_MAX + 1);
		for (uint32_t i = 0; i < GPU_FDS_MAX; i++)
			message->chunks.ids[i] = ++ids;
		return ZI_MIN(message->chunks.count, BATCH_MAX);
	case GPU_DONE:
		message->done.error = -(int32_t)(word % 3);
		message->done.held_count = fuzz_u8(input);
		message->done.held_bytes = (uint64_t)message->done.held_count << 21;
		return 0;
	default:
		return 0;
	}
}

static void send_packet(const void *bytes, size_t byte_count, uint32_t fd_count)
{
	char control[CMSG_SPACE(BATCH_MAX * sizeof(int))] __attribute__((aligned(8))) = { 0 };
	struct iovec part = { (void *)bytes, byte_count };
	struct msghdr packet = { .msg_iov = &part, .msg_iovlen = 1 };
	struct cmsghdr *extra = (struct cmsghdr *)control;

	if (fd_count) {
		packet.msg_control = control;
		packet.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		*extra = (struct cmsghdr){ .cmsg_len = CMSG_LEN(fd_count * sizeof(int)),
			                   .cmsg_level = SOL_SOCKET,
			                   .cmsg_type = SCM_RIGHTS };
		for (uint32_t i = 0; i < fd_count; i++)
			memcpy(CMSG_DATA(extra) + i * sizeof(int), &null_fd, sizeof(int));
	}
	(void)!sendmsg(worker_fd, &packet, MSG_NOSIGNAL | MSG_DONTWAIT); /* Or full. */
}

static void answer(struct fuzz_input *input)
{
	static union gpu_message message;
	uint8_t how = fuzz_u8(input);
	uint32_t type = how % (GPU_PONG + 2);
	uint32_t bytes = ZI_MAX(gpu_message_bytes(type), (uint32_t)sizeof(message.header));
	uint32_t fd_count;

	if (worker_fd < 0)
		return;
	memset(&message, 0, sizeof(message));
	fd_count = fill(input, type, how, &message);
	message.header = gpu_header_of((enum gpu_type)type, cookies - fuzz_u8(input) % 4);
	if (type == GPU_HELLO || type == GPU_FAILED || type == GPU_PONG || type == GPU_SEEN)
		message.header.cookie = 0;
	if (how & 128) {
		uint8_t place = fuzz_u8(input);

		((char *)&message)[place % bytes] ^= (char)fuzz_u8(input);
		bytes -= place / 128 * (fuzz_u8(input) % bytes);
		fd_count = fuzz_u8(input) % (BATCH_MAX + 1);
	}
	send_packet(&message, bytes, fd_count);
}

/* ---- both ---- */

static void turn(void)
{
	zi_loop_stop(loop);
	fuzz_check(!zi_loop_run(loop), "zi_loop_run");
}

static void act(struct fuzz_input *input)
{
	static const struct zi_text text = { "broken off" };
	static union gpu_message message;
	uint8_t what = fuzz_u8(input);

	switch (what % 8) {
	case 0:
	case 1:
		submit(input);
		break;
	case 2:
		while (worker_fd >= 0 &&
		       recv(worker_fd, &message, sizeof(message), MSG_DONTWAIT) > 0)
			;
		break;
	case 3:
		if (what & 128)
			worker_fd = zi_close(worker_fd);
		else if (what & 64)
			gpu_worker_kill(worker, &text);
		break;
	default:
		answer(input);
		break;
	}
	/* In most cases at once; in the others, what follows meets a process that lives on. */
	if (!(what & 32))
		let_go();
	turn();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	static const struct gpu_worker_options options = { .program = "zinf-gpu",
		                                           .device = "0",
		                                           .starts_max = 1,
		                                           .starts_ns = 1,
		                                           .greeted = note_greeted,
		                                           .ended = note_ended,
		                                           .ending = note_ending,
		                                           .stuck = note_stuck,
		                                           .seen = note_seen,
		                                           .stop_ns = 1,
		                                           .spawn = spawn_double };
	struct fuzz_input input = { bytes, byte_count };
	int before = fuzz_free_fd(null_fd);

	cookies = ids = 0;
	fuzz_check(!gpu_worker_new(loop, &options, &worker), "gpu_worker_new");
	for (uint32_t i = 0; i < ACTIONS_MAX && input.byte_count; i++)
		act(&input);
	worker = gpu_worker_free(worker);
	for (uint32_t i = 0; i < REQUESTS; i++)
		fuzz_check(!is_out[i], "a request never ends");
	worker_fd = zi_close(worker_fd);
	gone_fd = zi_close(gone_fd);
	fuzz_check(fuzz_free_fd(null_fd) == before, "a descriptor is lost");
	return 0;
}
