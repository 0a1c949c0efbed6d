/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each uid holds. Floor 6, any thread.
 *
 * The mutex `lock` guards the whole table. Its rank is a leaf: no lock is taken and no callback
 * runs under it. It is held for a walk over the entries, once per connection, attach and answer.
 * Requests on rings do not take it.
 *
 * An entry stays when its uid holds nothing: a new connection must not fill the uid's bucket of log
 * lines again. Beyond UIDS_IDLE_MAX entries the idle one that was used longest ago is reused.
 */
#include "daemon/session/uid.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/list.h"
#include "common/base/log.h"

/* Entries that hold nothing. */
#define UIDS_IDLE_MAX 64u
/* What one uid, and all uids, may make us log at once, and how fast it may go on. */
#define UID_LOG_BURST       4u
#define UIDS_LOG_BURST      16u
#define UID_LOG_INTERVAL_NS ZI_NS_PER_S

static const struct {
	const char *key;
	const char *noun;
	bool is_bytes;
} kinds[_SESS_UID_KIND_COUNT] = {
	[SESS_UID_SESSIONS] = { "limits.sessions_per_uid", "sessions", false },
	[SESS_UID_CONNECTIONS] = { "limits.connections_per_uid",
	                           "connections that are not attached", false },
	[SESS_UID_ANSWERS] = { "limits.answers_per_uid", "answers that it has not read", false },
	[SESS_UID_ANSWER_BYTES] = { "limits.answer_bytes_per_uid",
	                            "of answers that it has not read", true },
};

struct uid_entry {
	struct zi_list link; /* of `list`: the one used last comes last */
	uid_t uid;
	uint64_t used[_SESS_UID_KIND_COUNT];
	struct zi_log_limit log_limit;
};

struct sess_uids {
	pthread_mutex_t lock;
	struct zi_list list;
	uint32_t entry_count;
	uint64_t limits[_SESS_UID_KIND_COUNT];
	struct zi_log_limit log_limit; /* of all uids */
};

int sess_uids_new(const uint64_t limits[_SESS_UID_KIND_COUNT], struct sess_uids **ret_uids)
{
	struct sess_uids *uids = calloc(1, sizeof(*uids));

	if (!uids)
		return err_origin(-ENOMEM);
	for (uint32_t kind = 0; kind < _SESS_UID_KIND_COUNT; kind++) {
		assert(limits[kind] > 0);
		uids->limits[kind] = limits[kind];
	}
	(void)pthread_mutex_init(&uids->lock, NULL); /* glibc's never fail like this. */
	zi_list_init(&uids->list);
	*ret_uids = uids;
	return 0;
}

static bool entry_is_idle(const struct uid_entry *entry)
{
	for (uint32_t kind = 0; kind < _SESS_UID_KIND_COUNT; kind++)
		if (entry->used[kind])
			return false;
	return true;
}

struct sess_uids *sess_uids_free(struct sess_uids *uids)
{
	if (!uids)
		return NULL;
	zi_list_for_each_safe(link, &uids->list) {
		struct uid_entry *entry = container_of(link, struct uid_entry, link);

		assert(entry_is_idle(entry));
		zi_list_remove(&entry->link);
		free(entry);
	}
	(void)pthread_mutex_destroy(&uids->lock);
	free(uids);
	return NULL;
}

/* With the lock held, as the next two. */
static struct uid_entry *entry_find(const struct sess_uids *uids, uid_t uid)
{
	zi_list_for_each(link, &uids->list) {
		struct uid_entry *entry = container_of(link, struct uid_entry, link);

		if (entry->uid == uid)
			return entry;
	}
	return NULL;
}

/* The idle entry that was used longest ago; NULL: the table may grow. */
static struct uid_entry *entry_reuse(const struct sess_uids *uids)
{
	if (uids->entry_count < UIDS_IDLE_MAX)
		return NULL;
	zi_list_for_each(link, &uids->list) {
		struct uid_entry *entry = container_of(link, struct uid_entry, link);

		if (entry_is_idle(entry))
			return entry;
	}
	return NULL;
}

/* Also moves it to the end of the list. NULL: no memory for a new one. */
static struct uid_entry *entry_get(struct sess_uids *uids, uid_t uid)
{
	struct uid_entry *entry = entry_find(uids, uid);

	if (!entry) {
		entry = entry_reuse(uids);
		if (entry) {
			zi_list_remove(&entry->link);
		} else {
			entry = malloc(sizeof(*entry));
			if (!entry)
				return NULL;
			uids->entry_count++;
		}
		*entry = (struct uid_entry){ .uid = uid };
		zi_list_init(&entry->link);
	}
	zi_list_remove(&entry->link);
	zi_list_push_back(&uids->list, &entry->link);
	return entry;
}

