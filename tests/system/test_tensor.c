/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a rank stores four times its budget of activations in forward order and gets each back, in
 * backward order with one prefetched ahead, while another job trains in the same daemon; killed in
 * between it leaves nothing. Method: a rank in a process of its own; the neighbour does a step
 * meanwhile, and must end in the bits of the reference.
 */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/harness/patience.h"
#include "tests/system/system.h"

TestSuite(tensor, .timeout = 120);

#define LAYERS       32u
#define LAYER_BYTES  ((256u << 10) + 40)
#define BUDGET_BYTES (LAYERS * LAYER_BYTES / 4)

static struct harness harness;
static struct neighbour neighbour;
static uint64_t cpu_bytes, nvme_bytes; /* charged with the neighbour alone */

static uint64_t charged_nvme_bytes(void)
{
	json_t *tiers = harness_admin(&harness, "tiers"), *tier;
	uint64_t bytes = 0;
	size_t index;

	json_array_foreach(tiers, index, tier)
	{
		const char *name = json_string_value(json_object_get(tier, "name"));

		if (name && !strncmp(name, "nvme:", 5))
			bytes += (uint64_t)json_integer_value(json_object_get(tier, "used_bytes"));
	}
	json_decref(tiers);
	return bytes;
}

static void open_scene(void)
{
	struct trainer_settings settings;

	system_start(&harness, &(struct harness_options){ .nvme_size = "64M" });
	settings = ranks_settings(&harness, "neighbour", 1);
	settings.options.offload_optimizer = ZINF_OFFLOAD_NVME;
	settings.options.staging_bytes = 8 << 20;
	cr_assert_eq(neighbour_start(&neighbour, &settings), 0);
	cr_assert(neighbour_steps(&neighbour));
	cpu_bytes = harness_cpu_bytes(&harness);
	nvme_bytes = charged_nvme_bytes();
	cr_assert_gt(nvme_bytes, 0);
}

static void close_scene(void)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(patient_ns(10 * ZI_NS_PER_S));

	cr_assert(harness_charges_return(&harness, cpu_bytes, 10000));
	while (charged_nvme_bytes() != nvme_bytes) /* each question is a round trip */
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "space is still charged");
	cr_assert(neighbour_steps(&neighbour));
	cr_assert(neighbour_stop(&neighbour));
	cr_assert_eq(harness_stop(&harness), 0);
}

/* ---- the rank, in a process of its own ---- */

static struct zinf *open_rank(void)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	const uint64_t elements = 1000;
	struct zinf *zinf = NULL;
	uint32_t index;

	options.socket_path = harness.socket_path;
	options.job = "activations";
	options.rank = 0;
	options.world_size = 1;
	options.timeout_ms = 60000;
	if (zinf_attach(&options, &zinf) || zinf_unit_add(zinf, "u", &index) ||
	    zinf_param_add(zinf, "w", 1, &elements, &index) || zinf_materialize(zinf) ||
	    zinf_tensor_open(zinf, BUDGET_BYTES)) {
		fprintf(stderr, "%s\n", zinf ? zinf_error_text(zinf) : zinf_attach_error());
		exit(3);
	}
	return zinf;
}

static void fill_layer(unsigned char *bytes, uint32_t layer)
{
	for (uint32_t i = 0; i < LAYER_BYTES; i++)
		bytes[i] = (unsigned char)((i * 2654435761u + layer * 40503u) >> 16);
}

static int failed(const struct zinf *zinf, const char *call, uint32_t layer)
{
	fprintf(stderr, "%s of layer %u: %s\n", call, layer, zinf_error_text(zinf));
	return 1;
}

/* Every second layer is written in place, the others are copied. */
static int put_layer(struct zinf *zinf, unsigned char *bytes, uint32_t layer, zinf_ticket *ticket)
{
	void *place;

	if (layer % 2) {
		if (zinf_tensor_alloc(zinf, layer, LAYER_BYTES, &place))
			return failed(zinf, "alloc", layer);
		fill_layer(place, layer);
		bytes = NULL;
	} else {
		fill_layer(bytes, layer);
	}
	if (zinf_tensor_put(zinf, layer, bytes, LAYER_BYTES, ticket))
		return failed(zinf, "put", layer);
	return 0;
}

