/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the configuration. Floor 7, main thread. inih cuts lines; what they mean is checked here
 * against the table. A wrong line is refused with its place, what was found, what is allowed, and
 * the nearest name: a typing error must never become a default.
 */
#include "daemon/config.h"

#include <ini.h>
#include <stdarg.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/nearest.h"

/* What a socket's address holds (unix(7)), less the NUL. */
#define CONFIG_SOCKET_BYTES_MAX 107u

struct config_reader {
	struct config *config;
	struct zi_text *text;
	FILE *stream;
	const char *place; /* file name, or "--set" */
	uint32_t line;
	int result; /* the first error */
};

/* The first error stands; says where. Return: 0, which makes inih note an error. */
__attribute__((format(printf, 2, 3))) static int refuse(struct config_reader *reader,
                                                        const char *format, ...)
{
	char message[ZI_TEXT_BYTES];
	va_list args;

	if (reader->result)
		return 0;
	va_start(args, format);
	(void)vsnprintf(message, sizeof(message), format, args); /* Truncation is meant. */
	va_end(args);
	if (reader->line)
		zi_text_set(reader->text, "%s:%u: %s", reader->place, reader->line, message);
	else
		zi_text_set(reader->text, "%s: %s", reader->place, message);
	reader->result = err_origin(-EINVAL);
	return 0;
}

static int refuse_section(struct config_reader *reader, const char *section)
{
	struct zi_nearest nearest = { .wanted = section };
	const char *near;

	for (uint32_t i = 0; i < config_section_count; i++)
		zi_nearest_offer(&nearest, config_sections[i].name);
	if (!*section)
		return refuse(reader, "a key before the first section; allowed are [daemon], "
		                      "[tier.cpu], [gpu], [nvme NAME], [limits], [quota], "
		                      "[step]");
	near = zi_nearest_name(&nearest);
	return refuse(reader,
	              "no section [%.40s]%s%s%s; allowed are [daemon], [tier.cpu], "
	              "[gpu], [nvme NAME], [limits], [quota], [step]",
	              section, near ? " (nearest: [" : "", near ? near : "", near ? "])" : "");
}

static int refuse_key(struct config_reader *reader, const char *section, const char *name)
{
	struct zi_nearest nearest = { .wanted = name };
	const char *near;
	char allowed[ZI_TEXT_BYTES] = "";

	for (uint32_t i = 0; i < config_key_count; i++) {
		size_t used_bytes = strlen(allowed);

		if (strcmp(config_keys[i].section, section) != 0)
			continue;
		zi_nearest_offer(&nearest, config_keys[i].name);
		(void)snprintf(allowed + used_bytes, sizeof(allowed) - used_bytes, "%s%s",
		               used_bytes ? ", " : "", config_keys[i].name); /* May be cut. */
	}
	near = zi_nearest_name(&nearest);
	return refuse(reader, "[%s] has no key '%.40s'%s%s%s; allowed are %s", section, name,
	              near ? " (nearest: '" : "", near ? near : "", near ? "')" : "", allowed);
}

static const struct config_key *find_key(const char *section, const char *name, uint32_t *ret_index)
{
	for (uint32_t i = 0; i < config_key_count; i++)
		if (!strcmp(config_keys[i].section, section) &&
		    !strcmp(config_keys[i].name, name)) {
			*ret_index = i;
			return &config_keys[i];
		}
	return NULL;
}

static bool is_section(const char *section)
{
	for (uint32_t i = 0; i < config_section_count; i++)
		if (strcmp(config_sections[i].name, "nvme") != 0 &&
		    !strcmp(config_sections[i].name, section))
			return true;
	return false;
}

/* Every key of @section ("nvme", or all others for NULL) at its default. */
static void set_defaults(void *base, bool is_store)
{
	for (uint32_t i = 0; i < config_key_count; i++) {
		const struct config_key *key = &config_keys[i];
		int r;

		if (!strcmp(key->section, "nvme") != is_store || !*key->fallback)
			continue;
		r = config_assign(key, base, key->fallback, NULL);
		assert(!r); /* Else the table contradicts itself. */
		(void)r;
	}
}

/* @config: whatever it was before. */
void config_init(struct config *config)
{
	*config = (struct config){ 0 };
	set_defaults(config, false);
}

/* The store of "nvme NAME", made on first mention; NULL after refusing. */
static struct config_store *take_store(struct config_reader *reader, const char *name)
{
	struct config *config = reader->config;
	struct config_store *store;

	if (zi_check_name(name, ZI_NAME_BYTES)) {
		(void)refuse(reader,
		             "[nvme %.40s]: a store's name is 1 to 43 of A-Z a-z 0-9 . _ : + -, "
		             "not beginning with . or -",
		             name);
		return NULL;
	}
	for (uint32_t i = 0; i < config->store_count; i++)
		if (!strcmp(config->stores[i].name, name))
			return &config->stores[i];
	if (config->store_count == CONFIG_STORES_MAX) {
		(void)refuse(reader, "[nvme %s]: more than %u stores", name, CONFIG_STORES_MAX);
		return NULL;
	}
	store = &config->stores[config->store_count++];
	set_defaults(store, true);
	(void)zi_copy_name(store->name, sizeof(store->name), name); /* Fits: just checked. */
	store->line = reader->line;
	return store;
}

