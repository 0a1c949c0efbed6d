/* SPDX-License-Identifier: Apache-2.0 */
/* Contents of a file in memory (image.h). */
#include "tests/power/image.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/fd.h"

static void must(bool is_true, const char *what)
{
	if (is_true)
		return;
	(void)fprintf(stderr, "image: %s\n", what);
	abort();
}

void image_hold(struct image *image, uint64_t bytes)
{
	if (bytes <= image->capacity_bytes)
		return;
	image->data = realloc(image->data, bytes);
	must(image->data != NULL, "no memory");
	memset(image->data + image->capacity_bytes, 0, bytes - image->capacity_bytes);
	image->capacity_bytes = bytes;
}

uint64_t image_size_after(const struct record *record, uint64_t bytes)
{
	switch (record->kind) {
	case RECORD_TRUNCATE:
		return record->offset_bytes;
	case RECORD_EXTEND:
		return ZI_MAX(bytes, record->offset_bytes);
	case RECORD_WRITE:
		return ZI_MAX(bytes, record->offset_bytes + record->bytes);
	default:
		return bytes;
	}
}

void image_truncate(struct image *image, uint64_t bytes)
{
	if (bytes < image->capacity_bytes)
		memset(image->data + bytes, 0, image->capacity_bytes - bytes);
}

void image_fold(struct image *image, const struct record *record)
{
	if (record->kind == RECORD_TRUNCATE)
		image_truncate(image, record->offset_bytes);
	if (record->kind == RECORD_WRITE) {
		image_hold(image, record->offset_bytes + record->bytes);
		memcpy(image->data + record->offset_bytes, record->data, record->bytes);
	}
	image->bytes = image_size_after(record, image->bytes);
	image_hold(image, image->bytes);
}

void image_write(const struct image *image, const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	must(fd >= 0, "a file cannot be made");
	must(zi_pwrite_all(fd, image->data, image->bytes, 0) == 0, "a file cannot be written");
	(void)zi_close(fd);
}

bool image_equals(const struct image *image, const char *path)
{
	_cleanup_(zi_freep) uint8_t *data = malloc(image->bytes + 1);
	_cleanup_(zi_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat status;
	bool is_equal;

	must(data != NULL, "no memory");
	is_equal = fd >= 0 && fstat(fd, &status) == 0 && (uint64_t)status.st_size == image->bytes &&
	           zi_pread_all(fd, data, image->bytes, 0) == 0 &&
	           memcmp(data, image->data, image->bytes) == 0;
	if (!is_equal)
		(void)fprintf(stderr, "image: %s is not as recorded\n", path);
	return is_equal;
}

void image_clear_directory(const char *directory)
{
	DIR *stream = opendir(directory);
	struct dirent *entry;

	must(stream != NULL, "the directory cannot be read");
	while ((entry = readdir(stream)))
		if (entry->d_name[0] != '.')
			must(unlinkat(dirfd(stream), entry->d_name, 0) == 0, "a file stays");
	(void)closedir(stream);
}
