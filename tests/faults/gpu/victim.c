/* SPDX-License-Identifier: Apache-2.0 */
/* The victim of check_gpu_faults, and what is left when it has gone. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/faults/gpu/gpu_faults.h"
#include "tests/gpu/fake_gpu.h"
#include "tests/harness/patience.h"

#define FAKE_GPT "../tests/gpu/bin/zinf-gpt" /* from bin */
/* Two units of layers and two more, each of at most a chunk, in an arena of three. */
#define MODEL                                                                                  \
	"--layers", "2", "--heads", "1", "--d-model", "16", "--seq-len", "16", "--batch-size", \
		"1", "--steps", "2", "--warmup", "1", "--lr", "1e-3", "--min-lr", "1e-3",      \
		"--quiet"
#define CLEAN_NS (20 * ZI_NS_PER_S)

static const char *path_in(const struct gpu_faults *faults, const char *name, char *path)
{
	(void)snprintf(path, PATH_MAX, "%s/%s", faults->directory, name);
	return path;
}

/* A program of this build with its words in "said". Return: as harness_wait(). */
static int run(const struct gpu_faults *faults, const char *program, const char *const *arguments,
               const char *fake, uint64_t limit_ms)
{
	char path[PATH_MAX], said[PATH_MAX];
	pid_t pid;

	harness_program(program, path, sizeof(path));
	path_in(faults, "said", said);
	pid = fork();
	if (!pid) {
		int fd = open(said, O_WRONLY | O_CREAT | O_TRUNC, 0600);

		(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0 || setenv(FAKE_GPU_ENV, fake, 1) ||
		    setenv("OPENBLAS_NUM_THREADS", "1", 1))
			_exit(126);
		(void)execv(path, (char *const *)arguments);
		_exit(127);
	}
	return pid < 0 ? -errno : harness_wait(pid, (uint32_t)limit_ms);
}

static void read_said(struct gpu_faults *faults)
{
	char path[PATH_MAX];
	FILE *file = fopen(path_in(faults, "said", path), "re");
	size_t bytes = file ? fread(faults->said, 1, sizeof(faults->said) - 1, file) : 0;

	faults->said[bytes] = '\0';
	if (file)
		(void)fclose(file);
}

static bool are_equal(const char *path, const char *other)
{
	FILE *files[2] = { fopen(path, "re"), fopen(other, "re") };
	bool is_equal = files[0] && files[1];
	int byte = 0;

	while (is_equal && byte != EOF) {
		byte = getc(files[0]);
		is_equal = byte == getc(files[1]);
	}
	for (int i = 0; i < 2; i++)
		if (files[i])
			(void)fclose(files[i]);
	return is_equal;
}

/* See gpu_faults.h. */
bool gpu_faults_refer(struct gpu_faults *faults)
{
	char dump[PATH_MAX];
	const char *const arguments[] = {
		"zinf-gpt", "--reference", MODEL, "--dump", path_in(faults, "reference", dump), NULL
	};
	int code = run(faults, "zinf-gpt", arguments, "", 60000 * patience());

	read_said(faults);
	return gpu_faults_says(!code, "no reference", faults->said);
}

/* See gpu_faults.h. */
enum gpu_end gpu_faults_run(struct gpu_faults *faults, const char *words, uint64_t limit_ms)
{
	char dump[PATH_MAX], reference[PATH_MAX], driver[FAKE_GPU_PATH_BYTES];
	char cublas[FAKE_GPU_PATH_BYTES], timeout[24];
	const char *const arguments[] = { "zinf-gpt",
		                          MODEL,
		                          "--socket",
		                          faults->harness.socket_path,
		                          "--job",
		                          "victim",
		                          "--offload-optimizer",
		                          "cpu",
		                          "--device",
		                          "gpu",
		                          "--gpu-driver",
		                          fake_gpu_path(driver, sizeof(driver), "libcuda.so.1"),
		                          "--cublas",
		                          fake_gpu_path(cublas, sizeof(cublas), "libcublas.so.12"),
		                          "--gpu-param-budget",
		                          "6M",
		                          "--staging",
		                          "4M",
		                          "--timeout",
		                          timeout,
		                          "--dump",
		                          path_in(faults, "dump", dump),
		                          NULL };
	int code;

	/* Its own deadline is shorter than the limit, so that it can tell. */
	(void)snprintf(timeout, sizeof(timeout), "%llu",
	               (unsigned long long)(limit_ms / 2000 ? limit_ms / 2000 : 1));
	(void)unlink(dump); /* Of the one before; or there is none. */
	code = run(faults, FAKE_GPT, arguments, words, limit_ms);
	read_said(faults);
	if (!code && are_equal(dump, path_in(faults, "reference", reference)))
		return GPU_END_SOUND;
	if ((code == 1 || code == EX_TEMPFAIL) && strstr(faults->said, "zinf-gpt: "))
		return GPU_END_TOLD;
	if (code == 1000 + SIGKILL)
		return GPU_END_KILLED;
	if (code == -ETIMEDOUT)
		return GPU_END_HUNG;
	printf("check-gpu-faults: the victim ended with %d\n", code);
	return GPU_END_WRONG;
}

