/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of check_faults share: a daemon whose engine is chosen at each start, and a victim
 * that trains in it. */
#pragma once

#include "tests/harness/ranks.h"

#define FAULTS_SUPERBLOCK_BYTES 4096u

struct test {
	uint64_t seed;
	uint32_t stride;
	enum zinf_durability durability; /* of its jobs */
	struct harness harness;
	bool is_memory;           /* the victim's state is in memory */
	bool is_again;            /* a way is walked once more, from wherever the victim stands */
	uint32_t commit_interval; /* the victim's; 0: every step */
	uint64_t pool_bytes;      /* the victim's parameters are on NVMe; 0: they are not */
	uint64_t first_bytes;     /* where the victim's extents begin */
	uint32_t site_counts[2];
	uint32_t way_sites;   /* of ways.c, all together */
	uint32_t flush_sites; /* of flush.c */
	uint32_t deadline_s;  /* of its stores; 0: as by default */
	uint32_t case_count, found_count, harmless_count, incarnation;
	char extra[256];
};

bool faults_says(bool is_right, const char *words, const char *detail);
uint64_t faults_mix(uint64_t z); /* splitmix64 */
/* A daemon with this backend; the store and the catalog are those of the one before. */
bool faults_start(struct test *test, const char *backend);
bool faults_halt(struct test *test);
struct trainer_settings faults_settings(const struct test *test, const char *job);
/* The victim, from wherever it stands to @steps. 0: there, with the right bits; else what it was
 * told, -EILSEQ for other bits. @ret_report: without its dump. */
int faults_train(struct test *test, uint32_t steps, bool is_resident,
                 struct trainer_report *ret_report);
/* All the ways: written, stepped, read anew with resident state, stepped: to step 3. */
int faults_train_all(struct test *test, struct trainer_report *ret_report);
/* The sentence has all that is needed to find the place. */
bool faults_names_place(const struct test *test, const char *text);
bool faults_destroy(struct test *test, const char *job);

/* ---- busy.c ---- */

/* A loop for each CPU, which takes turns with the daemon there; they rest at first. */
bool faults_busy_start(void);
/* Lets the loops run, or rest. */
void faults_busy_set(bool is_busy);
void faults_busy_stop(void);

/* ---- ways.c ---- */

/* An error at each site of each way to the store beside a plain job's. */
bool faults_check_ways(struct test *test);

/* ---- flush.c ---- */

/* Each flush in turn fails, stalls, or is the last thing that zinfd does. */
bool faults_check_flushes(struct test *test);

/* ---- stripe.c ---- */

/* A fault at each block of a job whose tier has two paths: in a harness of its own. */
bool faults_check_stripe(struct test *test);

/* ---- rest.c ---- */

/* Bits turned on the disk between two lives of the daemon: each is named. */
bool faults_check_rest(struct test *test);
