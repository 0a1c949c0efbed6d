/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zctl doctor: what of io_uring, lockable memory, huge pages, O_DIRECT, NUMA, CUDA and Gloo there
 * is on this machine, and what to do about the rest. Looks at the machine itself, as the calling
 * user, by trying; the daemon need not run. Exit code 1 when something zinf cannot do without is
 * missing.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <hwloc.h>
#include <liburing.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/fd.h"
#include "common/base/text.h"
#include "common/base/thread.h"
#include "common/base/types.h"
#include "common/wire/region.h"
#include "nvme/smart.h"
#include "zctl/get.h"
#include "zctl/table.h"
#include "zctl/zctl.h"

#define TMPFS_SUPER_MAGIC 0x01021994

enum verdict { VERDICT_OK, VERDICT_UNUSED, VERDICT_BETTER, VERDICT_MISSING };

struct finding {
	const char *subject;
	enum verdict verdict;
	char found[256];
	char advice[256];
};

static void set_found(struct finding *finding, enum verdict verdict, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void set_found(struct finding *finding, enum verdict verdict, const char *format, ...)
{
	va_list arguments;

	finding->verdict = verdict;
	va_start(arguments, format);
	(void)vsnprintf(finding->found, sizeof finding->found, format, arguments);
	va_end(arguments);
}

static void set_advice(struct finding *finding, const char *advice)
{
	(void)snprintf(finding->advice, sizeof finding->advice, "%s", advice);
}

/* A number from a small file of /proc or /sys; @fallback when it cannot be read. */
static uint64_t read_number(const char *path, uint64_t fallback)
{
	char text[64];

	return zi_read_text(path, text, sizeof text) ? fallback : strtoull(text, NULL, 10);
}

static void check_uring(struct finding *finding, const char *directory)
{
	struct io_uring ring;
	int r = io_uring_queue_init(8, &ring, 0);

	(void)directory;
	finding->subject = "io_uring";
	if (!r) {
		struct io_uring_probe *probe = io_uring_get_probe_ring(&ring);

		set_found(finding, VERDICT_OK, "works, operations up to %d",
		          probe ? (int)probe->last_op : -1);
		io_uring_free_probe(probe);
		io_uring_queue_exit(&ring);
		return;
	}
	set_found(finding, VERDICT_BETTER, "refused: %s (kernel.io_uring_disabled = %llu)",
	          strerror(-r),
	          (unsigned long long)read_number("/proc/sys/kernel/io_uring_disabled", 0));
	set_advice(finding, "sysctl kernel.io_uring_disabled=0; until then zinfd uses "
	                    "pread/pwrite threads, slower and with more CPU");
}

static void check_memlock(struct finding *finding, const char *directory)
{
	struct rlimit limit;

	(void)directory;
	finding->subject = "lockable memory";
	if (getrlimit(RLIMIT_MEMLOCK, &limit)) {
		set_found(finding, VERDICT_BETTER, "unknown: %s", strerror(errno));
		return;
	}
	if (!geteuid() || limit.rlim_cur == RLIM_INFINITY) {
		set_found(finding, VERDICT_OK, "unlimited");
		return;
	}
	set_found(finding, limit.rlim_cur < (64u << 20) ? VERDICT_BETTER : VERDICT_OK, "%s",
	          zi_format_bytes(limit.rlim_cur).chars);
	if (finding->verdict != VERDICT_OK)
		set_advice(finding, "raise it (LimitMEMLOCK=infinity in the unit, or "
		                    "/etc/security/limits.d): buffers beyond it are used "
		                    "unregistered, slower I/O with more CPU");
}

static void check_hugetlb(struct finding *finding, const char *directory)
{
#define HUGE_POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/"
	uint64_t total = read_number(HUGE_POOL "nr_hugepages", 0);
	uint64_t free_pages = read_number(HUGE_POOL "free_hugepages", 0);

	(void)directory;
	finding->subject = "huge pages (pool)";
	set_found(finding, free_pages ? VERDICT_OK : VERDICT_BETTER,
	          "%llu of %llu pages of 2 MiB free", (unsigned long long)free_pages,
	          (unsigned long long)total);
	if (!free_pages)
		set_advice(finding,
		           "sysctl vm.nr_hugepages=N (2 MiB each, for the CPU tier): two to "
		           "three times the I/O speed of 4 KiB pages");
}

static void check_collapse(struct finding *finding, const char *directory)
{
	struct zi_region region = ZI_REGION_INIT;
	int r = zi_region_create("zctl-doctor", ZI_HUGE_PAGE_BYTES, ZI_PAGES_SMALL, NULL, &region);

	(void)directory;
	finding->subject = "huge pages (collapse)";
	if (r) {
		set_found(finding, VERDICT_MISSING, "a sealed memfd is refused: %s", strerror(-r));
		set_advice(finding, "zinf needs memfd_create with sealing (Linux 4.14 or later)");
		return;
	}
	zi_region_collapse(&region);
	if (region.pages == ZI_PAGES_COLLAPSED) {
		set_found(finding, VERDICT_OK, "MADV_COLLAPSE works on shared memory");
	} else {
		set_found(finding, VERDICT_BETTER, "MADV_COLLAPSE does not work here");
		set_advice(finding, "Linux 6.1 or later has it; or reserve huge pages (above)");
	}
	zi_region_destroy(&region);
}

static void check_direct(struct finding *finding, const char *directory)
{
	_cleanup_(zi_closep) int fd = -1;
	char path[4096];
	struct statfs fs;

	finding->subject = "direct I/O";
	(void)snprintf(path, sizeof path, "%s/.zctl-doctor-XXXXXX", directory);
	fd = mkostemp(path, O_CLOEXEC | O_DIRECT);
	if (fd < 0) {
		set_found(finding, VERDICT_BETTER, "%s: %s", directory, strerror(errno));
		set_advice(finding,
		           "name a directory that may hold a store: zctl doctor DIRECTORY");
		return;
	}
	(void)unlink(path); /* the open file is enough, and nothing may stay behind */
	if (!fstatfs(fd, &fs) && fs.f_type == TMPFS_SUPER_MAGIC) {
		set_found(finding, VERDICT_BETTER, "%s is tmpfs: memory, not a disk", directory);
		set_advice(finding, "put the store on a file system on NVMe, or on a block device");
		return;
	}
	set_found(finding, VERDICT_OK, "%s takes O_DIRECT", directory);
}

/* Not reported is no fault: a virtual disk, say. */
static void check_wear(struct finding *finding, const char *directory)
{
	_cleanup_(zi_closep) int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct nvme_smart smart;
	struct zi_text text = { "" };
	int r;

	finding->subject = "drive wear";
	if (fd < 0) {
		set_found(finding, VERDICT_BETTER, "%s: %s", directory, strerror(errno));
		return;
	}
	r = nvme_smart_read(fd, &text, &smart);
	if (r) {
		set_found(finding, r == -ENODEV ? VERDICT_OK : VERDICT_BETTER, "%.150s",
		          text.chars[0] ? text.chars : strerror(-r));
		if (r == -EACCES || r == -EPERM)
			set_advice(finding, "ask as root: zctl doctor DIRECTORY");
		return;
	}
	set_found(finding, VERDICT_OK,
	          "%u %% of its life used, %u %% spare left, %llu media errors", smart.used_percent,
	          smart.spare_percent, (unsigned long long)smart.media_error_count);
	if (!nvme_smart_is_worn(&smart, 80, &text))
		return;
	finding->verdict = VERDICT_BETTER;
	set_advice(finding, "replace the drive soon, and see what writes so much (zctl jobs)");
}

static void check_numa(struct finding *finding, const char *directory)
{
	hwloc_topology_t topology;

	(void)directory;
	finding->subject = "NUMA";
	if (hwloc_topology_init(&topology)) {
		set_found(finding, VERDICT_MISSING, "hwloc does not start");
		return;
	}
	if (hwloc_topology_load(topology))
		set_found(finding, VERDICT_MISSING, "hwloc cannot read this machine");
	else
		set_found(finding, VERDICT_OK, "%d node(s), %d CPU(s), %u usable by this process",
		          hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE),
		          hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU), zi_cpu_allowed_count());
	hwloc_topology_destroy(topology);
}

