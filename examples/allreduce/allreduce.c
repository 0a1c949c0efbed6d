/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives of libzinf on a page: each rank has a vector, and all get the sum of them.
 *
 *     zctl launch --nproc-per-node 2 --job sums zinf-allreduce
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "zinf/zinf.h"

#define COUNT  (4u << 20) /* floats of a vector: 16 MiB */
#define ROUNDS 10

/* Every call returns 0 or -errno, and says in a sentence what was wrong: who did not come, too. */
#define TRY(call)                                                                    \
	do {                                                                         \
		if (call) {                                                          \
			fprintf(stderr, "%s\n",                                      \
			        zinf ? zinf_error_text(zinf) : zinf_attach_error()); \
			zinf_detach(zinf);                                           \
			return 1;                                                    \
		}                                                                    \
	} while (0)

static double now_s(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* Cannot fail. */
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* What was printed is there, or the program fails. */
static int finish(void)
{
	if (!fflush(stdout) && !ferror(stdout))
		return 0;
	perror("zinf-allreduce: writing to standard output failed");
	return 1;
}

static int show_usage(int argc, char **argv)
{
	if (argc > 2 || strcmp(argv[1], "--help") != 0) {
		fprintf(stderr, "zinf-allreduce: \"%s\" is unknown: --help is the only option\n",
		        argv[argc > 2 ? 2 : 1]);
		return 2;
	}
	printf("usage: zctl launch --nproc-per-node N zinf-allreduce\n"
	       "Sums a vector of %zu MiB over N ranks, %d times. Each rank checks the sums,\n"
	       "and rank 0 prints the time of each round. zinfd must run. There are no\n"
	       "options: the launcher's variables name the rank, ZINF_JOB names the job and\n"
	       "ZINF_SOCKET the daemon.\n",
	       COUNT * sizeof(float) >> 20, ROUNDS);
	return finish();
}

int main(int argc, char **argv)
{
	struct zinf_options options = ZINF_OPTIONS_INIT; /* rank and job: the launcher's */
	struct zinf_coll_options begin_only = ZINF_COLL_OPTIONS_INIT;
	struct zinf *zinf = NULL;
	zinf_ticket ticket;
	float *vector = NULL, part, expected = 0;
	double begin_s;

	if (argc > 1)
		return show_usage(argc, argv);
	/* Attach, and open an arena: what is allocated there is summed where it lies, by all ranks
	 * together. Other memory works as well, at the cost of a copy in and out. */
	TRY(zinf_attach(&options, &zinf));
	TRY(zinf_coll_open(zinf, COUNT * sizeof(*vector)));
	TRY(zinf_coll_alloc(zinf, COUNT * sizeof(*vector), (void **)&vector));

	for (int32_t rank = 0; rank < zinf_world_size(zinf); rank++)
		expected += (float)(rank + 1);
	for (int round = 0; round < ROUNDS; round++) {
		for (uint32_t i = 0; i < COUNT; i++)
			vector[i] = (float)(zinf_rank(zinf) + 1);
		TRY(zinf_coll_barrier(zinf, NULL));
		begin_s = now_s();
		/* In place, of all ranks, with the session's deadline: NULL. */
		TRY(zinf_coll_all_reduce(zinf, vector, vector, COUNT, ZINF_F32, ZINF_SUM, NULL));
		if (zinf_rank(zinf) == 0)
			printf("round %d: %.2f ms for %.0f MiB\n", round, (now_s() - begin_s) * 1e3,
			       COUNT * sizeof(*vector) / 1048576.0);
		for (uint32_t i = 0; i < COUNT; i++)
			if (vector[i] != expected) {
				fprintf(stderr, "element %u is %g, not %g\n", i, vector[i],
				        expected);
				zinf_detach(zinf);
				return 1;
			}
	}

	/* Begun here, waited for below: between the two the rank may do something else. */
	begin_only.ret_ticket = &ticket;
	part = (float)zinf_rank(zinf);
	TRY(zinf_coll_all_reduce(zinf, &part, &part, 1, ZINF_F32, ZINF_MAX, &begin_only));
	TRY(zinf_wait(zinf, ticket, NULL));
	if (zinf_rank(zinf) == 0)
		printf("all sums are %g; the last rank is %g\n", expected, part);
	TRY(zinf_coll_free(zinf, vector));
	zinf_detach(zinf);
	return finish();
}
