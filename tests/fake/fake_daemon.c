/* SPDX-License-Identifier: Apache-2.0 */
/* The test double of zinfd (fake_daemon.h). One thread; what tests read of it is ordered by the
 * answers they have received, and by joining. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "common/wire/control.h"
#include "tests/fake/fake_private.h"
#include "tests/guard/guard.h"

/* ---- the thread ---- */

static void drop_session(struct fake_daemon *fake)
{
	fake_hang_up(fake);
	zi_region_destroy(&fake->up);
	zi_region_destroy(&fake->down);
	zi_region_destroy(&fake->param);
	zi_region_destroy(&fake->grad);
	zi_region_destroy(&fake->staging);
	zi_region_destroy(&fake->tensors);
	zi_region_destroy(&fake->state);
	zi_region_destroy(&fake->verdicts);
	zi_region_destroy(&fake->arenas);
	for (uint32_t i = 0; i < FAKE_GROUPS; i++)
		zi_region_destroy(&fake->boards[i]);
	fake_steps_deinit(fake);
	fake->arena = (struct zi_gpu_opened){ 0 };
	fake->is_half_taken[0] = fake->is_half_taken[1] = false;
	fake->group_count = 0;
	fake->doorbell_fd = zi_close(fake->doorbell_fd);
	fake->wakeup_fd = zi_close(fake->wakeup_fd);
	fake->unit_count = 0;
	fake->layout[0] = '\0';
}

static int serve(void *arg)
{
	struct fake_daemon *fake = arg;

	for (;;) {
		struct pollfd ready[4] = {
			{ .fd = fake->stop_fd, .events = POLLIN },
			{ .fd = fake->socket_fd < 0 ? fake->listen_fd : -1, .events = POLLIN },
			{ .fd = fake->socket_fd, .events = POLLIN },
			{ .fd = fake->has_rings ? fake->doorbell_fd : -1, .events = POLLIN },
		};
		uint64_t count;

		while (fake_take_slot(fake))
			;
		if (fake->has_rings && !zi_ring_arm(&fake->sq))
			continue;
		if (poll(ready, 4, -1) < 0)
			continue;
		if (fake->has_rings)
			zi_ring_disarm(&fake->sq);
		if (ready[0].revents) {
			if (!fake->is_dying)
				return 0;
			fake->is_dying = false;
			must(read(fake->stop_fd, &count, sizeof(count)) == sizeof(count));
			fake_hang_up(fake);
			count = 1;
			must(write(fake->dead_fd, &count, sizeof(count)) == sizeof(count));
		}
		if (ready[1].revents) {
			drop_session(fake);
			fake->socket_fd = accept(fake->listen_fd, NULL, NULL);
		} else if (ready[2].revents && fake->socket_fd >= 0) {
			fake_take_message(fake);
		}
		if (ready[3].revents)
			must(read(fake->doorbell_fd, &count, sizeof(count)) > 0);
	}
}

struct fake_daemon *fake_daemon_start(const struct fake_daemon_options *options)
{
	struct fake_daemon *fake = calloc(1, sizeof(*fake));
	struct zi_text text;

	fake->message = malloc(ZI_MESSAGE_BYTES_MAX);
	fake->reply = malloc(ZI_MESSAGE_BYTES_MAX);
	must(fake->message && fake->reply);
	fake->options = *options;
	fake->committed_step = options->committed_step;
	fake->socket_fd = fake->doorbell_fd = fake->wakeup_fd = -1;
	fake->up = fake->down = fake->param = fake->grad = fake->staging = fake->tensors =
		fake->state = fake->verdicts = fake->arenas = (struct zi_region)ZI_REGION_INIT;
	for (uint32_t i = 0; i < FAKE_GROUPS; i++)
		fake->boards[i] = (struct zi_region)ZI_REGION_INIT;
	must(mkdtemp(guard_path(fake->folder, sizeof(fake->folder), "fake")));
	snprintf(fake->path, sizeof(fake->path), "%s/zinfd.sock", fake->folder);
	must(zi_control_listen(fake->path, 0600, &text, &fake->listen_fd) == 0);
	fake->stop_fd = eventfd(0, EFD_CLOEXEC);
	fake->dead_fd = eventfd(0, EFD_CLOEXEC);
	fake->release_fd = eventfd(0, EFD_CLOEXEC);
	must(zi_thread_start(&fake->thread, "fake-daemon", serve, fake) == 0);
	return fake;
}

static void poke(struct fake_daemon *fake)
{
	const uint64_t one = 1;

	must(write(fake->stop_fd, &one, sizeof(one)) == sizeof(one));
}

void fake_daemon_release(struct fake_daemon *fake)
{
	const uint64_t one = 1;

	must(write(fake->release_fd, &one, sizeof(one)) == sizeof(one));
}

struct fake_daemon *fake_daemon_stop(struct fake_daemon *fake)
{
	fake_daemon_release(fake);
	poke(fake);
	must(zi_thread_join(&fake->thread) == 0);
	drop_session(fake);
	zi_close(fake->listen_fd);
	zi_close(fake->stop_fd);
	zi_close(fake->dead_fd);
	zi_close(fake->release_fd);
	unlink(fake->path);
	rmdir(fake->folder);
	free(fake->message);
	free(fake->reply);
	free(fake);
	return NULL;
}

void fake_daemon_die(struct fake_daemon *fake)
{
	uint64_t count;

	fake->is_dying = true;
	poke(fake);
	must(read(fake->dead_fd, &count, sizeof(count)) == sizeof(count));
}

void fake_daemon_watch(struct fake_daemon *fake, const void *address)
{
	fake->watched = address;
}

bool fake_daemon_saw_readable(const struct fake_daemon *fake)
{
	return fake->is_seen_readable;
}

const char *fake_daemon_path(const struct fake_daemon *fake)
{
	return fake->path;
}

uint32_t fake_daemon_count(const struct fake_daemon *fake, unsigned on)
{
	must(on < FAKE_COUNTS);
	return fake->counts[on];
}

uint16_t fake_daemon_write_flags(const struct fake_daemon *fake)
{
	return fake->write_flags;
}

const struct zi_attach *fake_daemon_attach(const struct fake_daemon *fake)
{
	return &fake->attach;
}

const struct zi_job_training *fake_daemon_training(const struct fake_daemon *fake)
{
	return fake->has_training ? &fake->training : NULL;
}

const struct zi_step_group *fake_daemon_step_groups(const struct fake_daemon *fake)
{
	return fake->step_groups;
}

const struct zi_step_betas *fake_daemon_step_betas(const struct fake_daemon *fake)
{
	return fake->step_betas;
}

const struct zi_step_options *fake_daemon_step_options(const struct fake_daemon *fake)
{
	return &fake->step_options;
}

const void *fake_daemon_blob(const struct fake_daemon *fake, uint64_t *ret_bytes)
{
	*ret_bytes = fake->blob_bytes;
	return fake->blob;
}

const char *fake_daemon_layout(const struct fake_daemon *fake)
{
	return fake->layout;
}
