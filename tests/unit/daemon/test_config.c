/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a configuration is either what its author meant or refused with the place, what was found,
 * and what is allowed; and what is printed about it is what is checked. Method: files made here,
 * one mistake each.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "daemon/config.h"
#include "tests/guard/guard.h"

static struct config config;
static struct zi_text text;
static char path[64];

static int load(const char *content)
{
	int fd;

	fd = mkostemp(guard_path(path, sizeof(path), "config"), 0);
	cr_assert_geq(fd, 0);
	cr_assert_eq(zi_pwrite_all(fd, content, strlen(content), 0), 0);
	(void)zi_close(fd);
	config_init(&config);
	int r = config_load(&config, path, &text);

	if (!r)
		r = config_check(&config, &text);
	(void)unlink(path);
	return r;
}

static void refused(const char *content, const char *words)
{
	cr_assert_eq(load(content), -EINVAL, "accepted: %s", content);
	cr_assert(strstr(text.chars, words), "'%s' is not in '%s'", words, text.chars);
}

/* The place as the message names it. */
static void refused_in_line(const char *content, unsigned line, const char *words)
{
	char place[96];

	refused(content, words);
	(void)snprintf(place, sizeof(place), "%s:%u: ", path, line);
	cr_assert_eq(strncmp(text.chars, place, strlen(place)), 0, "'%s' does not begin with '%s'",
	             text.chars, place);
}

Test(config, an_empty_file_is_the_defaults)
{
	cr_assert_eq(load(""), 0);
	cr_assert_str_eq(config.socket, "/run/zinf/zinfd.sock");
	cr_assert_str_eq(config.state_dir, "/var/lib/zinf");
	cr_assert_str_eq(config.topology, "");
	cr_assert_eq(config.socket_mode, 0666);
	cr_assert_eq(config.cpu_capacity_bytes, 0);
	cr_assert_eq(config.uid_cpu_bytes, UINT64_MAX);
	cr_assert_eq(config.ring_entries, 256);
	cr_assert_eq(config.staging_bytes, 128ull << 20);
	cr_assert_eq(config.store_count, 0);
	cr_assert_eq(config.gpu_enable, CONFIG_GPU_AUTO);
	cr_assert_str_eq(config.gpu_driver, "");
	cr_assert_eq(config.gpu_reserve_bytes, 1ull << 30);
}

Test(config, the_gpu_section_is_read_and_checked)
{
	cr_assert_eq(load("[gpu]\nenable = yes\ndriver = /opt/libcuda.so.1\nreserve = 3G\n"), 0,
	             "%s", text.chars);
	cr_assert_eq(config.gpu_enable, CONFIG_GPU_YES);
	cr_assert_str_eq(config.gpu_driver, "/opt/libcuda.so.1");
	cr_assert_eq(config.gpu_reserve_bytes, 3ull << 30);
	cr_assert_eq(load("[gpu]\nenable = no\ndriver = system\nreserve = none\n"), 0);
	cr_assert_eq(config.gpu_enable, CONFIG_GPU_NO);
	cr_assert_str_eq(config.gpu_driver, "");
	cr_assert_eq(config.gpu_reserve_bytes, 0);
	refused("[gpu]\nenable = maybe\n", "allowed are: auto yes no");
	refused("[gpu]\ndriver = libcuda.so\n", "a path beginning with /, or system");
	refused("[gpu]\nreserve = 1K\n", "from 1 MiB");
	refused_in_line("[gpu]\n\nreserved = 1G\n", 3, "nearest: 'reserve'");
}

