/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: what describes the machine. Its first byte chooses: a topology's text as
 * configured ("synthetic:…", "xml:…", nonsense), or the system's files on memory: control groups
 * and /proc/meminfo.
 */
#include <fcntl.h>
#include <unistd.h>

#include "daemon/topo/topo_private.h"
#include "tests/fuzz/fuzz.h"

#define TOPOLOGY_BYTES 256u /* as a configuration's text */

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	return 0;
}

static void describe(struct fuzz_input *input)
{
	_cleanup_(topo_freep) struct topo *topo = NULL;
	struct zi_text text = { "" };
	char source[TOPOLOGY_BYTES];
	int r;

	memset(source, 0, sizeof(source));
	fuzz_take(input, source,
	          input->byte_count < sizeof(source) ? input->byte_count : sizeof(source) - 1);
	r = topo_new(source, &text, &topo);
	fuzz_check(!r || text.chars[0], "a refusal without words");
	if (r)
		return;
	fuzz_check(topo->node_count > 0 && topo->node_count <= TOPO_NODES_MAX, "nodes");
	for (uint32_t i = 0; i < topo->node_count; i++) {
		uint32_t count = topo_pool_threads(topo, i, 8);

		fuzz_check(count > 0 && count <= 8, "pool threads");
	}
	fuzz_check(topo_node_of_path(topo, "/") < topo->node_count, "node of a path");
	fuzz_check(topo_node_of_device(topo, 259, 0) < topo->node_count, "node of a device");
}

static void put_file(const char *path, struct fuzz_input *input)
{
	char content[2048];
	size_t byte_count = fuzz_u32(input) % sizeof(content);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	fuzz_check(fd >= 0, "a file");
	if (byte_count > input->byte_count)
		byte_count = input->byte_count;
	fuzz_take(input, content, byte_count);
	fuzz_check(write(fd, content, byte_count) == (ssize_t)byte_count, "write");
	(void)close(fd); /* Its content is there. */
}

static void read_files(struct fuzz_input *input)
{
	char self_path[320], limit_path[320], meminfo_path[320];
	const struct topo_memory_files files = {
		.self_path = self_path,
		.mount_path = fuzz_directory(),
		.meminfo_path = meminfo_path,
	};

	(void)snprintf(self_path, sizeof(self_path), "%s/self", fuzz_directory()); /* All fit. */
	(void)snprintf(limit_path, sizeof(limit_path), "%s/memory.max", fuzz_directory());
	(void)snprintf(meminfo_path, sizeof(meminfo_path), "%s/meminfo", fuzz_directory());
	put_file(self_path, input);
	put_file(limit_path, input);
	put_file(meminfo_path, input);
	(void)topo_memory_limit_of(&files); /* Any number. */
	(void)topo_huge_free_of(meminfo_path);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	struct fuzz_input input = { bytes, byte_count };

	if (fuzz_u8(&input) % 2)
		read_files(&input);
	else
		describe(&input);
	return 0;
}