static int refuse(enum sess_uid_kind kind, uid_t uid, uint64_t used, uint64_t count, uint64_t limit,
                  struct zi_text *text)
{
	if (kinds[kind].is_bytes)
		zi_text_set(text, "uid %u has %s %s and needs %s more, %s are allowed (%s)", uid,
		            zi_format_bytes(used).chars, kinds[kind].noun,
		            zi_format_bytes(count).chars, zi_format_bytes(limit).chars,
		            kinds[kind].key);
	else
		zi_text_set(text, "uid %u has %llu %s, %llu are allowed (%s)", uid,
		            (unsigned long long)used, kinds[kind].noun, (unsigned long long)limit,
		            kinds[kind].key);
	return err_origin(-EMFILE);
}

/**
 * sess_uid_take() - count what a uid is about to hold
 * @count: of things, or bytes; what is over the limit is refused as a whole
 * @text: of a refusal
 *
 * Return: 0, and sess_uid_give() follows; -EMFILE, -ENOMEM: nothing is counted. Context: any
 * thread.
 */
int sess_uid_take(struct sess_uids *uids, uid_t uid, enum sess_uid_kind kind, uint64_t count,
                  struct zi_text *text)
{
	uint64_t limit = uids->limits[kind];
	struct uid_entry *entry;
	uint64_t used = 0;
	int r = 0;

	(void)pthread_mutex_lock(&uids->lock); /* Fails only by misuse, here and below. */
	entry = entry_get(uids, uid);
	if (entry) {
		used = entry->used[kind];
		assert(used <= limit);
		if (count > limit - used)
			r = -EMFILE;
		else
			entry->used[kind] += count;
	}
	(void)pthread_mutex_unlock(&uids->lock);
	if (!entry)
		return zi_text_error(text, err_origin(-ENOMEM), "no memory to count for uid %u",
		                     uid);
	return r ? refuse(kind, uid, used, count, limit, text) : 0;
}

/* What sess_uid_take() counted is gone. Context: any thread. */
void sess_uid_give(struct sess_uids *uids, uid_t uid, enum sess_uid_kind kind, uint64_t count)
{
	struct uid_entry *entry;

	(void)pthread_mutex_lock(&uids->lock);
	entry = entry_find(uids, uid);
	assert(entry);
	assert(entry->used[kind] >= count);
	entry->used[kind] -= count;
	(void)pthread_mutex_unlock(&uids->lock);
}

/* Return: what @uid holds now. Context: any thread. */
uint64_t sess_uid_used(struct sess_uids *uids, uid_t uid, enum sess_uid_kind kind)
{
	const struct uid_entry *entry;
	uint64_t used;

	(void)pthread_mutex_lock(&uids->lock);
	entry = entry_find(uids, uid);
	used = entry ? entry->used[kind] : 0;
	(void)pthread_mutex_unlock(&uids->lock);
	return used;
}

/* Return: the largest count of a uid; 0: no uid holds any. Context: any thread. */
uint64_t sess_uid_most(struct sess_uids *uids, enum sess_uid_kind kind, uid_t *ret_uid)
{
	uint64_t most = 0;

	(void)pthread_mutex_lock(&uids->lock);
	zi_list_for_each(link, &uids->list) {
		const struct uid_entry *entry = container_of(link, struct uid_entry, link);

		if (entry->used[kind] <= most)
			continue;
		most = entry->used[kind];
		*ret_uid = entry->uid;
	}
	(void)pthread_mutex_unlock(&uids->lock);
	return most;
}

/* Return: the sum over all uids. Context: any thread. */
uint64_t sess_uid_sum(struct sess_uids *uids, enum sess_uid_kind kind)
{
	uint64_t sum = 0;

	(void)pthread_mutex_lock(&uids->lock);
	zi_list_for_each(link, &uids->list)
		sum += container_of(link, struct uid_entry, link)->used[kind];
	(void)pthread_mutex_unlock(&uids->lock);
	return sum;
}

/* Return: whether @key limits what a uid holds. Context: any thread. */
bool sess_uid_find_kind(const char *key, enum sess_uid_kind *ret_kind)
{
	for (uint32_t kind = 0; kind < _SESS_UID_KIND_COUNT; kind++) {
		if (strcmp(key, kinds[kind].key) != 0)
			continue;
		*ret_kind = (enum sess_uid_kind)kind;
		return true;
	}
	return false;
}

/* Spends a token of the uid's bucket, and of the one of all uids. Context: any thread. */
bool sess_uid_may_log(struct sess_uids *uids, uid_t uid)
{
	struct uid_entry *entry;
	bool may_log;

	(void)pthread_mutex_lock(&uids->lock);
	entry = entry_get(uids, uid);
	may_log = entry &&
	          zi_log_limit_pass(&entry->log_limit, UID_LOG_BURST, UID_LOG_INTERVAL_NS) &&
	          zi_log_limit_pass(&uids->log_limit, UIDS_LOG_BURST, UID_LOG_INTERVAL_NS);
	(void)pthread_mutex_unlock(&uids->lock);
	return may_log;
}
