/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever is not a store of ours, or cannot become one, is refused with a sentence that says
 * why with figures, and nothing is changed or left behind. Method: each kind of wrong path, made by
 * hand; full and read-only file systems are small tmpfs mounted for the test (root only). */
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "common/base/fd.h"
#include "nvme/direct.h"
#include "nvme/prepare.h"
#include "nvme/superblock.h"
#include "tests/unit/nvme/nvme_test.h"

#define STORE_BYTES (4 * MIB)

static char mount_path[512];

static void undo(void)
{
	if (mount_path[0])
		(void)umount2(mount_path, MNT_DETACH);
	test_remove_directory();
}

TestSuite(refused, .init = test_make_directory, .fini = undo);

/* Opens, which must fail with @error and a sentence that has @words. */
static void refuse(const char *path, uint64_t bytes, int error, const char *words)
{
	struct nvme_store *store = NULL;
	int r = test_try_open(path, bytes, &store);

	cr_assert_eq(r, error, "%d: %s", r, test_text.chars);
	cr_assert_null(store);
	cr_assert_not_null(strstr(test_text.chars, words), "%s", test_text.chars);
}

static void mount_tmpfs(const char *options)
{
	(void)snprintf(mount_path, sizeof(mount_path), "%s", test_path("mount"));
	cr_assert_eq(mkdir(mount_path, 0700), 0);
	if (mount("none", mount_path, "tmpfs", 0, options)) {
		int error = errno;

		mount_path[0] = '\0';
		undo(); /* A test that is skipped has no .fini. */
		cr_skip_test("no tmpfs can be mounted here (errno %d)", error);
	}
}

static unsigned entries_count(const char *path)
{
	char command[600];
	unsigned count = 0;
	FILE *pipe;

	(void)snprintf(command, sizeof(command), "ls -A '%s' | wc -l", path);
	pipe = popen(command, "re");
	cr_assert_eq(fscanf(pipe, "%u", &count), 1);
	pclose(pipe);
	return count;
}

Test(refused, foreign_file)
{
	char kept[10] = { 0 };
	FILE *file;

	test_write_file(test_path("thesis"), "my thesis", 9);
	refuse(test_path("thesis"), STORE_BYTES, -EEXIST, "not touched");
	file = fopen(test_path("thesis"), "re");
	cr_assert_eq(fread(kept, 1, 10, file), 9);
	cr_assert_str_eq(kept, "my thesis");
	fclose(file);
}

Test(refused, foreign_file_of_zeros)
{
	test_write_file(test_path("image"), "", 0);
	cr_assert_eq(truncate(test_path("image"), 64 * MIB), 0);
	refuse(test_path("image"), 0, -EEXIST, "64 MiB");
}

/* Makes a store, changes one byte of its superblock, opens it. */
static void flip(unsigned offset, unsigned char bit)
{
	struct nvme_store *store = test_open("flip", STORE_BYTES);
	unsigned char byte;
	int fd;

	store = nvme_store_close(store);
	fd = open(test_path("flip"), O_RDWR | O_CLOEXEC);
	cr_assert_eq(pread(fd, &byte, 1, offset), 1);
	byte ^= bit;
	cr_assert_eq(pwrite(fd, &byte, 1, offset), 1);
	close(fd);
}

Test(refused, other_version)
{
	flip(offsetof(struct nvme_superblock, version), 1);
	refuse(test_path("flip"), 0, -EPROTONOSUPPORT, "version 3");
}

Test(refused, flipped_bit_in_the_uuid)
{
	flip(offsetof(struct nvme_superblock, uuid) + 3, 0x10);
	refuse(test_path("flip"), 0, -EUCLEAN, "damaged");
}

Test(refused, flipped_bit_in_the_reserved_bytes)
{
	flip(offsetof(struct nvme_superblock, checksum) - 1, 1);
	refuse(test_path("flip"), 0, -EUCLEAN, "damaged");
}

Test(refused, flipped_bit_in_the_checksum)
{
	flip(offsetof(struct nvme_superblock, checksum) + 7, 0x80);
	refuse(test_path("flip"), 0, -EUCLEAN, "damaged");
}

/* A right checksum over wrong fields. */
static void forge(uint32_t state, uint64_t bytes)
{
	struct nvme_superblock superblock;

	cr_assert_eq(nvme_superblock_make(STORE_BYTES, &superblock), 0);
	superblock.state = state;
	superblock.bytes = bytes;
	nvme_superblock_seal(&superblock);
	test_write_file(test_path("forged"), &superblock, sizeof(superblock));
}

Test(refused, superblock_in_no_known_state)
{
	forge(9, STORE_BYTES);
	refuse(test_path("forged"), 0, -EUCLEAN, "state 9");
}

