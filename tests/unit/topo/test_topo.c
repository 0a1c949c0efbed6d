/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: nodes, disks and GPUs are found with their locality, on faked machines and on this one, and
 * a path leads to the node of its disk. Method: synthetic topologies; an XML with devices that the
 * test hangs where it likes; folders made like those of /sys. */
#include <criterion/criterion.h>
#include <errno.h>
#include <hwloc.h>
#include <limits.h>
#include <numaif.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "daemon/topo/topo_private.h"
#include "tests/guard/guard.h"

#define TWO_PACKAGES "pack:2 [numa(memory=128GB)] l3:2 core:4 pu:2"

/* What hangs on package 1: an NVMe with a number, a disk known by its name, and a GPU. */
#define PACKAGE_DEVICES                                                                      \
	"<object type=\"Bridge\" gp_index=\"900\" bridge_type=\"0-1\" depth=\"0\""           \
	" bridge_pci=\"0000:[80-83]\">"                                                      \
	"<object type=\"PCIDev\" gp_index=\"901\" pci_busid=\"0000:81:00.0\""                \
	" pci_type=\"0108 [144d:a80a] [144d:a801] 00\" pci_link_speed=\"7.876923\">"         \
	"<object type=\"OSDev\" gp_index=\"902\" name=\"nvme1n1\" subtype=\"Disk\""          \
	" osdev_type=\"0\"><info name=\"LinuxDeviceID\" value=\"259:7\"/></object></object>" \
	"<object type=\"PCIDev\" gp_index=\"903\" pci_busid=\"0000:82:00.0\""                \
	" pci_type=\"0100 [1af4:1001] [1af4:0002] 00\" pci_link_speed=\"0.000000\">"         \
	"<object type=\"OSDev\" gp_index=\"904\" name=\"%s\" subtype=\"Disk\""               \
	" osdev_type=\"0\"/></object>"                                                       \
	"<object type=\"PCIDev\" gp_index=\"905\" pci_busid=\"0000:83:00.0\""                \
	" pci_type=\"0302 [10de:2330] [10de:16c1] a1\" pci_link_speed=\"63.015385\">"        \
	"<object type=\"OSDev\" gp_index=\"906\" name=\"cuda0\" subtype=\"CUDA\""            \
	" osdev_type=\"5\"/></object>"                                                       \
	"</object>"
/* And on the machine as a whole: a disk and a display that is no GPU for us. */
#define MACHINE_DEVICES                                                                           \
	"<object type=\"Bridge\" gp_index=\"910\" bridge_type=\"0-1\" depth=\"0\""                \
	" bridge_pci=\"0000:[00-02]\">"                                                           \
	"<object type=\"PCIDev\" gp_index=\"911\" pci_busid=\"0000:01:00.0\""                     \
	" pci_type=\"0100 [1af4:1001] [1af4:0002] 00\" pci_link_speed=\"0.000000\">"              \
	"<object type=\"OSDev\" gp_index=\"912\" name=\"sdz\" subtype=\"Disk\" osdev_type=\"0\">" \
	"<info name=\"LinuxDeviceID\" value=\"65:144\"/></object></object>"                       \
	"<object type=\"PCIDev\" gp_index=\"913\" pci_busid=\"0000:02:00.0\""                     \
	" pci_type=\"0300 [1013:00b8] [1af4:1100] 00\" pci_link_speed=\"0.000000\"/>"             \
	"</object>"

static struct topo *make(const char *source)
{
	struct zi_text text = { "" };
	struct topo *topo = NULL;

	cr_assert_eq(topo_new(source, &text, &topo), 0, "%s", text.chars);
	return topo;
}

/* The closing tag of an object, @index 0 being the last of all. */
static const char *closing_tag(const char *xml, uint32_t index)
{
	const char *place = xml + strlen(xml);

	while (place > xml)
		if (strncmp(--place, "</object>", 9) == 0 && !index--)
			return place;
	cr_assert_fail("no such tag");
	return NULL;
}

/* Two packages of which the second has the devices above. @path: (64,) the file that was made. */
static void write_xml(const char *disk_name, char *path)
{
	hwloc_topology_t hwloc = NULL;
	const char *package_end;
	const char *machine_end;
	char *xml = NULL;
	FILE *file;
	int byte_count = 0;

	cr_assert_eq(hwloc_topology_init(&hwloc), 0);
	cr_assert_eq(hwloc_topology_set_synthetic(hwloc, TWO_PACKAGES), 0);
	cr_assert_eq(hwloc_topology_load(hwloc), 0);
	cr_assert_eq(hwloc_topology_export_xmlbuffer(hwloc, &xml, &byte_count, 0), 0);
	machine_end = closing_tag(xml, 0);
	package_end = closing_tag(xml, 1);
	file = fdopen(mkstemp(guard_path(path, 64, "topo")), "w");
	cr_assert_not_null(file);
	(void)fwrite(xml, 1, (size_t)(package_end - xml), file);
	(void)fprintf(file, PACKAGE_DEVICES, disk_name);
	(void)fwrite(package_end, 1, (size_t)(machine_end - package_end), file);
	(void)fputs(MACHINE_DEVICES, file);
	(void)fputs(machine_end, file);
	cr_assert_eq(fclose(file), 0);
	hwloc_free_xmlbuffer(hwloc, xml);
	hwloc_topology_destroy(hwloc);
}

