/* SPDX-License-Identifier: Apache-2.0 */
/* The words of an ADMIN message, as a question. Floor 6, control thread. Nothing here trusts them.
 */
#include "daemon/session/admin/ask_words.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/session/sess.h"

/* A measurement's time when none is given; no less finds anything, no more is "short". */
#define ASK_BENCH_S     3u
#define ASK_BENCH_S_MAX 60u

static const char ask_allowed[] =
	"status, tiers, topo, jobs [JOB [collectives]], delete JOB, limits, "
	"bench nvme STORE [SECONDS], drain|undrain STORE, snapshot create|list|rm|restore, "
	"export open|read|wait and load open|describe|put|wait|end are answered";

/* The next word of a copy of the command; "" at its end. */
static char *next_word(char **cursor)
{
	char *word = *cursor + strspn(*cursor, " ");
	size_t bytes = strcspn(word, " ");

	*cursor = word + bytes;
	if (**cursor)
		*(*cursor)++ = '\0';
	return word;
}

/* "train" or "train/step-7". */
static int take_names(struct sess_inquiry *inquiry, char *word)
{
	char *slash = strchr(word, '/');

	if (slash)
		*slash = '\0';
	if (zi_check_name(word, sizeof(inquiry->job)) ||
	    (slash && zi_check_name(slash + 1, sizeof(inquiry->name))))
		return err_origin(-EINVAL);
	inquiry->has_job = true;
	(void)zi_copy_name(inquiry->job, sizeof(inquiry->job), word); /* Both fit, as checked. */
	if (slash)
		(void)zi_copy_name(inquiry->name, sizeof(inquiry->name), slash + 1);
	return 0;
}

static int take_job(struct sess_inquiry *inquiry, char **cursor)
{
	char *word = next_word(cursor);

	if (!*word)
		return 0;
	return strchr(word, '/') ? err_origin(-EINVAL) : err_trace(take_names(inquiry, word));
}

static int take_delete(struct sess_inquiry *inquiry, char **cursor)
{
	int r = take_job(inquiry, cursor);

	return r || !inquiry->has_job ? err_origin(-EINVAL) : 0;
}

/* "train collectives" */
static int take_jobs(struct sess_inquiry *inquiry, char **cursor)
{
	char *word;
	int r = take_job(inquiry, cursor);

	if (r)
		return err_trace(r);
	word = next_word(cursor);
	inquiry->wants_collectives = *word;
	return !*word || strcmp(word, "collectives") == 0 ? 0 : err_origin(-EINVAL);
}

static int take_create(struct sess_inquiry *inquiry, char **cursor)
{
	char *word = next_word(cursor);
	int r = take_names(inquiry, word);

	for (word = next_word(cursor); !r && *word; word = next_word(cursor)) {
		char *end = word;

		if (strcmp(word, "auto") == 0) {
			inquiry->is_automatic = true;
		} else if (strncmp(word, "keep=", 5) == 0 && word[5] >= '0' && word[5] <= '9') {
			unsigned long count = strtoul(word + 5, &end, 10);

			inquiry->keep_count = (uint32_t)count;
			r = *end || !count || count > UINT32_MAX ? err_origin(-EINVAL) : 0;
		} else {
			r = err_origin(-EINVAL);
		}
	}
	return err_trace(r);
}

static int take_remove(struct sess_inquiry *inquiry, char **cursor)
{
	int r = take_names(inquiry, next_word(cursor));

	return r || !inquiry->name[0] ? err_origin(-EINVAL) : 0;
}

/* "train/step-7", "train/step-7 as=other" */
static int take_restore(struct sess_inquiry *inquiry, char **cursor)
{
	int r = take_remove(inquiry, cursor);
	const char *word = next_word(cursor);

	if (r || !*word)
		return err_trace(r);
	if (strncmp(word, "as=", 3) != 0 || zi_check_name(word + 3, sizeof(inquiry->as)))
		return err_origin(-EINVAL);
	return err_trace(zi_copy_name(inquiry->as, sizeof(inquiry->as), word + 3));
}

static int take_u32(char **cursor, uint32_t *ret_value)
{
	char *word = next_word(cursor);
	char *end;
	unsigned long value = strtoul(word, &end, 10);

	if (*word < '0' || *word > '9' || *end || value > UINT32_MAX)
		return err_origin(-EINVAL);
	*ret_value = (uint32_t)value;
	return 0;
}

static int take_names_only(struct sess_inquiry *inquiry, char **cursor)
{
	return err_trace(take_names(inquiry, next_word(cursor)));
}

static int take_read(struct sess_inquiry *inquiry, char **cursor)
{
	int r = take_u32(cursor, &inquiry->index);

	return r ? err_trace(r) : err_trace(take_u32(cursor, &inquiry->window));
}

static int take_window(struct sess_inquiry *inquiry, char **cursor)
{
	return err_trace(take_u32(cursor, &inquiry->window));
}

static int take_load_open(struct sess_inquiry *inquiry, char **cursor)
{
	int r = take_names(inquiry, next_word(cursor));

	return r ? err_trace(r) : err_trace(take_u32(cursor, &inquiry->byte_count));
}

static int take_load_describe(struct sess_inquiry *inquiry, char **cursor)
{
	return err_trace(take_u32(cursor, &inquiry->byte_count));
}