Test(refused, superblock_of_an_impossible_size)
{
	forge(NVME_SUPERBLOCK_READY, 4096);
	refuse(test_path("forged"), 0, -EUCLEAN, "4096 bytes");
	forge(NVME_SUPERBLOCK_READY, STORE_BYTES + 1);
	refuse(test_path("forged"), 0, -EUCLEAN, "cannot be");
}

Test(refused, store_that_was_cut)
{
	struct nvme_store *store = test_open("cut", STORE_BYTES);

	store = nvme_store_close(store);
	cr_assert_eq(truncate(test_path("cut"), STORE_BYTES - 4096), 0);
	refuse(test_path("cut"), 0, -EUCLEAN, "it was cut");
}

Test(refused, missing_directory)
{
	refuse(test_path("no/such/store"), STORE_BYTES, -ENOENT, "directory does not exist");
}

Test(refused, missing_file_without_a_size)
{
	refuse(test_path("none"), 0, -EINVAL, "no size is given");
	test_write_file(test_path("empty"), "", 0);
	refuse(test_path("empty"), 0, -EINVAL, "no size is given");
}

/* The catalog says that data lies in it. */
Test(refused, what_is_known_and_not_there_is_not_made_anew)
{
	struct nvme_store *store = NULL;
	struct nvme_store_options options = {
		.name = "t", .path = test_path("gone"), .bytes = STORE_BYTES, .is_known = true
	};

	cr_assert_eq(nvme_store_open(&options, &test_text, &store), -ENODATA);
	cr_assert_not_null(strstr(test_text.chars, "does not exist"), "%s", test_text.chars);
	cr_assert_not_null(strstr(test_text.chars, "put the store back"), "%s", test_text.chars);
	cr_assert_eq(entries_count(test_directory), 0);
	test_write_file(test_path("gone"), "", 0);
	cr_assert_eq(nvme_store_open(&options, &test_text, &store), -ENODATA);
	cr_assert_not_null(strstr(test_text.chars, "is empty"), "%s", test_text.chars);
	options.is_known = false;
	cr_assert_eq(nvme_store_open(&options, &test_text, &store), 0, "%s", test_text.chars);
	store = nvme_store_close(store);
	options.is_known = true;
	cr_assert_eq(nvme_store_open(&options, &test_text, &store), 0, "%s", test_text.chars);
	store = nvme_store_close(store);
}

Test(refused, sizes_that_make_no_store)
{
	refuse(test_path("a"), 4096, -EINVAL, "multiple");
	refuse(test_path("a"), STORE_BYTES + 512, -EINVAL, "multiple");
	refuse(test_path("a"), UINT64_MAX & ~4095ull, -EINVAL, "multiple");
	cr_assert_eq(entries_count(test_directory), 0);
}

Test(refused, no_path_and_too_long_a_name)
{
	struct nvme_store *store = NULL;
	char name[ZI_NAME_BYTES + 1];
	struct nvme_store_options options = { .name = name, .path = test_path("a") };

	refuse("", STORE_BYTES, -EINVAL, "needs a path");
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	cr_assert_eq(nvme_store_open(&options, NULL, &store), -ENAMETOOLONG);
}

Test(refused, a_descriptor_that_is_not_open)
{
	uint32_t align_bytes = 7;
	bool is_direct = true;

	cr_assert_eq(nvme_direct_enable(-1, &is_direct, &align_bytes), -EBADF);
	cr_assert(is_direct);
	cr_assert_eq(align_bytes, 7u);
}

Test(refused, directory_link_and_pipe)
{
	cr_assert_eq(mkdir(test_path("dir"), 0700), 0);
	refuse(test_path("dir"), STORE_BYTES, -EISDIR, "is a directory");
	test_write_file(test_path("target"), "", 0);
	cr_assert_eq(symlink("target", test_path("link")), 0);
	refuse(test_path("link"), STORE_BYTES, -ELOOP, "symbolic link");
	cr_assert_eq(mkfifo(test_path("pipe"), 0600), 0);
	refuse(test_path("pipe"), STORE_BYTES, -ENOTBLK, "neither a file nor a block device");
}

