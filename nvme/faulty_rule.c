/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of the fault injector: reading them, and when they fire. Floor 2. */
#include "nvme/faulty_rule.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"

#define RULE_ERRNO_MAX 133 /* of Linux: EHWPOISON */

static const char *const kind_names[_NVME_FAULTY_COUNT] = {
	[NVME_FAULTY_SHORT] = "short",       [NVME_FAULTY_LOST] = "lost",
	[NVME_FAULTY_TORN] = "torn",         [NVME_FAULTY_FLIP] = "flip",
	[NVME_FAULTY_MISPLACE] = "misplace", [NVME_FAULTY_STALL] = "stall",
	[NVME_FAULTY_KILL] = "kill",         [NVME_FAULTY_KILL_DONE] = "kill_done",
};

static bool take_kind(const char *key, struct nvme_faulty_rule *rule)
{
	for (uint32_t i = 0; i < _NVME_FAULTY_COUNT; i++)
		if (kind_names[i] && !strcmp(kind_names[i], key)) {
			rule->kind = (enum nvme_faulty_kind)i;
			return true;
		}
	for (int error = 1; error <= RULE_ERRNO_MAX; error++)
		if (!strcmp(zi_err_name(error), key)) {
			rule->kind = NVME_FAULTY_ERROR;
			rule->error = error;
			return true;
		}
	return false;
}

/* The number that @place begins with; @place goes behind it. False: there is none, or it is 0 and
 * must not be. */
static bool take_number(const char **place, bool may_be_zero, uint64_t *ret_number)
{
	uint64_t number;
	char *end;

	if (**place < '0' || **place > '9')
		return false;
	errno = 0;
	number = strtoull(*place, &end, 10);
	if (errno || (!number && !may_be_zero))
		return false;
	*place = end;
	*ret_number = number;
	return true;
}

static bool take_direction(const char **place, struct nvme_faulty_rule *rule)
{
	static const struct {
		const char *name;
		bool directions[2];
		bool is_flush;
	} words[] = {
		{ "read@", { true, false }, false },
		{ "write@", { false, true }, false },
		{ "any@", { true, true }, false },
		{ "flush@", { false, false }, true },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(words); i++) {
		size_t length = strlen(words[i].name);

		if (strncmp(*place, words[i].name, length) != 0)
			continue;
		memcpy(rule->directions, words[i].directions, sizeof(rule->directions));
		rule->is_flush = words[i].is_flush;
		*place += length;
		return true;
	}
	return false;
}

static bool take_when(const char **place, struct nvme_faulty_rule *rule)
{
	rule->when = NVME_FAULTY_AT;
	if (**place == '/' || **place == '~') {
		rule->when = **place == '/' ? NVME_FAULTY_EVERY : NVME_FAULTY_CHANCE;
		++*place;
	}
	if (!take_number(place, false, &rule->number))
		return false;
	if (rule->when == NVME_FAULTY_AT && **place == '+') {
		rule->when = NVME_FAULTY_FROM;
		++*place;
	}
	return true;
}

static bool take_range(const char **place, struct nvme_faulty_rule *rule)
{
	rule->high_bytes = UINT64_MAX;
	if (**place != '@')
		return true;
	++*place;
	if (!take_number(place, true, &rule->low_bytes) || **place != '-')
		return false;
	++*place;
	return take_number(place, false, &rule->high_bytes) && rule->low_bytes < rule->high_bytes;
}

static bool suits_flush(enum nvme_faulty_kind kind)
{
	return kind == NVME_FAULTY_ERROR || kind == NVME_FAULTY_LOST || kind == NVME_FAULTY_STALL ||
	       kind == NVME_FAULTY_KILL || kind == NVME_FAULTY_KILL_DONE;
}

/* See the header. */
int nvme_faulty_rule_parse(const char *key, const char *value, struct zi_text *text,
                           struct nvme_faulty_rule *ret_rule)
{
	struct nvme_faulty_rule rule = { .kind = NVME_FAULTY_NONE };
	const char *place = value;

	if (!take_kind(key, &rule))
		return -ENOENT; /* Not an error yet: the caller looks further. */
	if (!take_direction(&place, &rule) || !take_when(&place, &rule) ||
	    !take_range(&place, &rule) || *place)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"faulty: %s=%.80s is not DIRECTION@WHEN[@LOW-HIGH]: read, write, any or "
			"flush; N, N+, /N or ~N; bytes",
			key, value));
	if (rule.directions[NVME_READ] &&
	    (rule.kind == NVME_FAULTY_LOST || rule.kind == NVME_FAULTY_TORN))
		return err_origin(
			zi_text_error(text, -EINVAL, "faulty: only a write can be %s", key));
	if (rule.is_flush && (!suits_flush(rule.kind) || rule.high_bytes != UINT64_MAX))
		return err_origin(zi_text_error(
			text, -EINVAL,
			"faulty: %s=%.80s: a flush has no bytes, and can fail, be lost, stall or "
			"kill",
			key, value));
	*ret_rule = rule;
	return 0;
}

static bool count_and_fire(struct nvme_faulty_rule *rule, uint64_t random)
{
	rule->met_count++;
	switch (rule->when) {
	case NVME_FAULTY_AT:
		return rule->met_count == rule->number;
	case NVME_FAULTY_FROM:
		return rule->met_count >= rule->number;
	case NVME_FAULTY_EVERY:
		return rule->met_count % rule->number == 0;
	case NVME_FAULTY_CHANCE:
		return random % rule->number == 0;
	default:
		assert(false);
		return false;
	}
}

bool nvme_faulty_rule_fires(struct nvme_faulty_rule *rule, const struct nvme_block *block,
                            uint64_t random)
{
	if (!rule->directions[block->direction] || block->offset_bytes >= rule->high_bytes ||
	    block->offset_bytes + block->bytes <= rule->low_bytes)
		return false;
	return count_and_fire(rule, random);
}

bool nvme_faulty_rule_fires_at_flush(struct nvme_faulty_rule *rule, uint64_t random)
{
	return rule->is_flush && count_and_fire(rule, random);
}
