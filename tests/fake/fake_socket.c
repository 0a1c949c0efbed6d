/* SPDX-License-Identifier: Apache-2.0 */
/* The test double of zinfd: what it answers on its socket, rightly or wrongly. */
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "common/wire/check.h"
#include "common/wire/geometry.h"
#include "common/wire/state.h"
#include "tests/fake/fake_private.h"

/* ---- sending ---- */

void fake_hang_up(struct fake_daemon *fake)
{
	fake->socket_fd = zi_close(fake->socket_fd);
	fake->has_rings = false;
}

void fake_reply(struct fake_daemon *fake, void *message, enum zi_message_type type, uint32_t bytes,
                const int *fds, uint32_t fd_count)
{
	const struct zi_message_header *request = (struct zi_message_header *)fake->message;
	enum fake_lie lie = fake->options.lie;
	uint32_t sequence = request->sequence;

	if (lie == FAKE_LIE_GARBAGE) {
		(void)send(fake->socket_fd, "garbage", 7, MSG_NOSIGNAL);
		return;
	}
	if (lie == FAKE_LIE_TYPE) {
		type = ZI_MESSAGE_DONE;
		bytes = sizeof(struct zi_message_header);
	}
	if (lie == FAKE_LIE_FDS && fd_count)
		fd_count--;
	zi_message_init(message, type, bytes + (lie == FAKE_LIE_SHAPE ? 8 : 0),
	                sequence + (lie == FAKE_LIE_SEQUENCE));
	(void)zi_message_send(fake->socket_fd, message, fds, fd_count);
}

static void reply_done(struct fake_daemon *fake)
{
	struct zi_message_header done[2];

	fake_reply(fake, done, ZI_MESSAGE_DONE, sizeof(done[0]), NULL, 0);
}

void fake_reply_error(struct fake_daemon *fake, int error, const char *text)
{
	struct zi_error_message message = { .error = error };
	const struct zi_message_header *request = (struct zi_message_header *)fake->message;

	zi_text_set(&message.text, "%s", text);
	zi_message_init(&message.header, ZI_MESSAGE_ERROR, sizeof(message), request->sequence);
	(void)zi_message_send(fake->socket_fd, &message.header, NULL, 0);
}

void fake_wake(struct fake_daemon *fake)
{
	const uint64_t one = 1;

	must(write(fake->wakeup_fd, &one, sizeof(one)) == sizeof(one));
}

void fake_break_group(struct fake_daemon *fake)
{
	struct zi_downlink_header *header = fake->down.base;
	struct zi_notice notice = { .error = -EPIPE, .rank = 1 };

	zi_text_set(&notice.text, "rank 1 (pid 4711) died");
	zi_message_init(&notice.header, ZI_MESSAGE_NOTICE, sizeof(notice), 0);
	zi_line_store(&header->broken, EPIPE);
	if (!fake->options.is_break_silent)
		(void)zi_message_send(fake->socket_fd, &notice.header, NULL, 0);
	fake_wake(fake);
}

/* ---- requests on the socket ---- */

static void on_hello(struct fake_daemon *fake)
{
	struct zi_hello hello[2] = { { .major = ZI_PROTOCOL_MAJOR,
		                       .features = fake->options.features,
		                       .coll_version = fake->options.coll_version,
		                       .program = "zinfd 9.9.9" } };

	if (!hello->coll_version)
		hello->coll_version = ZI_COLL_VERSION;
	if (fake->options.hello_major)
		hello->major = fake->options.hello_major;
	fake_reply(fake, hello, ZI_MESSAGE_HELLO, sizeof(*hello), NULL, 0);
}

int fake_region_fd(struct fake_daemon *fake, const struct zi_region *region, bool is_readonly)
{
	int fd;

	if (fake->options.lie == FAKE_LIE_UNSEALED) {
		fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		must(ftruncate(fd, (off_t)region->bytes) == 0);
		return fd;
	}
	if (is_readonly)
		must(zi_fd_reopen_readonly(region->fd, &fd) == 0);
	else
		fd = dup(region->fd);
	return fd;
}