Test(refused, path_that_may_not_be_written)
{
	pid_t child;
	int status;

	if (geteuid()) {
		undo(); /* A test that is skipped has no .fini. */
		cr_skip_test("needs root, to become somebody else");
	}
	test_write_file(test_path("theirs"), "", 0);
	cr_assert_eq(chmod(test_path("theirs"), 0444), 0);
	cr_assert_eq(chmod(test_directory, 0755), 0);
	child = fork();
	if (!child) {
		struct nvme_store *store = NULL;
		bool is_right = setuid(65534) == 0;

		is_right &= test_try_open(test_path("theirs"), STORE_BYTES, &store) == -EACCES;
		is_right &=
			strstr(test_text.chars, "cannot be opened: Permission denied; give zinfd's "
		                                "user the right") != NULL;
		is_right &= test_try_open(test_path("new"), STORE_BYTES, &store) == -EACCES;
		_exit(!is_right);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert_eq(status, 0);
}

Test(refused, read_only_file_system)
{
	mount_tmpfs("size=8m,ro");
	refuse(test_path("mount/store"), STORE_BYTES, -EROFS, "Read-only");
}

Test(refused, memory_file_system_where_direct_io_is_required)
{
	struct nvme_store *store = NULL;
	struct nvme_store_options options = { .name = "t", .bytes = STORE_BYTES };

	mount_tmpfs("size=8m");
	options.path = test_path("mount/store");
	options.is_direct_required = true;
	cr_assert_eq(nvme_store_open(&options, &test_text, &store), -EOPNOTSUPP);
	cr_assert_not_null(strstr(test_text.chars, "direct I/O"), "%s", test_text.chars);
	cr_assert_eq(entries_count(test_path("mount")), 0, "nothing is left behind");
	options.is_direct_required = false;
	cr_assert_eq(nvme_store_open(&options, &test_text, &store), 0, "%s", test_text.chars);
	cr_assert_not(store->is_direct);
	cr_assert_eq(store->align_bytes, 1);
	store = nvme_store_close(store);
}

Test(refused, full_disk_with_figures_and_nothing_left_behind)
{
	mount_tmpfs("size=2m");
	refuse(test_path("mount/store"), STORE_BYTES, -ENOSPC, "4 MiB more (4194304 bytes)");
	cr_assert_not_null(strstr(test_text.chars, "has 2 MiB free"), "%s", test_text.chars);
	cr_assert_eq(entries_count(test_path("mount")), 0);
}

Test(refused, growth_beyond_the_disk_leaves_the_store_as_it_was)
{
	struct nvme_store *store;

	mount_tmpfs("size=6m");
	store = test_open("mount/store", STORE_BYTES);
	store = nvme_store_close(store);
	refuse(test_path("mount/store"), 2 * STORE_BYTES, -ENOSPC, "4 MiB more");
	store = test_open("mount/store", 0);
	cr_assert_eq(store->bytes, STORE_BYTES);
	store = nvme_store_close(store);
}

Test(refused, empty_file_on_a_full_disk_stays_empty)
{
	struct stat status;

	mount_tmpfs("size=2m");
	test_write_file(test_path("mount/empty"), "", 0);
	refuse(test_path("mount/empty"), STORE_BYTES, -ENOSPC, "free");
	cr_assert_eq(stat(test_path("mount/empty"), &status), 0);
	cr_assert_eq(status.st_size, 0);
}

Test(refused, file_size_limit_is_answered_instead_of_a_signal)
{
	struct rlimit limit = { .rlim_cur = MIB, .rlim_max = RLIM_INFINITY };

	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	refuse(test_path("limited"), STORE_BYTES, -EFBIG, "limit of 1 MiB");
	cr_assert_eq(entries_count(test_directory), 0);
}

/* The disk filled up between the question and the answer: what the kernel refuses is undone, too.
 * A limit that is reached past the check does it here, with its signal ignored. */
static int lower_the_limit(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
	struct rlimit limit = { .rlim_cur = MIB, .rlim_max = RLIM_INFINITY };

	(void)arg, (void)total_bytes;
	if (done_bytes == 8 * MIB)
		cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	return 0;
}

Test(refused, a_file_that_cannot_be_resized)
{
	struct nvme_prepare prepare = { .path = "fixed", .to_bytes = STORE_BYTES };

	test_write_file(test_path("fixed"), "", 0);
	prepare.fd = open(test_path("fixed"), O_RDONLY | O_CLOEXEC);
	cr_assert_geq(prepare.fd, 0);
	cr_assert_eq(nvme_prepare(&prepare, &test_text), -EINVAL);
	cr_assert_str_eq(test_text.chars, "store 'fixed' cannot be resized: Invalid argument");
	(void)zi_close(prepare.fd);
}

Test(refused, failure_in_the_middle_of_preparing_leaves_nothing)
{
	struct nvme_store *store = NULL;
	struct nvme_store_options options = { .name = "t",
		                              .path = test_path("middle"),
		                              .bytes = 16 * MIB,
		                              .progress = lower_the_limit };
	int r;

	signal(SIGXFSZ, SIG_IGN);
	r = nvme_store_open(&options, &test_text, &store);
	cr_assert_eq(r, -EFBIG, "%d: %s", r, test_text.chars);
	cr_assert_not_null(strstr(test_text.chars, "16 MiB failed"), "%s", test_text.chars);
	cr_assert_eq(entries_count(test_directory), 0);
}
