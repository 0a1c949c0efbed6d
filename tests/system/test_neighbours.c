/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: two jobs on one store have it by their weights, and what befalls one of them is not the
 * other's affair. Method: for shares, a store that is throttled and two ranks that always have
 * tensors to be stored: bytes as the daemon counts them, in one answer at the beginning and one at
 * the end. For the rest a neighbour, or a second job, that must end in the bits of the reference.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "tests/system/system.h"

TestSuite(neighbours, .timeout = 120);

#define TENSORS      64u
#define TENSOR_BYTES (64u << 10)
#define BUDGET_BYTES ((uint64_t)TENSORS * TENSOR_BYTES)
/* Both have stored as much before it counts: then both queues are full. */
#define WARM_BYTES    (1ull << 20)
#define COUNTED_BYTES (6ull << 20)

static struct harness harness;

/* ---- shares ---- */

struct writer {
	const char *job;
	uint32_t io_weight;
	int stop_fd; /* readable: enough */
	pid_t pid;
};

static struct zinf *open_rank(const struct writer *writer)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	const uint64_t elements = 1000;
	struct zinf *zinf = NULL;
	uint32_t index;

	options.socket_path = harness.socket_path;
	options.job = writer->job;
	options.rank = 0;
	options.world_size = 1;
	options.timeout_ms = 60000;
	options.io_weight = writer->io_weight;
	if (zinf_attach(&options, &zinf) || zinf_unit_add(zinf, "u", &index) ||
	    zinf_param_add(zinf, "w", 1, &elements, &index) || zinf_materialize(zinf) ||
	    zinf_tensor_open(zinf, BUDGET_BYTES)) {
		fprintf(stderr, "%s\n", zinf ? zinf_error_text(zinf) : zinf_attach_error());
		exit(3);
	}
	return zinf;
}

/* Stores tensors one after the other, as many at once as its memory holds. */
static int write_on(void *arg)
{
	const struct writer *writer = arg;
	struct zinf *zinf = open_rank(writer);
	unsigned char *bytes = calloc(1, TENSOR_BYTES);
	zinf_ticket tickets[TENSORS] = { 0 };
	struct pollfd stop = { .fd = writer->stop_fd, .events = POLLIN };
	int r = bytes ? 0 : -ENOMEM;

	for (uint32_t id = 0; !r && poll(&stop, 1, 0) == 0; id = (id + 1) % TENSORS) {
		if (tickets[id])
			r = zinf_wait(zinf, tickets[id], NULL);
		if (!r && tickets[id])
			r = zinf_tensor_free(zinf, id);
		if (!r)
			r = zinf_tensor_put(zinf, id, bytes, TENSOR_BYTES, &tickets[id]);
	}
	if (r)
		fprintf(stderr, "%s: %s\n", writer->job, zinf_error_text(zinf));
	free(bytes);
	zinf_detach(zinf);
	return r ? 1 : 0;
}

/* What each of them has written, in one answer. */
static void count(const struct writer writers[2], uint64_t ret_bytes[2])
{
	json_t *jobs = harness_admin(&harness, "jobs"), *job;
	size_t index;

	cr_assert_not_null(jobs);
	ret_bytes[0] = ret_bytes[1] = 0;
	json_array_foreach(jobs, index, job)
	{
		for (uint32_t i = 0; i < 2; i++)
			if (!strcmp(json_string_value(json_object_get(job, "name")),
			            writers[i].job))
				ret_bytes[i] = (uint64_t)json_integer_value(
					json_object_get(job, "total_write_bytes"));
	}
	json_decref(jobs);
}

Test(neighbours, have_the_store_by_their_weights)
{
	struct writer writers[2] = { { .job = "light", .io_weight = 1 },
		                     { .job = "heavy", .io_weight = 3 } };
	uint64_t deadline_ns = zi_clock_deadline_ns(60 * ZI_NS_PER_S);
	uint64_t begin[2], now[2];
	int stop[2];
	double ratio;

	system_start(&harness, &(struct harness_options){
				       .nvme_size = "64M",
				       .nvme_extra = "backend = faulty:bytes_per_s=6000000\n"
						     "write_block = 64K\nwrite_depth = 1\n" });
	cr_assert_eq(pipe2(stop, O_CLOEXEC), 0);
	for (uint32_t i = 0; i < 2; i++) {
		writers[i].stop_fd = stop[0];
		writers[i].pid = harness_fork(write_on, &writers[i]);
		cr_assert_gt(writers[i].pid, 0);
	}
	do { /* Each question is a round trip. */
		count(writers, begin);
		cr_assert_lt(zi_clock_now_ns(), deadline_ns);
	} while (begin[0] < WARM_BYTES || begin[1] < WARM_BYTES);
	do {
		count(writers, now);
		cr_assert_lt(zi_clock_now_ns(), deadline_ns);
	} while (now[1] - begin[1] < COUNTED_BYTES);
	ratio = (double)(now[1] - begin[1]) / (double)(now[0] - begin[0]);
	cr_assert(ratio > 2.5 && ratio < 3.5, "of weights 1 and 3: %llu and %llu bytes",
	          (unsigned long long)(now[0] - begin[0]), (unsigned long long)(now[1] - begin[1]));
	cr_assert_eq(write(stop[1], "s", 1), 1);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(harness_wait(writers[i].pid, 60000), 0);
	(void)zi_close(stop[0]);
	(void)zi_close(stop[1]);
	cr_assert_eq(harness_stop(&harness), 0);
}

