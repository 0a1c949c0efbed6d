/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each uid holds of the daemon, and how much of it one uid may hold. Floor 6, private to
 * daemon/session, any thread.
 *
 * Every kind has one limit, the same for all uids. A session, connection or answer is taken before
 * it exists and given back when it is gone. Beyond the limit it is refused with both figures and
 * the key that sets the limit.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "common/base/text.h"

enum sess_uid_kind {
	SESS_UID_SESSIONS = 0, /* attached ranks */
	SESS_UID_CONNECTIONS,  /* that are not attached */
	SESS_UID_ANSWERS,      /* to questions, while the client has not read all of them */
	SESS_UID_ANSWER_BYTES, /* of these */
	_SESS_UID_KIND_COUNT,
};

struct sess_uids; /* all of them */

/* @limits: (_SESS_UID_KIND_COUNT,) at least 1 each; copied. -ENOMEM. */
int sess_uids_new(const uint64_t limits[_SESS_UID_KIND_COUNT], struct sess_uids **ret_uids);
/* Asserts that everything was given back. NULL. */
struct sess_uids *sess_uids_free(struct sess_uids *uids);
ZI_DEFINE_CLEANUP(struct sess_uids *, sess_uids_free)

/* 0; -EMFILE: over the limit, @text has the figures; -ENOMEM. Nothing is taken then. */
int sess_uid_take(struct sess_uids *uids, uid_t uid, enum sess_uid_kind kind, uint64_t count,
                  struct zi_text *text);
void sess_uid_give(struct sess_uids *uids, uid_t uid, enum sess_uid_kind kind, uint64_t count);
/* What @uid holds now. */
uint64_t sess_uid_used(struct sess_uids *uids, uid_t uid, enum sess_uid_kind kind);
/* The largest count of a uid. @ret_uid: that uid; untouched where the count is 0. */
uint64_t sess_uid_most(struct sess_uids *uids, enum sess_uid_kind kind, uid_t *ret_uid);
/* The sum over all uids. */
uint64_t sess_uid_sum(struct sess_uids *uids, enum sess_uid_kind kind);
/* The kind that a key of the configuration ("limits.sessions_per_uid") limits. */
bool sess_uid_find_kind(const char *key, enum sess_uid_kind *ret_kind);
/* Whether a line that @uid causes may be logged: a few, then one per second, of one uid and of all
 * uids together. */
bool sess_uid_may_log(struct sess_uids *uids, uid_t uid);
