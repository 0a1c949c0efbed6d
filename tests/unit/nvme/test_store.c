/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a store is made whole or not at all, keeps its identity, grows, and belongs to one process.
 * Method: small files on a real file system; what a crash would leave is made by hand. */
#include <fcntl.h>
#include <linux/loop.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "nvme/holder.h"
#include "nvme/superblock.h"
#include "tests/unit/nvme/nvme_test.h"

#define STORE_BYTES (4 * MIB)

TestSuite(store, .init = test_make_directory, .fini = test_remove_directory);

static uint64_t file_bytes(const char *path)
{
	struct stat status;

	cr_assert_eq(stat(path, &status), 0);
	return (uint64_t)status.st_size;
}

static bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

Test(store, missing_file_is_made_private_and_fully_allocated)
{
	struct nvme_store *store = test_open("new", STORE_BYTES);
	struct stat status;

	cr_assert_eq(fstat(store->fd, &status), 0);
	cr_assert_eq(status.st_mode & 07777, 0600);
	cr_assert_eq(status.st_size, STORE_BYTES);
	cr_assert_geq((uint64_t)status.st_blocks * 512, STORE_BYTES);
	cr_assert_eq(fcntl(store->fd, F_GETFD), FD_CLOEXEC);
	cr_assert(store->is_created);
	cr_assert_not(store->is_block_device);
	cr_assert_eq(store->bytes, STORE_BYTES);
	cr_assert_str_eq(store->name, "test");
	cr_assert_not(exists(test_path("new.zinf-preparing")));
	cr_assert_eq(nvme_store_flush(store), 0);
	store = nvme_store_close(store);
	cr_assert_null(store);
}

Test(store, opened_again_has_the_same_identity_and_size)
{
	struct nvme_store *store = test_open("again", STORE_BYTES);
	uint8_t uuid[16], zero[16] = { 0 };

	memcpy(uuid, store->uuid, 16);
	cr_assert_neq(memcmp(uuid, zero, 16), 0);
	cr_assert_eq(nvme_store_settle(store, &test_text), 0, "%s", test_text.chars);
	store = nvme_store_close(store);
	store = test_open("again", 0);
	cr_assert_not(store->is_created);
	cr_assert_eq(store->bytes, STORE_BYTES);
	cr_assert_arr_eq(uuid, store->uuid, 16);
	/* With it, io_uring would answer -EAGAIN instead of waiting for the disk. */
	cr_assert_eq(fcntl(store->fd, F_GETFL) & O_NONBLOCK, 0);
	store = nvme_store_close(store);
}

Test(store, direct_io_is_what_the_descriptor_does)
{
	struct nvme_store *store = test_open("direct", STORE_BYTES);

	cr_assert_eq(!!(fcntl(store->fd, F_GETFL) & O_DIRECT), store->is_direct);
	cr_assert_eq(fcntl(store->fd, F_GETFL) & O_NONBLOCK, 0);
	cr_assert_leq(store->align_bytes, ZI_STORE_ALIGN_BYTES);
	if (store->is_direct)
		cr_assert_geq(store->align_bytes, 512);
	store = nvme_store_close(store);
}

struct seen {
	uint64_t calls, last_bytes, total_bytes;
};

static int see(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
	struct seen *seen = arg;

	cr_assert_gt(done_bytes, seen->last_bytes);
	seen->calls++;
	seen->last_bytes = done_bytes;
	seen->total_bytes = total_bytes;
	return 0;
}

Test(store, preparing_reports_its_progress_to_the_end)
{
	struct seen seen = { 0 };
	struct nvme_store *store = NULL;
	struct nvme_store_options options = { .name = "t",
		                              .path = test_path("progress"),
		                              .bytes = 20 * MIB,
		                              .progress = see,
		                              .progress_arg = &seen };

	cr_assert_eq(nvme_store_open(&options, NULL, &store), 0);
	cr_assert_eq(seen.last_bytes, 20 * MIB);
	cr_assert_eq(seen.total_bytes, 20 * MIB);
	cr_assert_geq(seen.calls, 2);
	store = nvme_store_close(store);
}

