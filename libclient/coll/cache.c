/* SPDX-License-Identifier: Apache-2.0 */
/* How much this rank's last cache holds; see cache.h. Floor 2. */
#include "libclient/coll/cache.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/cleanup.h"
#include "common/base/fd.h"

#define CACHE_BYTES (32ull << 20) /* where the kernel does not say */

/*
 * A call that touches more of its buffers than this passes by the cache: copies with plain stores
 * and with streaming ones, side by side, are equally fast up to half of the cache (where a reader
 * still finds the result there), and the streaming ones 1.4 times as fast and more from the whole
 * of it on (two threads, Zen 5 with 32 MiB; `make bench-coll PARTS=crossover`). The bound lies
 * between the two. Ranks on CPUs of different caches may decide differently: the bits are the same.
 */
uint64_t zi_client_streaming_bytes(void)
{
	int cpu = sched_getcpu();
	uint64_t cache_bytes = CACHE_BYTES;
	char path[80], text[32];

	/* sysconf() would add up those of a socket. */
	(void)snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cache/index3/size",
	               ZI_MAX(cpu, 0));
	if (zi_read_text(path, text, sizeof(text)) == 0 && strtoull(text, NULL, 10))
		cache_bytes = strtoull(text, NULL, 10) << 10;
	return cache_bytes / 4 * 3;
}
