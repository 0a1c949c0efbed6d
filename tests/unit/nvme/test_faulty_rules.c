/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: each rule of the fault injector does to the disk what it says, to the blocks that it names
 * and to no other: what is built on it is only as good. Method: 32 blocks written and read over a
 * store that was filled before by a sound engine; the blocks that differ are counted. */
#include <criterion/criterion.h>
#include <signal.h>
#include <sys/wait.h>

#include "common/base/err.h"
#include "tests/unit/nvme/nvme_test.h"

#define STORE_BYTES (16 * MIB)
#define BLOCK_BYTES 65536u
#define BLOCKS      32u
#define BASE        4096u

static struct nvme_store *store;
static unsigned char *buffer;
static uint32_t sync_count;

/* Test double of libc's: counts. */
int fdatasync(int fd)
{
	(void)fd;
	sync_count++;
	return 0;
}

static void set_up(void)
{
	test_make_directory();
	store = test_open("rules", STORE_BYTES);
	buffer = test_buffer(2 * MIB);
}

static void tear_down(void)
{
	store = nvme_store_close(store);
	test_remove_directory();
}

TestSuite(faulty_rules, .init = set_up, .fini = tear_down);

static int run(const char *backend, enum nvme_direction direction)
{
	struct nvme_engine *engine = test_engine(backend, 1, BLOCK_BYTES);
	int r = test_run(engine, direction, store, BASE, buffer, 2 * MIB);

	engine = nvme_engine_free(engine);
	return r;
}

/* Old bytes everywhere. */
static void fill_store(void)
{
	test_fill(buffer, 2 * MIB, 1);
	cr_assert_eq(run("threads", NVME_WRITE), 0);
}

/* As test_fill() made it, block for block. Bit i: block i differs. */
static uint32_t differing(uint64_t seed)
{
	unsigned char *expected = test_buffer(2 * MIB);
	uint32_t mask = 0;

	test_fill(expected, 2 * MIB, seed);
	for (uint32_t i = 0; i < BLOCKS; i++)
		if (memcmp(buffer + i * BLOCK_BYTES, expected + i * BLOCK_BYTES, BLOCK_BYTES))
			mask |= 1u << i;
	return mask;
}

/* Which of the blocks that were written under @rule are not what was written. */
static uint32_t written(const char *rule)
{
	char backend[128];

	(void)snprintf(backend, sizeof(backend), "faulty:over=threads,%s", rule);
	fill_store();
	test_fill(buffer, 2 * MIB, 2);
	cr_assert_eq(run(backend, NVME_WRITE), 0, "%s is silent", rule);
	cr_assert_eq(differing(2), 0, "%s leaves the caller's bytes alone", rule);
	cr_assert_eq(run("threads", NVME_READ), 0);
	return differing(2);
}

static uint32_t read_under(const char *rule)
{
	char backend[128];

	(void)snprintf(backend, sizeof(backend), "faulty:over=threads,%s", rule);
	fill_store();
	memset(buffer, 0, 2 * MIB);
	cr_assert_eq(run(backend, NVME_READ), 0, "%s is silent", rule);
	return differing(1);
}

static uint32_t differing_bits(uint32_t block)
{
	unsigned char *expected = test_buffer(2 * MIB);
	uint32_t count = 0;

	test_fill(expected, 2 * MIB, 2);
	for (uint32_t i = block * BLOCK_BYTES; i < (block + 1) * BLOCK_BYTES; i++)
		count += (uint32_t)__builtin_popcount(buffer[i] ^ expected[i]);
	return count;
}

Test(faulty_rules, bit_is_flipped_on_the_disk_after_a_write)
{
	cr_assert_eq(written("flip=write@5"), 1u << 4);
	cr_assert_eq(differing_bits(4), 1);
}

Test(faulty_rules, bit_is_flipped_in_the_buffer_of_a_read)
{
	cr_assert_eq(read_under("flip=read@3"), 1u << 2);
	cr_assert_eq(read_under("flip=write@3"), 0, "not of a write");
}

Test(faulty_rules, lost_write_leaves_the_old_bytes)
{
	cr_assert_eq(written("lost=write@/8"), 0x80808080u);
	cr_assert_eq(differing(2), 0x80808080u);
	cr_assert_eq(differing(1) & 0x80808080u, 0, "stale, not torn");
}

Test(faulty_rules, torn_write_leaves_first_sectors)
{
	bool is_part_new = false;

	for (uint32_t seed = 1; seed <= 6; seed++) {
		char rule[48];

		(void)snprintf(rule, sizeof(rule), "seed=%u,torn=write@2", seed);
		cr_assert_eq(written(rule), 1u << 1);
		is_part_new |= (differing(1) >> 1) & 1;
	}
	cr_assert(is_part_new);
}

Test(faulty_rules, misplaced_blocks_are_elsewhere)
{
	cr_assert_neq(read_under("misplace=read@7") & 1u << 6, 0);
	cr_assert_eq(differing(1), 1u << 6);
	cr_assert_neq(written("misplace=write@7,seed=3") & 1u << 6, 0);
}

Test(faulty_rules, range_and_count_choose_the_blocks)
{
	/* Block 9 of the request, whatever its number; the superblock lies before block 0. */
	cr_assert_eq(written("lost=write@1@593920-593921"), 1u << 9);
	cr_assert_eq(written("lost=write@1@593919-593920"), 1u << 8);
	cr_assert_eq(written("lost=write@31+"), 3u << 30);
	cr_assert_eq(written("lost=write@2,flip=write@2"), 1u << 1, "the first rule decides");
	cr_assert_eq(written("lost=write@1@9999990-9999999"), 0);
}

