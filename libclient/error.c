/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of failures. Floor 2. */
#include <stdarg.h>
#include <stdio.h>

#include "common/base/err.h"
#include "libclient/client.h"

/* While there is no struct zinf that could keep it. */
static __thread struct zi_text attach_error;

/* Return: @error, a negative errno, with the sentence kept for zinf_error_text(). */
int zi_client_error(struct zinf *zinf, int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	zi_text_set_args(&zinf->text, format, args);
	va_end(args);
	zinf->text_error = error;
	return err_origin(error);
}

/* See client.h. */
int zi_client_null(struct zinf *zinf, const char *function, const char *name)
{
	struct zi_text text;

	zi_text_set(&text, "%s: %s is NULL", function, name);
	if (zinf)
		return err_origin(zi_client_tell(zinf, -EINVAL, &text));
	zi_client_set_attach_error(&text);
	return err_origin(-EINVAL);
}

/* See client.h. @text may be what is kept. */
int zi_client_tell(struct zinf *zinf, int error, const struct zi_text *text)
{
	if (text != &zinf->text)
		zinf->text = *text;
	zinf->text_error = error;
	return error;
}

void zi_client_set_attach_error(const struct zi_text *text)
{
	attach_error = *text;
}

const char *zinf_attach_error(void)
{
	return attach_error.chars;
}

const char *zinf_error_text(const struct zinf *zinf)
{
	return zinf ? zinf->text.chars : attach_error.chars;
}

const char *zinf_version(void)
{
	return ZINF_VERSION;
}
