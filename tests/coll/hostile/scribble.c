/* SPDX-License-Identifier: Apache-2.0 */
/* Writes on what is shared; see scribble.h. */
#include "tests/coll/hostile/scribble.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/wire/board.h"
#include "common/wire/far.h"
#include "tests/coll/script.h"

#define PAUSE_MAX 4000u /* looks between two writes */
#define WORD      sizeof(uint32_t)

#define LINE_WORDS (ZI_LINE_BYTES / WORD)
/* Of the lines for each peer those that few ranks have. */
#define PAIRS 4u

/* ---- where something is said; not the long middle of data alone ---- */

static uint64_t pick_of_pairs(uint64_t random, uint64_t word_count)
{
	uint64_t member_words = sizeof(struct zi_board_member) / WORD;
	uint64_t member = (random >> 8) % (word_count / member_words) * member_words;
	uint64_t lines = random % 2 ? offsetof(struct zi_board_member, sends)
	                            : offsetof(struct zi_board_member, takes);

	return member + lines / WORD + (random >> 24) % (PAIRS * LINE_WORDS);
}

static uint64_t pick_of_board(uint64_t random, uint64_t word_count)
{
	uint64_t member_words = sizeof(struct zi_board_member) / WORD;
	uint64_t member = (random >> 8) % (word_count / member_words) * member_words;
	uint64_t within = random >> 24;

	switch (random % 5) {
	case 0:
		return (random >> 8) % word_count;
	case 1:
		return pick_of_pairs(random >> 3, word_count);
	case 2:
		return member + within % (offsetof(struct zi_board_member, inlined) / WORD);
	default: /* the first posts */
		return member + within % (5 * LINE_WORDS);
	}
}

static uint64_t pick_of_mail(uint64_t random, uint64_t word_count)
{
	uint64_t mail_words = zi_far_mail_bytes(word_count * WORD) / WORD, within = random >> 8;

	return word_count - mail_words +
	       within % (random % 4 ? 2 * PAIRS * PAIRS * LINE_WORDS : mail_words);
}

/* The worker's own, the mail, and now and then anything. */
static uint64_t pick_of_slab(uint64_t random, uint64_t word_count)
{
	uint64_t within = random >> 8;

	switch (random % 6) {
	case 0:
		return within % word_count;
	case 1:
	case 2:
		return pick_of_mail(within, word_count);
	case 3: /* the first words of cards, and of frames */
		return within % 2 * (ZI_FAR_FRAMES_OFFSET / WORD) + (within >> 1) % (2048 / WORD);
	default:
		return within % (ZI_FAR_WORKER_BYTES / WORD);
	}
}

static scribble_pick_fn pick_of(enum scribble_where where, const char *line)
{
	if (strstr(line, "zinf-slab"))
		return where == SCRIBBLE_MAIL ? pick_of_mail : pick_of_slab;
	if (strstr(line, "zinf-board") && where != SCRIBBLE_SLABS)
		return where == SCRIBBLE_MAIL ? pick_of_pairs : pick_of_board;
	return NULL;
}

static void find_areas(struct scribbler *scribbler, enum scribble_where where)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];

	if (!maps)
		abort();
	while (fgets(line, sizeof line, maps) && scribbler->area_count < SCRIBBLE_AREAS_MAX) {
		scribble_pick_fn pick = pick_of(where, line);
		uint64_t begin, end;
		char write;

		if (!pick ||
		    sscanf(line, "%" SCNx64 "-%" SCNx64 " r%c", &begin, &end, &write) != 3 ||
		    write != 'w')
			continue;
		scribbler->areas[scribbler->area_count++] =
			(struct scribble_area){ .words = (uint32_t *)(uintptr_t)begin,
			                        .word_count = (end - begin) / WORD,
			                        .pick = pick };
	}
	(void)fclose(maps);
	if (!scribbler->area_count)
		abort();
}

/* ---- writing ---- */

static uint32_t spoil(uint32_t old, uint64_t random)
{
	switch (random % 5) {
	case 0:
		return old + (uint32_t)(random >> 8) % 5 - 2;
	case 1:
		return old ^ 1u << (random >> 8) % 32;
	case 2:
		return (uint32_t)(random >> 16);
	case 3:
		return 0;
	default:
		return UINT32_MAX;
	}
}

static void *scribble(void *arg)
{
	struct scribbler *scribbler = arg;
	uint64_t random = scribbler->seed;

	while (!__atomic_load_n(&scribbler->is_over, __ATOMIC_ACQUIRE)) {
		const struct scribble_area *area;
		uint32_t *word;

		random = script_mix(random);
		area = &scribbler->areas[(random >> 56) % scribbler->area_count];
		word = &area->words[area->pick(random, area->word_count)];
		random = script_mix(random);
		__atomic_store_n(word, spoil(__atomic_load_n(word, __ATOMIC_RELAXED), random),
		                 __ATOMIC_RELAXED);
		for (uint64_t i = random >> 40 & (PAUSE_MAX - 1); i > 0; i--)
			(void)__atomic_load_n(&scribbler->is_over, __ATOMIC_RELAXED);
	}
	return NULL;
}

void scribble_start(struct scribbler *scribbler, enum scribble_where where, uint64_t seed)
{
	*scribbler = (struct scribbler){ .seed = seed };
	find_areas(scribbler, where);
	if (pthread_create(&scribbler->thread, NULL, scribble, scribbler))
		abort();
}

void scribble_stop(struct scribbler *scribbler)
{
	__atomic_store_n(&scribbler->is_over, 1, __ATOMIC_RELEASE);
	(void)pthread_join(scribbler->thread, NULL);
}
