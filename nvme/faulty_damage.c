/* SPDX-License-Identifier: Apache-2.0 */
/* What the fault injector does to a block or to the disk (faulty_damage.h). Floor 2. */
#include "nvme/faulty_damage.h"

#include <errno.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/types.h"

uint32_t nvme_faulty_short_bytes(const struct nvme_block *block, uint64_t random)
{
	uint32_t units_count = block->bytes / ZI_STORE_ALIGN_BYTES;

	if (units_count < 2)
		return block->bytes;
	return (uint32_t)(1 + random % (units_count - 1)) * ZI_STORE_ALIGN_BYTES;
}

uint32_t nvme_faulty_torn_bytes(const struct nvme_block *block, uint64_t random)
{
	uint32_t sector_bytes = ZI_MAX(block->io->store->align_bytes, 512u);

	return (uint32_t)(random % (block->bytes / sector_bytes)) * sector_bytes;
}

uint64_t nvme_faulty_other_offset(const struct nvme_block *block, uint64_t random)
{
	uint64_t last_bytes = block->io->store->bytes - block->bytes;
	uint64_t count = (last_bytes - NVME_SUPERBLOCK_BYTES) / ZI_STORE_ALIGN_BYTES + 1;
	uint64_t index = random % count;

	if (NVME_SUPERBLOCK_BYTES + index * ZI_STORE_ALIGN_BYTES == block->offset_bytes)
		index = (index + 1) % count;
	return NVME_SUPERBLOCK_BYTES + index * ZI_STORE_ALIGN_BYTES;
}

int nvme_faulty_flip_at_rest(int fd, void *sector, uint64_t offset_bytes, uint64_t bytes,
                             uint64_t random)
{
	uint64_t place = offset_bytes + random % bytes;
	uint64_t base = place & ~(uint64_t)(ZI_STORE_ALIGN_BYTES - 1);

	assert(bytes > 0);
	if (pread(fd, sector, ZI_STORE_ALIGN_BYTES, (off_t)base) != ZI_STORE_ALIGN_BYTES)
		return err_origin(errno ? -errno : -EIO);
	((uint8_t *)sector)[place - base] ^= (uint8_t)(1u << (random >> 61));
	if (pwrite(fd, sector, ZI_STORE_ALIGN_BYTES, (off_t)base) != ZI_STORE_ALIGN_BYTES)
		return err_origin(errno ? -errno : -EIO);
	return 0;
}
