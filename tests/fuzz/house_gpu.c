/* SPDX-License-Identifier: Apache-2.0 */
/* See house_gpu.h. */
#include "tests/fuzz/house_gpu.h"

#include <fcntl.h>

#include "common/base/loop.h"
#include "daemon/tier/arena.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/house.h"

#define GPU_BYTES (1ull << 20)
/* Requests are answered, with the end of the sessions that made them, in fewer turns. */
#define GPU_TURNS_MAX 64

static struct {
	struct zi_loop *loop;
	struct dev_gpu *gpu;
	struct dev_gpu_request *taken;
	struct zi_post post;
	uint64_t next_id;
	uint32_t held_count;
} owner;

static void answer(struct zi_post *post)
{
	struct dev_gpu_request *request = owner.taken;

	(void)post;
	owner.taken = NULL;
	for (uint32_t i = 0; !request->is_release && i < request->count; i++) {
		int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

		fuzz_check(fd >= 0, "open");
		request->chunks[i] = (struct dev_gpu_chunk){ ++owner.next_id, 1, fd };
	}
	owner.held_count += request->is_release ? -request->count : request->count;
	dev_gpu_answer(owner.gpu, 0, NULL);
}

static int take(void *arg, struct dev_gpu_request *request)
{
	(void)arg;
	fuzz_check(!owner.taken, "two requests at once");
	owner.taken = request;
	zi_loop_post(owner.loop, &owner.post, answer);
	return 0;
}

static const struct dev_gpu_ops owner_ops = { take, take };

struct tier_arenas *house_gpu_open(struct zi_loop *loop)
{
	static const struct dev_gpu_facts facts = { .uuid = HOUSE_GPU_UUID,
		                                    .bytes = GPU_BYTES,
		                                    .granularity_bytes = HOUSE_GPU_GRANULARITY,
		                                    .node = -1 };
	struct tier_arenas *arenas;

	owner.loop = loop;
	owner.next_id = 0;
	owner.held_count = 0;
	fuzz_check(!tier_arenas_new(loop, &arenas), "tier_arenas_new");
	fuzz_check(!tier_arenas_add(arenas, &facts, 0, &owner_ops, NULL, &owner.gpu),
	           "tier_arenas_add");
	return arenas;
}

struct tier_arenas *house_gpu_close(struct tier_arenas *arenas)
{
	struct tier *tier = tier_arenas_tier(arenas, 0);

	for (int i = 0; i < GPU_TURNS_MAX && owner.taken; i++)
		house_turn();
	fuzz_check(!owner.taken, "a request of a GPU is never over");
	/* The process of all clients lives: what they received stays. */
	fuzz_check(tier->used_bytes == tier_arenas_lingering_bytes(arenas, tier, NULL),
	           "GPU memory is charged to nobody");
	dev_gpu_close(owner.gpu);
	return tier_arenas_free(arenas);
}
