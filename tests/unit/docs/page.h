/* SPDX-License-Identifier: Apache-2.0 */
/* A file of the tree as one string, for tests that hold pages against the code. */
#pragma once

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

/* @path: from the root of the tree. Return: its text, NUL at the end; free() it. */
static inline char *page_read(const char *path)
{
	FILE *file = fopen(path, "r");
	char *text = NULL;
	size_t bytes = 0;

	cr_assert_not_null(file, "%s: run from the root of the tree", path);
	cr_assert_geq(getdelim(&text, &bytes, '\0', file), 0, "%s is empty", path);
	fclose(file);
	return text;
}