static void check_cuda(struct finding *finding, const char *directory)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	int (*init)(unsigned) = NULL;
	int (*count)(int *) = NULL;
	int devices = 0, r;

	(void)directory;
	finding->subject = "CUDA";
	if (!library) {
		set_found(finding, VERDICT_UNUSED,
		          "no driver (libcuda.so.1); programs compute on the CPU");
		return;
	}
	*(void **)&init = dlsym(library, "cuInit");
	*(void **)&count = dlsym(library, "cuDeviceGetCount");
	r = init ? init(0) : -1;
	if (!r && count)
		r = count(&devices);
	if (r)
		set_found(finding, VERDICT_UNUSED,
		          "a driver, but cuInit answers %d; programs compute on the CPU", r);
	else
		set_found(finding, VERDICT_OK, "%d device(s)", devices);
	(void)dlclose(library);
}

static void check_nccl(struct finding *finding, const char *directory)
{
	void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
	int (*get_version)(int *) = NULL;
	int version = 0;

	(void)directory;
	finding->subject = "NCCL";
	if (!library) {
		set_found(finding, VERDICT_UNUSED,
		          "not installed (libnccl.so.2); collectives are in CPU memory");
	} else {
		*(void **)&get_version = dlsym(library, "ncclGetVersion");
		if (get_version)
			(void)get_version(&version); /* 0 is shown as such */
		set_found(finding, VERDICT_UNUSED, "version %d; collectives are in CPU memory",
		          version);
		(void)dlclose(library);
	}
}