Test(config, every_kind_of_value_is_read)
{
	cr_assert_eq(load("# a comment\n"
	                  "[daemon]\n"
	                  "  socket = /tmp/a.sock   ; the socket\n"
	                  "socket_mode=0600\n"
	                  "log_level = debug\n"
	                  "pool_threads = 3\n"
	                  "\n"
	                  "[tier.cpu]\n"
	                  "\tcapacity = 1.5G\n"
	                  "huge_pages = never\n"
	                  "lock = require\n"
	                  "[nvme fast]\n"
	                  "path = /data/store\n"
	                  "size = 4G\n"
	                  "direct = try\n"
	                  "backend = faulty:seed=1\n"
	                  "[nvme slow]\n"
	                  "path = /more/store\n"
	                  "backend = faulty:seed=1\n"
	                  "[quota]\n"
	                  "uid_nvme = 10G\n"),
	             0, "%s", text.chars);
	cr_assert_str_eq(config.socket, "/tmp/a.sock");
	cr_assert_eq(config.socket_mode, 0600);
	cr_assert_eq(config.log_level, 3);
	cr_assert_eq(config.pool_threads, 3);
	cr_assert_eq(config.cpu_capacity_bytes, 3ull << 29);
	cr_assert_eq(config.huge_pages, CONFIG_HUGE_NEVER);
	cr_assert_eq(config.lock, CONFIG_LOCK_REQUIRE);
	cr_assert_eq(config.store_count, 2);
	cr_assert_str_eq(config.stores[0].name, "fast");
	cr_assert_eq(config.stores[0].bytes, 4ull << 30);
	cr_assert_eq(config.stores[0].direct, CONFIG_DIRECT_TRY);
	cr_assert_str_eq(config.stores[0].backend, "faulty:seed=1");
	cr_assert_str_eq(config.stores[1].path, "/more/store");
	cr_assert_eq(config.stores[1].read_depth, 0, "auto");
	cr_assert_eq(config.stores[1].write_block_bytes, 0);
	cr_assert_eq(config.stores[1].deadline_s, 30);
	cr_assert_eq(config.uid_nvme_bytes, 10ull << 30);
}

Test(config, an_unknown_key_is_refused_with_the_nearest_and_those_allowed)
{
	refused_in_line("[limits]\njobs = 3\nsesions = 4\n", 3,
	                "no key 'sesions' (nearest: 'sessions')");
	cr_assert(strstr(text.chars, "allowed are sessions, sessions_per_uid, connections, "));
	refused_in_line("[nvme a]\npath = /x\npaht = /x\n", 3, "no key 'paht' (nearest: 'path')");
}

Test(config, an_unknown_section_is_refused_even_when_it_is_empty)
{
	refused_in_line("\n[limit]\n", 2, "no section [limit] (nearest: [limits])");
	cr_assert(strstr(text.chars, "[tier.cpu]"));
	refused_in_line("[nvme]\n", 1, "no section [nvme] (nearest: [nvme])");
	refused_in_line("[daemon\n", 1, "a section ends with ]");
}

Test(config, a_key_before_any_section_is_refused)
{
	refused_in_line("jobs = 3\n", 1, "a key before the first section");
}

Test(config, a_line_that_is_neither_is_refused)
{
	refused_in_line("[limits]\njobs\n", 2, "neither a [section] nor key = value");
}

Test(config, numbers_out_of_range_are_refused_with_the_range)
{
	static const char *const values[] = { "0", "65537", "-1",
		                              "x", "1x",    "",
		                              " ", "0x10",  "99999999999999999999999" };

	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
		char content[96];

		(void)snprintf(content, sizeof(content), "[limits]\njobs = %s\n", values[i]);
		refused_in_line(content, 2, "1 to 65536 are allowed");
	}
	refused("[daemon]\npool_threads = 0\n", "1 to 1024 or auto are allowed");
}

Test(config, bytes_modes_and_choices_are_refused_with_what_is_allowed)
{
	refused("[tier.cpu]\ncapacity = 1M\n", "from 16 MiB to 8 EiB or auto are allowed");
	refused("[tier.cpu]\ncapacity = 10GB\n", "bytes (4096, 64K, 1.5G)");
	refused("[daemon]\nsocket_mode = 0999\n", "octal, 0000 to 0777");
	refused("[daemon]\nsocket_mode = 01000\n", "octal, 0000 to 0777");
	refused("[tier.cpu]\nhuge_pages = yes\n", "allowed are: try never require");
	refused("[tier.cpu]\nhuge_pages = \n", "allowed are: try never require");
	refused("[daemon]\nsocket =\n", "1 to 255 bytes are allowed");
}