/* "12 0 00ff00ff00ff00ff" */
static int take_load_put(struct sess_inquiry *inquiry, char **cursor)
{
	int r = take_read(inquiry, cursor);
	char *word = next_word(cursor);
	char *end;

	inquiry->digest = strtoull(word, &end, 16);
	if (strlen(word) != 16 || *end || strspn(word, "0123456789abcdef") != 16)
		return err_origin(-EINVAL);
	return err_trace(r);
}

/* "fast 5" */
static int take_bench(struct sess_inquiry *inquiry, char **cursor)
{
	unsigned long seconds = ASK_BENCH_S;
	char *number, *end;

	if (zi_copy_name(inquiry->job, sizeof(inquiry->job), next_word(cursor)) ||
	    zi_check_name(inquiry->job, sizeof(inquiry->job)))
		return err_origin(-EINVAL);
	number = next_word(cursor);
	if (*number) {
		seconds = strtoul(number, &end, 10);
		if (*end || number[0] == '-')
			return err_origin(-EINVAL);
	}
	inquiry->duration_ns = seconds * ZI_NS_PER_S;
	return seconds && seconds <= ASK_BENCH_S_MAX ? 0 : err_origin(-ERANGE);
}

/* "fast", or "nvme:fast". */
static int take_store(struct sess_inquiry *inquiry, char **cursor)
{
	const char *word = next_word(cursor);

	if (strncmp(word, "nvme:", strlen("nvme:")) == 0)
		word += strlen("nvme:");
	if (zi_check_name(word, sizeof(inquiry->job)))
		return err_origin(-EINVAL);
	return err_trace(zi_copy_name(inquiry->job, sizeof(inquiry->job), word));
}

static int take_nothing(struct sess_inquiry *inquiry, char **cursor)
{
	(void)inquiry;
	(void)cursor;
	return 0;
}

static const struct {
	const char *first, *second; /* NULL: one word */
	enum sess_question question;
	int (*take)(struct sess_inquiry *inquiry, char **cursor);
} questions[] = {
	{ "status", NULL, SESS_ASK_STATUS, take_nothing },
	{ "tiers", NULL, SESS_ASK_TIERS, take_nothing },
	{ "jobs", NULL, SESS_ASK_JOBS, take_jobs },
	{ "delete", NULL, SESS_ASK_DELETE, take_delete },
	{ "limits", NULL, SESS_ASK_LIMITS, take_nothing },
	{ "topo", NULL, SESS_ASK_TOPO, take_nothing },
	{ "bench", "nvme", SESS_ASK_BENCH, take_bench },
	{ "drain", NULL, SESS_ASK_DRAIN, take_store },
	{ "undrain", NULL, SESS_ASK_UNDRAIN, take_store },
	{ "snapshot", "create", SESS_ASK_SNAPSHOT_CREATE, take_create },
	{ "snapshot", "list", SESS_ASK_SNAPSHOT_LIST, take_job },
	{ "export", "open", SESS_ASK_EXPORT_OPEN, take_names_only },
	{ "export", "read", SESS_ASK_EXPORT_READ, take_read },
	{ "export", "wait", SESS_ASK_EXPORT_WAIT, take_window },
	{ "load", "open", SESS_ASK_LOAD_OPEN, take_load_open },
	{ "load", "describe", SESS_ASK_LOAD_DESCRIBE, take_load_describe },
	{ "load", "put", SESS_ASK_LOAD_PUT, take_load_put },
	{ "load", "wait", SESS_ASK_LOAD_WAIT, take_window },
	{ "load", "end", SESS_ASK_LOAD_END, take_nothing },
	{ "snapshot", "restore", SESS_ASK_SNAPSHOT_RESTORE, take_restore },
	{ "snapshot", "rm", SESS_ASK_SNAPSHOT_REMOVE, take_remove },
};

/**
 * sess_ask_words() - what is asked
 * @command: ends within ZI_ADMIN_COMMAND_BYTES
 * @inquiry: gets the question and its names
 *
 * Return: 0; -EINVAL with what is allowed.
 */
int sess_ask_words(const char *command, struct sess_inquiry *inquiry, struct zi_text *text)
{
	char copy[ZI_ADMIN_COMMAND_BYTES];
	char *cursor = copy;
	char *first, *second = NULL;
	int r = zi_copy_name(copy, sizeof(copy), command);

	if (r)
		return err_trace(r);
	first = next_word(&cursor);
	if (strcmp(first, "snapshot") == 0 || strcmp(first, "bench") == 0 ||
	    strcmp(first, "export") == 0 || strcmp(first, "load") == 0)
		second = next_word(&cursor);
	for (size_t i = 0; i < ZI_COUNT_OF(questions); i++) {
		if (strcmp(questions[i].first, first) != 0 ||
		    (second && strcmp(questions[i].second, second) != 0))
			continue;
		inquiry->question = questions[i].question;
		r = questions[i].take(inquiry, &cursor);
		if (!r && !*next_word(&cursor))
			return 0;
		if (r == -ERANGE)
			return zi_text_error(
				text, err_origin(-EINVAL),
				"a measurement of %llu s: 1 to %u are allowed",
				(unsigned long long)(inquiry->duration_ns / ZI_NS_PER_S),
				ASK_BENCH_S_MAX);
		return zi_text_error(text, err_origin(-EINVAL), "'%.63s': %s", command,
		                     ask_allowed);
	}
	return zi_text_error(text, err_origin(-EINVAL), "unknown question '%.40s': %s", command,
	                     ask_allowed);
}
