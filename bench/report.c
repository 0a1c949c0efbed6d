/* SPDX-License-Identifier: Apache-2.0 */
/* Table and JSON of a bench suite; see report.h. */
#include "bench/report.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "common/base/assert.h"
#include "common/base/err.h"

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Linear between the two nearest samples, as numpy's default. */
static double quantile(const double *sorted, unsigned count, double q)
{
	double position = q * (count - 1);
	unsigned index = (unsigned)position;

	if (index + 1 >= count)
		return sorted[count - 1];
	return sorted[index] + (position - index) * (sorted[index + 1] - sorted[index]);
}

/**
 * bench_median() - the median of a sample
 * @samples: (count,), sorted in place
 * @count: at least 1
 */
double bench_median(double *samples, unsigned count)
{
	assert(count > 0);

	qsort(samples, count, sizeof *samples, compare_doubles);
	return quantile(samples, count, 0.5);
}

/**
 * bench_report_init() - begin an empty report
 * @report: written
 * @suite: names the JSON file; stays the caller's
 */
void bench_report_init(struct bench_report *report, const char *suite)
{
	*report = (struct bench_report){ .suite = suite };
}

/**
 * bench_report_add() - append one figure
 * @report: has fewer than BENCH_ROWS_MAX rows
 * @row: copied, its texts are not
 */
void bench_report_add(struct bench_report *report, const struct bench_row *row)
{
	assert(report->row_count < BENCH_ROWS_MAX);
	assert(row->name && row->unit);
	report->rows[report->row_count++] = *row;
}

/**
 * bench_report_add_turns() - append what was measured in turns with a peer
 * @report: has fewer than BENCH_ROWS_MAX rows
 * @row: its value, peer and ratios are not looked at; 1 to BENCH_RUNS_MAX runs
 * @kind: times, of which less is better, or rates
 * @own, @peer: (row->runs,) in the row's unit, what ran beside each other at the same index
 *
 * Return: the row as the report has it.
 */
const struct bench_row *bench_report_add_turns(struct bench_report *report,
                                               const struct bench_row *row, enum bench_kind kind,
                                               const double *own, const double *peer)
{
	double owns[BENCH_RUNS_MAX], peers[BENCH_RUNS_MAX], ratios[BENCH_RUNS_MAX];
	struct bench_row filled = *row;

	assert(row->runs > 0 && row->runs <= BENCH_RUNS_MAX);
	for (unsigned i = 0; i < row->runs; i++) {
		owns[i] = own[i];
		peers[i] = peer[i];
		ratios[i] = kind == BENCH_RATE ? own[i] / peer[i] : peer[i] / own[i];
	}
	filled.value = bench_median(owns, row->runs);
	filled.peer = bench_median(peers, row->runs);
	filled.ratio = bench_median(ratios, row->runs);
	filled.ratio_low = quantile(ratios, row->runs, 0.25);
	filled.ratio_high = quantile(ratios, row->runs, 0.75);
	bench_report_add(report, &filled);
	return &report->rows[report->row_count - 1];
}

/* Three digits behind the point suffice for rates and ratios, not for small times. */
static void print_number(double value, int width)
{
	if (value != 0.0 && fabs(value) < 0.1)
		printf(" %*.3g", width, value);
	else
		printf(" %*.3f", width, value);
}

/* "own / peer's", for suites that measure it. */
static void print_cpu(const struct bench_row *row)
{
	char text[32];

	if (row->cpu_s_per_gb == 0.0)
		(void)snprintf(text, sizeof text, "-");
	else if (row->peer_cpu_s_per_gb == 0.0)
		(void)snprintf(text, sizeof text, "%.4f", row->cpu_s_per_gb);
	else
		(void)snprintf(text, sizeof text, "%.4f / %.4f", row->cpu_s_per_gb,
		               row->peer_cpu_s_per_gb);
	printf(" %17s", text);
}

static void print_row(const struct bench_row *row, int name_width, bool has_cpu)
{
	printf("%-*s", name_width, row->name);
	print_number(row->value, 10);
	printf(" %-10s", row->unit);
	if (has_cpu)
		print_cpu(row);
	if (row->ratio == 0.0) {
		printf(" %10s %8s %17s %8s\n", "-", "-", "-", "-");
		return;
	}
	print_number(row->peer, 10);
	printf(" %8.3f [%7.3f %7.3f]", row->ratio, row->ratio_low, row->ratio_high);
	if (row->target == 0.0)
		printf(" %8s", "-");
	else
		printf(" %8.2f%s", row->target, row->ratio < row->target ? "  MISSED" : "");
	printf("   %s\n", row->peer_name ? row->peer_name : "");
}