Test(config, a_key_given_twice_is_refused_with_the_first_place)
{
	refused_in_line("[limits]\njobs = 3\n[quota]\n[limits]\njobs = 4\n", 5,
	                "jobs was already given in line 2");
	refused_in_line("[nvme a]\npath = /a\n[nvme b]\npath = /b\n[nvme a]\npath = /c\n", 6,
	                "path was already given in line 2");
}

Test(config, a_line_that_would_be_cut_is_refused)
{
	char content[600] = "[daemon]\nsocket = /";

	memset(content + strlen(content), 'a', 400);
	refused_in_line(content, 2, "a line has at most");
	(void)snprintf(content, sizeof(content), "[nvme %060d]\n", 1);
	refused_in_line(content, 1, "at most 48 bytes");
}

Test(config, stores_need_good_names_and_paths_of_their_own)
{
	refused("[nvme -a]\n", "a store's name");
	refused("[nvme a/b]\n", "a store's name");
	refused_in_line("[nvme a]\nsize = 1G\n", 1, "[nvme a] needs a path beginning with /");
	refused("[nvme a]\npath = store\n", "found store");
	refused("[nvme a]\npath = /x\n[nvme b]\npath = /x\n",
	        "[nvme a] and [nvme b] have the same path /x");
	refused("[nvme a]\npath = /x\nbackend = threads\n[nvme b]\npath = /y\n",
	        "[nvme a] and [nvme b] differ in backend");
	refused("[nvme a]\npath = /x\ndepth = 8\n", "has no key 'depth'; allowed are");
	refused("[nvme a]\npath = /x\nread_block = 5000\n", "multiples of 4096");
}

Test(config, more_stores_than_there_can_be_are_refused)
{
	char content[1024] = "";

	for (int i = 0; i < 17; i++) {
		size_t bytes = strlen(content);

		(void)snprintf(content + bytes, sizeof(content) - bytes,
		               "[nvme s%d]\npath = /s%d\n", i, i);
	}
	refused(content, "more than 16 stores");
}

Test(config, relations_between_keys_are_checked)
{
	char longer[200] = "[daemon]\nsocket = /";

	memset(longer + strlen(longer), 'a', 110);
	refused(longer, "of at most 107 bytes");
	refused("[daemon]\nsocket = here\n", "a path beginning with /");
	refused("[limits]\nring_entries = 100\n", "a power of two is needed");
	refused("[limits]\nsessions = 100\ninflight_ops = 50\n",
	        "inflight_ops is 50, limits.sessions is 100");
}

Test(config, a_file_that_is_not_there_or_is_a_folder_is_said)
{
	config_init(&config);
	cr_assert_eq(config_load(&config, "/nonexistent/zinfd.conf", &text), -ENOENT);
	cr_assert(strstr(text.chars, "/nonexistent/zinfd.conf: No such file"));
	cr_assert_eq(config_load(&config, "/tmp", &text), -EIO);
	cr_assert(strstr(text.chars, "is it a file?"));
}

Test(config, the_command_line_goes_over_the_file)
{
	cr_assert_eq(load("[limits]\njobs = 3\n[nvme disk]\npath = /a.b/store\n"), 0);
	cr_assert_eq(config_set(&config, "limits.jobs=9", &text), 0);
	cr_assert_eq(config.jobs, 9);
	cr_assert_eq(config_set(&config, "tier.cpu.capacity=2G", &text), 0);
	cr_assert_eq(config.cpu_capacity_bytes, 2ull << 30);
	cr_assert_eq(config_set(&config, "nvme disk.path=/c.d/store=1", &text), 0);
	cr_assert_str_eq(config.stores[0].path, "/c.d/store=1");
	cr_assert_eq(config_set(&config, "limits.jobs=0", &text), -EINVAL);
	cr_assert(strstr(text.chars, "--set: jobs = '0': 1 to 65536"));
	cr_assert_eq(config_set(&config, "jobs=1", &text), -EINVAL);
	cr_assert(strstr(text.chars, "SECTION.KEY=VALUE"));
	cr_assert_eq(config_set(&config, "limits.jobs", &text), -EINVAL);
	cr_assert_eq(config_set(&config, "limit.jobs=1", &text), -EINVAL);
	cr_assert(strstr(text.chars, "nearest: [limits]"));
}

