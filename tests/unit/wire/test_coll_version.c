/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: nobody changes what libzinf, zinfd and zinf-net share for collectives and leaves its
 * version as it was: then boards would be read wrongly, without a word. Method: all sizes, places
 * and numbers of it in one list, whose digest stands beside the version.
 */
#include <criterion/criterion.h>
#include <stddef.h>

#include "common/base/cleanup.h"
#include "common/wire/board.h"
#include "common/wire/control.h"
#include "common/wire/frame.h"
#include "common/wire/mail.h"
#include "common/wire/verdict.h"
#include "daemon/worker/net.h"
#include "daemon/worker/net/links.h"
#include "daemon/worker/net/mail_link.h"
#include "daemon/worker/net/talk_link.h"

#define AT(type, member) offsetof(struct type, member), sizeof(((struct type *)NULL)->member)
#define AS(type)         sizeof(struct type)

static const uint64_t shared[] = {
	/* messages of the socket */
	AS(zi_coll_open), AT(zi_coll_open, arena_bytes), AT(zi_coll_open, timeout_ms),
	AT(zi_coll_open, rendezvous_port), AT(zi_coll_open, rendezvous_host),
	AT(zi_coll_open, interface), AT(zi_coll_open, call_timeout_ms), AT(zi_coll_open, error),
	AT(zi_coll_open, token), AT(zi_coll_open, asked_bytes), AT(zi_coll_open, reason),
	AS(zi_coll_opened), AT(zi_coll_opened, arena_bytes), AT(zi_coll_opened, verdict_bytes),
	AT(zi_coll_opened, arenas_bytes), AT(zi_coll_opened, board_bytes),
	AT(zi_coll_opened, member_count), AT(zi_coll_opened, node_count),
	AT(zi_coll_opened, slab_bytes), AT(zi_coll_opened, node), AT(zi_coll_opened, nodes),
	AS(zi_coll_group), AT(zi_coll_group, members), AT(zi_coll_group, timeout_ms),
	AT(zi_coll_group, error), AT(zi_coll_group, reason), AT(zi_coll_group, name),
	AS(zi_coll_grouped), AT(zi_coll_grouped, group), AT(zi_coll_grouped, self),
	AT(zi_coll_grouped, member_count), AT(zi_coll_grouped, board_bytes),
	AT(zi_coll_grouped, slab_bytes), AS(zi_coll_group_free), AT(zi_coll_group_free, group),
	AS(zi_coll_fail), AT(zi_coll_fail, group), AT(zi_coll_fail, sequence),
	AT(zi_coll_fail, error), AT(zi_coll_fail, culprit), AT(zi_coll_fail, timeout_ms),
	AT(zi_coll_fail, operation), AT(zi_coll_fail, dtype), AS(zi_coll_abort),
	AT(zi_coll_abort, group), AT(zi_coll_abort, reason),
	/* verdicts */
	ZI_VERDICT_BYTES, ZI_GROUPS_MAX, AS(zi_verdicts), AT(zi_verdicts, spin_us),
	AT(zi_verdicts, numa), AT(zi_verdicts, beside_us), AT(zi_verdicts, groups),
	/* boards */
	ZI_WORLD_MAX, ZI_BOARD_INLINE_BYTES, ZI_BOARD_SLOTS, ZI_BOARD_MEMBER_BYTES,
	ZI_BOARD_PAYLOAD_BYTES, ZI_COLL_STAGING_BYTES, ZI_BOARD_REFUSALS, AS(zi_board_call),
	AT(zi_board_call, operation), AT(zi_board_call, dtype), AT(zi_board_call, reduce_op),
	AT(zi_board_call, flags), AT(zi_board_call, root), AT(zi_board_call, element_count),
	AT(zi_board_call, source), AT(zi_board_call, target), ZI_BOARD_REFUSED, ZI_BOARD_DIRECT,
	ZI_BOARD_AHEAD, ZI_BOARD_SMALL, ZI_BOARD_ECHO, ZI_BOARD_LEANS, AS(zi_board_post),
	AT(zi_board_post, sequence), AT(zi_board_post, payload_bytes), AT(zi_board_post, unseen),
	AT(zi_board_post, call), AT(zi_board_post, payload), AT(zi_board_post, staging),
	AS(zi_board_send), AT(zi_board_send, sequence), AT(zi_board_send, filled),
	AT(zi_board_send, element_count), AT(zi_board_send, source), AT(zi_board_send, staging),
	AT(zi_board_send, piece_bytes), AT(zi_board_send, dtype), AT(zi_board_send, is_over),
	AT(zi_board_send, deadline_ns), AT(zi_board_send, timeout_ms), AT(zi_board_send, refused),
	AT(zi_board_send, refusal), AT(zi_board_send, base), AS(zi_board_take),
	AT(zi_board_take, sequence), AT(zi_board_take, done), AT(zi_board_take, emptied),
	AT(zi_board_take, dtype), AT(zi_board_take, refused_dtype),
	AT(zi_board_take, element_count), AT(zi_board_take, refused_count),
	AT(zi_board_take, deadline_ns), AT(zi_board_take, timeout_ms), AT(zi_board_take, refused),
	AT(zi_board_take, refusal), AS(zi_board_refusal), AT(zi_board_refusal, number),
	AT(zi_board_refusal, error), AT(zi_board_refusal, reason), AS(zi_board_member),
	AT(zi_board_member, posts), AT(zi_board_member, finished), AT(zi_board_member, sleeping),
	AT(zi_board_member, step), AT(zi_board_member, mail), AT(zi_board_member, alarm),
	AT(zi_board_member, cma), AS(zi_board_cma), AT(zi_board_cma, pid), AT(zi_board_cma, unread),
	AT(zi_board_cma, word_address), AT(zi_board_cma, word), AT(zi_board_cma, from_bytes),
	AT(zi_board_cma, tried), AT(zi_board_cma, reads), ZI_BOARD_PRIVATE,
	AT(zi_board_member, refusals), AT(zi_board_member, refused), ZI_BOARD_REFUSED_MESSAGES,
	AT(zi_board_member, inlined), AT(zi_board_member, sends), AT(zi_board_member, takes),
	/* slabs, frames and letters */
	ZI_FAR_SLAB_BYTES, ZI_FAR_GROUP_BYTES, ZI_FAR_WORKER_BYTES, ZI_FAR_FRAMES_OFFSET,
	ZI_FAR_FRAMES_BYTES, ZI_FAR_SLOTS, AS(zi_far_places), AT(zi_far_places, source),
	AT(zi_far_places, target), ZI_FRAME_WORDS_BYTES, ZI_FRAME_DATA_MAX, ZI_MAIL_LETTERS,
	AS(zi_mail_box), AT(zi_mail_box, send), AT(zi_mail_box, take),
	/* orders of zinf-net */
	_NET_TYPE_COUNT, AS(net_way), AS(net_meet), AS(net_join), AS(net_agree), AS(net_map),
	AS(net_exchange), AS(net_follow), AS(net_late_message), AS(net_asked), AS(net_abort),
	AS(net_done), STORE_VERSION, AS(net_talk_batch), AT(net_talk_batch, node),
	AT(net_talk_batch, taken), AT(net_talk_batch, entries), AS(talk_entry),
	AT(talk_entry, node), AT(talk_entry, error), AT(talk_entry, tag), AT(talk_entry, unit),
	AT(talk_entry, subgroup), AT(talk_entry, micro), AT(talk_entry, piece),
	AT(talk_entry, step), AT(talk_entry, offset_bytes), AT(talk_entry, bytes),
	AT(talk_entry, slab), AT(talk_entry, data_bytes), AT(talk_entry, data), TALK_CREDIT,
	TALK_QUEUE, TALK_PULL_BYTES_MAX, NET_SLAB_TALK, NET_SLAB_PARAM, _TALK_KIND_COUNT,
	/* how nodes connect */
	AS(links_card), AT(links_card, port), AT(links_card, key), AS(links_hello),
	AT(links_hello, node), AT(links_hello, key), LINKS_MAGIC,
	/* what goes between nodes: pieces of calls, frames of messages, frames of talks */
	ZI_FAR_AHEAD, AS(mail_frame), AT(mail_frame, sequence), AT(mail_frame, element_count),
	AT(mail_frame, piece), AT(mail_frame, bytes), AT(mail_frame, refusal),
	AT(mail_frame, error), AT(mail_frame, data), _MAIL_KIND_COUNT, AS(talk_frame),
	AT(talk_frame, index), AT(talk_frame, error), AT(talk_frame, tag), AT(talk_frame, unit),
	AT(talk_frame, subgroup), AT(talk_frame, micro), AT(talk_frame, piece),
	AT(talk_frame, step), AT(talk_frame, bytes), AT(talk_frame, took), AT(talk_frame, number),
	AT(talk_frame, data_bytes), AT(talk_frame, data), TALK_CHUNK_BYTES, TALK_WINDOW,
	_TALK_FRAME_KIND_COUNT,
	/* what operations, types and reductions are called */
	_ZI_COLL_COUNT, _ZI_DTYPE_COUNT, _ZI_REDUCE_COUNT
};

static uint64_t digest_of(const uint64_t *words, size_t count)
{
	uint64_t digest = 14695981039346656037ull; /* FNV-1a, by words */

	for (size_t i = 0; i < count; i++)
		digest = (digest ^ words[i]) * 1099511628211ull;
	return digest;
}

/* Before a release: put the new digest here. After one: ZI_COLL_VERSION as well. */
Test(coll_version, what_is_shared_is_that_of_this_version)
{
	uint64_t digest = digest_of(shared, ZI_COUNT_OF(shared));

	cr_assert_eq(ZI_COLL_VERSION, 2);
	cr_assert_eq(digest, 0x497f3c973a074ca0ull,
	             "the layout of what collectives share has changed: its digest is 0x%llx",
	             (unsigned long long)digest);
}

Test(coll_version, who_says_none_has_the_first)
{
	struct zi_hello hello = { .coll_version = 77 };

	cr_assert_eq(zi_hello_coll_version(&hello), 1);
	hello.features = ~ZI_FEATURE_COLL_VERSION;
	cr_assert_eq(zi_hello_coll_version(&hello), 1);
	hello.features = ZI_FEATURE_COLL_VERSION;
	cr_assert_eq(zi_hello_coll_version(&hello), 77);
}
