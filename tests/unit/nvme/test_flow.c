/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: flows that want one store have it by weight, none starves, one alone has all of it. Method:
 * bytes are counted as blocks go out (nvme_flow_bytes()) and looked at whenever a request is done;
 * never the time. The bound is that of start-time fair queueing: two flows that go on wanting the
 * store differ, over their weights, by at most a block of each.
 */
#include <math.h>

#include "tests/unit/nvme/nvme_test.h"

#define FLOWS_MAX   5u
#define STORE_BYTES (16 * MIB)
#define ENDLESS     64u /* requests of a flow that are kept queued */

static struct nvme_store *store;
static struct nvme_engine *engine;
static unsigned char *memory;

static void set_up(void)
{
	test_make_directory();
	store = test_open("store", STORE_BYTES);
	memory = test_buffer(MIB);
}

static void tear_down(void)
{
	engine = nvme_engine_free(engine);
	store = nvme_store_close(store);
	test_remove_directory();
}

/* A flow that keeps its queue full until it is told to stop. */
struct client {
	struct nvme_io ios[ENDLESS];
	struct nvme_flow *flow;
	uint64_t bytes_max; /* of a request */
	uint64_t seed;
	uint32_t weight;
	enum nvme_direction direction;
	uint32_t queued_count;
	bool is_stopping;
};

static struct client clients[FLOWS_MAX];
static uint32_t client_count;
static uint64_t block_bytes;
static uint64_t check_count;
static uint64_t total_max; /* bytes after which all stop */

static uint64_t draw(uint64_t *seed, uint64_t below)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return (*seed >> 33) % below;
}

static uint64_t served(const struct client *client)
{
	return nvme_flow_bytes(client->flow, NVME_READ) + nvme_flow_bytes(client->flow, NVME_WRITE);
}

/* Whenever something is done, all queues being full. */
static void check_shares(void)
{
	for (uint32_t i = 0; i < client_count; i++)
		for (uint32_t j = 0; j < i; j++) {
			const struct client *a = &clients[i], *b = &clients[j];
			double difference, bound;

			if (a->direction != b->direction)
				continue;
			difference = (double)served(a) / a->weight - (double)served(b) / b->weight;
			bound = (double)block_bytes / a->weight + (double)block_bytes / b->weight;
			/* Rounding of virtual time: 1 %. */
			bound += 0.01 * (double)served(a) / a->weight;
			cr_assert_leq(fabs(difference), bound,
			              "weights %u and %u were served %llu and %llu bytes",
			              a->weight, b->weight, (unsigned long long)served(a),
			              (unsigned long long)served(b));
			check_count++;
		}
}

static void client_submit(struct client *client, struct nvme_io *io);

static void client_done(struct nvme_io *io)
{
	struct client *client = NULL;
	uint64_t total_bytes = 0;

	for (uint32_t i = 0; i < client_count; i++) {
		total_bytes += served(&clients[i]);
		if (io >= clients[i].ios && io < clients[i].ios + ENDLESS)
			client = &clients[i];
	}
	cr_assert_not_null(client);
	cr_assert_eq(io->result, 0);
	client->queued_count--;
	if (client->is_stopping)
		return;
	client_submit(client, io);
	if (total_bytes < total_max)
		return;
	for (uint32_t i = 0; i < client_count; i++)
		clients[i].is_stopping = true;
}

static void client_submit(struct client *client, struct nvme_io *io)
{
	uint64_t bytes = 4096 * (1 + draw(&client->seed, client->bytes_max / 4096));
	uint64_t offset = 4096 * (1 + draw(&client->seed, (STORE_BYTES - bytes) / 4096 - 1));

	*io = (struct nvme_io){
		.direction = client->direction,
		.store = store,
		.flow = client->flow,
		.offset_bytes = offset,
		.buffer = memory,
		.bytes = bytes,
		.done = client_done,
	};
	cr_assert_eq(nvme_engine_submit(engine, io), 0);
	client->queued_count++;
}

static void client_start(uint32_t weight, uint64_t bytes_max, enum nvme_direction direction)
{
	struct client *client = &clients[client_count];

	*client = (struct client){ .bytes_max = bytes_max,
		                   .direction = direction,
		                   .seed = client_count + 1,
		                   .weight = weight };
	client_count++;
	cr_assert_eq(nvme_flow_new(weight, &client->flow), 0);
	for (uint32_t i = 0; i < ENDLESS; i++)
		client_submit(client, &client->ios[i]);
}

