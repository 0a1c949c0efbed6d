/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks say when they fail (complaint.h). */
#include "examples/gpt/complaint.h"

#include <assert.h>
#include <string.h>

/**
 * gpt_complain() - says what is wrong
 * @args: of the rank; rank -1: of the whole program
 * @board: of the parent, which prints the first complaint of each rank; NULL: it is printed here
 * @problem: one sentence
 */
void gpt_complain(const struct gpt_args *args, struct gpt_board *board,
                  const struct gpt_problem *problem)
{
	if (args->rank < 0)
		(void)fprintf(stderr, "zinf-gpt: %s\n", problem->chars);
	else if (board && !board->complaints[args->rank].chars[0])
		board->complaints[args->rank] = *problem;
	else
		(void)fprintf(stderr, "zinf-gpt: rank %d: %s\n", args->rank, problem->chars);
}

/* No rank may run. */
void gpt_complaints_clear(struct gpt_board *board)
{
	memset(board->complaints, 0, sizeof(board->complaints));
}

/* "0, 2-5": the ranks of @is_named. */
static void name_ranks(uint32_t world_count, const bool *is_named, FILE *file)
{
	const char *between = "";

	for (uint32_t rank = 0; rank < world_count; rank++) {
		uint32_t last = rank;

		if (!is_named[rank])
			continue;
		while (last + 1 < world_count && is_named[last + 1])
			last++;
		(void)fprintf(file, last > rank ? "%s%u-%u" : "%s%u", between, rank, last);
		between = ", ";
		rank = last;
	}
}

static bool is_told(const struct gpt_board *board, uint32_t world_count, const bool *has_told,
                    uint32_t rank)
{
	for (uint32_t other = 0; other < world_count; other++)
		if (has_told[other] &&
		    !strcmp(board->complaints[other].chars, board->complaints[rank].chars))
			return true;
	return false;
}

/**
 * gpt_complaints_tell() - prints each sentence once, with the ranks that left it
 * @board: of the ranks
 * @world_count: ranks of the job
 * @is_readable: (@world_count,). Ranks that have ended: nobody writes their sentences any more
 * @has_told: (@world_count,). Ranks whose sentences were printed: these are not printed again.
 *	Updated
 * @file: where to
 */
void gpt_complaints_tell(const struct gpt_board *board, uint32_t world_count,
                         const bool *is_readable, bool *has_told, FILE *file)
{
	assert(world_count <= ZINF_WORLD_MAX);
	for (uint32_t rank = 0; rank < world_count; rank++) {
		const char *text = board->complaints[rank].chars;
		bool is_named[ZINF_WORLD_MAX] = { false };
		uint32_t count = 0;

		if (!is_readable[rank] || has_told[rank] || !text[0])
			continue;
		if (is_told(board, world_count, has_told, rank)) {
			has_told[rank] = true;
			continue;
		}
		for (uint32_t other = rank; other < world_count; other++)
			if (is_readable[other] && !strcmp(board->complaints[other].chars, text)) {
				is_named[other] = true;
				has_told[other] = true;
				count++;
			}
		(void)fprintf(file, "zinf-gpt: rank%s ", count > 1 ? "s" : "");
		name_ranks(world_count, is_named, file);
		(void)fprintf(file, ": %.*s\n", (int)GPT_PROBLEM_BYTES - 1, text);
	}
}
