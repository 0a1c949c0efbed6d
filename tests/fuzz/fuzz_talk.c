/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the link of a talk under frames that another node could send, and entries that the
 * own daemon could: whatever they are, nothing moves but within what the daemon named and has not
 * been told of, and every pull and serve ends once. Lanes are doubles that look at places alone.
 */
#include <errno.h>

#include "common/base/clock.h"
#include "daemon/worker/net/talk_link.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/lanes.h"

#define SLAB_BYTES (20ull << 20)
#define TAGS       16u

/* What the own daemon named, and has not been told to be over. */
struct named {
	int is_there;
	uint64_t offset_bytes, bytes;
};

static struct net_lane frames = { .bytes = 2 * TALK_RING * sizeof(struct talk_frame) };
static struct net_lane pieces = { .bytes = SLAB_BYTES };
static struct named pulls[TAGS], serves[TAGS];
static struct talk_link the_link;
static int fails; /* what is waited for */

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	return 0;
}

static int is_named(const struct named *all, uint64_t offset_bytes, uint64_t bytes)
{
	for (uint32_t i = 0; i < TAGS; i++)
		if (all[i].is_there && offset_bytes >= all[i].offset_bytes &&
		    offset_bytes + bytes <= all[i].offset_bytes + all[i].bytes)
			return 1;
	return 0;
}

/* ---- lanes ---- */

static void begin(struct net_lane *lane, uint64_t slot, uint64_t offset_bytes, uint64_t bytes,
                  int is_out)
{
	(void)slot;
	fuzz_check(bytes > 0, "nothing moves");
	fuzz_check(lane == &frames || is_named(is_out ? serves : pulls, offset_bytes, bytes),
	           "not served, or not pulled");
}

static int wait_for(struct net_lane *lane, uint32_t count, uint64_t deadline_ns, int is_out,
                    struct zi_text *text)
{
	(void)lane;
	(void)is_out;
	fuzz_check(count && count <= TALK_RING && deadline_ns != ZI_DEADLINE_NEVER, "a wait");
	return fails ? zi_text_error(text, -ETIMEDOUT, "timed out") : 0;
}

/* None is made: the life of a link is not looked at here. */
const struct lanes_target lanes_target = { .begin = begin, .wait = wait_for };

/* ---- the daemon ---- */

static void end_one(struct named *one, const struct talk_entry *entry)
{
	fuzz_check(one->is_there && one->offset_bytes == entry->offset_bytes &&
	                   one->bytes == entry->bytes && entry->slab == NET_SLAB_TALK,
	           "the end of what was not begun");
	one->is_there = 0;
}

static void tell(void *arg, const struct talk_entry *entry)
{
	(void)arg;
	fuzz_check(talk_kind_is_heard(entry->kind) && entry->node == 1 &&
	                   entry->data_bytes <= sizeof(entry->data) && entry->error <= 0 &&
	                   entry->error >= -TALK_ERRNO_MAX,
	           "an entry");
	if (entry->kind == TALK_CAME || entry->kind == TALK_REFUSED)
		end_one(&pulls[entry->tag % TAGS], entry);
	else if (entry->kind == TALK_GONE)
		end_one(&serves[entry->tag % TAGS], entry);
	else if (entry->kind == TALK_PULL)
		fuzz_check(entry->bytes && entry->bytes <= TALK_PULL_BYTES_MAX, "a pull");
}

static uint64_t take_bytes(struct fuzz_input *input)
{
	static const uint64_t sizes[] = { 1,
		                          TALK_CHUNK_BYTES,
		                          TALK_CHUNK_BYTES + 1,
		                          3 * TALK_WAY_BYTES,
		                          TALK_PULL_BYTES_MAX,
		                          TALK_PULL_BYTES_MAX + 1,
		                          0 };
	uint8_t which = fuzz_u8(input) % 8;

	return which < 7 ? sizes[which] : fuzz_u64(input);
}

