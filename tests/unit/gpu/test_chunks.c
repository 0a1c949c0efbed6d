/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: chunks behave as zinf needs it from a driver: made without a context, handed over as
 * descriptors, mapped more than once, alive as long as anyone has them; and the fake refuses what a
 * driver refuses. Method: two processes, ranges that are aliases, and each wrong argument.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/gpu/fixture.h"

#define CHUNK (2ull << 20)

static struct zi_gpu_driver driver;
static const struct zi_cuda_access read_write = {
	.location = { .type = ZI_CUDA_LOCATION_DEVICE, .id = 0 },
	.flags = ZI_CUDA_ACCESS_READ_WRITE,
};

static const struct zi_cuda *open_fake(const char *options)
{
	struct zi_text text = { "" };

	cr_assert_eq(open_gpu(&driver, options, &text), 0, "%s", text.chars);
	return &driver.cuda;
}

static int open_fd_count(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static int send_fd(int socket_fd, int fd)
{
	char byte = 1, control[CMSG_SPACE(sizeof(int))] = "";
	struct iovec vector = { &byte, 1 };
	struct msghdr message = { .msg_iov = &vector,
		                  .msg_iovlen = 1,
		                  .msg_control = control,
		                  .msg_controllen = sizeof(control) };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	return sendmsg(socket_fd, &message, 0) == 1 ? 0 : -1;
}

static int receive_fd(int socket_fd)
{
	char byte, control[CMSG_SPACE(sizeof(int))] = "";
	struct iovec vector = { &byte, 1 };
	struct msghdr message = { .msg_iov = &vector,
		                  .msg_iovlen = 1,
		                  .msg_control = control,
		                  .msg_controllen = sizeof(control) };
	int fd = -1;

	if (recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC) == 1)
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

/* The worker: makes two chunks without a context, sends them, and waits to be killed. */
static void own_chunks(int socket_fd)
{
	const struct zi_cuda_allocation chunk = zi_gpu_chunk(0);
	struct zi_cuda_context *context = NULL;
	char byte;

	for (int i = 0; i < 2; i++) {
		uint64_t handle;
		int fd;

		if (driver.cuda.cuMemCreate(&handle, CHUNK, &chunk, 0) ||
		    driver.cuda.cuMemExportToShareableHandle(&fd, handle, ZI_CUDA_HANDLE_POSIX_FD,
		                                             0) ||
		    send_fd(socket_fd, fd))
			_exit(1);
		(void)close(fd);
	}
	if (driver.cuda.cuCtxGetCurrent(&context) || context)
		_exit(2);
	(void)read(socket_fd, &byte, 1); /* Until the end. */
	_exit(3);
}

/* The rank: maps both chunks, after their maker has died. Return: the step that went wrong. */
static int use_chunks(const int *fds)
{
	const struct zi_cuda *cuda = &driver.cuda;
	struct zi_cuda_context *context;
	uint64_t handles[2], address;
	uint8_t bytes[16] = { 0 };

	if (cuda->cuDevicePrimaryCtxRetain(&context, 0) || cuda->cuCtxSetCurrent(context))
		return 1;
	if (cuda->cuMemAddressReserve(&address, 3 * CHUNK, 0, 0, 0))
		return 2;
	for (int i = 0; i < 2; i++) {
		if (cuda->cuMemImportFromShareableHandle(&handles[i], (void *)(intptr_t)fds[i],
		                                         ZI_CUDA_HANDLE_POSIX_FD))
			return 3;
		(void)close(fds[i]);
	}
	/* The third place shows the first chunk again. */
	for (int i = 0; i < 3; i++)
		if (cuda->cuMemMap(address + i * CHUNK, CHUNK, 0, handles[i % 2], 0))
			return 4;
	if (cuda->cuMemSetAccess(address, 3 * CHUNK, &read_write, 1))
		return 5;
	if (cuda->cuMemsetD8Async(address, 1, CHUNK, NULL) ||
	    cuda->cuMemsetD8Async(address + CHUNK, 2, CHUNK, NULL) ||
	    cuda->cuMemcpyDtoHAsync(bytes, address + 3 * CHUNK - 8, 8, NULL) ||
	    cuda->cuMemcpyDtoHAsync(bytes + 8, address + 2 * CHUNK - 8, 8, NULL) ||
	    cuda->cuStreamSynchronize(NULL))
		return 6;
	for (int i = 0; i < 16; i++)
		if (bytes[i] != (i < 8 ? 1 : 2))
			return 7;
	if (cuda->cuMemUnmap(address, 3 * CHUNK) || cuda->cuMemRelease(handles[0]) ||
	    cuda->cuMemRelease(handles[1]) || cuda->cuMemAddressFree(address, 3 * CHUNK))
		return 8;
	return 0;
}

Test(gpu_chunks, made_without_a_context_work_in_another_process_after_their_maker_died)
{
	int sockets[2], fds[2];
	pid_t owner;

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
	owner = fork();
	if (!owner) {
		if (open_gpu(&driver, "", NULL))
			_exit(4);
		own_chunks(sockets[1]);
	}
	for (int i = 0; i < 2; i++)
		fds[i] = receive_fd(sockets[0]);
	cr_assert_eq(kill(owner, SIGKILL), 0);
	cr_assert(WIFSIGNALED(wait_child(owner)));
	open_fake("");
	cr_assert_eq(use_chunks(fds), 0);
	(void)close(sockets[0]);
	(void)close(sockets[1]);
}

Test(gpu_chunks, are_zero_and_leave_nothing)
{
	const struct zi_cuda *cuda = start_gpu(&driver, "bytes=4M");
	int before = open_fd_count();
	uint64_t handles[2], address;
	size_t free_bytes, total_bytes;
	uint32_t word = 1;

	address = map_chunks(cuda, 2, handles);
	cr_assert_eq(cuda->cuMemGetInfo(&free_bytes, &total_bytes), 0);
	cr_assert_eq(free_bytes, 0);
	cr_assert_eq(total_bytes, 2 * CHUNK);
	cr_assert_eq(cuda->cuMemcpyDtoHAsync(&word, address + CHUNK, 4, NULL), 0);
	cr_assert_eq(cuda->cuStreamSynchronize(NULL), 0);
	cr_assert_eq(word, 0);
	/* Mapped memory stays when its handle goes. */
	cr_assert_eq(cuda->cuMemRelease(handles[0]), 0);
	cr_assert_eq(cuda->cuMemcpyDtoHAsync(&word, address, 4, NULL), 0);
	cr_assert_eq(cuda->cuStreamSynchronize(NULL), 0);
	cr_assert_eq(cuda->cuMemUnmap(address, 2 * CHUNK), 0);
	cr_assert_eq(cuda->cuMemGetInfo(&free_bytes, &total_bytes), 0);
	cr_assert_eq(free_bytes, CHUNK, "one has a handle still");
	cr_assert_eq(cuda->cuMemRelease(handles[1]), 0);
	cr_assert_eq(cuda->cuMemAddressFree(address, 2 * CHUNK), 0);
	cr_assert_eq(cuda->cuMemGetInfo(&free_bytes, &total_bytes), 0);
	cr_assert_eq(free_bytes, 2 * CHUNK);
	cr_assert_eq(open_fd_count(), before);
}

Test(gpu_chunks, end_where_memory_ends)
{
	const struct zi_cuda *cuda = open_fake("bytes=16M,used=12M");
	const struct zi_cuda_allocation first = zi_gpu_chunk(0), second = zi_gpu_chunk(1);
	uint64_t handles[3];

	cr_assert_eq(cuda->cuMemCreate(&handles[0], 3 * CHUNK, &first, 0), ZI_CUDA_OUT_OF_MEMORY);
	cr_assert_eq(cuda->cuMemCreate(&handles[0], 2 * CHUNK, &first, 0), 0);
	cr_assert_eq(cuda->cuMemCreate(&handles[1], CHUNK, &first, 0), ZI_CUDA_OUT_OF_MEMORY);
	cr_assert_eq(cuda->cuMemCreate(&handles[1], CHUNK, &second, 0), 0, "of the other GPU");
	cr_assert_eq(cuda->cuMemRelease(handles[0]), 0);
	cr_assert_eq(cuda->cuMemCreate(&handles[2], CHUNK, &first, 0), 0);
	cr_assert_eq(cuda->cuMemRelease(handles[1]), 0);
	cr_assert_eq(cuda->cuMemRelease(handles[2]), 0);
}

Test(gpu_chunks, are_refused_for_each_wrong_argument)
{
	const struct zi_cuda *cuda = open_fake("");
	struct zi_cuda_allocation chunk = zi_gpu_chunk(0);
	uint64_t handle = 7;
	size_t granularity_bytes = 7;

	cr_assert_eq(cuda->cuMemGetAllocationGranularity(&granularity_bytes, &chunk, 2), 1);
	cr_assert_eq(cuda->cuMemGetAllocationGranularity(&granularity_bytes, &chunk, 1), 0);
	cr_assert_eq(granularity_bytes, CHUNK);
	cr_assert_eq(cuda->cuMemCreate(&handle, 0, &chunk, 0), ZI_CUDA_INVALID_VALUE);
	cr_assert_eq(cuda->cuMemCreate(&handle, CHUNK / 2, &chunk, 0), ZI_CUDA_INVALID_VALUE);
	cr_assert_eq(cuda->cuMemCreate(&handle, CHUNK, &chunk, 1), ZI_CUDA_INVALID_VALUE);
	chunk.location.id = 2;
	cr_assert_eq(cuda->cuMemCreate(&handle, CHUNK, &chunk, 0), ZI_CUDA_INVALID_DEVICE);
	chunk = zi_gpu_chunk(0);
	chunk.type = 2;
	cr_assert_eq(cuda->cuMemCreate(&handle, CHUNK, &chunk, 0), ZI_CUDA_INVALID_VALUE);
	chunk = zi_gpu_chunk(0);
	chunk.handle_types = 8;
	cr_assert_eq(cuda->cuMemCreate(&handle, CHUNK, &chunk, 0), ZI_CUDA_NOT_SUPPORTED);
	cr_assert_eq(handle, 7, "untouched");
	cr_assert_eq(cuda->cuMemRelease(handle), ZI_CUDA_INVALID_VALUE);
}

Test(gpu_chunks, without_vmm_are_not_made)
{
	const struct zi_cuda *cuda = open_fake("no=vmm");
	const struct zi_cuda_allocation chunk = zi_gpu_chunk(0);
	uint64_t handle;

	cr_assert_eq(cuda->cuMemCreate(&handle, CHUNK, &chunk, 0), ZI_CUDA_NOT_SUPPORTED);
}

Test(gpu_chunks, without_file_descriptors_are_not_made_for_export)
{
	const struct zi_cuda *cuda = open_fake("no=fds");
	struct zi_cuda_allocation chunk = zi_gpu_chunk(0);
	uint64_t handle;

	cr_assert_eq(cuda->cuMemCreate(&handle, CHUNK, &chunk, 0), ZI_CUDA_NOT_SUPPORTED);
	chunk.handle_types = 0;
	cr_assert_eq(cuda->cuMemCreate(&handle, CHUNK, &chunk, 0), 0);
	cr_assert_eq(cuda->cuMemRelease(handle), 0);
}

Test(gpu_chunks, that_are_no_chunks_are_not_imported)
{
	const struct zi_cuda *cuda = open_fake("");
	const struct zi_cuda_allocation chunk = zi_gpu_chunk(0);
	uint64_t handle = 0, other;
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), shared = -1;

	cr_assert_eq(cuda->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, 1),
	             ZI_CUDA_INVALID_VALUE);
	(void)close(fd);
	cr_assert_eq(cuda->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, 1),
	             ZI_CUDA_INVALID_VALUE);
	cr_assert_eq(cuda->cuMemCreate(&handle, CHUNK, &chunk, 0), 0);
	cr_assert_eq(cuda->cuMemExportToShareableHandle(&shared, handle, 2, 0),
	             ZI_CUDA_NOT_SUPPORTED);
	cr_assert_eq(cuda->cuMemExportToShareableHandle(&shared, handle + 1, 1, 0),
	             ZI_CUDA_INVALID_VALUE);
	cr_assert_eq(cuda->cuMemExportToShareableHandle(&shared, handle, 1, 0), 0);
	cr_assert_eq(cuda->cuMemImportFromShareableHandle(&other, (void *)(intptr_t)shared, 2),
	             ZI_CUDA_NOT_SUPPORTED);
	cr_assert_eq(cuda->cuMemImportFromShareableHandle(&other, (void *)(intptr_t)shared, 1), 0);
	cr_assert_neq(other, handle);
	(void)close(shared);
	cr_assert_eq(cuda->cuMemRelease(other), 0);
	cr_assert_eq(cuda->cuMemRelease(handle), 0);
}

