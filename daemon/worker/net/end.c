/* SPDX-License-Identifier: Apache-2.0 */
/* Why an epoch ended, in the store; see end.h. Floor 3, of zinf-net. */
#include "daemon/worker/net/end.h"

#include <string.h>

#include "common/base/err.h"
#include "common/base/utf8.h"

/* Linux has none beyond it: pointers end there. */
#define END_ERRNO_MAX 4095

/* Documented in the header, as are the others. */
int nodes_end_take(const void *value, uint32_t bytes, const char *key, struct zi_text *text,
                   struct nodes_end *ret_end)
{
	struct nodes_end end = { .error = 0 };

	if (bytes == sizeof(end))
		memcpy(&end, value, sizeof(end));
	if (end.error >= 0 || end.error < -END_ERRNO_MAX)
		return err_origin(zi_text_error(text, -EPROTO,
		                                "'%s' has %u bytes and error %d: no end of zinf's",
		                                key, bytes, end.error));
	end.text.chars[sizeof(end.text.chars) - 1] = '\0';
	zi_utf8_clean(end.text.chars);
	*ret_end = end;
	return 0;
}

int nodes_end_read(struct store_client *client, const char *key, uint64_t deadline_ns,
                   struct zi_text *text, struct nodes_end *ret_end)
{
	struct nodes_end value;
	uint32_t bytes;
	int r = store_client_get(client, key, &value, sizeof(value), deadline_ns, text, &bytes);

	if (r == -ENOSPC)
		return err_origin(zi_text_error(text, -EPROTO, "'%s' is no end of zinf's", key));
	if (r)
		return err_trace(r);
	return err_trace(nodes_end_take(&value, bytes, key, text, ret_end));
}

int nodes_end_tell(struct store_client *client, const char *key, const struct nodes_end *end,
                   uint64_t deadline_ns, struct zi_text *text, bool *ret_present)
{
	struct nodes_end told;

	memset(&told, 0, sizeof(told)); /* All of it is sent. */
	told.error = end->error;
	told.culprit = end->culprit;
	told.done = end->done;
	told.opening = end->opening;
	zi_text_set(&told.text, "%s", end->text.chars);
	return err_trace(store_client_set_new(client, key, &told, sizeof(told), deadline_ns, text,
	                                      ret_present));
}