static int stop_at_half(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
	(void)arg;
	return done_bytes * 2 >= total_bytes ? -ECANCELED : 0;
}

/* @path: with @bytes, which is stopped half-way. */
static void stop_preparing(const char *path, uint64_t bytes)
{
	struct nvme_store *store = NULL;
	struct nvme_store_options options = {
		.name = "t", .path = path, .bytes = bytes, .progress = stop_at_half
	};

	cr_assert_eq(nvme_store_open(&options, &test_text, &store), -ECANCELED, "%s",
	             test_text.chars);
	cr_assert_null(store);
}

Test(store, preparing_that_is_stopped_leaves_what_was_there)
{
	struct nvme_store *store;

	stop_preparing(test_path("none"), 20 * MIB);
	cr_assert_not(exists(test_path("none")));
	cr_assert_not(exists(test_path("none.zinf-preparing")));
	test_write_file(test_path("empty"), "", 0);
	stop_preparing(test_path("empty"), 20 * MIB);
	cr_assert_eq(file_bytes(test_path("empty")), 0);
	store = test_open("growing", STORE_BYTES);
	store = nvme_store_close(store);
	stop_preparing(test_path("growing"), 20 * MIB);
	cr_assert_eq(file_bytes(test_path("growing")), STORE_BYTES);
	store = test_open("growing", 0);
	cr_assert_eq(store->bytes, STORE_BYTES);
	store = nvme_store_close(store);
}

Test(store, grows_with_its_contents_and_identity)
{
	struct nvme_store *store = test_open("grow", STORE_BYTES);
	unsigned char *buffer = test_buffer(MIB);
	uint8_t uuid[16];

	memcpy(uuid, store->uuid, 16);
	test_fill(buffer, MIB, 5);
	cr_assert_eq(pwrite(store->fd, buffer, MIB, STORE_BYTES - MIB), MIB);
	store = nvme_store_close(store);
	store = test_open("grow", 2 * STORE_BYTES);
	cr_assert_eq(store->bytes, 2 * STORE_BYTES);
	cr_assert(store->is_created, "as new as before");
	cr_assert_arr_eq(uuid, store->uuid, 16);
	memset(buffer, 0, MIB);
	cr_assert_eq(pread(store->fd, buffer, MIB, STORE_BYTES - MIB), MIB);
	cr_assert(test_is_filled(buffer, MIB, 5));
	store = nvme_store_close(store);
	store = test_open("grow", 0);
	cr_assert_eq(store->bytes, 2 * STORE_BYTES);
	store = nvme_store_close(store);
}

Test(store, interrupted_growth_is_no_growth)
{
	struct nvme_store *store = test_open("half", STORE_BYTES);

	cr_assert_eq(ftruncate(store->fd, STORE_BYTES + MIB), 0); /* as a crash while growing */
	store = nvme_store_close(store);
	store = test_open("half", 0);
	cr_assert_eq(store->bytes, STORE_BYTES);
	store = nvme_store_close(store);
	store = test_open("half", 2 * STORE_BYTES);
	cr_assert_eq(store->bytes, 2 * STORE_BYTES);
	store = nvme_store_close(store);
}

Test(store, shrinking_is_refused_with_both_sizes)
{
	struct nvme_store *store = test_open("shrink", STORE_BYTES);

	store = nvme_store_close(store);
	cr_assert_eq(test_try_open(test_path("shrink"), 2 * MIB, &store), -EINVAL);
	cr_assert_not_null(strstr(test_text.chars, "4194304"), "%s", test_text.chars);
	cr_assert_not_null(strstr(test_text.chars, "2097152"), "%s", test_text.chars);
	cr_assert_eq(file_bytes(test_path("shrink")), STORE_BYTES);
}