static struct topo *make_xml(const char *disk_name)
{
	char path[64];
	char source[80];
	struct topo *topo;

	write_xml(disk_name, path);
	(void)snprintf(source, sizeof(source), "xml:%s", path);
	topo = make(source);
	cr_assert_eq(unlink(path), 0);
	return topo;
}

Test(topo, a_synthetic_machine_has_the_nodes_it_describes)
{
	struct topo *topo = make("synthetic:" TWO_PACKAGES);

	cr_assert_not(topo->is_this_system);
	cr_assert_eq(topo->node_count, 2);
	cr_assert_eq(topo->disk_count, 0);
	cr_assert_eq(topo->gpu_count, 0);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(topo->nodes[i].os_index, i);
		cr_assert_eq(topo->nodes[i].cpu_count, 16);
		cr_assert_eq(topo->nodes[i].memory_bytes, 128000000000ull >> 10 << 10, "%llu",
		             (unsigned long long)topo->nodes[i].memory_bytes);
		cr_assert_eq(topo_pool_threads(topo, i, 0), 16);
		cr_assert_eq(topo_pool_threads(topo, i, 5), 5);
		cr_assert_eq(topo_pool_threads(topo, i, 100), 16);
	}
	topo = topo_free(topo);
}

Test(topo, as_many_nodes_as_there_is_room_for_and_no_more)
{
	struct topo *topo = make("synthetic:pack:64 [numa] pu:1");
	struct zi_text text = { "" };

	cr_assert_eq(topo->node_count, TOPO_NODES_MAX);
	topo = topo_free(topo);
	cr_assert_eq(topo_new("synthetic:pack:65 [numa] pu:1", &text, &topo), -E2BIG);
	cr_assert_not_null(strstr(text.chars, "64 NUMA nodes"), "%s", text.chars);
	cr_assert_null(topo, "untouched on failure");
	cr_assert_null(topo_free(NULL));
}

Test(topo, a_source_that_is_wrong_is_named)
{
	static const struct {
		const char *source;
		int error;
		const char *words;
	} wrongs[] = {
		{ "synthetic:pack:two", -EINVAL, "does not understand" },
		{ "synthetic:", -EINVAL, "does not understand" },
		{ "xml:/nonexistent.xml", -ENOENT, "/nonexistent.xml: No such file" },
		{ "xml:/proc/meminfo", -EINVAL, "/proc/meminfo" },
		{ "json:/etc", -EINVAL, "allowed are" },
		{ "", -EINVAL, "allowed are" },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(wrongs); i++) {
		struct zi_text text = { "" };
		struct topo *topo = NULL;

		cr_assert_eq(topo_new(wrongs[i].source, &text, &topo), wrongs[i].error, "%s: %s",
		             wrongs[i].source, text.chars);
		cr_assert_not_null(strstr(text.chars, wrongs[i].words), "%s", text.chars);
		cr_assert_null(topo);
		cr_assert_eq(topo_new(wrongs[i].source, NULL, &topo), wrongs[i].error);
	}
}