static void make_rings(struct fake_daemon *fake, uint32_t entries)
{
	struct zi_downlink_header *down;
	int pipe_fds[2];

	must(!zi_region_create("up", zi_uplink_bytes(entries), ZI_PAGES_SMALL, NULL, &fake->up));
	must(!zi_region_create("down", zi_downlink_bytes(entries), ZI_PAGES_SMALL, NULL,
	                       &fake->down));
	down = fake->down.base;
	if (fake->options.lie != FAKE_LIE_MAGIC)
		down->magic = ZI_DOWNLINK_MAGIC;
	down->version = ZI_REGION_VERSION;
	down->entries = entries;
	down->spin_us.value = fake->options.spin_us;
	zi_ring_sq_consumer(&fake->sq, fake->up.base, fake->down.base, entries);
	zi_ring_cq_producer(&fake->cq, fake->up.base, fake->down.base, entries);
	fake->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fake->options.is_eventfd) {
		fake->wakeup_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		fake->wakeup_client_fd = dup(fake->wakeup_fd);
	} else {
		must(pipe(pipe_fds) == 0);
		fake->wakeup_client_fd = pipe_fds[0];
		fake->wakeup_fd = pipe_fds[1];
	}
	fake->has_rings = true;
}

static void on_attach(struct fake_daemon *fake)
{
	uint32_t entries = fake->options.ring_entries ? fake->options.ring_entries : 16;
	struct zi_attached attached[2] = { { .session_id = 1, .ring_entries = entries } };
	enum fake_lie lie = fake->options.lie;
	int fds[4];

	const struct zi_attach_training *message = (const void *)fake->message;

	fake->attach = message->attach;
	fake->has_training = message->attach.header.bytes == sizeof(*message);
	fake->training = fake->has_training ? message->training : (struct zi_job_training){ 0 };
	make_rings(fake, entries);
	if (fake->options.features & ZI_FEATURE_LOST)
		attached->lost_step = fake->options.has_lost ? fake->options.lost_step : -1;
	attached->uplink_bytes = fake->up.bytes;
	attached->downlink_bytes = fake->down.bytes;
	if (lie == FAKE_LIE_ENTRIES)
		attached->ring_entries = 3;
	if (lie == FAKE_LIE_RING_BYTES)
		attached->uplink_bytes = 4096;
	fds[0] = fake_region_fd(fake, &fake->up, lie == FAKE_LIE_READONLY);
	fds[1] = fake_region_fd(fake, &fake->down, true);
	fds[2] = dup(fake->doorbell_fd);
	fds[3] = fake->wakeup_client_fd;
	fake_reply(fake, attached, ZI_MESSAGE_ATTACHED, sizeof(*attached), fds, 4);
	for (int i = 0; i < 4; i++)
		close(fds[i]);
}

static void on_layout(struct fake_daemon *fake)
{
	const struct zi_layout *layout = (struct zi_layout *)fake->message;
	const struct zi_layout_entry *entries = (struct zi_layout_entry *)(layout + 1);

	for (uint32_t i = 0; i < layout->entry_count; i++) {
		size_t used = strlen(fake->layout);
		uint64_t count = 0;

		must(zi_check_layout_entry(&entries[i], NULL) == 0);
		snprintf(fake->layout + used, sizeof(fake->layout) - used, "%s%s", used ? " " : "",
		         entries[i].name);
		if (entries[i].kind == ZI_LAYOUT_SET) {
			fake->set_mask = entries[i].shape[0];
			continue;
		}
		if (entries[i].kind == ZI_LAYOUT_UNIT) {
			must(fake->unit_count < 64);
			fake->is_foreign[fake->unit_count] =
				fake->set_mask && !(fake->set_mask >> fake->attach.rank & 1);
			fake->unit_elements[fake->unit_count++] = 0;
			continue;
		}
		must(!zi_geometry_elements(entries[i].shape, entries[i].dim_count, &count));
		fake->unit_elements[fake->unit_count - 1] += count;
	}
}

static uint64_t slot_bytes_of(const struct fake_daemon *fake)
{
	return fake->options.slot_bytes ? fake->options.slot_bytes : 4096;
}

