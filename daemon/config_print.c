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
	      "For administrators: every key of zinfd's configuration file.\n\n"
	      "| to | use |\n"
	      "| --- | --- |\n"
	      "| configure the system's daemon | the file `" CONFIG_SYSTEM_PATH "`, or "
	      "`--config FILE` |\n"
	      "| override a key of the file | `zinfd --set SECTION.KEY=VALUE` |\n"
	      "| check a file without starting | `zinfd --check-config` |\n"
	      "| run without a file, as a plain user | `zinfd --user [--dir DIR] [--size BYTES]`: "
	      "socket, catalog and store in DIR. Without DIR the socket is in "
	      "`$XDG_RUNTIME_DIR/zinf`, the rest in `~/.local/state/zinf`. `--size` makes the "
	      "store; a store made before is used without it |\n\n"
	      "The file is an INI file: `[section]`, `key = value`, comments after `;` or `#`.\n"
	      "Byte counts are written `4096`, `64K`, `1.5G`. A key that is unknown, given twice,\n"
	      "or out of range is refused, with its line, the allowed values and the nearest\n"
	      "name. Words such as *catalog* and *staging* are explained in\n"
	      "[Words](ARCHITECTURE.md#words).\n\n"
	      "`zinfd --print-config-doc` prints this page, from the table that also checks the\n"
	      "file; a test compares the two.\n",
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
