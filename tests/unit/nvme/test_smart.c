/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a health page is read as the specification has it, nothing that a drive does not report is
 * shown as a figure, and the drive under a file is found. Method: a page made by hand (a test
 * double of a drive), and folders that look like /sys.
 */
#include "nvme/smart.h"
#include "tests/unit/nvme/nvme_test.h"

static struct zi_text text;

static void put_wide(uint8_t *bytes, uint64_t value)
{
	for (uint32_t i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(value >> 8 * i);
}

/* A drive in the middle of its life. */
static void make_page(uint8_t *page)
{
	memset(page, 0, NVME_SMART_BYTES);
	page[1] = 0x3b; /* 315 K */
	page[2] = 0x01;
	page[3] = 97;
	page[4] = 10;
	page[5] = 42;
	put_wide(page + 32, 3000);
	put_wide(page + 48, 1ull << 33);
	put_wide(page + 128, 8760);
	put_wide(page + 144, 3);
	put_wide(page + 160, 2);
}

Test(smart, page_is_read_as_specified)
{
	uint8_t page[NVME_SMART_BYTES];
	struct nvme_smart smart;

	make_page(page);
	nvme_smart_parse(page, &smart);
	cr_assert_eq(smart.critical_warning, 0);
	cr_assert_eq(smart.celsius, 42);
	cr_assert_eq(smart.spare_percent, 97);
	cr_assert_eq(smart.spare_threshold_percent, 10);
	cr_assert_eq(smart.used_percent, 42);
	cr_assert_eq(smart.read_bytes, 3000ull * 512000);
	cr_assert_eq(smart.write_bytes, (1ull << 33) * 512000);
	cr_assert_eq(smart.power_on_hours, 8760);
	cr_assert_eq(smart.unsafe_shutdown_count, 3);
	cr_assert_eq(smart.media_error_count, 2);
	cr_assert(!nvme_smart_is_worn(&smart, 90, &text));
}

Test(smart, what_does_not_fit_is_the_most_and_what_is_not_reported_is_known_as_such)
{
	uint8_t page[NVME_SMART_BYTES] = { 0 };
	struct nvme_smart smart;

	put_wide(page + 48, UINT64_MAX / 512000 + 1);
	page[160 + 8] = 1; /* 2^64 */
	nvme_smart_parse(page, &smart);
	cr_assert_eq(smart.celsius, NVME_SMART_UNKNOWN_CELSIUS);
	cr_assert_eq(smart.read_bytes, 0);
	cr_assert_eq(smart.write_bytes, UINT64_MAX);
	cr_assert_eq(smart.media_error_count, UINT64_MAX);
}

Test(smart, signs_of_wear_are_named)
{
	static const struct {
		uint8_t warning, spare, used;
		const char *words;
	} cases[] = {
		{ NVME_SMART_SPARE, 97, 1, "spare is below" },
		{ 0, 9, 1, "spare is below" },
		{ NVME_SMART_UNRELIABLE, 97, 1, "unreliable" },
		{ NVME_SMART_READ_ONLY, 97, 1, "read-only" },
		{ NVME_SMART_BACKUP, 97, 1, "backup" },
		{ 0, 97, 90, "life is nearly over: 90 % of its life used, 97 % spare left" },
		{ NVME_SMART_TEMPERATURE, 10, 89, NULL }, /* Heat is not wear. */
	};

	for (size_t i = 0; i < ZI_COUNT_OF(cases); i++) {
		uint8_t page[NVME_SMART_BYTES];
		struct nvme_smart smart;

		make_page(page);
		page[0] = cases[i].warning;
		page[3] = cases[i].spare;
		page[5] = cases[i].used;
		nvme_smart_parse(page, &smart);
		cr_assert_eq(nvme_smart_is_worn(&smart, 90, &text), cases[i].words != NULL,
		             "case %zu", i);
		if (cases[i].words)
			cr_assert_not_null(strstr(text.chars, cases[i].words), "%s", text.chars);
	}
}

/* ---- finding the drive ---- */

static void make_folder(const char *name)
{
	char path[512];

	(void)snprintf(path, sizeof(path), "%s/%s", test_directory, name);
	for (char *slash = path + strlen(test_directory) + 1; (slash = strchr(slash, '/'));
	     slash++) {
		*slash = '\0';
		(void)mkdir(path, 0755);
		*slash = '/';
	}
	cr_assert_eq(mkdir(path, 0755), 0, "%s", path);
}

static void make_link(const char *name, const char *target)
{
	cr_assert_eq(symlink(target, test_path(name)), 0);
}

static void make_sysfs(void)
{
	test_make_directory();
	make_folder("dev/block");
	make_folder("devices/nvme0n1/nvme0n1p2");
	make_folder("devices/sda");
	make_folder("devices/dm-0/slaves");
	make_folder("devices/md0/slaves");
	test_write_file(test_path("devices/nvme0n1/nvme0n1p2/partition"), "2\n", 2);
	make_link("dev/block/259:0", "../../devices/nvme0n1");
	make_link("dev/block/259:2", "../../devices/nvme0n1/nvme0n1p2");
	make_link("dev/block/8:0", "../../devices/sda");
	make_link("dev/block/253:0", "../../devices/dm-0");
	make_link("devices/dm-0/slaves/nvme0n1p2", "../../nvme0n1/nvme0n1p2");
	make_link("dev/block/9:0", "../../devices/md0");
	make_link("devices/md0/slaves/sda", "../../sda");
	make_link("devices/md0/slaves/nvme0n1", "../../nvme0n1");
}

static int find(uint32_t major, uint32_t minor, char *name)
{
	text.chars[0] = '\0';
	return nvme_smart_find(test_directory, major, minor, &text, name);
}

Test(smart, drive_is_found_under_partitions_and_mappings, .init = make_sysfs,
     .fini = test_remove_directory)
{
	static const uint32_t numbers[][2] = { { 259, 0 }, { 259, 2 }, { 253, 0 } };

	for (size_t i = 0; i < ZI_COUNT_OF(numbers); i++) {
		char name[NVME_NAME_BYTES] = "";

		cr_assert_eq(find(numbers[i][0], numbers[i][1], name), 0, "%s", text.chars);
		cr_assert_str_eq(name, "nvme0n1");
	}
}

Test(smart, other_devices_do_not_report_it, .init = make_sysfs, .fini = test_remove_directory)
{
	char name[NVME_NAME_BYTES] = "";

	cr_assert_eq(find(8, 0, name), -ENODEV);
	cr_assert_str_eq(text.chars, "not reported by this device (sda is not NVMe)");
	cr_assert_eq(find(9, 0, name), -ENODEV);
	cr_assert_str_eq(text.chars, "not reported by this device: md0 lies on 2 devices");
	cr_assert_eq(find(0, 42, name), -ENODEV);
	cr_assert_not_null(strstr(text.chars, "not reported by this device"));
	cr_assert_str_eq(name, "");
}
