/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wishes that need all ranks, of which this one sees by itself that they cannot be: a rank named
 * twice, a variable that is no number. The others wait for it, so they are told; see collective.h.
 * Floor 2.
 */
#include <string.h>

#include "common/base/err.h"
#include "common/base/utf8.h"
#include "libclient/coll/collective.h"

/* Documented in collective.h, as is the other. */
void zi_client_coll_words(char *target, size_t capacity, const char *words)
{
	size_t room = capacity - 1, bytes = strnlen(words, room + 1);

	if (bytes > room)
		bytes = zi_utf8_whole(words, room);
	memcpy(target, words, bytes); /* The rest is zero. */
}

int zi_client_coll_refuse(struct zinf *zinf, struct zi_message_header *request,
                          enum zi_message_type type, uint32_t bytes, int error, int32_t *ret_error,
                          char reason[ZI_REASON_BYTES])
{
	const struct zi_message_header *reply;
	struct zi_text text = zinf->text;

	*ret_error = error;
	zi_client_coll_words(reason, ZI_REASON_BYTES, text.chars);
	/* It is refused, always; who cannot be reached has lost the others as well. */
	(void)zi_client_coll_request(zinf, request, type, bytes, ZI_MESSAGE_DONE, &reply);
	zinf->text = text;
	return err_trace(error);
}
