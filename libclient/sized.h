/* SPDX-License-Identifier: Apache-2.0 */
/* Public structs that begin with `uint32_t bytes`, and grow from version to version. Any thread. */
#pragma once

#include <stddef.h>

struct zi_text;

struct zi_sized {
	const char *name;        /* what it is to people: "options", "a schedule" */
	const char *initialiser; /* what to begin with */
	size_t least_bytes; /* the first version's, or of those that were ever released the least */
	size_t known_bytes; /* what this version looks at; behind it all must be zero */
};

/*
 * Whether a program of some version can have made it: @given is no shorter than @sized says nor
 * wildly long, and nothing is set that this libzinf does not know, where the program would wait in
 * vain for its effect. As many bytes are looked at as @given says. Return: 0; -EINVAL in words.
 */
int zi_client_check_sized(const struct zi_sized *sized, const void *given, struct zi_text *text);