/* ---- what befalls one ---- */

static struct trainer_settings settings_of(const char *job, uint32_t steps)
{
	struct trainer_settings settings = ranks_settings(&harness, job, 1);

	settings.options.offload_optimizer = ZINF_OFFLOAD_NVME;
	settings.options.staging_bytes = 8 << 20;
	settings.steps = steps;
	return settings;
}

static void train(struct trainer_settings settings)
{
	struct ranks ranks;

	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert(ranks_are_right(&ranks));
	ranks_free(&ranks);
}

/* @word: of what it says. */
static void train_fails(struct trainer_settings settings, int error, const char *word)
{
	struct ranks ranks;

	cr_assert_eq(ranks_start(&ranks, &settings), 0);
	cr_assert_eq(ranks_wait(&ranks, 0), 1);
	cr_assert_eq(ranks.reports[0]->result, error, "%s", ranks.reports[0]->text);
	system_expect_text(ranks.reports[0]->text, word);
	ranks_free(&ranks);
}

Test(neighbours, full_store_and_used_up_quota_are_one_jobs_affair)
{
	struct trainer_settings settings;
	struct neighbour neighbour;

	/* Room for two sets of the neighbour's extents, and no more; then for a quota of a uid. */
	for (uint32_t turn = 0; turn < 2; turn++) {
		system_start(&harness,
		             &(struct harness_options){ .nvme_size = turn ? "64M" : "16M",
		                                        .extra = turn ? "[quota]\nuid_nvme = 12M\n"
		                                                      : NULL });
		settings = settings_of("neighbour", 1);
		cr_assert_eq(neighbour_start(&neighbour, &settings), 0);
		cr_assert(neighbour_steps(&neighbour));
		for (uint32_t i = 0; i < 2; i++) {
			train_fails(settings_of("large", 2), turn ? -EDQUOT : -ENOSPC,
			            turn ? "uid" : "nvme:disk");
			cr_assert(neighbour_steps(&neighbour));
		}
		cr_assert(neighbour_stop(&neighbour));
		cr_assert_eq(harness_stop(&harness), 0);
	}
}

static uint64_t store_used_bytes(void)
{
	json_t *tiers = harness_admin(&harness, "tiers"), *tier;
	uint64_t bytes = 0;
	size_t index;

	json_array_foreach(tiers, index, tier)
	{
		if (!strcmp(json_string_value(json_object_get(tier, "kind")), "nvme"))
			bytes = (uint64_t)json_integer_value(json_object_get(tier, "extent_bytes"));
	}
	json_decref(tiers);
	return bytes;
}

/* Everything from the first extent on is something else. */
static void spoil(uint64_t bytes)
{
	unsigned char garbage[4096];
	char path[320];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/store", harness.directory);
	fd = open(path, O_RDWR | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	memset(garbage, 0xa5, sizeof(garbage));
	for (uint64_t offset = 4096; offset < 4096 + bytes; offset += sizeof(garbage))
		cr_assert_eq(pwrite(fd, garbage, sizeof(garbage), (off_t)offset),
		             (ssize_t)sizeof(garbage));
	(void)zi_close(fd);
}

Test(neighbours, damage_is_the_affair_of_whose_data_it_is)
{
	struct ranks victim, other;
	struct trainer_settings settings;
	uint64_t bytes;

	system_start(&harness, &(struct harness_options){ .nvme_size = "64M" });
	/* First values alone, and they lie at the very beginning. */
	train(settings_of("victim", 0));
	bytes = store_used_bytes();
	cr_assert_gt(bytes, 0);
	train(settings_of("other", 2));
	cr_assert_eq(harness_halt(&harness), 0);
	spoil(bytes);
	cr_assert_eq(harness_restart(&harness), 0);

	/* Beside each other. */
	settings = settings_of("victim", 3);
	cr_assert_eq(ranks_start(&victim, &settings), 0);
	settings = settings_of("other", 6);
	cr_assert_eq(ranks_start(&other, &settings), 0);
	cr_assert_eq(ranks_wait(&victim, 0), 1);
	cr_assert_eq(victim.reports[0]->result, -EBADMSG, "%s", victim.reports[0]->text);
	system_expect_text(victim.reports[0]->text, "victim");
	cr_assert_eq(ranks_join(&other), 0);
	cr_assert_eq(other.reports[0]->first_steps[0], 2, "where it stood");
	cr_assert(ranks_are_right(&other));
	ranks_free(&victim);
	ranks_free(&other);
	train_fails(settings_of("victim", 3), -EBADMSG, "damaged");
	cr_assert_eq(harness_stop(&harness), 0);
}