/* Until they have stopped by themselves. */
static void clients_run(bool is_checked)
{
	check_count = 0;
	nvme_engine_kick(engine);
	while (!clients[0].is_stopping) {
		(void)nvme_engine_wait(engine);
		if (is_checked && !clients[0].is_stopping)
			check_shares();
	}
	nvme_engine_drain(engine);
	for (uint32_t i = 0; i < client_count; i++) {
		cr_assert_eq(clients[i].queued_count, 0);
		clients[i].flow = nvme_flow_free(clients[i].flow);
	}
	client_count = 0;
}

Test(flow, random_weights_and_lengths_are_served_in_proportion, .init = set_up, .fini = tear_down)
{
	uint64_t seed = 7;

	for (uint32_t round = 0; round < 8; round++) {
		uint32_t count = 3 + (uint32_t)draw(&seed, FLOWS_MAX - 2);

		block_bytes = 4096ull << draw(&seed, 4);
		total_max = 1500 * block_bytes;
		engine =
			test_engine("threads", 1 + (uint32_t)draw(&seed, 8), (uint32_t)block_bytes);
		for (uint32_t i = 0; i < count; i++)
			client_start(1 + (uint32_t)draw(&seed, round % 2 ? 20 : 1000),
			             block_bytes * (1 + draw(&seed, 3)),
			             draw(&seed, 2) ? NVME_WRITE : NVME_READ);
		clients_run(true);
		cr_assert_geq(check_count, 100);
		engine = nvme_engine_free(engine);
	}
}

Test(flow, alone_has_all_of_the_depth, .init = set_up, .fini = tear_down)
{
	struct nvme_flow *flow = NULL;
	struct test_io tests[8];

	/* Of the least weight; nothing is reaped, so what went out is what the depth let out. */
	engine = test_engine("threads", 8, 4096);
	cr_assert_eq(nvme_flow_new(1, &flow), 0);
	for (uint32_t i = 0; i < 8; i++) {
		test_io_set(&tests[i], NVME_READ, store, 4096 * (i + 1), memory + 4096 * i, 4096);
		tests[i].io.flow = flow;
		cr_assert_eq(nvme_engine_submit(engine, &tests[i].io), 0);
	}
	nvme_engine_kick(engine);
	cr_assert_eq(nvme_flow_bytes(flow, NVME_READ), 8 * 4096);
	nvme_engine_drain(engine);
	flow = nvme_flow_free(flow);
}

Test(flow, that_comes_back_has_no_credit_from_before, .init = set_up, .fini = tear_down)
{
	struct nvme_flow *late = NULL;
	/* One is served for long, alone; who comes then does not catch up on that. */
	block_bytes = 4096;
	total_max = 200 * block_bytes;
	engine = test_engine("threads", 1, (uint32_t)block_bytes);
	cr_assert_eq(nvme_flow_new(100, &late), 0);
	client_start(100, block_bytes, NVME_READ);
	nvme_engine_kick(engine);
	while (served(&clients[0]) < total_max / 2)
		(void)nvme_engine_wait(engine);
	clients[1] = (struct client){ .flow = late,
		                      .weight = 100,
		                      .seed = 3,
		                      .bytes_max = block_bytes,
		                      .direction = NVME_READ };
	client_count = 2;
	{
		uint64_t before_bytes = served(&clients[0]);

		total_max = before_bytes + 100 * block_bytes;
		for (uint32_t i = 0; i < ENDLESS; i++)
			client_submit(&clients[1], &clients[1].ios[i]);
		while (!clients[0].is_stopping) {
			(void)nvme_engine_wait(engine);
			if (!clients[0].is_stopping)
				cr_assert_leq(served(&clients[1]),
				              served(&clients[0]) - before_bytes + 2 * block_bytes);
		}
	}
	nvme_engine_drain(engine);
	for (uint32_t i = 0; i < client_count; i++)
		clients[i].flow = nvme_flow_free(clients[i].flow);
}

/* However much a flow has read, and reads, beside: its write waits for one of those that another
 * flow goes on queueing, not for all. */