/* One key, from wherever. 1, or 0 after refusing. */
static int take_key(struct config_reader *reader, const char *section, const char *name,
                    const char *value)
{
	bool is_store = !strncmp(section, "nvme ", 5);
	uint32_t *seen_lines = reader->config->seen_lines;
	void *base = reader->config;
	const struct config_key *key;
	struct zi_text why;
	uint32_t index = 0;

	if (is_store) {
		struct config_store *store = take_store(reader, section + 5);

		if (!store)
			return 0;
		base = store;
		seen_lines = store->seen_lines;
		section = "nvme";
	} else if (!is_section(section)) {
		return refuse_section(reader, section);
	}
	key = find_key(section, name, &index);
	if (!key)
		return refuse_key(reader, section, name);
	if (reader->line && seen_lines[index])
		return refuse(reader, "%s was already given in line %u", name, seen_lines[index]);
	seen_lines[index] = reader->line;
	if (config_assign(key, base, value, &why))
		return refuse(reader, "%s", why.chars);
	return 1;
}

static int on_key(void *arg, const char *section, const char *name, const char *value)
{
	struct config_reader *reader = arg;

	return reader->result ? 0 : take_key(reader, section, name, value ? value : "");
}

/* A section's head, which inih only shows with a key: an empty one may be mistyped as well. */
static void check_head(struct config_reader *reader, const char *line)
{
	char section[INI_MAX_LINE];
	size_t bytes = strcspn(line + 1, "]");

	if (line[1 + bytes] != ']') {
		(void)refuse(reader, "'%.40s': a section ends with ]", line);
		return;
	}
	(void)snprintf(section, sizeof(section), "%.*s", (int)bytes, line + 1); /* Fits. */
	if (bytes >= 49) /* inih cuts them there. */
		(void)refuse(reader, "[%.40s…]: a section's name has at most 48 bytes", section);
	else if (!strncmp(section, "nvme ", 5))
		(void)take_store(reader, section + 5);
	else if (!is_section(section))
		(void)refuse_section(reader, section);
}

/* inih's source of lines: counts them, takes indentation away (which it would read as a
 * continuation of the line before), and refuses what it would cut. */
static char *read_line(char *buffer, int capacity, void *arg)
{
	struct config_reader *reader = arg;
	size_t blank_bytes;
	size_t bytes;

	if (reader->result || !fgets(buffer, capacity, reader->stream))
		return NULL;
	reader->line++;
	bytes = strlen(buffer);
	if (bytes + 1 == (size_t)capacity && buffer[bytes - 1] != '\n') {
		(void)refuse(reader, "a line has at most %d bytes", capacity - 2);
		return NULL;
	}
	blank_bytes = strspn(buffer, " \t\r");
	memmove(buffer, buffer + blank_bytes, bytes - blank_bytes + 1);
	if (buffer[0] == '[')
		check_head(reader, buffer);
	return reader->result ? NULL : buffer;
}

/**
 * config_load() - read a file over @config
 * @config: initialised
 * @path: INI file
 * @text: of a refusal
 *
 * Return: 0; -EINVAL the first wrong line; an errno of opening or reading the file.
 */
int config_load(struct config *config, const char *path, struct zi_text *text)
{
	struct config_reader reader = { .config = config, .text = text, .place = path };
	int line;

	if (zi_copy_name(config->file, sizeof(config->file), path))
		return zi_text_error(text, err_origin(-ENAMETOOLONG),
		                     "the path of the configuration has more than %zu bytes",
		                     sizeof(config->file) - 1);
	reader.stream = fopen(path, "re");
	if (!reader.stream) {
		int error = -errno;

		return zi_text_error(text, err_origin(error), "reading the configuration %s: %s",
		                     path, strerror(-error));
	}
	line = ini_parse_stream(read_line, &reader, on_key, &reader);
	if (!reader.result && ferror(reader.stream)) { /* A folder opens, and cannot be read. */
		reader.result = err_origin(-EIO);
		zi_text_set(text, "reading the configuration %s failed: is it a file?", path);
	}
	if (!reader.result && line) {
		reader.line = (uint32_t)line;
		(void)refuse(&reader, "neither a [section] nor key = value");
	}
	(void)fclose(reader.stream); /* Only read. */
	return err_trace(reader.result);
}

/**
 * config_set() - one assignment of the command line, over whatever the file says
 * @assignment: "SECTION.KEY=VALUE"
 *
 * Return: 0; -EINVAL with @text.
 */
