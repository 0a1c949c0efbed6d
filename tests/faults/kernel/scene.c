/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon, the victim and the neighbour of check_kernel (kernel.h). */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/faults/kernel/kernel.h"

static void configure(struct scene *scene, const char *backend, const char *direct,
                      uint32_t deadline_s)
{
	struct harness_options *options = &scene->test.harness.options;

	(void)snprintf(scene->test.extra, sizeof(scene->test.extra),
	               "backend = %s\ndirect = %s\ndeadline_s = %u\n", backend, direct, deadline_s);
	(void)snprintf(scene->extra, sizeof(scene->extra),
	               "[nvme sound]\npath = %s/sound\nsize = 32M\ndirect = try\nbackend = %s\n"
	               "read_depth = 32\nwrite_depth = 32\nread_block = 1M\nwrite_block = 1M\n",
	               scene->directory, backend);
	*options = (struct harness_options){
		.nvme_size = "36M",
		.nvme_path = scene->disk_path,
		.nvme_extra = scene->test.extra,
		.extra = scene->extra,
		.directory_in = scene->directory,
	};
}

/* A new job takes the store with the most room: the victim's is the larger, while it is empty. */
static bool begin_neighbour(struct scene *scene, uint32_t step)
{
	struct trainer_settings settings = faults_settings(&scene->test, "neighbour");
	char incarnation[32];

	(void)snprintf(incarnation, sizeof(incarnation), "life.%u", scene->life_count++);
	settings.options.incarnation = incarnation;
	if (!faults_says(neighbour_start(&scene->neighbour, &settings) == 0,
	                 "the neighbour does not begin", scene->test.extra))
		return false;
	scene->neighbour.step_count = step;
	return scene_neighbour_steps(scene);
}

bool scene_open(struct scene *scene, const char *backend, const char *direct, uint32_t deadline_s,
                uint32_t step)
{
	struct harness_options options;
	struct trainer_report report;

	configure(scene, backend, direct, deadline_s);
	options = scene->test.harness.options;
	scene->step = step;
	return faults_says(harness_start(&scene->test.harness, &options) == 0,
	                   "zinfd does not start with", scene->test.extra) &&
	       faults_says(faults_train(&scene->test, step, false, &report) == 0,
	                   "the victim does not begin", report.text) &&
	       begin_neighbour(scene, 0);
}

bool scene_reopen(struct scene *scene, const char *backend, uint32_t deadline_s)
{
	configure(scene, backend, "require", deadline_s);
	return faults_says(harness_restart(&scene->test.harness) == 0, "zinfd does not start with",
	                   scene->test.extra) &&
	       begin_neighbour(scene, scene->neighbour.step_count);
}

bool scene_halt(struct scene *scene)
{
	return faults_says(neighbour_stop(&scene->neighbour), "the neighbour was disturbed",
	                   scene->test.extra) &&
	       faults_halt(&scene->test);
}

void scene_remove(struct scene *scene)
{
	char path[128];

	harness_remove(&scene->test.harness);
	(void)snprintf(path, sizeof(path), "%s/sound", scene->directory);
	(void)unlink(path);
}

bool scene_neighbour_steps(struct scene *scene)
{
	return faults_says(neighbour_steps(&scene->neighbour), "the neighbour is held up",
	                   scene->test.extra);
}

bool scene_names_path(const struct scene *scene, const char *text)
{
	return strstr(text, "job 'victim'") && strstr(text, scene->disk_path);
}

bool scene_fails(struct scene *scene, int error, bool is_placed)
{
	struct trainer_report report;
	int r = faults_train(&scene->test, (uint32_t)scene->step + 1, false, &report);

	scene->test.case_count++;
	return faults_says(r == error, "another error than the disk's", report.text) &&
	       faults_says(is_placed ? faults_names_place(&scene->test, report.text)
	                             : scene_names_path(scene, report.text),
	                   "the error does not name its place", report.text) &&
	       scene_neighbour_steps(scene);
}

bool scene_goes_on(struct scene *scene)
{
	struct trainer_report report;
	int r = faults_train(&scene->test, (uint32_t)scene->step + 1, false, &report);

	if (!faults_says(r == 0, "the job does not go on", report.text) ||
	    !faults_says(report.first_steps[0] == scene->step, "it stood at another step",
	                 scene->test.extra))
		return false;
	scene->step++;
	return scene_neighbour_steps(scene);
}
