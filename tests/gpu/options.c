/* SPDX-License-Identifier: Apache-2.0 */
/* Reading $ZINF_FAKE_GPU. A wrong word is a mistake of a test, and ends the process. */
#include "tests/gpu/options.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/text.h"
#include "common/gpu/cuda.h"
#include "tests/gpu/fake_gpu.h"

static struct fake_options options;
static pthread_once_t options_once = PTHREAD_ONCE_INIT;

static void refuse(const char *word)
{
	(void)fprintf(stderr, "FAKE GPU: $" FAKE_GPU_ENV " has the word '%s': see fake_gpu.h\n",
	              word);
	abort();
}

static uint64_t bytes_of(const char *word, const char *value)
{
	uint64_t bytes = 0;

	if (zi_parse_bytes(value, &bytes))
		refuse(word);
	return bytes;
}

/* The index of @value among @names, which NULL ends. */
static uint32_t choice_of(const char *word, const char *value, const char *const *names)
{
	uint32_t i = 0;

	while (names[i] && strcmp(names[i], value) != 0)
		i++;
	if (!names[i])
		refuse(word);
	return i;
}

static void read_order(const char *word, const char *value)
{
	static const char *const names[] = { "eager", "late", "shuffled", NULL };
	char name[FAKE_NAME_MAX];
	unsigned long long seed = 1;

	if (sscanf(value, "%47[^:]:%llu", name, &seed) < 1)
		refuse(word);
	options.order = (enum fake_order)choice_of(word, name, names);
	options.seed = seed;
}

static void read_lack(const char *word, const char *value)
{
	static const char *const names[] = { "vmm", "fds", "read_only", NULL };
	bool *const has[] = { &options.has_vmm, &options.has_fds, &options.has_read_only };

	*has[choice_of(word, value, names)] = false;
}

static void read_mode(const char *word, const char *value)
{
	static const char *const names[] = { "default", "prohibited", "exclusive", NULL };
	static const int modes[] = { ZI_CUDA_MODE_DEFAULT, ZI_CUDA_MODE_PROHIBITED,
		                     ZI_CUDA_MODE_EXCLUSIVE };

	options.mode = modes[choice_of(word, value, names)];
}

static void read_broken(const char *word, const char *value)
{
	if (sscanf(value, "%d:%d", &options.broken, &options.broken_code) != 2)
		refuse(word);
}

/* Return: @key names what goes wrong. */
static bool read_rule(const char *word, const char *key, const char *value)
{
	static const char *const kinds[] = { "fail", "sticky", "delay", "hang", "kill", "vanish" };
	struct fake_rule rule = { 0 };
	unsigned long long nth = 0;
	uint32_t kind = 0;
	int count;

	while (kind < ZI_COUNT_OF(kinds) && strcmp(kinds[kind], key) != 0)
		kind++;
	if (kind == ZI_COUNT_OF(kinds))
		return false;
	rule.kind = (enum fake_kind)kind;
	count = sscanf(value, "%47[^:]:%llu:%d", rule.place, &nth, &rule.value);
	if (count != (rule.kind <= FAKE_DELAY ? 3 : 2) || options.rule_count == FAKE_RULES_MAX)
		refuse(word);
	rule.nth = nth;
	options.rules[options.rule_count++] = rule;
	return true;
}

static void read_word(const char *word)
{
	char key[FAKE_NAME_MAX] = "", value[256] = "";

	if (sscanf(word, "%47[^=]=%255s", key, value) < 1)
		refuse(word);
	if (!strcmp(key, "gpus"))
		options.gpus = ZI_MIN((uint32_t)strtoul(value, NULL, 10), FAKE_GPUS_MAX);
	else if (!strcmp(key, "bytes"))
		options.bytes = bytes_of(word, value);
	else if (!strcmp(key, "used"))
		options.used_bytes = bytes_of(word, value);
	else if (!strcmp(key, "register"))
		options.register_max_bytes = bytes_of(word, value);
	else if (!strcmp(key, "cuda"))
		options.version = (int)strtol(value, NULL, 10);
	else if (!strcmp(key, "missing"))
		(void)snprintf(options.missing, sizeof(options.missing), "%.47s", value);
	else if (!strcmp(key, "mig"))
		options.is_mig = true;
	else if (!strcmp(key, "broken"))
		read_broken(word, value);
	else if (!strcmp(key, "stuck"))
		options.stuck = (int)strtol(value, NULL, 10);
	else if (!strcmp(key, "trace"))
		(void)snprintf(options.trace, sizeof(options.trace), "%s", value);
	else if (!strcmp(key, "mode"))
		read_mode(word, value);
	else if (!strcmp(key, "no"))
		read_lack(word, value);
	else if (!strcmp(key, "order"))
		read_order(word, value);
	else if (!read_rule(word, key, value))
		refuse(word);
}

static void read_all(void)
{
	const char *environment = getenv(FAKE_GPU_ENV);
	char words[1024];
	char *rest = words, *word;

	options = (struct fake_options){
		.gpus = 2,
		.bytes = 1ull << 30,
		.register_max_bytes = 1ull << 39, /* What drivers since R580 refuse is more. */
		.version = 12040,
		.broken = -1,
		.stuck = -1,
		.has_vmm = true,
		.has_fds = true,
		.has_read_only = true,
	};
	if (!environment)
		return;
	if (strlen(environment) >= sizeof(words))
		refuse(environment);
	(void)zi_copy_name(words, sizeof(words), environment); /* Fits. */
	while ((word = strsep(&rest, ",")))
		if (*word)
			read_word(word);
}

const struct fake_options *fake_options(void)
{
	(void)pthread_once(&options_once, read_all); /* Cannot fail. */
	return &options;
}
