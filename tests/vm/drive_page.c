/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the health page of a real controller, fetched and read by nvme/smart, says what the drive
 * did. Method: in the guest of check_vm, on a drive that nobody else uses: known bytes are written
 * and read between two readings of the page, whose figures must grow by as much, to a unit.
 * Usage: drive_page DEVICE   (overwrites its beginning)
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "nvme/smart.h"

#define WRITE_BYTES (12u << 20)
#define READ_BYTES  (8u << 20)
#define PIECE_BYTES (1u << 20)
/* A thousand sectors; the drive may round either figure up or down. */
#define UNIT_BYTES 512000u

static struct nvme_smart ask(int fd)
{
	struct zi_text text = { "" };
	struct nvme_smart smart = { .celsius = NVME_SMART_UNKNOWN_CELSIUS };
	int r = nvme_smart_read(fd, &text, &smart);

	if (r) {
		printf("drive_page: not read: %s (%s)\n", text.chars, strerror(-r));
		exit(1);
	}
	return smart;
}

static void move(int fd, void *piece)
{
	for (uint32_t at = 0; at < WRITE_BYTES; at += PIECE_BYTES)
		if (pwrite(fd, piece, PIECE_BYTES, at) != PIECE_BYTES) {
			perror("drive_page: write");
			exit(1);
		}
	for (uint32_t at = 0; at < READ_BYTES; at += PIECE_BYTES)
		if (pread(fd, piece, PIECE_BYTES, at) != PIECE_BYTES) {
			perror("drive_page: read");
			exit(1);
		}
}

static int is_grown(const char *what, uint64_t before, uint64_t after, uint64_t by)
{
	uint64_t grown = after - before;

	printf("drive_page: %s %llu, then %llu: %llu of %llu bytes\n", what,
	       (unsigned long long)before, (unsigned long long)after, (unsigned long long)grown,
	       (unsigned long long)by);
	return after >= before && grown + UNIT_BYTES >= by && grown <= by + UNIT_BYTES;
}

int main(int argc, char **argv)
{
	struct nvme_smart before, after;
	void *piece = NULL;
	int fd;

	if (argc != 2 || posix_memalign(&piece, 4096, PIECE_BYTES))
		return 2;
	fd = open(argv[1], O_RDWR | O_DIRECT | O_CLOEXEC | O_EXCL);
	if (fd < 0) {
		perror(argv[1]);
		return 1;
	}
	memset(piece, 0x5a, PIECE_BYTES);
	before = ask(fd);
	move(fd, piece);
	after = ask(fd);
	(void)zi_close(fd);
	free(piece);
	printf("drive_page: %d C, %u %% used, spare %u %%, %llu media errors\n", after.celsius,
	       after.used_percent, after.spare_percent,
	       (unsigned long long)after.media_error_count);
	/* The emulated controller's constants: room temperature and more, a new drive. */
	return !(is_grown("written", before.write_bytes, after.write_bytes, WRITE_BYTES) &&
	         is_grown("read", before.read_bytes, after.read_bytes, READ_BYTES) &&
	         after.celsius > 0 && after.celsius < 100 && after.used_percent == 0 &&
	         after.media_error_count == 0 && after.critical_warning == 0);
}
