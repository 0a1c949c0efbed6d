/* SPDX-License-Identifier: Apache-2.0 */
/* The table of keys for people: docs/CONFIG.md and the example file. Floor 7. */
#include <stdio.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "daemon/config.h"

#define ALLOWED_BYTES 160u
#define WRAP_COLUMN   96u

/* What a key takes, in words. @buffer: (ALLOWED_BYTES,) */
static const char *describe_allowed(const struct config_key *key, char *buffer)
{
	size_t used_bytes = 0;

	switch (key->kind) {
	case CONFIG_COUNT:
		(void)snprintf(buffer, ALLOWED_BYTES, "%llu to %llu", (unsigned long long)key->low,
		               (unsigned long long)key->high);
		break;
	case CONFIG_BYTES:
		if (key->high == INT64_MAX)
			(void)snprintf(buffer, ALLOWED_BYTES, "bytes, at least %s",
			               zi_format_bytes(key->low).chars);
		else
			(void)snprintf(buffer, ALLOWED_BYTES, "bytes, %s to %s",
			               zi_format_bytes(key->low).chars,
			               zi_format_bytes(key->high).chars);
		break;
	case CONFIG_MODE:
		(void)snprintf(buffer, ALLOWED_BYTES, "octal, 0000 to 0777");
		break;
	case CONFIG_CHOICE:
		for (const char *c = key->choices; *c && used_bytes + 4 < ALLOWED_BYTES; c++) {
			if (*c == ' ')
				buffer[used_bytes++] = ',';
			buffer[used_bytes++] = *c;
		}
		buffer[used_bytes] = '\0';
		return buffer;
	case CONFIG_TEXT:
		(void)snprintf(buffer, ALLOWED_BYTES, "text");
		break;
	}
	used_bytes = strlen(buffer);
	if (key->special)
		(void)snprintf(buffer + used_bytes, ALLOWED_BYTES - used_bytes, ", or %s",
		               key->special);
	return buffer;
}

/* `zinfd --print-config-doc`: docs/CONFIG.md, to the byte. */
void config_print_doc(FILE *stream)
{
	char allowed[ALLOWED_BYTES];

	fputs("# zinfd's configuration\n\n"
	      "For administrators: every key of zinfd's configuration file. This page is printed\n"
	      "by `zinfd --print-config-doc` from the table that also checks the file; a test\n"
	      "compares. The file is `" CONFIG_SYSTEM_PATH "`, or what `--config` names;\n"
	      "`--set SECTION.KEY=VALUE` on the command line overrides it, and\n"
	      "`zinfd --check-config` looks without starting. Without a file,\n"
	      "`zinfd --user [--dir DIR] [--size BYTES]` makes a configuration for a plain user:\n"
	      "socket, catalog and (with a size, or where one was made) a store in DIR, or\n"
	      "where XDG says.\n\n"
	      "An INI file: `[section]`, `key = value`, comments after `;` or `#`. Byte counts\n"
	      "are `4096`, `64K`, `1.5G`. A key that is unknown, given twice, or out of range is\n"
	      "refused with its line, what is allowed and the nearest name.\n",
	      stream);
	for (uint32_t i = 0; i < config_section_count; i++) {
		const struct config_section *section = &config_sections[i];

		fprintf(stream,
		        "\n## [%s%s]\n\n%s\n\n| key | allowed | default | meaning |\n"
		        "| --- | --- | --- | --- |\n",
		        section->name, strcmp(section->name, "nvme") ? "" : " NAME", section->doc);
		for (uint32_t j = 0; j < config_key_count; j++) {
			const struct config_key *key = &config_keys[j];

			if (strcmp(key->section, section->name) != 0)
				continue;
			fprintf(stream, "| `%s` | %s | %s | %s |\n", key->name,
			        describe_allowed(key, allowed),
			        *key->fallback ? key->fallback : "-", key->doc);
		}
	}
}

/* @text as comment lines. */
static void print_wrapped(FILE *stream, const char *text)
{
	while (*text) {
		size_t bytes = strlen(text);

		if (bytes > WRAP_COLUMN) {
			bytes = WRAP_COLUMN;
			while (bytes > 1 && text[bytes] != ' ')
				bytes--;
		}
		fprintf(stream, "# %.*s\n", (int)bytes, text);
		text += bytes + (text[bytes] == ' ');
	}
}

/* `zinfd --print-config-example`: systemd/zinfd.conf, to the byte. Every key is there at its
 * default, commented out, so that the file changes nothing. */
void config_print_example(FILE *stream)
{
	char allowed[ALLOWED_BYTES];

	fputs("# zinfd: " CONFIG_SYSTEM_PATH
	      ". Every key at its default; remove the # to change it.\n"
	      "# docs/CONFIG.md says the same as a table; zinfd --check-config checks this file.\n",
	      stream);
	for (uint32_t i = 0; i < config_section_count; i++) {
		const struct config_section *section = &config_sections[i];
		bool is_store = !strcmp(section->name, "nvme");

		fputc('\n', stream);
		print_wrapped(stream, section->doc);
		fprintf(stream, "%s[%s%s]\n", is_store ? "#" : "", section->name,
		        is_store ? " fast" : "");
		for (uint32_t j = 0; j < config_key_count; j++) {
			const struct config_key *key = &config_keys[j];

			if (strcmp(key->section, section->name) != 0)
				continue;
			fputc('\n', stream);
			print_wrapped(stream, key->doc);
			fprintf(stream, "# Allowed: %s.\n#%s = %s\n",
			        describe_allowed(key, allowed), key->name,
			        *key->fallback ? key->fallback : "/var/lib/zinf/store");
		}
	}
}
