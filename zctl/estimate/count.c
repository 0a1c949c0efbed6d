/* SPDX-License-Identifier: Apache-2.0 */
/* A model of which only the number of its elements is known (model.h). */
#include <errno.h>
#include <string.h>

#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "zctl/estimate/model.h"

/* About what blocks of large models have; smaller ones are a unit alone. */
#define UNIT_ELEMENTS (1ull << 26)
/* Equal units: more say nothing that so many do not. */
#define UNITS_MAX 65536u
/* Digits behind the point: what is no whole element is cut. */
#define FRACTION_DIGITS_MAX 9

/* People say billions for what others call giga. */
static const struct {
	char letter;
	uint64_t factor;
} powers[] = {
	{ 'K', 1000ull },       { 'M', 1000000ull },       { 'G', 1000000000ull },
	{ 'B', 1000000000ull }, { 'T', 1000000000000ull },
};

/* Digits, at most one point, and a letter at most. @ret_count: UINT64_MAX is too many. Powers of
 * ten divide each other: no product below passes 10^18. */
static bool parse(const char *word, uint64_t *ret_count)
{
	uint64_t whole = 0, fraction = 0, scale = 1, factor = 1;
	const char *at = word;

	for (; *at >= '0' && *at <= '9'; at++)
		whole = whole > ESTIMATE_ELEMENTS_MAX ? whole : whole * 10 + (uint64_t)(*at - '0');
	if (at == word)
		return false;
	if (*at == '.') {
		const char *point = at++;

		for (; *at >= '0' && *at <= '9' && at <= point + FRACTION_DIGITS_MAX; at++) {
			fraction = fraction * 10 + (uint64_t)(*at - '0');
			scale *= 10;
		}
		if (at == point + 1 || !*at) /* "1.", and half an element */
			return false;
	}
	for (size_t i = 0; i < ZI_COUNT_OF(powers); i++)
		if (*at == powers[i].letter || *at == powers[i].letter + ('a' - 'A'))
			factor = powers[i].factor;
	at += factor > 1;
	if (*at)
		return false;
	*ret_count = UINT64_MAX;
	fraction = factor < scale ? fraction * factor / scale : fraction * (factor / scale);
	if (whole > ESTIMATE_ELEMENTS_MAX || !zi_checked_mul(whole, factor, &whole) ||
	    !zi_checked_add(whole, fraction, ret_count))
		*ret_count = UINT64_MAX;
	return true;
}

/* See model.h. */
bool estimate_is_count(const char *word)
{
	uint64_t count;

	return parse(word, &count);
}

/* See model.h. */
int estimate_read_count(struct estimate_model *model, const char *word, uint32_t unit_count,
                        struct zi_text *text)
{
	uint64_t count = 0, units = unit_count;
	int r = 0;

	if (!parse(word, &count) || !count || count > ESTIMATE_ELEMENTS_MAX)
		return zi_text_error(text, err_origin(-EINVAL),
		                     "a model of %.40s elements: 1 to 2^48 are possible", word);
	if (!units)
		units = ZI_MIN((count + UNIT_ELEMENTS - 1) / UNIT_ELEMENTS, (uint64_t)UNITS_MAX);
	if (units > UNITS_MAX || units > count)
		return zi_text_error(text, err_origin(-EINVAL),
		                     "%u units of %.40s elements: 1 to %llu are possible",
		                     unit_count, word,
		                     (unsigned long long)ZI_MIN(count, (uint64_t)UNITS_MAX));
	zi_text_set(&model->kind, "%.40s elements in equal units", word);
	if (!unit_count)
		zi_text_set(&model->note,
		            "units are taken to have 2^26 elements each; --units says "
		            "how many there are");
	for (uint64_t i = 0; i < units && !r; i++)
		r = estimate_model_add(model, NULL, count / units + (i < count % units), text);
	return err_trace(r);
}