Test(topo, devices_belong_to_the_node_of_the_package_they_hang_on)
{
	struct topo *topo = make_xml("vdy");

	cr_assert_not(topo->is_this_system);
	cr_assert_eq(topo->node_count, 2);
	cr_assert_eq(topo->gpu_count, 1, "the display adapter is none");
	cr_assert_str_eq(topo->gpus[0].pci, "0000:83:00.0");
	cr_assert_eq(topo->gpus[0].node, 1);
	cr_assert_eq(topo_find_gpu(topo, "00000000:83:00.0"), 0, "as a driver may write it");
	cr_assert_eq(topo_find_gpu(topo, "0000:02:00.0"), -1);
	cr_assert_eq(topo_find_gpu(topo, "0000:83:00.0;"), -1);
	cr_assert_eq(topo_find_gpu(topo, ""), -1);
	cr_assert_eq(topo_node_of_gpu(topo, -1, "0000:83:00.0"), 1);
	cr_assert_eq(topo_node_of_gpu(topo, 0, "0000:83:00.0"), 0, "its driver knows better");
	cr_assert_eq(topo_node_of_gpu(topo, 7, "0000:83:00.0"), 1, "there is no such node");
	cr_assert_eq(topo_node_of_gpu(topo, -1, "0000:84:00.0"), -1);
	cr_assert_eq(topo->disk_count, 3);
	for (uint32_t i = 0; i < topo->disk_count; i++) {
		const struct topo_disk *disk = &topo->disks[i];

		if (strcmp(disk->name, "nvme1n1") == 0) {
			cr_assert_eq(disk->node, 1);
			cr_assert_eq(disk->major, 259);
			cr_assert_eq(disk->minor, 7);
		} else if (strcmp(disk->name, "vdy") == 0) {
			cr_assert_eq(disk->node, 1);
			cr_assert_eq(disk->major + disk->minor, 0);
		} else {
			cr_assert_str_eq(disk->name, "sdz");
			cr_assert_eq(disk->node, -1, "as near to both");
			cr_assert_eq(disk->major, 65);
		}
	}
	cr_assert_eq(topo_node_of_device(topo, 259, 7), 1);
	cr_assert_eq(topo_node_of_device(topo, 65, 144), 0, "no locality: node 0");
	cr_assert_eq(topo_node_of_device(topo, 4095, 1), 0, "no such device");
	topo = topo_free(topo);
}

/* The disk below /tmp, if there is one. */
static void disk_of_tmp(char *name)
{
	struct stat status;

	cr_assert_eq(stat("/tmp", &status), 0);
	if (topo_disk_of_device("/sys", major(status.st_dev), minor(status.st_dev), name))
		cr_skip_test("/tmp lies on no disk here");
}

Test(topo, a_path_leads_to_the_node_of_its_disk_by_its_name)
{
	char name[32];
	struct topo *topo;

	disk_of_tmp(name);
	topo = make_xml(name); /* It hangs on package 1 now. */
	cr_assert_eq(topo_node_of_path(topo, "/tmp"), 1);
	cr_assert_eq(topo_node_of_path(topo, "/tmp/zinf-absent/deeper/store"), 1);
	cr_assert_eq(chdir("/tmp"), 0);
	cr_assert_eq(topo_node_of_path(topo, "."), 1);
	cr_assert_eq(topo_node_of_path(topo, "zinf-absent-store"), 1);
	cr_assert_eq(topo_node_of_path(topo, "/proc"), 0, "on no disk");
	cr_assert_eq(topo_node_of_path(topo, "/proc/self/mem/x"), 0, "no folder above");
	topo = topo_free(topo);
}

Test(topo, a_path_that_leads_nowhere_is_node_0)
{
	struct topo *topo = make("synthetic:" TWO_PACKAGES);
	char longest[8192];

	memset(longest, 'x', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	cr_assert_eq(topo_node_of_path(topo, longest), 0);
	cr_assert_eq(topo_node_of_path(topo, "/"), 0);
	cr_assert_eq(topo_node_of_path(topo, "/zinf-absent"), 0);
	cr_assert_eq(topo_node_of_path(topo, ""), 0);
	topo = topo_free(topo);
}

Test(topo, this_machine_has_the_cpus_this_process_may_use)
{
	struct topo *topo = make(NULL);
	uint32_t cpu_count = 0;
	cpu_set_t cpus;

	cr_assert(topo->is_this_system);
	for (uint32_t i = 0; i < topo->node_count; i++)
		cpu_count += topo->nodes[i].cpu_count;
	CPU_ZERO(&cpus);
	cr_assert_eq(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	cr_assert_eq(cpu_count, (uint32_t)CPU_COUNT(&cpus));
	topo = topo_free(topo);
	/* The same with one CPU less than all. */
	if (CPU_COUNT(&cpus) < 2)
		cr_skip_test("one CPU only");
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &cpus)) {
			CPU_CLR(cpu, &cpus);
			break;
		}
	cr_assert_eq(sched_setaffinity(0, sizeof(cpus), &cpus), 0);
	topo = make(NULL);
	cpu_count = 0;
	for (uint32_t i = 0; i < topo->node_count; i++)
		cpu_count += topo->nodes[i].cpu_count;
	cr_assert_eq(cpu_count, (uint32_t)CPU_COUNT(&cpus));
	topo = topo_free(topo);
}

Test(topo, a_disk_of_this_machine_is_found_by_its_number)
{
	struct topo *topo = make(NULL);
	char name[32];
	bool is_found = false;

	disk_of_tmp(name);
	for (uint32_t i = 0; i < topo->disk_count; i++)
		if (strcmp(topo->disks[i].name, name) == 0)
			is_found = topo->disks[i].major != 0;
	if (!is_found)
		cr_skip_test("hwloc does not list the disk of /tmp here");
	cr_assert_lt(topo_node_of_path(topo, "/tmp"), topo->node_count);
	topo = topo_free(topo);
}