/* ---- a plain user's ---- */

static char folder[64];

static void make_folder(void)
{
	cr_assert(mkdtemp(guard_path(folder, sizeof(folder), "config")));
	config_init(&config);
}

static const char *store_path(void)
{
	static char path[128];

	(void)snprintf(path, sizeof(path), "%s/d/store", folder);
	return path;
}

static void remove_folder(void)
{
	static const char *const inner[] = { "/d/state",
		                             "/d",
		                             "/run/zinf",
		                             "/run",
		                             "/home/.local/state/zinf",
		                             "/home/.local/state",
		                             "/home/.local",
		                             "/home",
		                             "" };

	(void)unlink(store_path());
	for (size_t i = 0; i < sizeof(inner) / sizeof(*inner); i++) {
		char full[128];

		(void)snprintf(full, sizeof(full), "%s%s", folder, inner[i]);
		(void)rmdir(full);
	}
}

Test(user, everything_is_in_the_folder_that_is_named, .init = make_folder, .fini = remove_folder)
{
	char expected[128];
	char directory[96];
	struct stat status;

	(void)snprintf(directory, sizeof(directory), "%s/d", folder);
	cr_assert_eq(config_set_user(&config, directory, 64 << 20, &text), 0, "%s", text.chars);
	cr_assert_eq(config_check(&config, &text), 0);
	(void)snprintf(expected, sizeof(expected), "%s/d/zinfd.sock", folder);
	cr_assert_str_eq(config.socket, expected);
	(void)snprintf(expected, sizeof(expected), "%s/d/state", folder);
	cr_assert_str_eq(config.state_dir, expected);
	cr_assert_eq(stat(directory, &status), -1, "it was made before it was asked for");
	cr_assert_eq(config_make_user(&config, &text), 0, "%s", text.chars);
	cr_assert_eq(stat(expected, &status), 0);
	cr_assert_eq(status.st_mode & 0777, 0700);
	cr_assert_eq(config.store_count, 1);
	cr_assert_eq(config.stores[0].bytes, 64 << 20);
	(void)snprintf(expected, sizeof(expected), "%s/d/store", folder);
	cr_assert_str_eq(config.stores[0].path, expected);
}

/* A file that has bytes, as a store has that was made there. */
Test(user, a_store_that_is_there_is_used_as_it_is, .init = make_folder, .fini = remove_folder)
{
	char directory[96];
	FILE *file;

	(void)snprintf(directory, sizeof(directory), "%s/d", folder);
	cr_assert_eq(mkdir(directory, 0700), 0);
	cr_assert_eq(config_set_user(&config, directory, 0, &text), 0, "%s", text.chars);
	cr_assert_eq(config.store_count, 0, "there is none");
	file = fopen(store_path(), "we");
	cr_assert_not_null(file);
	cr_assert_eq(config_set_user(&config, directory, 0, &text), 0, "%s", text.chars);
	cr_assert_eq(config.store_count, 0, "an empty file is none");
	cr_assert_gt(fputs("superblock", file), 0);
	cr_assert_eq(fclose(file), 0);
	cr_assert_eq(config_set_user(&config, directory, 0, &text), 0, "%s", text.chars);
	cr_assert_eq(config_check(&config, &text), 0, "%s", text.chars);
	cr_assert_eq(config.store_count, 1);
	cr_assert_eq(config.stores[0].bytes, 0, "its size is kept");
	cr_assert_str_eq(config.stores[0].path, store_path());
}