/* See gpu_faults.h. */
bool gpu_faults_start(struct gpu_faults *faults, const char *words)
{
	char path[FAKE_GPU_PATH_BYTES], driver[PATH_MAX];
	static char environment[512], extra[PATH_MAX + 128];
	static const char *variables[] = { environment, NULL };

	if (!realpath(fake_gpu_path(path, sizeof(path), "libcuda.so.1"), driver))
		return gpu_faults_says(false, "no fake driver", path);
	(void)snprintf(environment, sizeof(environment), FAKE_GPU_ENV "=%s", words);
	(void)snprintf(extra, sizeof(extra),
	               "[gpu]\nenable = yes\ndriver = %s\nreserve = none\ndeadline_s = 1\n",
	               driver);
	return gpu_faults_says(!harness_start(&faults->harness,
	                                      &(struct harness_options){
						      .extra = extra, .environment = variables }),
	                       "zinfd does not start", words);
}

/* See gpu_faults.h. */
bool gpu_faults_halt(struct gpu_faults *faults)
{
	static char log[65536];
	bool is_right;

	is_right =
		gpu_faults_says(!harness_halt(&faults->harness), "zinfd did not stop cleanly", "");
	harness_log(&faults->harness, log, sizeof(log));
	is_right = gpu_faults_says(!strstr(log, "zinfd stops without it"),
	                           "a zinf-gpu was left behind", log) &&
	           is_right;
	if (is_right)
		harness_remove(&faults->harness);
	return is_right;
}

/* ---- what is left ---- */

static uint32_t count_fds(pid_t pid)
{
	char path[64];
	uint32_t count = 0;
	struct dirent *entry;
	DIR *directory;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid); /* Fits. */
	directory = opendir(path);
	while (directory && (entry = readdir(directory)))
		count += entry->d_name[0] != '.';
	if (directory)
		(void)closedir(directory);
	return count;
}

/* The only zinf-gpu of the daemon; 0: there is none. */
static pid_t find_worker(pid_t daemon)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	pid_t found = 0;

	while (proc && (entry = readdir(proc))) {
		char path[300], comm[64] = "";
		int parent = 0;
		FILE *file;

		(void)snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name); /* Fits. */
		file = atoi(entry->d_name) > 0 ? fopen(path, "re") : NULL;
		if (!file)
			continue;
		if (fscanf(file, "%*d (%63[^)]) %*c %d", comm, &parent) == 2 && parent == daemon &&
		    !strcmp(comm, "zinf-gpu"))
			found = atoi(entry->d_name);
		(void)fclose(file);
	}
	if (proc)
		(void)closedir(proc);
	return found;
}

/* What a case can leave. */
struct rest {
	uint64_t gpu_bytes, arenas, cpu_bytes;
	bool has_job;
	uint32_t fd_counts[2];
};

static bool look(struct gpu_faults *faults, struct rest *ret_rest)
{
	json_t *tiers = harness_admin(&faults->harness, "tiers");
	json_t *jobs = harness_admin(&faults->harness, "jobs"), *object;
	struct rest rest = { 0 };
	bool is_there = tiers && jobs;
	size_t index;

	json_array_foreach(tiers, index, object)
	{
		uint64_t used = (uint64_t)json_integer_value(json_object_get(object, "used_bytes"));

		if (!strcmp(json_string_value(json_object_get(object, "kind")), "gpu")) {
			rest.gpu_bytes += used;
			rest.arenas +=
				(uint64_t)json_integer_value(json_object_get(object, "arenas"));
		} else {
			rest.cpu_bytes += used;
		}
	}
	json_array_foreach(jobs, index, object) rest.has_job |=
		!strcmp(json_string_value(json_object_get(object, "name")), "victim");
	json_decref(tiers);
	json_decref(jobs);
	rest.fd_counts[0] = count_fds(faults->harness.pid);
	rest.fd_counts[1] = count_fds(find_worker(faults->harness.pid));
	*ret_rest = rest;
	return is_there;
}

/* See gpu_faults.h. */
bool gpu_faults_note(struct gpu_faults *faults)
{
	struct rest rest;

	if (!look(faults, &rest))
		return false;
	faults->cpu_bytes = rest.cpu_bytes;
	memcpy(faults->fd_counts, rest.fd_counts, sizeof(rest.fd_counts));
	return true;
}

/* See gpu_faults.h. */
bool gpu_faults_is_clean(struct gpu_faults *faults, bool has_worker)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(patient_ns(CLEAN_NS));
	char words[512], detail[256];
	struct rest rest;

	do {
		if (!look(faults, &rest))
			return gpu_faults_says(false, "zinfd does not answer", "");
		if (rest.has_job)
			(void)harness_zctl(
				faults->harness.socket_path,
				(const char *const[]){ "delete", "victim", "--yes", NULL }, words,
				sizeof(words)); /* Its rank may be there still. */
		if (!rest.has_job && !rest.gpu_bytes && !rest.arenas &&
		    rest.cpu_bytes == faults->cpu_bytes &&
		    rest.fd_counts[0] <= faults->fd_counts[0] &&
		    (!has_worker || rest.fd_counts[1] <= faults->fd_counts[1]))
			return true;
	} while (zi_clock_now_ns() < deadline_ns);
	(void)snprintf(detail, sizeof(detail),
	               "%llu B in %llu arenas of the GPU, %llu B of memory (%llu before), %s, %u "
	               "descriptors of zinfd (%u), %u of zinf-gpu (%u)",
	               (unsigned long long)rest.gpu_bytes, (unsigned long long)rest.arenas,
	               (unsigned long long)rest.cpu_bytes, (unsigned long long)faults->cpu_bytes,
	               rest.has_job ? "the job" : "no job", rest.fd_counts[0], faults->fd_counts[0],
	               rest.fd_counts[1], faults->fd_counts[1]);
	return gpu_faults_says(false, "something is left", detail);
}