Test(topo, binding_a_thread_keeps_it_on_its_node)
{
	struct topo *topo = make(NULL);
	cpu_set_t cpus;

	for (uint32_t i = 0; i < topo->node_count; i++) {
		cr_assert_eq(topo_bind_thread(topo, i), 0);
		cr_assert_eq(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
		if (topo->nodes[i].cpu_count)
			cr_assert_eq((uint32_t)CPU_COUNT(&cpus), topo->nodes[i].cpu_count);
	}
	topo = topo_free(topo);
}

Test(topo, binding_to_cpus_that_are_not_there_is_an_error)
{
	struct topo *topo = make(NULL);

	hwloc_bitmap_only(topo->nodes[0].cpuset, 1023);
	cr_assert_lt(topo_bind_thread(topo, 0), 0);
	topo = topo_free(topo);
}

Test(topo, binding_on_a_faked_machine_does_nothing)
{
	struct topo *topo = make("synthetic:" TWO_PACKAGES);
	cpu_set_t before;
	cpu_set_t after;

	cr_assert_eq(sched_getaffinity(0, sizeof(before), &before), 0);
	cr_assert_eq(topo_bind_thread(topo, 1), 0);
	cr_assert_eq(topo_bind_memory(topo, 1, NULL, 4096), 0);
	cr_assert_eq(sched_getaffinity(0, sizeof(after), &after), 0);
	cr_assert(CPU_EQUAL(&before, &after));
	topo = topo_free(topo);
}

Test(topo, memory_prefers_the_node_it_is_bound_to)
{
	struct topo *topo = make(NULL);
	uint64_t bytes = 1 << 20;
	unsigned long mask[16] = { 0 };
	int policy = -1;
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(base, MAP_FAILED);
	cr_assert_eq(topo_bind_memory(topo, 0, base, bytes), 0);
	cr_assert_eq(topo_prefer_node(topo->nodes[0].os_index, base, bytes), 0);
	cr_assert_eq(get_mempolicy(&policy, mask, 1024, base, MPOL_F_ADDR), 0);
	cr_assert_eq(policy, MPOL_PREFERRED);
	cr_assert_eq(mask[0], 1ul << topo->nodes[0].os_index);
	memset(base, 1, bytes);
	cr_assert_eq(topo_prefer_node(0, (char *)base + 1, bytes), -EINVAL, "not a page");
	cr_assert_eq(topo_prefer_node(1000, base, bytes), -EINVAL, "no such node");
	cr_assert_eq(topo_prefer_node(5000, base, bytes), -ERANGE);
	cr_assert_eq(munmap(base, bytes), 0);
	topo = topo_free(topo);
}

static void run_on(uint64_t cpus)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int i = 0; i < 64; i++)
		if (cpus >> i & 1)
			CPU_SET(i, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		cr_skip_test("CPUs %#llx are not to be had here", (unsigned long long)cpus);
}

Test(topo, a_process_is_on_the_node_whose_cpus_it_may_use)
{
	struct topo *topo = make("synthetic:numa:2 pu:1");
	struct topo *larger = make("synthetic:numa:3 pu:2");

	run_on(1);
	cr_expect_eq(topo_node_of_process(topo, getpid(), 1), 0);
	cr_expect_eq(topo_node_of_process(larger, getpid(), 2), 0);
	run_on(2);
	if (sched_getcpu() != 1)
		cr_skip_test("there is no CPU 1 here");
	cr_expect_eq(topo_node_of_process(topo, getpid(), 0), 1);
	cr_expect_eq(topo_node_of_process(larger, getpid(), 2), 0, "CPU 1 is still node 0's");
	run_on(3);
	cr_expect_eq(topo_node_of_process(topo, getpid(), 0), 0, "one of them is as good");
	cr_expect_eq(topo_node_of_process(topo, getpid(), 1), 1);
	cr_expect_eq(topo_node_of_process(larger, getpid(), 2), 0, "not on the given one");
	topo = topo_free(topo);
	larger = topo_free(larger);
}

Test(topo, of_a_process_that_is_not_there_nothing_is_known)
{
	struct topo *topo = make("synthetic:numa:2 pu:1");

	cr_expect_eq(topo_node_of_process(topo, 0, 1), 1, "the kernel takes it for the caller");
	cr_expect_eq(topo_node_of_process(topo, -1, 1), 1);
	cr_expect_eq(topo_node_of_process(topo, INT_MAX, 1), 1);
	topo = topo_free(topo);
}