Test(store, stale_preparation_of_a_crash_is_removed)
{
	struct nvme_store *store;

	test_write_file(test_path("stale.zinf-preparing"), "half", 4);
	store = test_open("stale", STORE_BYTES);
	cr_assert(store->is_created);
	cr_assert_not(exists(test_path("stale.zinf-preparing")));
	store = nvme_store_close(store);
}

Test(store, preparation_of_a_living_process_is_left_alone)
{
	struct nvme_store *store = NULL;
	int fd = open(test_path("busy.zinf-preparing"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	cr_assert_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
	cr_assert_eq(test_try_open(test_path("busy"), STORE_BYTES, &store), -EBUSY);
	cr_assert_not_null(strstr(test_text.chars, "prepared by another"), "%s", test_text.chars);
	cr_assert(exists(test_path("busy.zinf-preparing")));
	cr_assert_not(exists(test_path("busy")));
	close(fd);
}

Test(store, empty_file_of_the_administrator_is_filled_in_place)
{
	struct nvme_store *store;
	struct stat before, after;

	test_write_file(test_path("empty"), "", 0);
	cr_assert_eq(stat(test_path("empty"), &before), 0);
	store = test_open("empty", STORE_BYTES);
	cr_assert_eq(fstat(store->fd, &after), 0);
	cr_assert_eq(before.st_ino, after.st_ino);
	cr_assert(store->is_created);
	store = nvme_store_close(store);
	store = test_open("empty", 0);
	cr_assert(store->is_created);
	cr_assert_eq(nvme_store_settle(store, &test_text), 0, "%s", test_text.chars);
	store = nvme_store_close(store);
	store = test_open("empty", 0);
	cr_assert_not(store->is_created);
	store = nvme_store_close(store);
}

/* A daemon that dies, or a power failure, between making a store and adopting it. */
Test(store, is_new_until_the_catalog_has_it)
{
	struct nvme_store *store = test_open("young", STORE_BYTES);
	uint8_t uuid[16];

	memcpy(uuid, store->uuid, 16);
	for (uint32_t i = 0; i < 2; i++) {
		store = nvme_store_close(store);
		store = test_open("young", STORE_BYTES);
		cr_assert(store->is_created);
		cr_assert_arr_eq(uuid, store->uuid, 16);
	}
	cr_assert_eq(nvme_store_settle(store, &test_text), 0, "%s", test_text.chars);
	cr_assert_not(store->is_created);
	cr_assert_eq(nvme_store_settle(store, &test_text), 0, "again: nothing to do");
	store = nvme_store_close(store);
	store = test_open("young", STORE_BYTES);
	cr_assert_not(store->is_created);
	cr_assert_arr_eq(uuid, store->uuid, 16);
	store = nvme_store_close(store);
}

Test(store, settling_that_finds_damage_or_fails_says_so)
{
	struct nvme_store *store = test_open("spoilt", STORE_BYTES);
	int fd = open(test_path("spoilt"), O_RDWR | O_CLOEXEC);

	cr_assert_eq(pwrite(fd, "x", 1, 40), 1); /* in its uuid */
	cr_assert_eq(nvme_store_settle(store, &test_text), -EUCLEAN);
	cr_assert_not_null(strstr(test_text.chars, "damaged"), "%s", test_text.chars);
	cr_assert_eq(ftruncate(fd, 0), 0);
	cr_assert_eq(nvme_store_settle(store, &test_text), -EIO);
	cr_assert_not_null(strstr(test_text.chars, "cannot be read"), "%s", test_text.chars);
	cr_assert(store->is_created);
	close(fd);
	store = nvme_store_close(store);
}

Test(store, filling_that_a_crash_interrupted_begins_anew)
{
	struct nvme_superblock superblock;
	struct nvme_store *store;

	cr_assert_eq(nvme_superblock_make(STORE_BYTES, &superblock), 0);
	superblock.state = NVME_SUPERBLOCK_PREPARING;
	nvme_superblock_seal(&superblock);
	test_write_file(test_path("cut"), &superblock, sizeof(superblock));
	store = test_open("cut", STORE_BYTES);
	cr_assert(store->is_created);
	cr_assert_eq(file_bytes(test_path("cut")), STORE_BYTES);
	store = nvme_store_close(store);
}

Test(store, who_has_it_is_named)
{
	struct nvme_store *store = test_open("named", STORE_BYTES), *second = NULL;
	char words[64];
	pid_t child;
	int status;

	cr_expect_eq(nvme_holder_of(test_path("named")), getpid());
	cr_expect_eq(test_try_open(test_path("named"), 0, &second), -EBUSY);
	cr_expect(strstr(test_text.chars, "in use by another section"), "%s", test_text.chars);
	(void)snprintf(words, sizeof(words), "in use by another process (pid %d)", (int)getpid());
	child = fork();
	if (!child)
		_exit(test_try_open(test_path("named"), 0, &second) == -EBUSY &&
		                      strstr(test_text.chars, words)
		              ? 0
		              : 1);
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_expect_eq(status, 0);
	store = nvme_store_close(store);
	cr_expect_eq(nvme_holder_of(test_path("named")), 0);
	cr_expect_eq(nvme_holder_of(test_path("never made")), 0);
}

/* As the kernel keeps the lock of a killed daemon: the open file outlives who locked it. */
Test(store, a_lock_of_one_that_has_ended_has_no_holder)
{
	struct nvme_store *store = test_open("ended", STORE_BYTES), *second = NULL;
	siginfo_t info;
	pid_t child;
	int fd, status;

	store = nvme_store_close(store);
	fd = open(test_path("ended"), O_RDWR | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	child = fork();
	if (!child)
		_exit(flock(fd, LOCK_EX | LOCK_NB) ? 1 : 0);
	cr_assert_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
	cr_expect_eq(nvme_holder_of(test_path("ended")), 0, "a zombie does not live");
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert_eq(status, 0);
	cr_expect_eq(nvme_holder_of(test_path("ended")), 0);
	cr_expect_eq(test_try_open(test_path("ended"), 0, &second), -EBUSY);
	cr_expect(strstr(test_text.chars, "for one that has ended"), "%s", test_text.chars);
	(void)close(fd);
	store = test_open("ended", 0);
	store = nvme_store_close(store);
}

Test(store, second_process_is_refused_while_the_first_lives)
{
	struct nvme_store *store = test_open("lock", STORE_BYTES);
	pid_t child = fork();
	int status;

	if (!child) {
		struct nvme_store *second = NULL;

		/* A new open file description, as another daemon would have it. */
		_exit(test_try_open(test_path("lock"), 0, &second) == -EBUSY &&
		                      strstr(test_text.chars, "another process")
		              ? 0
		              : 1);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert_eq(status, 0);
	store = nvme_store_close(store);
	store = test_open("lock", 0);
	store = nvme_store_close(store);
}

Test(store, close_of_nothing_is_fine)
{
	cr_assert_null(nvme_store_close(NULL));
}

/* ---- a block device: a loop device over a file, where there may be one ---- */

static int loop_fd = -1;

/* Tests run side by side: a number that is free may be taken when it is asked for. */
static const char *loop_attach(const char *backing)
{
	static char path[64];
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	int file = open(backing, O_RDWR | O_CLOEXEC);

	for (int i = 0; i < 32 && control >= 0; i++) {
		(void)snprintf(path, sizeof(path), "/dev/loop%d",
		               ioctl(control, LOOP_CTL_GET_FREE));
		loop_fd = open(path, O_RDWR | O_CLOEXEC);
		if (loop_fd < 0 || !ioctl(loop_fd, LOOP_SET_FD, file) || errno != EBUSY)
			break;
		close(loop_fd);
		loop_fd = -1;
	}
	if (loop_fd < 0) {
		int error = errno;

		test_remove_directory(); /* A test that is skipped has no .fini. */
		cr_skip_test("no loop device here (errno %d)", error);
	}
	close(control);
	close(file);
	return path;
}

static void loop_detach(void)
{
	if (loop_fd >= 0) {
		(void)ioctl(loop_fd, LOOP_CLR_FD, 0);
		close(loop_fd);
	}
	test_remove_directory();
}

TestSuite(store_device, .init = test_make_directory, .fini = loop_detach);

static void make_backing(uint64_t bytes)
{
	test_write_file(test_path("disk"), "", 0);
	cr_assert_eq(truncate(test_path("disk"), (off_t)bytes), 0);
}

Test(store_device, empty_device_is_adopted_whole_and_grows_no_further)
{
	struct nvme_store *store = NULL;
	const char *device;

	make_backing(8 * MIB);
	device = loop_attach(test_path("disk"));
	cr_assert_eq(test_try_open(device, 0, &store), 0, "%s", test_text.chars);
	cr_assert(store->is_block_device);
	cr_assert(store->is_created);
	cr_assert(store->is_direct);
	cr_assert_eq(store->bytes, 8 * MIB);
	cr_assert_eq(nvme_store_settle(store, &test_text), 0, "%s", test_text.chars);
	store = nvme_store_close(store);
	cr_assert_eq(test_try_open(device, 9 * MIB, &store), -ENOSPC);
	cr_assert_not_null(strstr(test_text.chars, "8 MiB"), "%s", test_text.chars);
	cr_assert_eq(test_try_open(device, 8 * MIB, &store), 0, "%s", test_text.chars);
	cr_assert_not(store->is_created);
	store = nvme_store_close(store);
}

Test(store_device, part_of_a_device_grows_to_the_whole)
{
	struct nvme_store *store = NULL;
	const char *device;

	make_backing(8 * MIB);
	device = loop_attach(test_path("disk"));
	cr_assert_eq(test_try_open(device, 9 * MIB, &store), -ENOSPC);
	cr_assert_eq(test_try_open(device, 2 * MIB, &store), 0, "%s", test_text.chars);
	cr_assert_eq(store->bytes, 2 * MIB);
	store = nvme_store_close(store);
	cr_assert_eq(test_try_open(device, 8 * MIB, &store), 0, "%s", test_text.chars);
	cr_assert_eq(store->bytes, 8 * MIB);
	store = nvme_store_close(store);
}

Test(store_device, link_to_a_device_is_followed)
{
	struct nvme_store *store = NULL;

	make_backing(2 * MIB);
	cr_assert_eq(symlink(loop_attach(test_path("disk")), test_path("by-id")), 0);
	cr_assert_eq(test_try_open(test_path("by-id"), 0, &store), 0, "%s", test_text.chars);
	store = nvme_store_close(store);
}

Test(store_device, device_with_anything_in_its_first_mebibyte_is_left_alone)
{
	struct nvme_store *store = NULL;
	const char *device;
	char byte = 1;

	make_backing(4 * MIB);
	device = loop_attach(test_path("disk"));
	cr_assert_eq(pwrite(loop_fd, &byte, 1, MIB - 1), 1);
	cr_assert_eq(fsync(loop_fd), 0);
	cr_assert_eq(test_try_open(device, 0, &store), -EEXIST);
	cr_assert_not_null(strstr(test_text.chars, "not empty"), "%s", test_text.chars);
	cr_assert_null(store);
}

Test(store_device, device_of_less_than_a_mebibyte_is_too_small)
{
	struct nvme_store *store = NULL;

	make_backing(MIB / 2);
	cr_assert_eq(test_try_open(loop_attach(test_path("disk")), 0, &store), -ENOSPC);
	cr_assert_not_null(strstr(test_text.chars, "512 KiB"), "%s", test_text.chars);
}
