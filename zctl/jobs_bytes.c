/* SPDX-License-Identifier: Apache-2.0 */
/* What a job holds, plane by plane, and what its strategy gives each rank; see jobs.h. */
#include <stdio.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "zctl/get.h"
#include "zctl/jobs.h"
#include "zctl/table.h"
#include "zctl/zctl.h"

static const char *const planes[] = { "param", "grad",    "reduced_grad",
	                              "state", "staging", "collectives" };

/* Documented in the header, as are all that are not static. */
uint64_t jobs_held_bytes(const json_t *job, const char *key)
{
	const json_t *held = json_object_get(job, "held");
	uint64_t bytes = 0;

	for (size_t i = 0; i < ZI_COUNT_OF(planes); i++)
		bytes += get_count(json_object_get(held, planes[i]), key);
	return bytes;
}

/* A plane of the table of strategies, as one rank has it. */
static uint64_t logical_of(const json_t *rank, const char *plane)
{
	uint64_t bytes = get_count(rank, plane);

	if (!strcmp(plane, "param"))
		bytes += get_count(rank, "param_live");
	else if (!strcmp(plane, "grad"))
		bytes += get_count(rank, "grad_buckets");
	return bytes;
}

/* Of the rank that has most of @plane; @ret_sum: of all ranks. */
static uint64_t logical_bytes(const json_t *job, const char *plane, uint64_t *ret_sum)
{
	uint64_t most = 0;
	size_t index;
	json_t *rank;

	*ret_sum = 0;
	json_array_foreach(json_object_get(job, "logical"), index, rank)
	{
		most = ZI_MAX(most, logical_of(rank, plane));
		*ret_sum += logical_of(rank, plane);
	}
	return most;
}

uint64_t jobs_logical_bytes(const json_t *job)
{
	uint64_t sum = 0, bytes;

	for (size_t i = 0; i < ZI_COUNT_OF(planes); i++) {
		(void)logical_bytes(job, planes[i], &bytes); /* What it gives is the most. */
		sum += bytes;
	}
	return sum;
}

void jobs_print_bytes(const struct zctl_context *context, const json_t *job)
{
	static const char *const headings[] = { "plane",     ">logical/rank", ">logical",
		                                ">held cpu", ">held nvme",    NULL };
	const json_t *held = json_object_get(job, "held");
	struct table *table = table_new(headings);

	for (size_t i = 0; i < ZI_COUNT_OF(planes); i++) {
		const json_t *plane = json_object_get(held, planes[i]);
		uint64_t sum, most = logical_bytes(job, planes[i], &sum);

		table_cell(table, "%s", planes[i]);
		table_cell(table, "%s", zi_format_bytes(most).chars);
		table_cell(table, "%s", zi_format_bytes(sum).chars);
		table_cell(table, "%s", zi_format_bytes(get_count(plane, "cpu_bytes")).chars);
		table_cell(table, "%s", zi_format_bytes(get_count(plane, "nvme_bytes")).chars);
	}
	table_print(table, context->is_colour);
	(void)table_free(table);
	jobs_print_legend();
}

void jobs_print_legend(void)
{
	printf("logical: bytes that the strategy gives to the ranks (of the largest rank, of all "
	       "ranks)\n"
	       "held: bytes that this node really uses; its ranks share one copy\n");
}
