/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes say of snapshots that all keep (keep.h): TALK_READY, its tag the question's id. Floor
 * 5, shard thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "daemon/worker/talk.h"

struct across;
struct keep_words;

/* `what`, beside those of enum grads_ready, PARAMS_READY and AGREE_READY_GROUPS. */
enum keep_what {
	KEEP_ASK = 16, /* struct keep_words, without a commit */
	KEEP_TAKE,     /* struct keep_words, step */
	KEEP_TOLD,     /* error and why; piece: it was there before */
	KEEP_OVER,     /* error */
	KEEP_HEARD,
	KEEP_ANSWER, /* error and why, or the name, step */
	_KEEP_END
};

struct talk_entry keep_entry(uint32_t what, uint64_t id);
/* Its data. */
void keep_put_words(struct talk_entry *entry, const struct keep_words *words);
/* The beginning of it, where it is longer. */
void keep_put_text(struct talk_entry *entry, const struct zi_text *text);
/* Hearsay. Return: 0; -EPROTO with @text. */
int keep_words_of(const struct talk_entry *entry, bool has_name, struct keep_words *ret_words,
                  struct zi_text *text);
/* Whose question is out on this node. */
void keep_tell_asker(struct across *across, int error, const struct zi_text *text, const char *name,
                     int64_t step);
/* What has become of all nodes' parts. Return: 0; -EPROTO. */
int keep_heard_over(struct across *across, uint64_t id, int error);
