/* SPDX-License-Identifier: Apache-2.0 */
/* The resume blob, fetched over the socket in pieces. Floor 2. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "libclient/client.h"

/* The pieces of one BLOB reply, put together. */
struct blob_parts {
	char *bytes; /* (ZI_BLOB_BYTES,) */
	uint64_t done_bytes, total_bytes;
};

static int take_part(struct zinf *zinf, struct blob_parts *parts, const struct zi_blob *blob)
{
	uint64_t part_bytes = blob->header.bytes - sizeof(*blob);
	bool is_last = !(blob->header.flags & ZI_MESSAGE_MORE);

	if (parts->done_bytes && blob->total_bytes != parts->total_bytes)
		return err_trace(zi_client_breach(zinf, "a blob that changes its size"));
	if (blob->total_bytes > ZI_BLOB_BYTES ||
	    part_bytes > blob->total_bytes - parts->done_bytes || (!part_bytes && !is_last) ||
	    is_last != (parts->done_bytes + part_bytes == blob->total_bytes))
		return err_trace(zi_client_breach(zinf, "a blob of another size than it says"));
	memcpy(parts->bytes + parts->done_bytes, blob + 1, part_bytes);
	parts->total_bytes = blob->total_bytes;
	parts->done_bytes += part_bytes;
	return 0;
}

static int fetch(struct zinf *zinf, struct blob_parts *parts)
{
	uint64_t deadline_ns = zi_client_deadline_ns(zinf);
	const struct zi_message_header *reply;
	struct zi_message_header request;
	int r;

	r = zi_client_request(zinf, &request, ZI_MESSAGE_BLOB_GET, sizeof(request), ZI_MESSAGE_BLOB,
	                      &reply, NULL, 0);
	for (;;) { /* each piece has at least a byte: at most ZI_BLOB_BYTES of them */
		if (r)
			return err_trace(r);
		r = take_part(zinf, parts, (const struct zi_blob *)reply);
		if (r)
			return err_trace(r);
		if (!(reply->flags & ZI_MESSAGE_MORE))
			return 0;
		r = zi_client_receive(zinf, ZI_MESSAGE_BLOB, deadline_ns, &reply, NULL, 0);
	}
}

int zinf_blob_get(struct zinf *zinf, void *buffer, size_t capacity, size_t *ret_bytes)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, buffer, buffer || !capacity);
	ZI_CLIENT_NEED(zinf, ret_bytes, ret_bytes);
	_cleanup_(zi_freep) char *bytes = NULL;
	struct blob_parts parts = { 0 };
	int r = zi_client_enter(zinf);

	if (r)
		return err_trace(r);
	if (!zinf->is_materialized)
		return zi_client_error(zinf, -EINVAL, "call zinf_materialize() first");
	bytes = malloc(ZI_BLOB_BYTES);
	if (!bytes)
		return zi_client_error(zinf, -ENOMEM, "no memory for the blob");
	parts.bytes = bytes;
	/* No other rank is waited for, and a blob in pieces could not go on. */
	zinf->holds_interrupts = true;
	r = fetch(zinf, &parts);
	zinf->holds_interrupts = false;
	if (r)
		return err_trace(r);
	if (buffer && parts.total_bytes > capacity)
		return zi_client_error(zinf, -ENOBUFS,
		                       "the blob has %" PRIu64 " bytes, the buffer %zu",
		                       parts.total_bytes, capacity);
	if (buffer && parts.total_bytes)
		memcpy(buffer, bytes, parts.total_bytes);
	*ret_bytes = parts.total_bytes;
	return 0;
}
