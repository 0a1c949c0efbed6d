/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the specification of the fault injector, "KEY=VALUE,…", as it stands in a
 * configuration file. */
#include "nvme/faulty_spec.h"
#include "tests/fuzz/fuzz.h"

#define SPEC_BYTES 512u

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	struct nvme_faulty_spec spec;
	struct zi_text text = { "" };
	char word[SPEC_BYTES];
	size_t word_bytes = byte_count < sizeof(word) ? byte_count : sizeof(word) - 1;
	int r;

	if (word_bytes)
		memcpy(word, bytes, word_bytes);
	word[word_bytes] = '\0';
	r = nvme_faulty_parse(word, &text, &spec);
	fuzz_check(!r || text.chars[0], "a refusal without words");
	if (!r)
		fuzz_check(memchr(spec.over, 0, sizeof(spec.over)) != NULL, "a name without end");
	return 0;
}
