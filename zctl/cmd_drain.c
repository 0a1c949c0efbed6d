/* SPDX-License-Identifier: Apache-2.0 */
/* zctl drain, undrain: takes a path of a tier out of use, and back. */
#include <stdio.h>
#include <string.h>

#include "common/base/text.h"
#include "common/wire/control.h"
#include "zctl/get.h"
#include "zctl/zctl.h"

/**
 * zctl_drain() - empty a path of an NVMe tier, or use it again
 * @context: socket and output options
 * @argc: words
 * @argv: "drain" or "undrain", and "nvme:NAME" of its section in the configuration
 *
 * Return: exit code.
 */
int zctl_drain(const struct zctl_context *context, int argc, char **argv)
{
	char command[ZI_ADMIN_COMMAND_BYTES];
	json_t *answer;
	int code = 0;

	if (argc != 2 ||
	    snprintf(command, sizeof command, "%s %s", argv[0], argv[1]) >= (int)sizeof command)
		return zctl_usage(argv[0]);
	answer = zctl_ask(context, command);
	if (!answer)
		return 1;
	if (context->is_json)
		code = zctl_print_json(answer);
	else if (!strcmp(argv[0], "drain"))
		printf("path %s of %s is %s, %s are left there: running jobs leave it with their "
		       "next step, those at rest at once (zctl tiers). Write 'drain = yes' into "
		       "[nvme %s] for this to outlive a restart of zinfd\n",
		       get_word(answer, "name"), get_word(answer, "tier"),
		       get_word(answer, "state"),
		       zi_format_bytes(get_count(answer, "used_bytes")).chars,
		       get_word(answer, "name"));
	else
		printf("path %s of %s is %s\n", get_word(answer, "name"), get_word(answer, "tier"),
		       get_word(answer, "state"));
	json_decref(answer);
	return code;
}
