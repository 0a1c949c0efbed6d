/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of an engine that run over both backends, with faults injected where they ask for some. */
#pragma once

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "tests/unit/nvme/nvme_test.h"

#define STORE_BYTES (16 * MIB)
#define BLOCK_BYTES 65536u

static struct nvme_store *store;
static unsigned char *buffer; /* (4 MiB,) */

static void set_up(void)
{
	test_make_directory();
	store = test_open("over", STORE_BYTES);
	buffer = test_buffer(4 * MIB);
}

static void tear_down(void)
{
	store = nvme_store_close(store);
	test_remove_directory();
}

struct variant {
	char over[16];
};

static struct variant variants[] = { { "auto" }, { "threads" } };

/* The body's argument: @variant, for make(). */
#define OVER_BOTH(suite, name)                                           \
	ParameterizedTestParameters(suite, name)                         \
	{                                                                \
		return cr_make_param_array(struct variant, variants, 2); \
	}                                                                \
	ParameterizedTest(struct variant *variant, suite, name, .init = set_up, .fini = tear_down)

/* @faults: of a faulty backend over the variant's; NULL: the variant's own. */
static struct nvme_engine *make(const struct variant *variant, uint32_t depth, const char *faults)
{
	char spec[200];

	if (!faults)
		return test_engine(variant->over, depth, BLOCK_BYTES);
	(void)snprintf(spec, sizeof(spec), "faulty:over=%s,%s", variant->over, faults);
	return test_engine(spec, depth, BLOCK_BYTES);
}

static struct nvme_engine_stats stats_of(struct nvme_engine *engine)
{
	struct nvme_engine_stats stats;

	nvme_engine_stats(engine, &stats);
	return stats;
}