/* Those that a running daemon has. No daemon, or none that is ours: nothing to say. */
static bool check_daemon(struct finding *finding, const struct zctl_context *context,
                         json_t **ret_troubles)
{
	struct zctl_context quiet = *context;
	json_t *status;
	uint64_t count;
	const char *why;

	finding->subject = "GPUs of zinfd";
	quiet.is_quiet = true;
	status = zctl_ask(&quiet, "status");
	if (!status)
		return false;
	count = get_count(status, "gpus");
	why = get_word(status, "gpus_missing");
	set_found(finding, count ? VERDICT_OK : VERDICT_UNUSED, "%llu%s%.140s",
	          (unsigned long long)count, *why ? ": " : "", why);
	if (count && *why) {
		finding->verdict = VERDICT_BETTER;
		set_advice(finding, "zctl tiers shows the GPUs that zinfd has, its log says why "
		                    "another one is missing");
	}
	*ret_troubles = json_incref(json_object_get(status, "gpu_troubles"));
	json_decref(status);
	return true;
}

/* A GPU that zinfd cannot use, or whose killed zinf-gpu has not ended. */
static void check_trouble(struct finding *finding, const json_t *trouble)
{
	uint64_t ending_pid = get_count(trouble, "ending_pid");

	finding->subject = "a GPU of zinfd";
	finding->verdict = VERDICT_BETTER;
	if (!ending_pid) {
		set_found(finding, VERDICT_BETTER, "GPU %s: %.180s", get_word(trouble, "gpu"),
		          get_word(trouble, "reason"));
		set_advice(finding, "zinfd tries it again from time to time; nvidia-smi, dmesg");
		return;
	}
	set_found(finding, VERDICT_BETTER,
	          "GPU %s: zinf-gpu (pid %llu) was killed %llu s ago and has not ended: it hangs "
	          "in the driver",
	          get_word(trouble, "gpu"), (unsigned long long)ending_pid,
	          (unsigned long long)get_count(trouble, "ending_s"));
	set_advice(finding, "its memory stays charged until it ends; a reset of the GPU ends it "
	                    "(nvidia-smi --gpu-reset), else a reboot");
}