/* Bytes of units before @unit in a plane of @dtype. */
static uint64_t plane_offset(const struct fake_daemon *fake, uint32_t unit, uint32_t dtype)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < unit; i++)
		bytes += zi_geometry_unit_bytes(zi_geometry_padded(fake->unit_elements[i]),
		                                zi_dtype_bytes((enum zi_dtype)dtype),
		                                slot_bytes_of(fake));
	return bytes;
}

uint64_t fake_plane_offset(const struct fake_daemon *fake, uint32_t unit)
{
	return plane_offset(fake, unit, fake->attach.config.param_dtype);
}

/* In the plane, whole slots. */
uint64_t fake_unit_bytes(const struct fake_daemon *fake, uint32_t unit)
{
	uint32_t dtype = fake->attach.config.param_dtype;

	return plane_offset(fake, unit + 1, dtype) - plane_offset(fake, unit, dtype);
}

/* Of the units that the rank trains. */
static uint64_t grad_bytes_of(const struct fake_daemon *fake)
{
	uint32_t dtype = fake->attach.config.grad_dtype;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < fake->unit_count; i++)
		if (!fake->is_foreign[i])
			bytes += plane_offset(fake, i + 1, dtype) - plane_offset(fake, i, dtype);
	return bytes ? bytes : 4096;
}

bool fake_is_pooled(const struct fake_daemon *fake)
{
	return fake->options.has_pool || fake->attach.config.offload_param == ZI_OFFLOAD_NVME;
}

/* Room for two of the largest. */
static uint64_t pool_bytes(const struct fake_daemon *fake)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < fake->unit_count; i++)
		if (fake_unit_bytes(fake, i) > bytes)
			bytes = fake_unit_bytes(fake, i);
	return fake->options.lie == FAKE_LIE_POOL_SMALL ? bytes - 4096 : 2 * bytes;
}

static void on_materialize(struct fake_daemon *fake)
{
	uint64_t param = plane_offset(fake, fake->unit_count, fake->attach.config.param_dtype);
	uint64_t grad = grad_bytes_of(fake);
	struct zi_materialized told[2] = { { .committed_step = fake->committed_step,
		                             .slot_bytes = slot_bytes_of(fake),
		                             .param_bytes = param,
		                             .grad_bytes = grad } };
	enum fake_lie lie = fake->options.lie;
	bool has_grads = !zi_training_is_forward_only(&fake->training) || lie == FAKE_LIE_GRADS;
	int fds[2];

	if (fake->options.features & ZI_FEATURE_TRAINING) {
		told->update_count = 40;
		told->loss_scale = fake->options.lie == FAKE_LIE_SCALE ? 0 : 1024;
	}
	if (fake_is_pooled(fake))
		told->param_bytes = param = pool_bytes(fake);
	if (fake->options.has_pool)
		told->flags |= ZI_MATERIALIZED_PARAMS_POOLED;
	if (fake->options.has_buckets) {
		told->grad_bytes = grad = pool_bytes(fake);
		told->flags |= ZI_MATERIALIZED_GRADS_POOLED;
	}
	if (lie == FAKE_LIE_FLAGS)
		told->flags |= 4;
	must(!zi_region_create("param", lie == FAKE_LIE_PARAM_SHORT_FILE ? 4096 : param,
	                       ZI_PAGES_SMALL, NULL, &fake->param));
	must(!zi_region_create("grad", grad, ZI_PAGES_SMALL, NULL, &fake->grad));
	memset(fake->param.base, 1, fake->param.bytes);
	if (fake->options.has_steps)
		fake_steps_init(fake, fake_plane_offset(fake, fake->unit_count));
	if (lie == FAKE_LIE_SLOT)
		told->slot_bytes = 5000;
	if (lie == FAKE_LIE_PARAM_MORE)
		told->param_bytes += 4 << 20;
	if (lie == FAKE_LIE_PARAM_LESS)
		told->param_bytes -= 4096;
	if (lie == FAKE_LIE_STEP)
		told->committed_step = -5;
	if (!has_grads && lie != FAKE_LIE_GRAD_BYTES)
		told->grad_bytes = 0;
	fds[0] = fake_region_fd(fake, &fake->param, true);
	fds[1] = fake_region_fd(fake, &fake->grad, false);
	fake_reply(fake, told, ZI_MESSAGE_MATERIALIZED, sizeof(*told), fds, has_grads ? 2 : 1);
	close(fds[0]);
	close(fds[1]);
}