Test(faulty_rules, chance_is_drawn_from_the_seed)
{
	uint32_t first = written("lost=write@~4,seed=1");

	cr_assert_neq(first, 0);
	cr_assert_neq(first, UINT32_MAX);
	cr_assert_eq(written("lost=write@~4,seed=1"), first, "and is the same again");
	cr_assert_neq(written("lost=write@~4,seed=2"), first);
}

Test(faulty_rules, errors_are_called_by_their_names)
{
	static const struct {
		const char *backend;
		int error;
	} errors[] = {
		{ "faulty:over=threads,EIO=any@3", -EIO },
		{ "faulty:over=threads,ENODATA=any@32", -ENODATA },
		{ "faulty:over=threads,ENOSPC=any@1+", -ENOSPC },
		{ "faulty:over=threads,EFBIG=any@/5", -EFBIG },
		{ "faulty:over=threads,ENODEV=any@33", 0 },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(errors); i++)
		for (enum nvme_direction direction = NVME_READ; direction <= NVME_WRITE;
		     direction++)
			cr_assert_eq(run(errors[i].backend, direction), errors[i].error, "%s",
			             errors[i].backend);
}

Test(faulty_rules, short_transfers_and_stalls_are_whole_in_the_end)
{
	cr_assert_eq(written("short=any@/3"), 0);
	cr_assert_eq(read_under("short=any@/3"), 0);
	cr_assert_eq(read_under("stall=read@2,stall_ms=1"), 0);
}

/* Which blocks lack what a child wrote, one after the other, until @backend killed it. */
static uint32_t lacking_after(const char *backend)
{
	int status = 0;
	pid_t pid;

	fill_store();
	test_fill(buffer, 2 * MIB, 2);
	pid = fork();
	if (!pid) {
		(void)run(backend, NVME_WRITE);
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%s", backend);
	cr_assert_eq(run("threads", NVME_READ), 0);
	return differing(2);
}

Test(faulty_rules, kill_comes_before_a_block_or_when_it_is_done)
{
	cr_assert_eq(lacking_after("faulty:over=threads,kill=write@5"), ~0u << 4);
	cr_assert_eq(lacking_after("faulty:over=auto,kill=write@5"), ~0u << 4);
	cr_assert_eq(lacking_after("faulty:over=threads,kill_done=write@5"), ~0u << 5);
	cr_assert_eq(lacking_after("faulty:over=auto,kill_done=write@5"), ~0u << 5);
}

/* Results of five flushes under @backend, "0" or the error's name each; @ret_synced: how many of
 * them reached the file. Blocks move in between. */
static struct zi_text flush_under(const char *backend, uint32_t *ret_synced)
{
	struct nvme_engine *engine = test_engine(backend, 1, BLOCK_BYTES);
	struct zi_text words = { "" };

	cr_assert_eq(nvme_engine_register_store(engine, store), 0);
	sync_count = 0;
	for (uint32_t i = 0; i < 5; i++) {
		struct zi_text former = words;
		int r = nvme_store_flush(store);

		zi_text_set(&words, "%s%s ", former.chars, r ? zi_err_name(r) : "0");
		cr_assert_eq(test_run(engine, NVME_WRITE, store, BASE, buffer, 2 * MIB), 0);
	}
	*ret_synced = sync_count;
	engine = nvme_engine_free(engine);
	cr_assert_eq(nvme_store_flush(store), 0, "an engine that is gone has no say");
	return words;
}

Test(faulty_rules, flushes_fail_or_are_not_made_by_their_own_count)
{
	static const struct {
		const char *backend, *expected;
		uint32_t synced;
	} cases[] = {
		{ "threads", "0 0 0 0 0 ", 5 },
		{ "faulty:over=threads,EIO=flush@2", "0 EIO 0 0 0 ", 4 },
		{ "faulty:over=auto,ENODEV=flush@4+", "0 0 0 ENODEV ENODEV ", 3 },
		{ "faulty:over=threads,ENOSPC=flush@/2,EIO=flush@4", "0 ENOSPC 0 ENOSPC 0 ", 3 },
		{ "faulty:over=threads,lost=flush@3", "0 0 0 0 0 ", 4 },
		{ "faulty:over=threads,stall=flush@1+,stall_ms=1", "0 0 0 0 0 ", 5 },
		{ "faulty:over=threads,EIO=any@999", "0 0 0 0 0 ", 5 },
		{ "faulty:over=threads,path=another,EIO=flush@1+", "0 0 0 0 0 ", 5 },
		{ "faulty:over=threads,path=test,EIO=flush@1+", "EIO EIO EIO EIO EIO ", 0 },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(cases); i++) {
		uint32_t synced;
		struct zi_text words = flush_under(cases[i].backend, &synced);

		cr_assert_str_eq(words.chars, cases[i].expected, "%s", cases[i].backend);
		cr_assert_eq(synced, cases[i].synced, "%s", cases[i].backend);
	}
}

Test(faulty_rules, chance_of_flushes_is_drawn_from_the_seed)
{
	uint32_t synced;
	struct zi_text first = flush_under("faulty:over=threads,EIO=flush@~2,seed=3", &synced);
	struct zi_text again = flush_under("faulty:over=threads,EIO=flush@~2,seed=3", &synced);

	cr_assert_not_null(strstr(first.chars, "EIO"), "%s", first.chars);
	cr_assert_not_null(strchr(first.chars, '0'), "%s", first.chars);
	cr_assert_str_eq(again.chars, first.chars, "and is the same again");
}

Test(faulty_rules, kill_at_a_flush)
{
	int status = 0;
	pid_t pid = fork();
	uint32_t synced;

	if (!pid) {
		(void)flush_under("faulty:over=threads,kill_done=flush@2", &synced);
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}
