/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: a file at the place of a store. The input is its superblock, whose checksum is made
 * right where the second byte asks for it (nobody guesses one), and how the file is opened. What is
 * refused is byte for byte as it was; what is opened is a store.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "nvme/nvme.h"
#include "nvme/superblock.h"
#include "tests/fuzz/fuzz.h"

#define FILE_BYTES_MAX (4u << 20)

static char path[320];
static uint8_t before[FILE_BYTES_MAX], after[FILE_BYTES_MAX];

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	(void)snprintf(path, sizeof(path), "%s/store", fuzz_directory()); /* Fits. */
	return 0;
}

/* Fields first, each as the input has it; sealed when asked. */
static void make_superblock(struct fuzz_input *input, struct nvme_superblock *superblock)
{
	uint8_t how = fuzz_u8(input);

	*superblock = (struct nvme_superblock){
		.magic = NVME_SUPERBLOCK_MAGIC,
		.version = how & 1 ? fuzz_u32(input) : NVME_STORE_VERSION,
		.state = how & 2 ? fuzz_u32(input) : NVME_SUPERBLOCK_READY,
		.bytes = how & 4 ? fuzz_u64(input)
		                 : (uint64_t)fuzz_u8(input) * 4 * ZI_STORE_ALIGN_BYTES,
	};
	fuzz_take(input, superblock->uuid, sizeof(superblock->uuid));
	if (how & 8)
		fuzz_take(input, superblock->magic, sizeof(superblock->magic));
	if (how & 16)
		fuzz_take(input, superblock->reserved,
		          input->byte_count < sizeof(superblock->reserved)
		                  ? input->byte_count
		                  : sizeof(superblock->reserved));
	if (!(how & 32))
		nvme_superblock_seal(superblock);
}

static size_t read_whole(uint8_t *target)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t count;

	fuzz_check(fd >= 0, "the file is gone");
	count = pread(fd, target, FILE_BYTES_MAX, 0);
	fuzz_check(count >= 0, "pread");
	(void)close(fd); /* Only read. */
	return (size_t)count;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	struct fuzz_input input = { bytes, byte_count };
	size_t file_bytes = (size_t)fuzz_u8(&input) * 3 * 1024;
	struct nvme_superblock superblock;
	struct nvme_store_options options = { .name = "fuzz", .path = path };
	struct nvme_store *store = NULL;
	struct zi_text text = { "" };
	struct stat status;
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int r;

	fuzz_check(fd >= 0, "a file");
	options.bytes = (uint64_t)(fuzz_u8(&input) % 8) * 256 * 1024;
	make_superblock(&input, &superblock);
	fuzz_check(pwrite(fd, &superblock, sizeof(superblock), 0) == sizeof(superblock), "pwrite");
	fuzz_check(!ftruncate(fd, (off_t)file_bytes), "ftruncate");
	(void)close(fd); /* Its content is there. */
	file_bytes = read_whole(before);
	r = nvme_store_open(&options, &text, &store);
	if (!r) {
		fuzz_check(store->bytes > NVME_SUPERBLOCK_BYTES, "a store without room");
		fuzz_check(!fstat(store->fd, &status) && (uint64_t)status.st_size >= store->bytes,
		           "a store that is larger than its file");
		store = nvme_store_close(store);
	} else {
		fuzz_check(text.chars[0] != '\0', "a refusal without words");
		/* What was in preparation may be emptied; everything else is left alone. */
		if (read_whole(after) != file_bytes)
			fuzz_check(superblock.state == NVME_SUPERBLOCK_PREPARING, "it was resized");
		else
			fuzz_check(!memcmp(before, after, file_bytes), "it was overwritten");
	}
	(void)unlink(path); /* Made anew, else. */
	return 0;
}