static void on_write_begin(struct fake_daemon *fake)
{
	uint32_t unit = ((struct zi_param_write_begin *)fake->message)->unit;
	uint32_t dtype = fake->attach.config.param_dtype;
	uint64_t offset = plane_offset(fake, unit, dtype);
	uint64_t bytes = zi_geometry_padded(fake->unit_elements[unit]) *
	                 zi_dtype_bytes((enum zi_dtype)dtype);
	struct zi_param_write told[2] = { { .bytes = bytes } };
	int fd;

	if (fake->options.lie == FAKE_LIE_STAGING)
		told->bytes = bytes = 4096;
	zi_region_destroy(&fake->staging);
	must(!zi_region_create("staging", bytes, ZI_PAGES_SMALL, NULL, &fake->staging));
	if (!fake_is_pooled(fake))
		memcpy(fake->staging.base, (char *)fake->param.base + offset, bytes);
	fd = fake_region_fd(fake, &fake->staging, false);
	fake_reply(fake, told, ZI_MESSAGE_PARAM_WRITE, sizeof(*told), &fd, 1);
	close(fd);
}

static void on_write_end(struct fake_daemon *fake)
{
	uint32_t unit = ((struct zi_param_write_end *)fake->message)->unit;

	if (fake->staging.base && !fake_is_pooled(fake))
		memcpy((char *)fake->param.base +
		               plane_offset(fake, unit, fake->attach.config.param_dtype),
		       fake->staging.base, fake->staging.bytes);
	zi_region_destroy(&fake->staging);
	fake->write_flags = ((const struct zi_message_header *)(const void *)fake->message)->flags;
	reply_done(fake);
}

static void on_state_open(struct fake_daemon *fake)
{
	uint64_t bytes = ZI_STATE_WINDOW_ELEMENTS * sizeof(float);
	struct zi_state_opened told[2] = { { .bytes = bytes } };
	int fd;

	if (fake->options.lie == FAKE_LIE_STATE_SHORT)
		told->bytes -= 4096;
	must(!zi_region_create("state", bytes, ZI_PAGES_SMALL, NULL, &fake->state));
	fd = fake_region_fd(fake, &fake->state, false);
	fake_reply(fake, told, ZI_MESSAGE_STATE_OPENED, sizeof(*told), &fd, 1);
	close(fd);
}

/* It keeps the first elements of what was written last, whatever that was. */
static void on_state_range(struct fake_daemon *fake, uint16_t type)
{
	if (type == ZI_MESSAGE_STATE_WRITE)
		memcpy(fake->kept_state, fake->state.base, sizeof(fake->kept_state));
	else
		memcpy(fake->state.base, fake->kept_state, sizeof(fake->kept_state));
	reply_done(fake);
}

static void on_tensor_open(struct fake_daemon *fake)
{
	uint64_t bytes = ((struct zi_tensor_open *)fake->message)->budget_bytes;
	struct zi_tensor_opened told[2] = { { .bytes = bytes } };
	int fd;

	if (fake->options.lie == FAKE_LIE_TENSOR_SHORT)
		told->bytes -= 4096;
	must(!zi_region_create("tensors", bytes, ZI_PAGES_SMALL, NULL, &fake->tensors));
	fd = fake_region_fd(fake, &fake->tensors, false);
	fake_reply(fake, told, ZI_MESSAGE_TENSOR_OPENED, sizeof(*told), &fd, 1);
	close(fd);
}