Test(flow, write_does_not_wait_for_what_its_flow_has_read, .init = set_up, .fini = tear_down)
{
	struct nvme_tuning tuning = { .read_depth = 4, .write_depth = 1 };
	struct test_io write;
	uint64_t before_bytes;

	block_bytes = 64 << 10;
	total_max = UINT64_MAX;
	engine = test_engine("threads", 8, (uint32_t)block_bytes);
	cr_assert_eq(nvme_engine_register_store(engine, store), 0);
	cr_assert_eq(nvme_engine_tune(engine, store, &tuning), 0);
	client_start(100, block_bytes, NVME_READ);
	client_start(100, block_bytes, NVME_WRITE);
	nvme_engine_kick(engine);
	while (served(&clients[0]) < 64 * MIB)
		(void)nvme_engine_wait(engine);
	test_io_set(&write, NVME_WRITE, store, 4096, memory, block_bytes);
	write.io.flow = clients[0].flow;
	cr_assert_eq(nvme_engine_submit(engine, &write.io), 0);
	before_bytes = served(&clients[1]);
	while (!write.done_count)
		(void)nvme_engine_wait(engine);
	cr_assert_eq(write.io.result, 0);
	cr_assert_leq(served(&clients[1]) - before_bytes, 4 * block_bytes);
	for (uint32_t i = 0; i < client_count; i++)
		clients[i].is_stopping = true;
	nvme_engine_drain(engine);
	for (uint32_t i = 0; i < client_count; i++)
		clients[i].flow = nvme_flow_free(clients[i].flow);
}

/* One block at a time, so that the order in which they are done is that in which they went out. */
Test(flow, urgent_goes_before_the_rest_of_its_flow_and_not_before_others, .init = set_up,
     .fini = tear_down)
{
	struct nvme_flow *mine = NULL, *other = NULL;
	struct test_io plain[2], urgent[3], foreign;
	unsigned clock = 0;

	engine = test_engine("threads", 1, 4096);
	cr_assert_eq(nvme_flow_new(100, &mine), 0);
	cr_assert_eq(nvme_flow_new(100, &other), 0);
	test_io_set(&foreign, NVME_READ, store, 4096, memory, 4096);
	foreign.io.flow = other;
	foreign.clock = &clock;
	for (uint32_t i = 0; i < 5; i++) {
		struct test_io *test = i < 2 ? &plain[i] : &urgent[i - 2];

		test_io_set(test, NVME_READ, store, 4096 * (i + 2), memory + 4096 * (i + 1), 4096);
		test->io.flow = mine;
		test->io.is_urgent = i >= 2;
		test->clock = &clock;
		cr_assert_eq(nvme_engine_submit(engine, &test->io), 0);
	}
	cr_assert_eq(nvme_engine_submit(engine, &foreign.io), 0);
	nvme_engine_kick(engine);
	nvme_engine_drain(engine);
	cr_assert_lt(urgent[0].order, urgent[1].order);
	cr_assert_lt(urgent[1].order, urgent[2].order);
	cr_assert_lt(urgent[2].order, plain[0].order);
	cr_assert_lt(plain[0].order, plain[1].order);
	cr_assert_lt(foreign.order, urgent[1].order, "another flow has its turn");
	mine = nvme_flow_free(mine);
	other = nvme_flow_free(other);
}

Test(flow, whose_queue_was_cancelled_can_go_at_once, .init = set_up, .fini = tear_down)
{
	struct nvme_flow *flow = NULL;
	struct test_io tests[2];

	engine = test_engine("threads", 1, 4096);
	cr_assert_eq(nvme_flow_new(0, &flow), 0);
	cr_assert_eq(nvme_flow_weight(flow), NVME_FLOW_WEIGHT_DEFAULT);
	for (uint32_t i = 0; i < 2; i++) {
		test_io_set(&tests[i], NVME_WRITE, store, 4096, memory, 4096);
		tests[i].io.flow = i ? flow : NULL;
		cr_assert_eq(nvme_engine_submit(engine, &tests[i].io), 0);
	}
	nvme_engine_kick(engine);
	nvme_engine_cancel(engine, &tests[1].io);
	flow = nvme_flow_free(flow);
	nvme_engine_drain(engine);
	cr_assert_eq(tests[0].io.result, 0);
	cr_assert_eq(tests[1].io.result, -ECANCELED);
	/* Its port has forgotten it. */
	cr_assert_eq(test_run(engine, NVME_READ, store, 4096, memory, 4096), 0);
}

Test(flow, weight_has_a_range, .init = set_up, .fini = tear_down)
{
	struct nvme_flow *flow = NULL;

	cr_assert_eq(nvme_flow_new(NVME_FLOW_WEIGHT_MAX + 1, &flow), -EINVAL);
	cr_assert_null(flow);
	cr_assert_eq(nvme_flow_new(NVME_FLOW_WEIGHT_MAX, &flow), 0);
	cr_assert_eq(nvme_flow_weigh(flow, NVME_FLOW_WEIGHT_MAX + 1), -EINVAL);
	cr_assert_eq(nvme_flow_weight(flow), NVME_FLOW_WEIGHT_MAX);
	cr_assert_eq(nvme_flow_weigh(flow, 1), 0);
	cr_assert_eq(nvme_flow_weight(flow), 1);
	flow = nvme_flow_free(flow);
}