int config_set(struct config *config, const char *assignment, struct zi_text *text)
{
	struct config_reader reader = { .config = config, .text = text, .place = "--set" };
	char section[CONFIG_TEXT_BYTES];
	char *value;
	char *name;

	if (zi_copy_name(section, sizeof(section), assignment)) {
		(void)refuse(&reader, "an assignment has at most %zu bytes", sizeof(section) - 1);
		return err_trace(reader.result);
	}
	value = strchr(section, '=');
	if (value)
		*value++ = '\0';
	name = strrchr(section, '.');
	if (!value || !name) {
		(void)refuse(&reader, "'%.80s': SECTION.KEY=VALUE is expected, as in limits.jobs=8",
		             assignment);
		return err_trace(reader.result);
	}
	*name++ = '\0';
	(void)take_key(&reader, section, name, value); /* Its refusal is reader.result. */
	return err_trace(reader.result);
}

/* What the engine, which serves all stores, asks for. */
static int check_engine(const struct config *config, const struct config_store *store,
                        struct zi_text *text)
{
	const struct config_store *first = &config->stores[0];

	if (store->read_block_bytes % ZI_STORE_ALIGN_BYTES ||
	    store->write_block_bytes % ZI_STORE_ALIGN_BYTES)
		return zi_text_error(text, err_origin(-EINVAL),
		                     "%s:%u: [nvme %s] read_block is %llu, write_block %llu: "
		                     "multiples of %u are needed",
		                     config->file, store->line, store->name,
		                     (unsigned long long)store->read_block_bytes,
		                     (unsigned long long)store->write_block_bytes,
		                     ZI_STORE_ALIGN_BYTES);
	if (strcmp(store->backend, first->backend) != 0)
		return zi_text_error(text, err_origin(-EINVAL),
		                     "%s:%u: [nvme %s] and [nvme %s] differ in backend: one engine "
		                     "serves both",
		                     config->file, store->line, first->name, store->name);
	return 0;
}

static int check_stores(const struct config *config, struct zi_text *text)
{
	for (uint32_t i = 0; i < config->store_count; i++) {
		const struct config_store *store = &config->stores[i];
		int r;

		if (store->path[0] != '/')
			return zi_text_error(text, err_origin(-EINVAL),
			                     "%s:%u: [nvme %s] needs a path beginning with /%s%s",
			                     config->file, store->line, store->name,
			                     store->path[0] ? ", found " : "", store->path);
		if (store->stripe[0] && zi_check_name(store->stripe, ZI_NAME_BYTES - 5))
			return zi_text_error(text, err_origin(-EINVAL),
			                     "%s:%u: [nvme %s] stripe is '%.60s': 1 to %u of "
			                     "A-Z a-z 0-9 . _ : + -, not beginning with . or -",
			                     config->file, store->line, store->name, store->stripe,
			                     ZI_NAME_BYTES - 6);
		r = check_engine(config, store, text);
		if (r)
			return err_trace(r);
		for (uint32_t j = 0; j < i; j++)
			if (!strcmp(store->path, config->stores[j].path))
				return zi_text_error(
					text, err_origin(-EINVAL),
					"%s:%u: [nvme %s] and [nvme %s] have the same path %s",
					config->file, store->line, config->stores[j].name,
					store->name, store->path);
	}
	return 0;
}

/* "FILE:LINE: " of a key, "" where it has its default or came from the command line. */
struct place_text {
	char chars[CONFIG_TEXT_BYTES + 16];
};

static struct place_text place_of(const struct config *config, const char *section,
                                  const char *name)
{
	struct place_text place = { "" };
	uint32_t index = 0;

	if (find_key(section, name, &index) && config->seen_lines[index])
		(void)snprintf(place.chars, sizeof(place.chars), "%s:%u: ", config->file,
		               config->seen_lines[index]); /* Fits: a path and a number. */
	return place;
}

/**
 * config_check() - relations between keys
 *
 * Return: 0; -EINVAL with @text.
 */
int config_check(const struct config *config, struct zi_text *text)
{
	if (config->socket[0] != '/' || strlen(config->socket) > CONFIG_SOCKET_BYTES_MAX)
		return zi_text_error(
			text, err_origin(-EINVAL),
			"%sdaemon.socket is '%.80s': a path beginning with /, of at most "
			"%u bytes, is needed",
			place_of(config, "daemon", "socket").chars, config->socket,
			CONFIG_SOCKET_BYTES_MAX);
	if (config->ring_entries & (config->ring_entries - 1))
		return zi_text_error(text, err_origin(-EINVAL),
		                     "%slimits.ring_entries is %llu: a power of two is needed",
		                     place_of(config, "limits", "ring_entries").chars,
		                     (unsigned long long)config->ring_entries);
	if (config->gpu_driver[0] && config->gpu_driver[0] != '/')
		return zi_text_error(text, err_origin(-EINVAL),
		                     "%sgpu.driver is '%.80s': a path beginning with /, or system, "
		                     "is needed",
		                     place_of(config, "gpu", "driver").chars, config->gpu_driver);
	if (config->inflight_ops < config->sessions)
		return zi_text_error(text, err_origin(-EINVAL),
		                     "%slimits.inflight_ops is %llu, limits.sessions is %llu: each "
		                     "session needs one at least",
		                     place_of(config, "limits", "inflight_ops").chars,
		                     (unsigned long long)config->inflight_ops,
		                     (unsigned long long)config->sessions);
	return err_trace(check_stores(config, text));
}
