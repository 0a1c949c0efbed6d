/* SPDX-License-Identifier: Apache-2.0 */
/* What a file says and zinf does not do, or not quite, with the reason. Floor 2. */
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "libclient/deepspeed/private.h"

/* As in the header. */
int deepspeed_note(struct zinf_deepspeed *reader, const char *key, const char *value,
                   const char *reason)
{
	struct zinf_deepspeed_note *notes;
	char *key_copy = strdup(key);
	char *value_copy = strdup(value);

	notes = realloc(reader->notes, (reader->note_count + 1) * sizeof(*notes));
	if (notes)
		reader->notes = notes;
	if (!notes || !key_copy || !value_copy) {
		free(key_copy);
		free(value_copy);
		return err_origin(-ENOMEM);
	}
	notes[reader->note_count++] = (struct zinf_deepspeed_note){ key_copy, value_copy, reason };
	return 0;
}

/* As in the header. */
int deepspeed_note_value(struct zinf_deepspeed *reader, const char *path, const char *reason)
{
	uint32_t index = deepspeed_find(reader, path);
	const json_t *value = reader->values[index];

	return err_trace(deepspeed_note(
		reader, path, value ? deepspeed_show(value).chars : deepspeed_key(index)->standard,
		reason));
}

/* As in the public header. */
bool zinf_deepspeed_get_note(const struct zinf_deepspeed *deepspeed, uint32_t index,
                             struct zinf_deepspeed_note *ret_note)
{
	if (index >= deepspeed->note_count)
		return false;
	*ret_note = deepspeed->notes[index];
	return true;
}
