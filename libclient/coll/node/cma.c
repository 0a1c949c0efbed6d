/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies out of the private memory of peers; see cma.h. Floor 2.
 *
 * Everything that a peer leaves on the board may be a lie. The kernel checks the address, and
 * whether this process may read that one at all (as one that would attach to it: ptrace(2)), so
 * that a lie gives its author's peers bytes that they could have had anyway, or an error; and its
 * author nothing more than it may read, where ranks have the same rights (docs/COLLECTIVES.md). The
 * number of a process may be given to another one once it has died; but the word behind the last
 * byte is found by who reads the process that had it at first: the number was that one's all the
 * time. What was read meanwhile was written by a stranger only if the word is not there. Nor is it
 * there once the owner's call has ended without its readers (a deadline, a verdict, detaching):
 * then its memory is its caller's again, and what was read of it may be anything.
 */
#include "libclient/coll/node/cma.h"

#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "kernels/copy.h"
#include "libclient/coll/node/members.h"

/* Between two looks at the verdict: a fraction of a millisecond. */
#define CMA_PIECE_BYTES (4ull << 20)
/* The smallest there are. */
#define CMA_PAGE_BYTES 4096u
/* Calls that are staged behind a mixture, at most. */
#define CMA_HOLD_MAX_LOG2 10u

static struct zi_board_cma *line_of(const struct zi_node_group *group, uint32_t part)
{
	return &group->meet.members[part].cma;
}

static struct zi_board_cma *own_line(const struct zi_node_group *group)
{
	return line_of(group, group->meet.self);
}

void zi_cma_offer(struct zi_node_group *group)
{
	struct zi_board_cma *own = own_line(group);
	struct zi_cma *cma = &group->cma;

	if (!cma->from_bytes)
		return;
	if (getrandom(&cma->word, sizeof(cma->word), GRND_NONBLOCK) != sizeof(cma->word)) {
		cma->from_bytes = 0;
		return;
	}
	cma->word |= 1; /* not 0 */
	own->word_address = (uintptr_t)&cma->word;
	own->word = cma->word;
	own->from_bytes = cma->from_bytes;
	__atomic_store_n(&own->pid, (uint32_t)getpid(), __ATOMIC_RELEASE);
}

/* A reader has the bytes first and the word then: if the word was there, so was all of the source,
 * for its owner writes it only after this. */
void zi_cma_withdraw(struct zi_node_group *group)
{
	__atomic_store_n(&group->cma.word, 0, __ATOMIC_RELAXED);
	/* Before anything that the caller writes, also past the caches: who reads pairs by the
	 * kernel's locks, which it takes for each iovec. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* ---- whom ---- */

/* Reads @bytes of @part into @target, and then looks whether they are still of who offered them.
 * The kernel gives less only where it cannot give the rest. */
static bool read_piece(const struct zi_node_group *group, uint32_t part, char *target,
                       uint64_t address, uint64_t bytes)
{
	const struct zi_board_cma *line = line_of(group, part);
	pid_t pid = (pid_t)__atomic_load_n(&line->pid, __ATOMIC_ACQUIRE);
	uint64_t said = __atomic_load_n(&line->word, __ATOMIC_RELAXED), word = 0;
	struct iovec local[] = { { target, bytes }, { &word, sizeof(word) } };
	struct iovec remote[] = { { (void *)(uintptr_t)address, bytes },
		                  { (void *)(uintptr_t)line->word_address, sizeof(word) } };

	return process_vm_readv(pid, local, ZI_COUNT_OF(local), remote, ZI_COUNT_OF(remote), 0) ==
	               (ssize_t)(bytes + sizeof(word)) &&
	       word == said;
}

bool zi_cma_reads(struct zi_node_group *group, uint32_t part)
{
	struct zi_board_cma *own = own_line(group);
	uint64_t bit = 1ull << part;
	char nothing;

	/* Who offers nothing may do so later: its group's first call may be this one. */
	if (group->cma.from_bytes && !(own->tried & bit) &&
	    zi_meet_load(&line_of(group, part)->pid)) {
		if (read_piece(group, part, &nothing, 0, 0))
			__atomic_store_n(&own->reads, own->reads | bit, __ATOMIC_RELAXED);
		__atomic_store_n(&own->tried, own->tried | bit, __ATOMIC_RELAXED);
	}
	return own->reads & bit;
}

bool zi_cma_is_read_by_all(const struct zi_node_group *group)
{
	uint64_t everyone = zi_node_everyone(group);

	if (!group->cma.from_bytes)
		return false;
	for (uint32_t i = 0; i < group->meet.member_count; i++) {
		uint64_t reads = __atomic_load_n(&line_of(group, i)->reads, __ATOMIC_ACQUIRE);

		if ((reads | 1ull << i) != everyone)
			return false;
	}
	return true;
}

/* None, then 1, 2, 4, …: the first one may be because somebody was late to look whom it reads. */
void zi_cma_hold(struct zi_node_group *group)
{
	struct zi_cma *cma = &group->cma;

	cma->held_from = group->sequence + 1;
	cma->held_calls =
		cma->hold_count ? 1u << ZI_MIN(cma->hold_count - 1, CMA_HOLD_MAX_LOG2) : 0;
	cma->hold_count += cma->hold_count <= CMA_HOLD_MAX_LOG2;
}

/* ---- sources ---- */

bool zi_cma_is_worth(const struct zi_node_group *group, const void *source, uint64_t bytes)
{
	if (group->sequence - group->cma.held_from < group->cma.held_calls)
		return false;
	for (uint32_t i = 0; i < group->meet.member_count; i++)
		if (bytes < line_of(group, i)->from_bytes)
			return false;
	return bytes && !((uintptr_t)source & ZI_BOARD_PRIVATE);
}

/* By one load of each page: 4 MiB take 4 us, where madvise(MADV_POPULATE_READ) walks their tables
 * for 200, four times as long as reading takes (pages of 4 KiB). */
uint64_t zi_cma_place_of(const void *source, uint64_t bytes)
{
	const volatile char *chars = source;

	for (uint64_t i = 0; i < bytes; i += CMA_PAGE_BYTES)
		(void)chars[i];
	if (bytes)
		(void)chars[bytes - 1];
	return (uintptr_t)source | ZI_BOARD_PRIVATE;
}

uint64_t zi_cma_address_at(uint64_t place)
{
	return place != ZI_BOARD_NOWHERE && place & ZI_BOARD_PRIVATE ? place & ~ZI_BOARD_PRIVATE
	                                                             : 0;
}

bool zi_cma_read(struct zi_node_group *group, uint32_t part, char *target, uint64_t address,
                 uint64_t bytes, char *scratch, uint64_t scratch_bytes)
{
	struct zi_board_cma *own = own_line(group);
	uint64_t piece_bytes = scratch ? scratch_bytes : CMA_PIECE_BYTES;

	if (!zi_cma_reads(group, part))
		return false;
	for (uint64_t done = 0; done < bytes; done += piece_bytes) {
		uint64_t piece = ZI_MIN(bytes - done, piece_bytes);
		void *place = target + done;

		if (zi_meet_verdict(&group->meet))
			return false;
		if (!read_piece(group, part, scratch ? scratch : place, address + done, piece)) {
			__atomic_store_n(&own->reads, own->reads & ~(1ull << part),
			                 __ATOMIC_RELAXED);
			return false;
		}
		if (scratch)
			kern_copy(&place, 1, scratch, piece, true);
	}
	return true;
}
