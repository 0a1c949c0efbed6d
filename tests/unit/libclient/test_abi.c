/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the library exports what zinf.h declares and zinf.map lists, no more and no less; the
 * header stands alone in C and in C++; the same numbers travel as are public. Method: nm over the
 * library of this build, the compilers on a one-line file. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "zinf/zinf.h"

/* The output of @command, without its last newline. */
static void output_of(const char *command, char *buffer, size_t capacity)
{
	FILE *pipe = popen(command, "r");
	size_t bytes = fread(buffer, 1, capacity - 1, pipe);

	buffer[bytes] = '\0';
	cr_assert_eq(pclose(pipe), 0, "%s", command);
}

static const char *library(void)
{
	static char path[256];
	const char *build = getenv("ZINF_BUILD");

	snprintf(path, sizeof(path), "%s/lib/libzinf.so.0", build ? build : "build/release");
	return path;
}

Test(abi, library_map_and_header_name_the_same_symbols)
{
	static char exported[8192], listed[8192], declared[8192];
	char command[512];

	if (access(library(), F_OK) < 0)
		cr_skip_test("libzinf.so.0 of this build is not there: make all");
	snprintf(command, sizeof(command),
	         "nm -D --defined-only %s | awk '$2 == \"T\" { sub(/@.*/, \"\", $3); print $3 }' "
	         "| sort",
	         library());
	output_of(command, exported, sizeof(exported));
	output_of("grep -oE '^[[:space:]]+zinf_[a-z_]+;' libclient/zinf.map | tr -d '\\t ;' | sort",
	          listed, sizeof(listed));
	output_of("grep -hoE '^ZINF_API [^(]*\\(' include/zinf/*.h | grep -oE 'zinf_[a-z_]+\\(' "
	          "| tr -d '(' | sort",
	          declared, sizeof(declared));
	cr_assert_gt(strlen(listed), 100);
	cr_assert_str_eq(exported, listed);
	cr_assert_str_eq(declared, listed);
}

Test(abi, nothing_else_is_exported_not_even_data)
{
	char command[512], symbols[4096];

	if (access(library(), F_OK) < 0)
		cr_skip_test("libzinf.so.0 of this build is not there: make all");
	snprintf(command, sizeof(command),
	         "nm -D --defined-only %s | awk '$2 != \"T\" && $3 != \"ZINF_0.1\" { print $3 }'",
	         library());
	output_of(command, symbols, sizeof(symbols));
	cr_assert_str_eq(symbols, "");
}

Test(abi, header_compiles_alone_in_c_and_cplusplus)
{
	char errors[4096];

	output_of("echo '#include <zinf/zinf.h>' | gcc -std=c99 -Wall -Wextra -pedantic -Werror "
	          "-fsyntax-only -Iinclude -x c - 2>&1; true",
	          errors, sizeof(errors));
	cr_expect_str_eq(errors, "");
	output_of(
		"printf '#include <zinf/zinf.h>\\nint main() { return zinf_version() == 0; }\\n' "
		"| g++ -std=c++17 -Wall -Wextra -pedantic -Werror -fsyntax-only -Iinclude -x c++ - "
		"2>&1; true",
		errors, sizeof(errors));
	cr_expect_str_eq(errors, "");
}

Test(abi, version_is_that_of_the_header)
{
	char expected[16];

	snprintf(expected, sizeof(expected), "%d.%d.", ZINF_VERSION_MAJOR, ZINF_VERSION_MINOR);
	cr_assert_eq(strncmp(zinf_version(), expected, strlen(expected)), 0);
}
