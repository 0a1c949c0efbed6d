/* SPDX-License-Identifier: Apache-2.0 */
/* The table of keys as one, and finding a row in it. Floor 2, any thread: constants. */
#include <string.h>
#include <strings.h>

#include "common/base/assert.h"
#include "libclient/deepspeed/keys.h"
#include "libclient/deepspeed/private.h"

/* As in the header. */
uint32_t deepspeed_key_count(void)
{
	return deepspeed_keys_top_count + deepspeed_keys_types_count + deepspeed_keys_zero_count;
}

/* As in the header. */
const struct deepspeed_key *deepspeed_key(uint32_t index)
{
	assert(index < deepspeed_key_count());
	if (index < deepspeed_keys_top_count)
		return &deepspeed_keys_top[index];
	index -= deepspeed_keys_top_count;
	if (index < deepspeed_keys_types_count)
		return &deepspeed_keys_types[index];
	return &deepspeed_keys_zero[index - deepspeed_keys_types_count];
}

/* As in the header. */
bool deepspeed_has_word(const char *words, const char *word)
{
	size_t word_bytes = strlen(word);

	while (*words) {
		size_t here = strcspn(words, " ");

		if (here == word_bytes && !strncasecmp(words, word, here))
			return true;
		words += here + (words[here] == ' ');
	}
	return false;
}

/* As in the header. */
bool deepspeed_holds(const struct zinf_deepspeed *reader, const struct deepspeed_key *key)
{
	bool is_scheduler = !strncmp(key->path, "scheduler.", strlen("scheduler."));

	return !key->only ||
	       deepspeed_has_word(key->only, is_scheduler ? reader->schedule : reader->optimizer);
}

/* As in the header. */
uint32_t deepspeed_find(const struct zinf_deepspeed *reader, const char *path)
{
	uint32_t index = 0;

	while (index < deepspeed_key_count() && (strcmp(deepspeed_key(index)->path, path) != 0 ||
	                                         !deepspeed_holds(reader, deepspeed_key(index))))
		index++;
	assert(index < deepspeed_key_count()); /* Else the table contradicts a section. */
	return index;
}