/* Beside the other programs, as built; or where `make install` puts it. */
static void check_gloo(struct finding *finding, const char *directory)
{
	static const char *const places[] = { "zinf-net", "../sbin/zinf-net" };
	char folder[256], path[300];
	ssize_t bytes = readlink("/proc/self/exe", folder, sizeof folder - 1);

	(void)directory;
	finding->subject = "several nodes (Gloo)";
	folder[bytes > 0 ? bytes : 0] = '\0';
	*(strrchr(folder, '/') ? strrchr(folder, '/') + 1 : folder) = '\0';
	for (size_t i = 0; i < ZI_COUNT_OF(places); i++) {
		(void)snprintf(path, sizeof path, "%s%s", folder, places[i]); /* Fits. */
		if (access(path, X_OK))
			continue;
		set_found(finding, VERDICT_OK, "zinf-net is there");
		return;
	}
	set_found(finding, VERDICT_BETTER, "zinf-net is not built: libgloo-dev was not there");
	set_advice(finding, "needed only for jobs over several nodes: tools/deps build, then make");
}

/* Of a daemon: a node has 16 GPUs at most today. */
#define TROUBLES_MAX 16u

typedef void (*check_fn)(struct finding *finding, const char *directory);
static const check_fn checks[] = {
	check_uring, check_memlock, check_hugetlb, check_collapse, check_direct,
	check_wear,  check_numa,    check_cuda,    check_nccl,     check_gloo,
};

static const char *verdict_name(enum verdict verdict)
{
	static const char *const names[] = { "ok", "not used", "could be better", "missing" };

	return names[verdict];
}

static int print_findings_json(const struct finding *findings, size_t count)
{
	json_t *list = json_array();
	int code;

	for (size_t i = 0; i < count; i++)
		(void)json_array_append_new(/* a short list is still valid JSON */
		                            list, json_pack("{s:s, s:s, s:s, s:s}", "subject",
		                                            findings[i].subject, "verdict",
		                                            verdict_name(findings[i].verdict),
		                                            "found", findings[i].found, "advice",
		                                            findings[i].advice));
	code = zctl_print_json(list);
	json_decref(list);
	return code;
}

/**
 * zctl_doctor() - what this machine offers
 * @context: output options
 * @argc: words
 * @argv: "doctor", and optionally the directory whose file system is asked for O_DIRECT (".")
 *
 * Return: exit code; 1 when something zinf cannot do without is missing.
 */
int zctl_doctor(const struct zctl_context *context, int argc, char **argv)
{
	static const char *const headings[] = { "subject", "verdict", "found", "what to do", NULL };
	struct finding findings[ZI_COUNT_OF(checks) + 1 + TROUBLES_MAX] = { 0 };
	size_t count = ZI_COUNT_OF(checks);
	json_t *troubles = NULL, *trouble;
	const char *directory = argc > 1 ? argv[1] : ".";
	struct table *table;
	int code = 0;

	if (argc > 2)
		return zctl_usage("doctor");
	for (size_t i = 0; i < ZI_COUNT_OF(checks); i++) {
		checks[i](&findings[i], directory);
		if (findings[i].verdict == VERDICT_MISSING)
			code = 1;
	}
	count += check_daemon(&findings[count], context, &troubles);
	for (size_t i = 0; (trouble = json_array_get(troubles, i)) && i < TROUBLES_MAX; i++)
		check_trouble(&findings[count++], trouble);
	json_decref(troubles);
	if (context->is_json)
		return print_findings_json(findings, count) ? 1 : code;
	table = table_new(headings);
	for (size_t i = 0; i < count; i++) {
		table_cell(table, "%s", findings[i].subject);
		table_cell(table, "%s", verdict_name(findings[i].verdict));
		table_cell(table, "%s", findings[i].found);
		table_cell(table, "%s", findings[i].advice);
	}
	table_print(table, context->is_colour);
	(void)table_free(table);
	return code;
}