static void print_table(const struct bench_report *report)
{
	int name_width = (int)strlen("name");
	bool has_cpu = false;

	for (unsigned i = 0; i < report->row_count; i++) {
		int width = (int)strlen(report->rows[i].name);

		if (width > name_width)
			name_width = width;
		has_cpu |= report->rows[i].cpu_s_per_gb != 0.0;
	}
	printf("\nsuite %s (medians; in brackets the quartiles of the ratio)\n", report->suite);
	printf("%-*s %10s %-10s", name_width, "name", "value", "unit");
	if (has_cpu)
		printf(" %17s", "CPU s/GB, peer's");
	printf(" %10s %8s %17s %8s\n", "peer", "ratio", "[quartiles]", "target");
	for (unsigned i = 0; i < report->row_count; i++)
		print_row(&report->rows[i], name_width, has_cpu);
}

static void json_text(FILE *file, const char *key, const char *text)
{
	fprintf(file, "\"%s\": ", key);
	if (!text) {
		fputs("null", file);
		return;
	}
	fputc('"', file);
	for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
		if (*c == '"' || *c == '\\')
			fprintf(file, "\\%c", *c);
		else if (*c < 0x20)
			fprintf(file, "\\u%04x", *c);
		else
			fputc(*c, file);
	}
	fputc('"', file);
}

/* JSON has no infinity and no NaN; zero stands for "none" in a row. */
static void json_number(FILE *file, const char *key, double value, bool is_present)
{
	if (is_present && isfinite(value))
		fprintf(file, ", \"%s\": %.9g", key, value);
	else
		fprintf(file, ", \"%s\": null", key);
}

static void json_row(FILE *file, const struct bench_row *row)
{
	bool has_peer = row->ratio != 0.0;

	fputs("  {", file);
	json_text(file, "name", row->name);
	json_number(file, "value", row->value, true);
	fputs(", ", file);
	json_text(file, "unit", row->unit);
	json_number(file, "peer", row->peer, has_peer);
	json_number(file, "ratio", row->ratio, has_peer);
	json_number(file, "target", row->target, row->target != 0.0);
	fputs(", ", file);
	json_text(file, "peer_name", row->peer_name);
	json_number(file, "low", row->ratio_low, has_peer);
	json_number(file, "high", row->ratio_high, has_peer);
	json_number(file, "cpu_s_per_gb", row->cpu_s_per_gb, row->cpu_s_per_gb != 0.0);
	json_number(file, "peer_cpu_s_per_gb", row->peer_cpu_s_per_gb,
	            row->peer_cpu_s_per_gb != 0.0);
	fprintf(file, ", \"runs\": %u}", row->runs);
}

/* Every component of @path that is missing. */
static int make_directories(const char *path)
{
	char prefix[PATH_MAX];
	size_t bytes = strlen(path);

	if (bytes == 0 || bytes >= sizeof prefix)
		return err_origin(-ENAMETOOLONG);
	for (size_t i = 1; i <= bytes; i++) {
		if (path[i] != '/' && path[i] != '\0')
			continue;
		memcpy(prefix, path, i);
		prefix[i] = '\0';
		if (mkdir(prefix, 0777) < 0 && errno != EEXIST)
			return err_origin(-errno);
	}
	return 0;
}

static int json_write(const struct bench_report *report, const char *directory)
{
	char path[PATH_MAX];
	FILE *file;
	bool is_bad;
	int r;

	r = make_directories(directory);
	if (r)
		return err_trace(r);
	r = snprintf(path, sizeof path, "%s/%s.json", directory, report->suite);
	if (r < 0 || (size_t)r >= sizeof path)
		return err_origin(-ENAMETOOLONG);
	file = fopen(path, "we");
	if (!file)
		return err_origin(-errno);
	fputs("[\n", file);
	for (unsigned i = 0; i < report->row_count; i++) {
		json_row(file, &report->rows[i]);
		fputs(i + 1 < report->row_count ? ",\n" : "\n", file);
	}
	fputs("]\n", file);
	is_bad = ferror(file) != 0;
	if (fclose(file) != 0 || is_bad)
		return err_origin(-EIO);
	return 0;
}

/**
 * bench_report_write() - print the table, write the JSON
 * @report: complete
 * @directory: made with its parents if missing
 *
 * A missed target is shown, not an error: the machine may be busy.
 * Return: 0; -errno of the directory or file (the table has been printed all the same).
 */
int bench_report_write(const struct bench_report *report, const char *directory)
{
	print_table(report);
	return err_trace(json_write(report, directory));
}
