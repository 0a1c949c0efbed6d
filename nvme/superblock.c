/* SPDX-License-Identifier: Apache-2.0 */
/* The superblock of a store: making, sealing, judging. Floor 2, any thread. */
#include "nvme/superblock.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "common/base/err.h"
#include "kernels/hash.h"

static uint64_t superblock_hash(const struct nvme_superblock *superblock)
{
	return kern_hash(superblock, offsetof(struct nvme_superblock, checksum));
}

/* @bytes: a multiple of ZI_STORE_ALIGN_BYTES. The identity is random. */
int nvme_superblock_make(uint64_t bytes, struct nvme_superblock *ret_superblock)
{
	struct nvme_superblock superblock = {
		.magic = NVME_SUPERBLOCK_MAGIC,
		.version = NVME_STORE_VERSION,
		.state = NVME_SUPERBLOCK_NEW,
		.bytes = bytes,
		.made_s = (uint64_t)time(NULL),
	};

	assert(bytes % ZI_STORE_ALIGN_BYTES == 0);
	/* Up to 256 bytes are never cut short once the kernel's pool is ready. */
	if (getrandom(superblock.uuid, sizeof(superblock.uuid), 0) != sizeof(superblock.uuid))
		return err_origin(-EIO);
	superblock.uuid[6] = (superblock.uuid[6] & 0x0f) | 0x40; /* version 4: random */
	superblock.uuid[8] = (superblock.uuid[8] & 0x3f) | 0x80; /* variant of RFC 4122 */
	nvme_superblock_seal(&superblock);
	*ret_superblock = superblock;
	return 0;
}

/* Nothing else of it changes. */
void nvme_superblock_seal(struct nvme_superblock *superblock)
{
	superblock->checksum = superblock_hash(superblock);
}

/* By the magic alone. */
bool nvme_superblock_is_ours(const struct nvme_superblock *superblock)
{
	return !memcmp(superblock->magic, NVME_SUPERBLOCK_MAGIC, sizeof(superblock->magic));
}

/* In the order in which fields may be trusted: version, checksum, the rest. */
int nvme_superblock_check(const struct nvme_superblock *superblock, const char *path,
                          struct zi_text *text)
{
	uint64_t hash = superblock_hash(superblock);

	assert(nvme_superblock_is_ours(superblock));
	/* The version first: another version may keep its checksum elsewhere. */
	if (superblock->version != NVME_STORE_VERSION)
		return err_origin(zi_text_error(
			text, -EPROTONOSUPPORT,
			"store '%s' has version %u, this program knows version %u: use the program "
			"that made it, or remove the store",
			path, superblock->version, NVME_STORE_VERSION));
	if (superblock->checksum != hash)
		return err_origin(zi_text_error(
			text, -EUCLEAN,
			"superblock of store '%s' is damaged (checksum %016llx, computed %016llx): "
			"put a copy of the store back, or move store and catalog away to begin "
			"anew",
			path, (unsigned long long)superblock->checksum, (unsigned long long)hash));
	/* With a right checksum only a program could have written what follows. */
	if (superblock->state != NVME_SUPERBLOCK_READY &&
	    superblock->state != NVME_SUPERBLOCK_NEW &&
	    superblock->state != NVME_SUPERBLOCK_PREPARING)
		return err_origin(zi_text_error(
			text, -EUCLEAN, "superblock of store '%s' has state %u, which is unknown",
			path, superblock->state));
	if (superblock->bytes % ZI_STORE_ALIGN_BYTES || superblock->bytes <= NVME_SUPERBLOCK_BYTES)
		return err_origin(zi_text_error(
			text, -EUCLEAN, "superblock of store '%s' says %llu bytes, which cannot be",
			path, (unsigned long long)superblock->bytes));
	return 0;
}