Test(gpu_chunks, are_mapped_whole_once_at_a_place_and_where_addresses_are_reserved)
{
	const struct zi_cuda *cuda = open_fake("");
	const struct zi_cuda_allocation chunk = zi_gpu_chunk(0);
	uint64_t handle, large, address, unaligned;

	cr_assert_eq(cuda->cuMemAddressReserve(&address, 0, 0, 0, 0), ZI_CUDA_INVALID_VALUE);
	cr_assert_eq(cuda->cuMemAddressReserve(&address, CHUNK + 1, 0, 0, 0),
	             ZI_CUDA_INVALID_VALUE);
	cr_assert_eq(cuda->cuMemAddressReserve(&address, CHUNK, 3 * CHUNK, 0, 0),
	             ZI_CUDA_INVALID_VALUE);
	cr_assert_eq(cuda->cuMemAddressReserve(&address, 2 * CHUNK, 8 * CHUNK, 0, 0), 0);
	cr_assert_eq(address % (8 * CHUNK), 0);
	unaligned = address + CHUNK / 2;
	cr_assert_eq(cuda->cuMemCreate(&handle, CHUNK, &chunk, 0), 0);
	cr_assert_eq(cuda->cuMemCreate(&large, 2 * CHUNK, &chunk, 0), 0);
	cr_assert_eq(cuda->cuMemMap(address, CHUNK, CHUNK, large, 0), 1, "an offset");
	cr_assert_eq(cuda->cuMemMap(address, CHUNK, 0, large, 0), 1, "a part");
	cr_assert_eq(cuda->cuMemMap(address, CHUNK, 0, 99, 0), 1, "no handle");
	cr_assert_eq(cuda->cuMemMap(unaligned, CHUNK, 0, handle, 0), 1, "between chunks");
	cr_assert_eq(cuda->cuMemMap(address + CHUNK, 2 * CHUNK, 0, large, 0), 1, "beyond");
	cr_assert_eq(cuda->cuMemMap(address, CHUNK, 0, handle, 0), 0);
	cr_assert_eq(cuda->cuMemMap(address, CHUNK, 0, handle, 0), 1, "twice");
	cr_assert_eq(cuda->cuMemMap(address, 2 * CHUNK, 0, large, 0), 1, "over another one");
	cr_assert_eq(cuda->cuMemAddressFree(address, 2 * CHUNK), 1, "mapped");
	cr_assert_eq(cuda->cuMemUnmap(address, 2 * CHUNK), 1, "more than is mapped");
	cr_assert_eq(cuda->cuMemUnmap(address + CHUNK, CHUNK), 1, "nothing");
	cr_assert_eq(cuda->cuMemUnmap(address, CHUNK), 0);
	cr_assert_eq(cuda->cuMemMap(address, 2 * CHUNK, 0, large, 0), 0);
	cr_assert_eq(cuda->cuMemUnmap(address, CHUNK), 1, "half of it");
	cr_assert_eq(cuda->cuMemUnmap(address, 2 * CHUNK), 0);
	cr_assert_eq(cuda->cuMemAddressFree(address, CHUNK), 1, "half of it");
	cr_assert_eq(cuda->cuMemAddressFree(address, 2 * CHUNK), 0);
	cr_assert_eq(cuda->cuMemAddressFree(address, 2 * CHUNK), 1, "twice");
	cr_assert_eq(cuda->cuMemRelease(handle), 0);
	cr_assert_eq(cuda->cuMemRelease(large), 0);
}