static int take_layer(struct zinf *zinf, const unsigned char *wanted, unsigned char *buffer,
                      uint32_t layer)
{
	const void *place = buffer;
	zinf_ticket ticket;
	size_t bytes = LAYER_BYTES;

	if (layer % 2) {
		if (zinf_tensor_map(zinf, layer, &place, &bytes))
			return failed(zinf, "map", layer);
	} else if (zinf_tensor_get(zinf, layer, buffer, bytes, &ticket) ||
	           zinf_wait(zinf, ticket, NULL)) {
		return failed(zinf, "get", layer);
	}
	if (bytes != LAYER_BYTES || memcmp(place, wanted, bytes) != 0) {
		fprintf(stderr, "layer %u is another\n", layer);
		return 2;
	}
	if (layer % 2 && zinf_tensor_unmap(zinf, layer))
		return failed(zinf, "unmap", layer);
	return zinf_tensor_free(zinf, layer) ? failed(zinf, "free", layer) : 0;
}

static int forward_and_backward(void *arg)
{
	struct zinf *zinf = open_rank();
	unsigned char *bytes = malloc(LAYER_BYTES), *buffer = malloc(LAYER_BYTES);
	zinf_ticket puts[LAYERS], ahead = 0;
	int r = 0;

	(void)arg;
	for (uint32_t layer = 0; layer < LAYERS && !r; layer++)
		r = put_layer(zinf, bytes, layer, &puts[layer]);
	for (uint32_t layer = 0; layer < LAYERS && !r; layer++)
		if (zinf_wait(zinf, puts[layer], NULL))
			r = failed(zinf, "storing", layer);
	for (uint32_t layer = LAYERS; layer-- > 0 && !r;) {
		if (layer && zinf_tensor_prefetch(zinf, layer - 1, &ahead))
			return failed(zinf, "prefetch", layer - 1);
		fill_layer(bytes, layer);
		r = take_layer(zinf, bytes, buffer, layer);
		if (!r && layer && zinf_wait(zinf, ahead, NULL))
			r = failed(zinf, "prefetching", layer - 1);
	}
	free(bytes);
	free(buffer);
	zinf_detach(zinf);
	return r;
}

Test(tensor, four_times_the_budget_goes_forward_and_comes_back_while_another_job_trains)
{
	pid_t pid;

	open_scene();
	pid = harness_fork(forward_and_backward, NULL);
	cr_assert_gt(pid, 0);
	cr_assert(neighbour_steps(&neighbour));
	cr_assert_eq(harness_wait(pid, 60000), 0);
	close_scene();
}

/* Has put everything, waited for half of it, and reads when it dies. */
static int put_and_die(void *arg)
{
	const int *told_fd = arg;
	struct zinf *zinf = open_rank();
	unsigned char *bytes = malloc(LAYER_BYTES);
	zinf_ticket puts[LAYERS], ahead;

	for (uint32_t layer = 0; layer < LAYERS; layer++)
		if (put_layer(zinf, bytes, layer, &puts[layer]))
			return 1;
	for (uint32_t layer = 0; layer < LAYERS / 2; layer++)
		if (zinf_wait(zinf, puts[layer], NULL))
			return failed(zinf, "storing", layer);
	for (uint32_t layer = 0; layer < 3; layer++)
		if (zinf_tensor_prefetch(zinf, layer, &ahead))
			return failed(zinf, "prefetch", layer);
	if (write(*told_fd, "x", 1) != 1)
		return 1;
	for (;;)
		(void)pause();
}

Test(tensor, a_rank_that_is_killed_leaves_nothing)
{
	const char *words[] = { "jobs", "activations", NULL };
	char text[8192], told;
	int fds[2];
	pid_t pid;

	open_scene();
	cr_assert_eq(pipe(fds), 0);
	pid = harness_fork(put_and_die, &fds[1]);
	cr_assert_gt(pid, 0);
	close(fds[1]); /* So that a rank that fails ends the read. */
	cr_assert_eq(read(fds[0], &told, 1), 1);
	cr_assert_gt(charged_nvme_bytes(), nvme_bytes + 3 * BUDGET_BYTES);
	cr_assert_eq(harness_zctl(harness.socket_path, words, text, sizeof(text)), 0, "%s", text);
	system_expect_text(text, "tensors: 32 of 8 MiB");
	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_eq(harness_wait(pid, 20000), 1000 + SIGKILL);
	close(fds[0]);
	close_scene();
}