Test(user, without_a_folder_it_is_where_xdg_says, .init = make_folder, .fini = remove_folder)
{
	char runtime[96], home[96], expected[128];

	(void)snprintf(runtime, sizeof(runtime), "%s/run", folder);
	(void)snprintf(home, sizeof(home), "%s/home", folder);
	(void)setenv("XDG_RUNTIME_DIR", runtime, 1);
	(void)setenv("HOME", home, 1);
	(void)unsetenv("XDG_STATE_HOME");
	cr_assert_eq(config_set_user(&config, NULL, 0, &text), 0, "%s", text.chars);
	(void)snprintf(expected, sizeof(expected), "%s/zinf/zinfd.sock", runtime);
	cr_assert_str_eq(config.socket, expected);
	(void)snprintf(expected, sizeof(expected), "%s/.local/state/zinf", home);
	cr_assert_str_eq(config.state_dir, expected);
	cr_assert_eq(config.store_count, 0);
	cr_assert_eq(config_make_user(&config, &text), 0, "%s", text.chars);
	cr_assert_eq(access(expected, W_OK), 0);
}

Test(user, a_folder_below_the_present_one_is_called_by_its_whole_path, .init = make_folder,
     .fini = remove_folder)
{
	char expected[128];

	cr_assert_eq(chdir(folder), 0);
	cr_assert_eq(config_set_user(&config, "d/", 0, &text), 0, "%s", text.chars);
	(void)snprintf(expected, sizeof(expected), "%s/d/state", folder);
	cr_assert_str_eq(config.state_dir, expected);
}

Test(user, without_any_place_it_says_which_option_helps, .init = make_folder, .fini = remove_folder)
{
	(void)unsetenv("XDG_RUNTIME_DIR");
	cr_assert_eq(config_set_user(&config, NULL, 0, &text), -ENOENT);
	cr_assert(strstr(text.chars, "--dir DIR"));
	(void)setenv("XDG_RUNTIME_DIR", folder, 1);
	(void)unsetenv("XDG_STATE_HOME");
	(void)unsetenv("HOME");
	cr_assert_eq(config_set_user(&config, NULL, 0, &text), -ENOENT);
	cr_assert(strstr(text.chars, "--dir DIR"));
}

Test(user, a_folder_that_cannot_be_made_is_said)
{
	config_init(&config);
	cr_assert_eq(config_set_user(&config, "/proc/zinf", 0, &text), 0, "%s", text.chars);
	cr_assert_eq(config_make_user(&config, &text), -ENOENT);
	cr_assert(strstr(text.chars, "making the folder /proc/zinf"));
}

/* ---- what is printed ---- */

static char *printed(void (*print)(FILE *stream))
{
	char *bytes = NULL;
	size_t count = 0;
	FILE *stream = open_memstream(&bytes, &count);

	cr_assert(stream);
	print(stream);
	cr_assert_eq(fclose(stream), 0);
	return bytes;
}

static void same_as_file(void (*print)(FILE *stream), const char *name)
{
	static char content[65536];
	char *expected = printed(print);
	FILE *file = fopen(name, "re");
	size_t bytes;

	cr_assert(file, "%s is not there (tests run in the project's root)", name);
	bytes = fread(content, 1, sizeof(content) - 1, file);
	(void)fclose(file);
	content[bytes] = '\0';
	cr_assert_str_eq(content, expected, "%s is not what zinfd prints: print it again", name);
	free(expected);
}

Test(print, the_documentation_is_what_the_table_says)
{
	same_as_file(config_print_doc, "docs/CONFIG.md");
}

Test(print, the_example_is_what_the_table_says)
{
	same_as_file(config_print_example, "systemd/zinfd.conf");
}

Test(print, the_example_changes_nothing_and_each_of_its_keys_is_accepted)
{
	char *example = printed(config_print_example);
	static struct config defaults;
	unsigned key_count = 0;

	cr_assert_eq(load(example), 0, "%s", text.chars);
	config_init(&defaults);
	memcpy(defaults.file, config.file, sizeof(defaults.file));
	cr_assert_eq(memcmp(&config, &defaults, sizeof(config)), 0);
	/* "#key = value" and "#[section]" are what a reader would uncomment. */
	for (char *line = example; *line; line = strchr(line, '\n') + 1)
		if (line[0] == '#' && line[1] != ' ') {
			line[0] = ' ';
			key_count += line[1] != '[';
		}
	cr_assert_eq(load(example), 0, "%s", text.chars);
	cr_assert_eq(key_count, config_key_count);
	cr_assert_str_eq(config.stores[0].name, "fast");
	free(example);
}
