/* SPDX-License-Identifier: Apache-2.0 */
/* One of our ranks; see coll_own.h, coll_order.h. What it calls is the public interface alone. */
#include "bench/coll_own.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/coll_order.h"
#include "tests/harness/patience.h"
#include "zinf/zinf.h"

/* A call that says nothing within this time is a fault of ours, to be seen as one. */
#define TIMEOUT_MS 60000u

struct own {
	struct zinf *zinf;
	uint32_t rank, world;
	/* Of each variant: in the arena, and in private memory. */
	float *sources[_COLL_VARIANT_COUNT], *targets[_COLL_VARIANT_COUNT];
	uint64_t checked_bytes[_COLL_VARIANT_COUNT]; /* the size whose sum was right last */
};

static int own_open(struct own *own, uint64_t bytes)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	void *source, *target;

	options.job = "coll";
	options.rank = (int32_t)own->rank;
	options.world_size = own->world;
	options.timeout_ms = (uint32_t)(TIMEOUT_MS * patience());
	if (zinf_attach(&options, &own->zinf))
		return -1;
	if (zinf_coll_open(own->zinf, 2 * bytes) || zinf_coll_alloc(own->zinf, bytes, &source) ||
	    zinf_coll_alloc(own->zinf, bytes, &target))
		return -1;
	memset(source, 0, bytes);
	memset(target, 0, bytes);
	own->sources[COLL_IN_PLACE] = source;
	own->targets[COLL_IN_PLACE] = target;
	own->sources[COLL_APART] = coll_rank_memory(bytes);
	own->targets[COLL_APART] = coll_rank_memory(bytes);
	return own->sources[COLL_APART] && own->targets[COLL_APART] ? 0 : -1;
}

/* Both variants are in place as far as the operation can be. */
static int call(const struct own *own, const struct coll_order *order)
{
	float *source = own->sources[order->variant], *target = own->targets[order->variant];
	uint64_t count = order->bytes / sizeof(float), block = count / own->world;
	uint64_t at = block * own->rank;

	switch (order->operation) {
	case COLL_BARRIER:
		return zinf_coll_barrier(own->zinf, NULL);
	case COLL_ALL_REDUCE:
		return zinf_coll_all_reduce(own->zinf, source, source, count, ZINF_F32, ZINF_SUM,
		                            NULL);
	case COLL_REDUCE_SCATTER:
		return zinf_coll_reduce_scatter(own->zinf, source, source + at, block, ZINF_F32,
		                                ZINF_SUM, NULL);
	case COLL_ALL_GATHER:
		return zinf_coll_all_gather(own->zinf, source + at, source, block, ZINF_F32, NULL);
	case COLL_BROADCAST:
		return zinf_coll_broadcast(own->zinf, source, count, ZINF_F32, 0, NULL);
	default:
		return zinf_coll_all_to_all(own->zinf, source, target, block, ZINF_F32, NULL);
	}
}

/* A sum that is right in its first and its last element: what is measured does compute. */
static int check(const struct own *own, enum coll_variant variant, uint64_t count)
{
	float *data = own->sources[variant];
	int r;

	data[0] = data[count - 1] = 1;
	r = zinf_coll_all_reduce(own->zinf, data, data, count, ZINF_F32, ZINF_SUM, NULL);
	if (!r && (data[0] != (float)own->world || data[count - 1] != (float)own->world)) {
		fprintf(stderr, "bench: a sum of %u ranks is wrong\n", own->world);
		r = -1;
	}
	data[0] = data[count - 1] = 0;
	return r;
}

static int obey(void *arg, int fd, const struct coll_order *order)
{
	struct own *own = arg;
	uint64_t started_ns;
	int r = 0;

	/* Once of each size, so that it is in no round's CPU time. */
	if (order->operation == COLL_ALL_REDUCE &&
	    own->checked_bytes[order->variant] != order->bytes) {
		r = check(own, order->variant, order->bytes / sizeof(float));
		own->checked_bytes[order->variant] = order->bytes;
	}
	if (!r)
		r = zinf_coll_barrier(own->zinf, NULL);
	started_ns = coll_now_ns();
	for (uint32_t i = 0; i < order->iterations && !r; i++)
		r = call(own, order);
	if (r)
		fprintf(stderr, "bench: rank %u, %s of %llu bytes: %s\n", own->rank,
		        coll_operation_name(order->operation), (unsigned long long)order->bytes,
		        zinf_error_text(own->zinf));
	else
		coll_rank_answer(fd, started_ns, coll_now_ns());
	return r;
}

int coll_own_rank(int argc, char **argv)
{
	struct own own = { .rank = coll_rank_number("RANK"),
		           .world = coll_rank_number("WORLD_SIZE") };
	uint64_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	char words[COLL_PACKET_BYTES];
	bool is_served;

	coll_rank_pin(own.rank);
	if (own_open(&own, bytes))
		(void)snprintf(words, sizeof words, "skip %.200s",
		               own.zinf ? zinf_error_text(own.zinf) : zinf_attach_error());
	else
		(void)snprintf(words, sizeof words, "ready zinf " ZINF_VERSION);
	is_served = coll_rank_serve(own.rank, words, obey, &own);
	zinf_detach(own.zinf);
	return is_served ? EXIT_SUCCESS : EXIT_FAILURE;
}
