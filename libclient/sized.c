/* SPDX-License-Identifier: Apache-2.0 */
/* See sized.h. Floor 2. */
#include "libclient/sized.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/text.h"
#include "zinf/zinf.h"

/* A sane struct of any later version; more is a wild `bytes`. */
#define BYTES_MAX 4096u

/* See sized.h. */
int zi_client_check_sized(const struct zi_sized *sized, const void *given, struct zi_text *text)
{
	const unsigned char *from = given;
	uint32_t bytes;
	int r;

	assert(sized->least_bytes >= sizeof(bytes));
	assert(sized->known_bytes <= BYTES_MAX);
	if (!given)
		return err_origin(zi_text_error(text, -EINVAL, "%s: NULL, begin with %s",
		                                sized->name, sized->initialiser));
	memcpy(&bytes, given, sizeof(bytes));
	if (bytes < sized->least_bytes || bytes > BYTES_MAX) {
		r = zi_text_error(text, -EINVAL, "%s of %u bytes: begin with %s", sized->name,
		                  bytes, sized->initialiser);
		return err_origin(r);
	}
	for (size_t i = sized->known_bytes; i < bytes; i++) {
		if (!from[i])
			continue;
		r = zi_text_error(
			text, -EINVAL,
			"fields of a later libzinf, or reserved ones, are set; this is %s",
			zinf_version());
		return err_origin(r);
	}
	return 0;
}