Test(gpu_chunks, are_used_only_with_access)
{
	const struct zi_cuda *cuda = start_gpu(&driver, "");
	const struct zi_cuda_allocation chunk = zi_gpu_chunk(0);
	struct zi_cuda_access access = zi_gpu_access(0, ZI_CUDA_ACCESS_READ);
	uint64_t handle, address;
	uint32_t word = 5;

	cr_assert_eq(cuda->cuMemAddressReserve(&address, CHUNK, 0, 0, 0), 0);
	cr_assert_eq(cuda->cuMemCreate(&handle, CHUNK, &chunk, 0), 0);
	cr_assert_eq(cuda->cuMemSetAccess(address, CHUNK, &access, 1), 1, "nothing is mapped");
	cr_assert_eq(cuda->cuMemMap(address, CHUNK, 0, handle, 0), 0);
	cr_assert_eq(cuda->cuMemcpyDtoHAsync(&word, address, 4, NULL), 1, "no access");
	cr_assert_eq(cuda->cuMemSetAccess(address, CHUNK, &access, 2), 1, "two devices");
	access.location.id = 9;
	cr_assert_eq(cuda->cuMemSetAccess(address, CHUNK, &access, 1), ZI_CUDA_INVALID_DEVICE);
	access = zi_gpu_access(0, 2);
	cr_assert_eq(cuda->cuMemSetAccess(address, CHUNK, &access, 1), 1, "no such access");
	access = zi_gpu_access(0, ZI_CUDA_ACCESS_READ);
	cr_assert_eq(cuda->cuMemSetAccess(address, CHUNK, &access, 1), 0);
	cr_assert_eq(cuda->cuMemcpyDtoHAsync(&word, address, 4, NULL), 0);
	cr_assert_eq(cuda->cuStreamSynchronize(NULL), 0);
	cr_assert_eq(word, 0);
	cr_assert_eq(cuda->cuMemcpyHtoDAsync(address, &word, 4, NULL), 1, "reading only");
	cr_assert_eq(cuda->cuMemSetAccess(address, CHUNK, &read_write, 1), 0);
	cr_assert_eq(cuda->cuMemcpyHtoDAsync(address + CHUNK - 4, &word, 4, NULL), 0);
	cr_assert_eq(cuda->cuMemcpyHtoDAsync(address + CHUNK - 2, &word, 4, NULL), 1, "beyond it");
	cr_assert_eq(cuda->cuStreamSynchronize(NULL), 0);
	cr_assert_eq(cuda->cuMemUnmap(address, CHUNK), 0);
	cr_assert_eq(cuda->cuMemRelease(handle), 0);
	cr_assert_eq(cuda->cuMemAddressFree(address, CHUNK), 0);
}
