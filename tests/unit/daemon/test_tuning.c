/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what was measured of a store comes back as it went, belongs to that store, and nothing else
 * is ever taken for it; a configured figure wins. Method: files in a folder of the test. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "daemon/daemon.h"
#include "nvme/nvme.h"
#include "tests/guard/guard.h"

static char folder[64];
static const uint8_t uuid[16] = { 1, 2, 0xab, [15] = 0xff };
static const uint8_t other_uuid[16] = { 7 };
static const struct nvme_tuning figures = { .read_block_bytes = 256 << 10,
	                                    .write_block_bytes = 4 << 20,
	                                    .read_depth = 16,
	                                    .write_depth = 8,
	                                    .read_bytes_per_s = 7000000001,
	                                    .write_bytes_per_s = 5000000002 };

static void set_up(void)
{
	cr_assert_not_null(mkdtemp(guard_path(folder, sizeof(folder), "tuning")));
}

static void tear_down(void)
{
	DIR *stream = opendir(folder);
	struct dirent *entry;

	while (stream && (entry = readdir(stream)))
		if (entry->d_name[0] != '.')
			(void)unlinkat(dirfd(stream), entry->d_name, 0);
	if (stream)
		(void)closedir(stream);
	(void)rmdir(folder);
}

static unsigned count_files(void)
{
	DIR *stream = opendir(folder);
	struct dirent *entry;
	unsigned count = 0;

	cr_assert_not_null(stream);
	while ((entry = readdir(stream)))
		count += entry->d_name[0] != '.';
	(void)closedir(stream);
	return count;
}

static void write_file(const char *content)
{
	char path[128];
	FILE *stream;

	(void)snprintf(path, sizeof(path), "%s/tuning-0102ab000000000000000000000000ff", folder);
	stream = fopen(path, "we");
	cr_assert_not_null(stream);
	cr_assert_geq(fputs(content, stream), 0);
	cr_assert_eq(fclose(stream), 0);
}

Test(tuning, comes_back_as_it_went, .init = set_up, .fini = tear_down)
{
	struct nvme_tuning loaded = { 0 };

	cr_assert_eq(tuning_load(folder, uuid, &loaded), -ENOENT);
	cr_assert_eq(tuning_save(folder, uuid, &figures), 0);
	cr_assert_eq(tuning_load(folder, uuid, &loaded), 0);
	cr_assert_eq(memcmp(&loaded, &figures, sizeof(loaded)), 0);
	cr_assert_eq(tuning_load(folder, other_uuid, &loaded), -ENOENT, "another store's");
	cr_assert_eq(tuning_save(folder, uuid, &figures), 0, "over what is there");
	cr_assert_eq(count_files(), 1, "nothing else is left");
}

Test(tuning, file_that_makes_no_sense_is_not_taken, .init = set_up, .fini = tear_down)
{
	static const char *const wrong[] = {
		"",
		"read_block = 4096\n",
		"read_block = 5000\nwrite_block = 4096\nread_depth = 1\nwrite_depth = 1\n"
		"read_bytes_per_s = 1\nwrite_bytes_per_s = 1\n",
		"read_block = 4096\nwrite_block = 4096\nread_depth = 0\nwrite_depth = 1\n"
		"read_bytes_per_s = 1\nwrite_bytes_per_s = 1\n",
		"read_block = 4096\nwrite_block = 4096\nread_depth = 1\nwrite_depth = 9999\n"
		"read_bytes_per_s = 1\nwrite_bytes_per_s = 1\n",
		"read_block = 4096\nwrite_block = 4096\nread_depth = 1\nwrite_depth = 1\n"
		"read_bytes_per_s = fast\nwrite_bytes_per_s = 1\n",
		"read_block = 4096\nwrite_block = 4096\nread_depth = 1\nwrite_depth = 1\n"
		"read_bytes_per_s = 1\nwrite_bytes_per_s = 1\nsomething = 1\n",
		"\x7f\x45LF",
	};
	struct nvme_tuning loaded = { .read_depth = 77 };

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		write_file(wrong[i]);
		cr_assert_eq(tuning_load(folder, uuid, &loaded), -EUCLEAN, "case %zu", i);
		cr_assert_eq(loaded.read_depth, 77, "untouched on failure");
	}
}

Test(tuning, that_cannot_be_written_leaves_the_former, .init = set_up, .fini = tear_down)
{
	const struct rlimit none = { 0, RLIM_INFINITY };
	const struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };
	struct nvme_tuning changed = figures;
	struct nvme_tuning loaded;

	cr_assert_eq(tuning_save("/nowhere/at/all", uuid, &figures), -ENOENT);
	cr_assert_eq(tuning_save(folder, uuid, &figures), 0);
	changed.read_depth = 64;
	/* As on a full disk. */
	(void)signal(SIGXFSZ, SIG_IGN);
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
	cr_expect_eq(tuning_save(folder, uuid, &changed), -EFBIG);
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &all), 0);
	cr_assert_eq(tuning_load(folder, uuid, &loaded), 0);
	cr_assert_eq(loaded.read_depth, figures.read_depth);
	cr_assert_eq(count_files(), 1);
}

Test(tuning, configured_figures_win_over_measured_ones)
{
	const struct nvme_tuning nothing = { 0 };
	struct config_store config = { .read_depth = 5, .write_block_bytes = 8192 };
	struct nvme_tuning tuning = tuning_resolve(&config, &figures);

	cr_assert_eq(tuning.read_depth, 5);
	cr_assert_eq(tuning.write_depth, 8);
	cr_assert_eq(tuning.read_block_bytes, 256 << 10);
	cr_assert_eq(tuning.write_block_bytes, 8192);
	cr_assert_eq(tuning.read_bytes_per_s, 7000000001);
	tuning = tuning_resolve(&config, &nothing);
	cr_assert_eq(tuning.write_depth, 32);
	cr_assert_eq(tuning.read_block_bytes, 1 << 20);
	cr_assert_eq(tuning.write_bytes_per_s, 0);
}

Test(tuning, figures_that_no_disk_has_are_odd)
{
	struct nvme_tuning slow = figures;

	cr_assert_not(tuning_is_odd(&figures));
	slow.write_bytes_per_s = 17 << 20;
	cr_assert(tuning_is_odd(&slow));
	slow = figures;
	slow.read_bytes_per_s = 17 << 20;
	cr_assert(tuning_is_odd(&slow));
}
