/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what a daemon does not name is never exported as zeros. Method: the rows of an answer, as
 * they come from a daemon that has all, some of it as zeros, or one node's part.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "zctl/export.h"

/* Two units, of one and of two subgroups. */
static struct model_unit units[] = { { .name = "embed", .padded_count = ZI_SUBGROUP_ELEMENTS },
	                             { .name = "h.0", .padded_count = 2 * ZI_SUBGROUP_ELEMENTS } };

static int read_rows(struct export *export, const char *rows)
{
	json_error_t why;
	json_t *record = json_loads(rows, 0, &why);

	cr_assert_not_null(record, "%s", why.text);
	units[0].subgroup_count = 1;
	units[1].subgroup_first = 1;
	units[1].subgroup_count = 2;
	*export = (struct export){ .model = { .record = record,
		                              .job = "train",
		                              .dtype = ZI_DTYPE_BF16,
		                              .state_width = 12,
		                              .unit_count = 2,
		                              .subgroup_count = 3,
		                              .units = units },
		                   .window_bytes = 64ull << 20 };
	return export_read_extents(export);
}

static void drop(struct export *export)
{
	json_decref(export->model.record);
	free(export->places);
}

#define ALL_BUT_LAST "[1,0,0,0],[0,0,0,0],[1,1,0,0],[0,1,0,0]"

Test(export_rows, zeros_are_said)
{
	struct export export;

	cr_expect_eq(read_rows(&export, "{\"extents\":[" ALL_BUT_LAST ",[1,1,1,0],[0,1,1,0]]}"), 0);
	for (uint32_t i = 0; i < 3; i++) {
		cr_expect_eq(export.places[i].param, EXPORT_ZEROS);
		cr_expect_eq(export.places[i].state, EXPORT_ZEROS);
	}
	drop(&export);
}

Test(export_rows, what_is_not_named_is_an_error)
{
	static const char *const parts[] = {
		"{\"extents\":[" ALL_BUT_LAST "]}",
		"{\"extents\":[" ALL_BUT_LAST ",[0,1,1,0]]}",
		"{\"extents\":[" ALL_BUT_LAST ",[1,1,1,0]]}",
		"{\"extents\":[]}",
		"{}",
	};

	for (size_t i = 0; i < ZI_COUNT_OF(parts); i++) {
		struct export export;

		cr_expect_eq(read_rows(&export, parts[i]), 1, "%s", parts[i]);
		drop(&export);
	}
}
