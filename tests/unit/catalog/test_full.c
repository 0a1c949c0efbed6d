/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: on a full disk a commit fails with -ENOSPC, the former one stays in force, and once there
 * is space commits go on. Method: a tmpfs of a megabyte in a mount namespace of the test's own, and
 * a ballast file that fills the rest of it. */
#include <sched.h>
#include <sys/mount.h>

#include "tests/unit/catalog/fixture.h"

static void mount_small(struct fixture *fixture, const char *options)
{
	fixture_init(fixture);
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", fixture->directory, "tmpfs", 0, options)) {
		fixture_deinit(fixture);
		cr_skip_test("mounting is not allowed here");
	}
}

static void unmount(struct fixture *fixture)
{
	fixture->catalog = catalog_close(fixture->catalog);
	cr_assert_eq(umount(fixture->directory), 0);
	fixture_deinit(fixture);
}

/* Fills the file system but for @spare_bytes. */
static void fill(const struct fixture *fixture, off_t spare_bytes)
{
	static const uint8_t zeros[4096];
	char path[192];
	off_t used_bytes = 0;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/ballast", fixture->directory);
	fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
	cr_assert_geq(fd, 0);
	while (write(fd, zeros, sizeof(zeros)) == (ssize_t)sizeof(zeros))
		used_bytes += (off_t)sizeof(zeros);
	cr_assert_eq(errno, ENOSPC);
	cr_assert_eq(ftruncate(fd, used_bytes > spare_bytes ? used_bytes - spare_bytes : 0), 0);
	fd = zi_close(fd);
}

static void make_space(const struct fixture *fixture)
{
	char path[192];

	(void)snprintf(path, sizeof(path), "%s/ballast", fixture->directory);
	cr_assert_eq(unlink(path), 0);
}

Test(full, a_commit_fails_the_former_one_stays_and_later_ones_go_on)
{
	/* Nothing fits; the log's first frames fit; all but the last frames fit. */
	static const off_t spares_bytes[] = { 0, 3 * 4096, 20 * 4096 };
	struct fixture fixture;
	struct sample sample;
	struct sample big;
	int64_t step = 0;

	mount_small(&fixture, "size=4m,mode=700");
	cr_assert_eq(fixture_open(&fixture), 0, "%s", fixture.text.chars);
	cr_assert_eq(catalog_start(fixture.catalog), 0);
	sample_init(&sample, "train", 20);
	sample_init(&big, "train", 2000);
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_CREATE, &sample.job), 0);
	for (size_t i = 0; i < ZI_COUNT_OF(spares_bytes); i++) {
		sample_set_step(&sample, step++);
		cr_assert_eq(fixture_do(&fixture, CATALOG_COMMIT, &sample.job), 0, "%s",
		             fixture.text.chars);
		fill(&fixture, spares_bytes[i]);
		sample_set_step(&big, step++);
		cr_assert_eq(fixture_do(&fixture, CATALOG_COMMIT, &big.job), -ENOSPC, "%s",
		             fixture.text.chars);
		cr_assert_not_null(strstr(fixture.text.chars, "free space"), "%s",
		                   fixture.text.chars);
		cr_assert_not_null(strstr(fixture.text.chars, "'train'"), "%s", fixture.text.chars);
		cr_assert_eq(fixture_do(&fixture, CATALOG_COMMIT, &big.job), -ENOSPC, "again");
		fixture_assert_committed(&fixture, &sample);
		make_space(&fixture);
		cr_assert_eq(catalog_start(fixture.catalog), 0);
	}
	cr_assert_eq(fixture_do(&fixture, CATALOG_COMMIT, &big.job), 0, "%s", fixture.text.chars);
	fixture_assert_committed(&fixture, &big);
	sample_deinit(&sample);
	sample_deinit(&big);
	unmount(&fixture);
}

Test(full, a_catalog_that_cannot_be_made_is_refused_and_made_later)
{
	struct fixture fixture;

	mount_small(&fixture, "size=1m,mode=700");
	fill(&fixture, 2 * 4096);
	cr_assert_eq(fixture_open(&fixture), -ENOSPC, "%s", fixture.text.chars);
	cr_assert_not_null(strstr(fixture.text.chars, "free space"), "%s", fixture.text.chars);
	make_space(&fixture);
	cr_assert_eq(fixture_open(&fixture), 0, "%s", fixture.text.chars);
	unmount(&fixture);
}

/* tmpfs counts files as well as bytes. */
Test(full, a_file_that_cannot_be_made_is_named)
{
	struct fixture fixture;

	mount_small(&fixture, "size=1m,nr_inodes=2,mode=700");
	fill(&fixture, 0);
	cr_assert_eq(fixture_open(&fixture), -ENOSPC, "%s", fixture.text.chars);
	cr_assert_not_null(strstr(fixture.text.chars, "cannot be made"), "%s", fixture.text.chars);
	unmount(&fixture);
}
