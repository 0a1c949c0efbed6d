/* SPDX-License-Identifier: Apache-2.0 */
/* What programs that run drawn cases are told; see arguments.h. */
#include "tests/coll/arguments.h"

#include <getopt.h>
#include <stdlib.h>

bool arguments_take(int argc, char **argv, uint64_t count, bool knows_simple,
                    struct arguments *ret_arguments)
{
	const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "rounds", required_argument, NULL, 'n' },
		{ "round", required_argument, NULL, 'r' },
		{ knows_simple ? "simple" : NULL, no_argument, NULL, 'i' },
		{ NULL, 0, NULL, 0 },
	};
	struct arguments arguments = { .seed = 1, .count = count };
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (option == 's')
			arguments.seed = strtoull(optarg, NULL, 0);
		else if (option == 'n')
			arguments.count = strtoull(optarg, NULL, 0);
		else if (option == 'i')
			arguments.is_simple = true;
		else if (option == 'r')
			arguments.first = strtoull(optarg, NULL, 0), arguments.count = 1;
		else
			return false;
	}
	*ret_arguments = arguments;
	return true;
}
