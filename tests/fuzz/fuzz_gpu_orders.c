/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: what zinfd orders of zinf-gpu. Whatever comes, it ends with one of its exit codes,
 * every chunk that the driver made is held or released once, and no descriptor is lost. The driver
 * is a double that refuses as the input says.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/fd.h"
#include "common/base/log.h"
#include "common/gpu/driver.h"
#include "daemon/worker/gpu/orders.h"
#include "tests/fuzz/fuzz.h"

#define ORDERS_MAX 32u /* whose answers fit into the socket */
#define CHUNK      (2ull << 20)

static struct zi_gpu_driver driver;
static struct orders orders;
static uint64_t made_count, released_count;
static uint8_t mood; /* which calls the driver refuses */
static int null_fd;

/* ---- the driver ---- */

static int create(uint64_t *ret_handle, size_t bytes, const struct zi_cuda_allocation *allocation,
                  uint64_t flags)
{
	fuzz_check(bytes && bytes % CHUNK == 0 && !flags, "a chunk's bytes");
	fuzz_check(allocation->handle_types == ZI_CUDA_HANDLE_POSIX_FD, "a chunk's type");
	if (mood & 1 && made_count % 5 == 4)
		return ZI_CUDA_OUT_OF_MEMORY;
	*ret_handle = ++made_count;
	return ZI_CUDA_SUCCESS;
}

static int export(void *ret_shared, uint64_t handle, int handle_type, uint64_t flags)
{
	int fd;

	fuzz_check(handle && handle <= made_count && !flags, "a handle");
	fuzz_check(handle_type == ZI_CUDA_HANDLE_POSIX_FD, "an export");
	if (mood & 2 && made_count % 7 == 6)
		return ZI_CUDA_UNKNOWN;
	fd = fcntl(null_fd, F_DUPFD_CLOEXEC, 0);
	fuzz_check(fd >= 0, "fcntl");
	memcpy(ret_shared, &fd, sizeof(fd));
	return ZI_CUDA_SUCCESS;
}

static int release(uint64_t handle)
{
	fuzz_check(handle && handle <= made_count, "a handle to release");
	released_count++;
	return mood & 4 && handle % 3 == 0 ? ZI_CUDA_INVALID_VALUE : ZI_CUDA_SUCCESS;
}

static int say(int code, const char **ret_words)
{
	(void)code;
	*ret_words = "FAKE";
	return ZI_CUDA_SUCCESS;
}

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	driver.cuda.cuMemCreate = create;
	driver.cuda.cuMemExportToShareableHandle = export;
	driver.cuda.cuMemRelease = release;
	driver.cuda.cuGetErrorName = driver.cuda.cuGetErrorString = say;
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	fuzz_check(null_fd >= 0, "/dev/null");
	zi_log_set_level((enum zi_log_level)0); /* Each wrong packet would be a line. */
	return 0;
}

/* ---- the daemon ---- */

static void send_order(int fd, struct fuzz_input *input)
{
	static union gpu_message message;
	uint8_t how = fuzz_u8(input), word = fuzz_u8(input);
	static const uint8_t types[] = { GPU_CREATE, GPU_TAKEN, GPU_TAKEN, GPU_RELEASE, GPU_PING };
	uint32_t type = how & 64 ? word % (GPU_PONG + 2) : types[how % ZI_COUNT_OF(types)];
	uint32_t bytes = ZI_MAX(gpu_message_bytes(type), (uint32_t)sizeof(message.header));

	memset(&message, 0, sizeof(message));
	message.header = gpu_header_of((enum gpu_type)type, how & 32 ? fuzz_u8(input) : 1);
	if (type == GPU_CREATE) {
		message.create.count = word % 32 == 31 ? fuzz_u32(input) : word % 32;
		message.create.chunk_bytes = word & 128 ? fuzz_u64(input) : CHUNK;
	} else if (type == GPU_TAKEN) {
		message.taken.error = word % 16 == 15 ? -24 : 0;
	} else if (type == GPU_RELEASE) {
		message.release.count = word % (GPU_RELEASES_MAX + 2);
		for (uint32_t i = 0; i < GPU_RELEASES_MAX; i++)
			message.release.ids[i] = i + word / 128 * fuzz_u8(input);
	}
	if (how & 128) {
		((char *)&message)[word % bytes] ^= (char)fuzz_u8(input);
		bytes -= fuzz_u8(input) % bytes;
	}
	(void)!send(fd, &message, bytes, MSG_NOSIGNAL | MSG_DONTWAIT); /* Or full. */
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	static const struct zi_gpu_device device = { .uuid = "GPU-fake",
		                                     .bytes = 64 * CHUNK,
		                                     .granularity_bytes = CHUNK };
	struct fuzz_input input = { bytes, byte_count };
	int before = fuzz_free_fd(null_fd);
	int pair[2], code;

	fuzz_check(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), "socketpair");
	made_count = released_count = 0;
	mood = fuzz_u8(&input);
	orders = (struct orders){ .fd = pair[1] };
	chunks_init(&orders.chunks, &driver, &device);
	for (uint32_t i = 0; i < ORDERS_MAX && input.byte_count; i++)
		send_order(pair[0], &input);
	fuzz_check(!shutdown(pair[0], SHUT_WR), "shutdown");
	code = orders_serve(&orders);
	fuzz_check(code == 0 || code == ORDERS_EXIT_PROTOCOL, "an exit code");
	fuzz_check(orders.chunks.count == made_count - released_count, "a chunk is lost");
	chunks_release_after(&orders.chunks, 0);
	fuzz_check(!orders.chunks.count && !orders.chunks.held_bytes, "a chunk stays");
	fuzz_check(made_count == released_count, "a chunk that was never released");
	(void)zi_close(pair[0]);
	(void)zi_close(pair[1]);
	fuzz_check(fuzz_free_fd(null_fd) == before, "a descriptor is lost");
	return 0;
}