/* What the daemon said is its own from before it is said until it is told. Return: whether the talk
 * goes on. */
static int say(struct fuzz_input *input)
{
	struct talk_entry entry = { .kind = fuzz_u8(input) % (_TALK_FRAME_KIND_COUNT + 1) };
	struct named *one = NULL, former;
	struct zi_text text;
	int r;

	entry.node = 1;
	entry.tag = fuzz_u8(input) % TAGS;
	entry.bytes = take_bytes(input);
	entry.offset_bytes = fuzz_u8(input) % 4 ? fuzz_u8(input) * 4096ull : fuzz_u64(input);
	entry.slab = fuzz_u8(input) % 16 ? NET_SLAB_TALK : fuzz_u8(input);
	entry.error = fuzz_u8(input) % 4 ? -EIO : (int32_t)fuzz_u32(input);
	entry.data_bytes = fuzz_u8(input);
	if (entry.kind == TALK_PULL)
		one = &pulls[entry.tag];
	else if (entry.kind == TALK_SERVE)
		one = &serves[entry.tag];
	if (one) {
		former = *one;
		*one = (struct named){ 1, entry.offset_bytes, entry.bytes };
	}
	r = talk_link_say(&the_link, &entry, &text);
	fuzz_check(!r || r == 1 || r == -EINVAL, "said");
	if (one && r)
		*one = former;
	return r >= 0;
}

/* ---- the other node ---- */

/* Return: as above. */
static int hear(struct fuzz_input *input)
{
	struct talk_frame *frame = &the_link.memory[the_link.taken % TALK_RING];
	uint8_t took = fuzz_u8(input);
	struct zi_text text;
	int r;

	memset(frame, 0, sizeof(*frame));
	frame->kind = fuzz_u8(input) % (_TALK_FRAME_KIND_COUNT + 1);
	frame->index = fuzz_u8(input);
	frame->index %= frame->index & 0x80 ? 128 : 4;
	frame->tag = fuzz_u8(input) % TAGS;
	frame->bytes = take_bytes(input);
	frame->took = took < 128   ? the_link.gone
	              : took < 250 ? the_link.sent
	                           : the_link.gone + fuzz_u32(input) % 300;
	frame->error = fuzz_u8(input) % 4 ? -EIO : (int32_t)fuzz_u32(input);
	frame->number = fuzz_u8(input);
	frame->data_bytes = fuzz_u8(input);
	fails = fuzz_u8(input) == 255;
	the_link.arrived++;
	r = talk_link_hear(&the_link, &text);
	fuzz_check(r == 1 || r == -EPROTO || (r == -ETIMEDOUT && fails), "heard");
	return r > 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	static struct talk_frame memory[2 * TALK_RING];
	struct fuzz_input input = { bytes, byte_count };
	int goes_on = 1;

	memset(pulls, 0, sizeof(pulls));
	memset(serves, 0, sizeof(serves));
	the_link = (struct talk_link){ .options = { .node = 1, .tell = tell },
		                       .frames = &frames,
		                       .pieces[NET_SLAB_TALK] = &pieces,
		                       .memory = memory,
		                       .cut_due_ns = ZI_DEADLINE_NEVER };
	the_link.options.slabs[NET_SLAB_TALK] = (struct talk_slab){ NULL, SLAB_BYTES };
	while (input.byte_count && goes_on) {
		uint8_t action = fuzz_u8(&input) % 4;

		if (action == 0)
			goes_on = say(&input);
		else if (action == 1)
			talk_link_serve(&the_link);
		else if (action == 2)
			talk_link_answer(&the_link);
		else
			goes_on = hear(&input);
		fuzz_check(the_link.lying <= TALK_WINDOW &&
		                   the_link.sent - the_link.gone <= TALK_RING &&
		                   the_link.way_bytes <= TALK_WAY_BYTES,
		           "what lies");
	}
	return 0;
}
