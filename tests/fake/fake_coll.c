/* SPDX-License-Identifier: Apache-2.0 */
/* The test double of zinfd: memory and blame for collectives of one rank whose peers never come. */
#include <string.h>
#include <unistd.h>

#include "common/wire/board.h"
#include "common/wire/verdict.h"
#include "tests/fake/fake_private.h"

static uint64_t make_board(struct fake_daemon *fake, uint32_t group, uint32_t member_count)
{
	uint64_t bytes = (uint64_t)member_count * ZI_BOARD_MEMBER_BYTES;

	must(group < FAKE_GROUPS);
	must(!zi_region_create("board", bytes, ZI_PAGES_SMALL, NULL, &fake->boards[group]));
	return fake->options.lie == FAKE_LIE_COLL_BOARD ? 4096 : bytes;
}

/* Return: whether the rank refuses its wish itself. */
static bool is_refused(struct fake_daemon *fake, int error, const char *reason)
{
	if (!error)
		return false;
	fake->coll_refusal = (struct zi_coll_group){ .error = error };
	memcpy(fake->coll_refusal.reason, reason, ZI_REASON_BYTES);
	fake_reply_error(fake, error, "as a daemon says it of other ranks");
	return true;
}

void fake_coll_open(struct fake_daemon *fake)
{
	const struct zi_coll_open *request = fake->message;
	uint32_t world = fake->attach.world_size;
	struct zi_coll_opened told[2] = { {
		.arena_bytes = request->arena_bytes,
		.verdict_bytes = ZI_VERDICT_BYTES,
		.arenas_bytes = request->arena_bytes * world,
		.member_count = world,
	} };
	enum fake_lie lie = fake->options.lie;
	int fds[3];

	if (is_refused(fake, request->error, request->reason))
		return;
	told->board_bytes = make_board(fake, ZI_GROUP_WORLD, world);
	fake->group_count = 1;
	must(!zi_region_create("verdicts", ZI_VERDICT_BYTES, ZI_PAGES_SMALL, NULL,
	                       &fake->verdicts));
	must(!zi_region_create("arenas", told->arenas_bytes, ZI_PAGES_SMALL, NULL, &fake->arenas));
	if (lie == FAKE_LIE_COLL_ARENA)
		told->arena_bytes -= 4096;
	if (lie == FAKE_LIE_COLL_VERDICT)
		told->verdict_bytes = 64;
	if (lie == FAKE_LIE_COLL_MEMBERS)
		told->member_count++;
	fds[0] = fake_region_fd(fake, &fake->verdicts, true);
	fds[1] = fake_region_fd(fake, &fake->arenas, false);
	fds[2] = fake_region_fd(fake, &fake->boards[0], false);
	fake_reply(fake, told, ZI_MESSAGE_COLL_OPENED, sizeof(*told), fds, 3);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
}

void fake_coll_group(struct fake_daemon *fake)
{
	const struct zi_coll_group *request = fake->message;
	uint64_t mask = request->members[0];
	uint32_t rank = fake->attach.rank;
	bool is_member = mask >> rank & 1;
	struct zi_coll_grouped told[2] = { {
		.group = fake->group_count++,
		.self = UINT32_MAX,
		.member_count = (uint32_t)__builtin_popcountll(mask),
	} };
	int fd = -1;

	memcpy(fake->coll_name, request->name, sizeof(fake->coll_name));
	if (is_refused(fake, request->error, request->reason))
		return;
	if (is_member) {
		told->self = (uint32_t)__builtin_popcountll(mask & ((1ull << rank) - 1));
		told->board_bytes = make_board(fake, told->group, told->member_count);
		fd = fake_region_fd(fake, &fake->boards[told->group], false);
	}
	if (fake->options.lie == FAKE_LIE_GROUP_NUMBER)
		told->group = ZI_GROUP_WORLD;
	if (fake->options.lie == FAKE_LIE_GROUP_SELF)
		told->self = (told->self + 1) % told->member_count;
	fake_reply(fake, told, ZI_MESSAGE_COLL_GROUPED, sizeof(*told), &fd, is_member);
	if (is_member)
		close(fd);
}

void fake_coll_fail(struct fake_daemon *fake)
{
	memcpy(&fake->coll_fail, fake->message, sizeof(fake->coll_fail));
	fake_reply_error(fake, -ETIMEDOUT, "rank 0 (pid 4711) did not come");
}

const struct zi_coll_fail *fake_daemon_coll_fail(const struct fake_daemon *fake)
{
	return &fake->coll_fail;
}

const struct zi_coll_abort *fake_daemon_coll_abort(const struct fake_daemon *fake)
{
	return &fake->coll_abort;
}

const char *fake_daemon_coll_name(const struct fake_daemon *fake)
{
	return fake->coll_name;
}

const struct zi_coll_group *fake_daemon_coll_refusal(const struct fake_daemon *fake)
{
	return &fake->coll_refusal;
}

void fake_daemon_break(struct fake_daemon *fake)
{
	fake_break_group(fake);
}

void fake_daemon_judge(struct fake_daemon *fake, uint32_t group, uint32_t verdict)
{
	struct zi_verdicts *verdicts = fake->verdicts.base;

	zi_verdict_give(&verdicts->groups[group], verdict);
}