static void on_blob_get(struct fake_daemon *fake)
{
	struct zi_blob *blob = (struct zi_blob *)fake->reply;
	uint32_t total = fake->options.blob_bytes, done = 0;
	uint32_t sequence = ((struct zi_message_header *)fake->message)->sequence;

	do {
		uint32_t bytes = total - done < 40000 ? total - done : 40000;
		char *target = (char *)(blob + 1);

		for (uint32_t i = 0; i < bytes; i++)
			target[i] = (char)((done + i) % 251);
		done += bytes;
		zi_message_init(&blob->header, ZI_MESSAGE_BLOB, (uint32_t)sizeof(*blob) + bytes,
		                sequence);
		blob->total_bytes = total;
		if (fake->options.lie == FAKE_LIE_BLOB_TOTAL)
			blob->total_bytes++;
		if (fake->options.lie == FAKE_LIE_BLOB_HUGE)
			blob->total_bytes = UINT64_MAX;
		if (done < total)
			blob->header.flags = ZI_MESSAGE_MORE;
		(void)zi_message_send(fake->socket_fd, &blob->header, NULL, 0);
	} while (done < total);
}

static void answer(struct fake_daemon *fake, uint16_t type)
{
	switch (type) {
	case ZI_MESSAGE_HELLO:
		return on_hello(fake);
	case ZI_MESSAGE_ATTACH:
		return on_attach(fake);
	case ZI_MESSAGE_LAYOUT:
		return on_layout(fake);
	case ZI_MESSAGE_MATERIALIZE:
		return on_materialize(fake);
	case ZI_MESSAGE_PARAM_WRITE_BEGIN:
		return on_write_begin(fake);
	case ZI_MESSAGE_PARAM_WRITE_END:
		return on_write_end(fake);
	case ZI_MESSAGE_BLOB_GET:
		return on_blob_get(fake);
	case ZI_MESSAGE_COLL_OPEN:
		return fake_coll_open(fake);
	case ZI_MESSAGE_COLL_GROUP:
		return fake_coll_group(fake);
	case ZI_MESSAGE_COLL_FAIL:
		return fake_coll_fail(fake);
	case ZI_MESSAGE_COLL_ABORT:
		memcpy(&fake->coll_abort, fake->message, sizeof(fake->coll_abort));
		return reply_done(fake);
	case ZI_MESSAGE_TENSOR_OPEN:
		return on_tensor_open(fake);
	case ZI_MESSAGE_GPU_OPEN:
		return fake_gpu_open(fake);
	case ZI_MESSAGE_GPU_CHUNKS:
		return fake_gpu_chunks(fake);
	case ZI_MESSAGE_STATE_OPEN:
		return on_state_open(fake);
	case ZI_MESSAGE_STATE_READ:
	case ZI_MESSAGE_STATE_WRITE:
		return on_state_range(fake, type);
	default:
		return reply_done(fake);
	}
}

static void hold(struct fake_daemon *fake)
{
	uint64_t count;

	fake->is_released = true;
	if (fake->options.on_hold)
		fake->options.on_hold(fake->options.hold_arg);
	must(read(fake->release_fd, &count, sizeof(count)) == sizeof(count));
}

/* True when the options want something else than an answer. */
bool fake_misbehave(struct fake_daemon *fake, unsigned on)
{
	fake->counts[on]++;
	if (on == fake->options.hold_on && !fake->is_released)
		hold(fake);
	if (on == fake->options.die_on) {
		fake_hang_up(fake);
		return true;
	}
	if (on == fake->options.break_on) {
		fake_break_group(fake);
		return true;
	}
	return on == fake->options.silent_on;
}

void fake_take_message(struct fake_daemon *fake)
{
	struct zi_message_header *message = (struct zi_message_header *)fake->message;
	struct zi_message_header late = fake->late;
	unsigned on;

	if (zi_message_receive(fake->socket_fd, message, NULL, NULL)) {
		fake_hang_up(fake);
		return;
	}
	must(zi_message_check(message, NULL) == 0);
	on = FAKE_ON_MESSAGE(message->type);
	if (late.bytes) { /* the answer to the last one comes now, and then this one's */
		fake->late.bytes = 0;
		zi_message_init(&late, ZI_MESSAGE_DONE, sizeof(late), late.sequence);
		(void)zi_message_send(fake->socket_fd, &late, NULL, 0);
	}
	if (fake_misbehave(fake, on))
		return;
	if (on == fake->options.late_on && fake->counts[on] == 1)
		fake->late = *message;
	else if (on == fake->options.fail_on)
		fake_reply_error(fake, fake->options.fail_error, fake->options.fail_text);
	else
		answer(fake, message->type);
}
