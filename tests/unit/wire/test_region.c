/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: memory that is shared cannot be pulled away or written against its maker's will, and what
 * is no such memory is refused. Method: real memfds; each way a descriptor can be wrong is made. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/fd.h"
#include "common/base/types.h"
#include "common/wire/region.h"

#define BYTES       8192u
#define LARGE_BYTES (3 * ZI_HUGE_PAGE_BYTES / 2) /* its mapping is aligned to 2 MiB */

static int open_fd_count(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* A memfd of @bytes with @seals. */
static int memfd_with(uint64_t bytes, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	cr_assert_eq(ftruncate(fd, bytes), 0);
	cr_assert_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

Test(region, new_region_is_zero_private_sealed_and_whole)
{
	struct zi_region region = ZI_REGION_INIT;
	int before = open_fd_count();
	struct stat status;

	cr_assert_eq(zi_region_create("test", 5000, ZI_PAGES_SMALL, NULL, &region), 0);
	cr_assert_eq(region.bytes, BYTES, "whole pages");
	cr_assert_eq(region.pages, ZI_PAGES_SMALL);
	for (uint32_t i = 0; i < BYTES; i++)
		cr_assert_eq(((char *)region.base)[i], 0);
	cr_assert_eq(fstat(region.fd, &status), 0);
	cr_assert_eq(status.st_mode & 0777, 0600);
	cr_assert_eq(status.st_blocks * 512, BYTES, "allocated before anyone touched it");
	cr_assert_eq(fcntl(region.fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	cr_assert_eq(fcntl(region.fd, F_GETFD), FD_CLOEXEC);
	zi_region_destroy(&region);
	cr_assert_eq(region.fd, -1);
	cr_assert_null(region.base);
	zi_region_destroy(&region);
	zi_region_destroy(NULL);
	cr_assert_eq(open_fd_count(), before);
}

static uint64_t held_bytes(int fd)
{
	struct stat status;

	cr_assert_eq(fstat(fd, &status), 0);
	return (uint64_t)status.st_blocks * 512;
}

Test(region, destroyed_has_no_pages_whoever_has_a_descriptor_or_a_mapping)
{
	struct zi_region region = ZI_REGION_INIT;
	const char *readable;
	void *base;
	int fds[2];

	cr_assert_eq(zi_region_create("test", BYTES, ZI_PAGES_SMALL, NULL, &region), 0);
	memset(region.base, 'x', BYTES);
	fds[0] = fcntl(region.fd, F_DUPFD_CLOEXEC, 0);
	cr_assert_eq(zi_fd_reopen_readonly(region.fd, &fds[1]), 0);
	cr_assert_eq(zi_region_map(fds[1], BYTES, false, &base), 0);
	cr_assert_eq(held_bytes(fds[0]), BYTES);
	zi_region_destroy(&region);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(held_bytes(fds[i]), 0);
	/* No SIGBUS: the file is as long as it was. What is touched is a new page. */
	readable = base;
	for (uint32_t i = 0; i < BYTES; i += 4096)
		cr_assert_eq(readable[i], 0);
	cr_assert_eq(zi_region_unmap(base, BYTES), 0);
	for (int i = 0; i < 2; i++)
		(void)zi_close(fds[i]);
}

Test(region, abandoned_stays_with_whoever_has_a_descriptor)
{
	struct zi_region region = ZI_REGION_INIT;
	char byte = 0;
	int fd;

	cr_assert_eq(zi_region_create("test", BYTES, ZI_PAGES_SMALL, NULL, &region), 0);
	memset(region.base, 'x', BYTES);
	fd = fcntl(region.fd, F_DUPFD_CLOEXEC, 0);
	zi_region_abandon(&region);
	cr_assert_eq(region.fd, -1);
	cr_assert_null(region.base);
	zi_region_abandon(NULL);
	cr_assert_eq(held_bytes(fd), BYTES);
	cr_assert_eq(pread(fd, &byte, 1, 0), 1);
	cr_assert_eq(byte, 'x');
	(void)zi_close(fd);
}

Test(region, nobody_can_truncate_or_grow_it)
{
	struct zi_region region = ZI_REGION_INIT;

	cr_assert_eq(zi_region_create("test", BYTES, ZI_PAGES_SMALL, NULL, &region), 0);
	cr_assert_eq(ftruncate(region.fd, 0), -1);
	cr_assert_eq(errno, EPERM);
	cr_assert_eq(ftruncate(region.fd, 2 * BYTES), -1);
	cr_assert_eq(fcntl(region.fd, F_ADD_SEALS, F_SEAL_WRITE), -1, "no more seals");
	zi_region_destroy(&region);
}

Test(region, both_sides_see_the_same_bytes)
{
	struct zi_region region = ZI_REGION_INIT;
	int readonly_fd;
	void *base;

	cr_assert_eq(zi_region_create("test", BYTES, ZI_PAGES_SMALL, NULL, &region), 0);
	cr_assert_eq(zi_fd_reopen_readonly(region.fd, &readonly_fd), 0);
	cr_assert_eq(zi_region_map(readonly_fd, BYTES, false, &base), 0);
	memcpy(region.base, "seen", sizeof("seen"));
	cr_assert_str_eq(base, "seen");
	cr_assert_eq(zi_region_unmap(base, BYTES), 0);
	cr_assert_eq(zi_region_map(region.fd, BYTES, true, &base), 0);
	memcpy(base, "back", sizeof("back"));
	cr_assert_str_eq(region.base, "back");
	cr_assert_eq(zi_region_unmap(base, BYTES), 0);
	cr_assert_eq(zi_region_unmap(NULL, BYTES), 0);
	close(readonly_fd);
	zi_region_destroy(&region);
}

Test(region, read_only_descriptor_cannot_be_mapped_writable)
{
	const uint64_t sizes[] = { BYTES, LARGE_BYTES };

	for (size_t i = 0; i < ZI_COUNT_OF(sizes); i++) {
		struct zi_region region = ZI_REGION_INIT;
		void *base = &region;
		int readonly_fd;

		cr_assert_eq(zi_region_create("test", sizes[i], ZI_PAGES_SMALL, NULL, &region), 0);
		cr_assert_eq(zi_fd_reopen_readonly(region.fd, &readonly_fd), 0);
		cr_assert_eq(zi_region_map(readonly_fd, sizes[i], true, &base), -EACCES);
		cr_assert_eq(base, &region, "untouched on failure");
		cr_assert_eq(zi_region_map(readonly_fd, sizes[i], false, &base), 0);
		cr_assert_eq(mprotect(base, sizes[i], PROT_READ | PROT_WRITE), -1,
		             "nor widened later");
		cr_assert_eq(zi_region_unmap(base, sizes[i]), 0);
		close(readonly_fd);
		zi_region_destroy(&region);
	}
}

Test(region, descriptor_without_every_seal_is_eproto)
{
	const int seals[] = { 0, F_SEAL_SHRINK, F_SEAL_SHRINK | F_SEAL_GROW,
		              F_SEAL_GROW | F_SEAL_SEAL };
	void *base;

	for (size_t i = 0; i < 4; i++) {
		int fd = memfd_with(BYTES, seals[i]);

		cr_expect_eq(zi_region_map(fd, BYTES, true, &base), -EPROTO, "%zu", i);
		close(fd);
	}
}

Test(region, descriptor_of_another_size_or_kind_is_eproto)
{
	int fd = memfd_with(BYTES, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	int pipe_fds[2];
	void *base;

	cr_assert_eq(zi_region_map(fd, BYTES + 4096, true, &base), -EPROTO, "too short");
	cr_assert_eq(zi_region_map(fd, 0, true, &base), -EPROTO);
	cr_assert_eq(zi_region_map(fd, 100, true, &base), -EPROTO, "not whole pages");
	cr_assert_eq(zi_region_map(fd, UINT64_MAX, true, &base), -EPROTO);
	close(fd);
	cr_assert_eq(zi_region_map(fd, BYTES, true, &base), -EPROTO, "closed");
	cr_assert_eq(pipe(pipe_fds), 0);
	cr_assert_eq(zi_region_map(pipe_fds[0], BYTES, false, &base), -EPROTO, "a pipe");
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	fd = open("/proc/self/exe", O_RDONLY);
	cr_assert_eq(zi_region_map(fd, 4096, false, &base), -EPROTO, "a file");
	close(fd);
}

Test(region, without_free_huge_pages_it_falls_back_to_small_ones)
{
	struct zi_region region = ZI_REGION_INIT;
	char text[32];

	/* The pool is the machine's: what happens follows from whether it has a page now. */
	cr_assert_eq(zi_read_text("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", text,
	                          sizeof(text)),
	             0);
	cr_assert_eq(zi_region_create("test", BYTES, ZI_PAGES_HUGETLB, NULL, &region), 0);
	if (strcmp(text, "0") == 0) {
		cr_assert_eq(region.pages, ZI_PAGES_SMALL);
		cr_assert_eq(region.bytes, BYTES);
	} else {
		cr_assert_eq(region.pages, ZI_PAGES_HUGETLB);
		cr_assert_eq(region.bytes, ZI_HUGE_PAGE_BYTES);
	}
	memset(region.base, 1, region.bytes);
	zi_region_destroy(&region);
}

Test(region, collapsing_keeps_the_bytes_and_tells_the_truth)
{
	struct zi_region region = ZI_REGION_INIT;
	uint64_t bytes = 2 * ZI_HUGE_PAGE_BYTES + 4096;

	cr_assert_eq(zi_region_create("test", bytes, ZI_PAGES_COLLAPSED, NULL, &region), 0);
	cr_assert_eq(region.pages, ZI_PAGES_SMALL, "not yet");
	cr_assert_eq((uintptr_t)region.base % ZI_HUGE_PAGE_BYTES, 0, "could be huge");
	memset(region.base, 7, bytes);
	zi_region_collapse(&region);
	cr_assert(region.pages == ZI_PAGES_COLLAPSED || region.pages == ZI_PAGES_SMALL);
	for (uint64_t i = 0; i < bytes; i += 4096)
		cr_assert_eq(((char *)region.base)[i], 7);
	zi_region_destroy(&region);
	cr_assert_eq(zi_region_create("test", 4096, ZI_PAGES_COLLAPSED, NULL, &region), 0);
	zi_region_collapse(&region);
	cr_assert_eq(region.pages, ZI_PAGES_SMALL, "below 2 MiB nothing collapses");
	zi_region_destroy(&region);
}

Test(region, impossible_sizes_are_errors)
{
	struct zi_region region = ZI_REGION_INIT;
	int before = open_fd_count();
	void *base;

	cr_assert_eq(zi_region_create("test", UINT64_MAX, ZI_PAGES_HUGETLB, NULL, &region),
	             -EOVERFLOW);
	cr_assert_eq(region.fd, -1);
	cr_assert_eq(zi_region_reserve(UINT64_MAX, &base), -ENOMEM);
	cr_assert_eq(zi_region_reserve(1ull << 55, &base), -ENOMEM);
	cr_assert_eq(open_fd_count(), before);
}

/* A limit of files is one of regions as well: the kernel refuses the size, and would signal. */
Test(region, size_beyond_the_limit_of_files_is_an_error)
{
	struct zi_region region = ZI_REGION_INIT;
	int before = open_fd_count();
	struct rlimit saved, small;

	(void)signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &saved);
	small = (struct rlimit){ .rlim_cur = BYTES - 1, .rlim_max = saved.rlim_max };
	setrlimit(RLIMIT_FSIZE, &small);
	cr_expect_eq(zi_region_create("test", BYTES, ZI_PAGES_SMALL, NULL, &region), -EFBIG);
	setrlimit(RLIMIT_FSIZE, &saved);
	cr_assert_eq(region.fd, -1);
	cr_assert_eq(open_fd_count(), before);
}

Test(region, exhausted_descriptors_and_address_space_are_errors_and_leave_nothing)
{
	struct zi_region region = ZI_REGION_INIT;
	int before = open_fd_count();
	struct rlimit saved, none;

	getrlimit(RLIMIT_NOFILE, &saved);
	none = (struct rlimit){ .rlim_cur = 0, .rlim_max = saved.rlim_max };
	setrlimit(RLIMIT_NOFILE, &none);
	cr_expect_eq(zi_region_create("test", BYTES, ZI_PAGES_SMALL, NULL, &region), -EMFILE);
	setrlimit(RLIMIT_NOFILE, &saved);
#ifndef ZI_SANITIZED /* whose shadow is larger than any limit */
	getrlimit(RLIMIT_AS, &saved);
	none = (struct rlimit){ .rlim_cur = 1 << 20, .rlim_max = saved.rlim_max };
	setrlimit(RLIMIT_AS, &none);
	cr_expect_eq(zi_region_create("test", BYTES, ZI_PAGES_SMALL, NULL, &region), -ENOMEM);
	cr_expect_eq(zi_region_create("test", LARGE_BYTES, ZI_PAGES_SMALL, NULL, &region), -ENOMEM);
	setrlimit(RLIMIT_AS, &saved);
#endif
	cr_assert_eq(region.fd, -1);
	cr_assert_eq(open_fd_count(), before);
}

Test(region, pages_come_and_go_behind_a_fixed_address)
{
	struct zi_region region = ZI_REGION_INIT;
	int status;
	char *base;
	pid_t pid;

	cr_assert_eq(zi_region_create("test", 4 * 4096, ZI_PAGES_SMALL, NULL, &region), 0);
	((char *)region.base)[3 * 4096] = 'd';
	cr_assert_eq(zi_region_reserve(4 * 4096, (void **)&base), 0);
	cr_assert_eq((uintptr_t)base % ZI_HUGE_PAGE_BYTES, 0);
	cr_assert_eq(zi_region_map_at(base + 4096, 4096, region.fd, 3 * 4096, true), 0);
	cr_assert_eq(base[4096], 'd');
	base[4096] = 'e';
	cr_assert_eq(((char *)region.base)[3 * 4096], 'e');
	cr_assert_eq(zi_region_map_at(base + 4096, 4096, -1, 0, false), 0);
	pid = fork();
	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		_exit(base[4096]); /* bare address space: this kills */
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFSIGNALED(status));
	cr_assert_eq(zi_region_map_at(base + 100, 4096, region.fd, 0, true), -EINVAL);
	cr_assert_eq(zi_region_unmap(base, 4 * 4096), 0);
	zi_region_destroy(&region);
}

Test(region, child_does_not_inherit_the_mapping)
{
	struct zi_region region = ZI_REGION_INIT;
	int status;
	pid_t pid;

	cr_assert_eq(zi_region_create("test", BYTES, ZI_PAGES_SMALL, NULL, &region), 0);
	((char *)region.base)[0] = 1;
	pid = fork();
	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		((volatile char *)region.base)[0] = 2;
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_not(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	cr_assert_eq(((char *)region.base)[0], 1);
	zi_region_destroy(&region);
}
