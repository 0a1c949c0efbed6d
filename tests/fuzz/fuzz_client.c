/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: libclient against a daemon that lies. Its socket is one end of a pair whose other
 * end was filled before (zi_control_connect() is ours, by the linker's --wrap), so that nothing
 * waits for a second thread: first the packets of the daemon, each right but for what the input
 * changes; then calls of the library, with the daemon's words and completions in shared memory
 * changed in between. The client may answer what it likes, and must end.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/fd.h"
#include "common/wire/board.h"
#include "common/wire/control.h"
#include "common/wire/geometry.h"
#include "common/wire/region.h"
#include "common/wire/state.h"
#include "common/wire/verdict.h"
#include "libclient/client.h"
#include "tests/fuzz/fuzz.h"

#define ENTRIES     16u
#define ELEMENTS    1000u /* of each of the model's two units */
#define UNITS       2u
#define SLOT_BYTES  4096u
#define CALLS_MAX   64u
#define PACKETS_MAX 24u
#define ARENA_BYTES (ZI_COLL_STAGING_BYTES + ZI_HUGE_PAGE_BYTES)
#define COLL_COUNT  100u /* elements */

int __wrap_zi_control_connect(const char *path, int *ret_fd);

static struct zi_region uplink, downlink, param, grad, staging, window;
static struct zi_region verdicts, arenas, board; /* of a world of one */
static int client_fd;                            /* what connecting gives, once; then -1 */
static int daemon_fd, bell_fd, event_fd;         /* of this input */
static bool is_open; /* the daemon stays there when its packets are read */

int __wrap_zi_control_connect(const char *path, int *ret_fd)
{
	(void)path; /* There is one. */
	if (client_fd < 0)
		return -ENOENT;
	*ret_fd = zi_steal_fd(client_fd);
	return 0;
}

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	uint64_t plane_bytes =
		UNITS * zi_geometry_unit_bytes(zi_geometry_padded(ELEMENTS), 4, SLOT_BYTES);

	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	fuzz_check(!zi_region_create("fuzz-up", zi_uplink_bytes(ENTRIES), ZI_PAGES_SMALL, NULL,
	                             &uplink),
	           "a region");
	fuzz_check(!zi_region_create("fuzz-down", zi_downlink_bytes(ENTRIES), ZI_PAGES_SMALL, NULL,
	                             &downlink),
	           "a region");
	fuzz_check(!zi_region_create("fuzz-param", plane_bytes, ZI_PAGES_SMALL, NULL, &param),
	           "a region");
	fuzz_check(!zi_region_create("fuzz-grad", plane_bytes, ZI_PAGES_SMALL, NULL, &grad),
	           "a region");
	fuzz_check(!zi_region_create("fuzz-state", ZI_STATE_WINDOW_ELEMENTS * sizeof(float),
	                             ZI_PAGES_SMALL, NULL, &window),
	           "a region");
	fuzz_check(!zi_region_create("fuzz-copy", plane_bytes, ZI_PAGES_SMALL, NULL, &staging),
	           "a region");
	fuzz_check(!zi_region_create("fuzz-verdicts", ZI_VERDICT_BYTES, ZI_PAGES_SMALL, NULL,
	                             &verdicts),
	           "a region");
	fuzz_check(!zi_region_create("fuzz-arenas", ARENA_BYTES, ZI_PAGES_SMALL, NULL, &arenas),
	           "a region");
	fuzz_check(!zi_region_create("fuzz-board", zi_board_bytes(1), ZI_PAGES_SMALL, NULL, &board),
	           "a region");
	fuzz_check(!setenv("ZINF_SOCKET", "/nowhere/fuzz.sock", 1), "setenv");
	return 0;
}

/* ---- the daemon's packets ---- */

union packet {
	_Alignas(64) unsigned char bytes[8192];
	struct zi_message_header header;
	struct zi_hello hello;
	struct zi_attached attached;
	struct zi_materialized materialized;
	struct zi_param_write write;
	struct zi_state_opened state;
	struct zi_blob blob;
	struct zi_coll_opened opened;
	struct zi_coll_grouped grouped;
	struct zi_error_message error;
	struct zi_notice notice;
};

/* Which descriptors go with it. Return: how many. */
static uint32_t put_fds(uint16_t type, uint8_t lie, int *fds)
{
	const int regions[] = { uplink.fd,  downlink.fd, param.fd, grad.fd,
		                staging.fd, bell_fd,     event_fd, 0 };
	uint32_t count = 0;

	if (type == ZI_MESSAGE_ATTACHED) {
		fds[count++] = uplink.fd;
		fds[count++] = downlink.fd;
		fds[count++] = bell_fd;
		fds[count++] = event_fd;
	} else if (type == ZI_MESSAGE_MATERIALIZED) {
		fds[count++] = param.fd;
		fds[count++] = grad.fd;
	} else if (type == ZI_MESSAGE_PARAM_WRITE) {
		fds[count++] = staging.fd;
	} else if (type == ZI_MESSAGE_STATE_OPENED) {
		fds[count++] = window.fd;
	} else if (type == ZI_MESSAGE_COLL_OPENED) {
		fds[count++] = verdicts.fd;
		fds[count++] = arenas.fd;
		fds[count++] = board.fd;
	} else if (type == ZI_MESSAGE_COLL_GROUPED) {
		fds[count++] = board.fd;
	}
	if (lie & 64)
		fds[lie % ZI_MESSAGE_FDS_MAX] = regions[lie >> 3 & 7];
	if (lie & 128)
		count = lie & 7;
	for (uint32_t i = 0; i < count; i++)
		if (fds[i] < 0)
			fds[i] = event_fd;
	return count;
}

/* Everything as a sound daemon would say it. */
static void put_sound(union packet *packet, uint16_t type, struct fuzz_input *input)
{
	uint32_t bytes = sizeof(packet->header);

	switch (type) {
	case ZI_MESSAGE_HELLO:
		packet->hello =
			(struct zi_hello){ .major = ZI_PROTOCOL_MAJOR,
			                   .features = ZI_FEATURE_NVME_STATE |
			                               ZI_FEATURE_COLLECTIVES | ZI_FEATURE_STATE |
			                               ZI_FEATURE_COLL_VERSION,
			                   .coll_version = ZI_COLL_VERSION,
			                   .program = "fuzzd" };
		bytes = sizeof(packet->hello);
		break;
	case ZI_MESSAGE_ATTACHED:
		packet->attached = (struct zi_attached){ .ring_entries = ENTRIES,
			                                 .uplink_bytes = uplink.bytes,
			                                 .downlink_bytes = downlink.bytes };
		bytes = sizeof(packet->attached);
		break;
	case ZI_MESSAGE_MATERIALIZED:
		packet->materialized = (struct zi_materialized){ .slot_bytes = SLOT_BYTES,
			                                         .param_bytes = param.bytes,
			                                         .grad_bytes = grad.bytes };
		bytes = sizeof(packet->materialized);
		break;
	case ZI_MESSAGE_STATE_OPENED:
		packet->state = (struct zi_state_opened){ .bytes = window.bytes };
		bytes = sizeof(packet->state);
		break;
	case ZI_MESSAGE_PARAM_WRITE:
		packet->write = (struct zi_param_write){ .bytes = staging.bytes };
		bytes = sizeof(packet->write);
		break;
	case ZI_MESSAGE_COLL_OPENED:
		packet->opened = (struct zi_coll_opened){ .arena_bytes = ARENA_BYTES,
			                                  .verdict_bytes = verdicts.bytes,
			                                  .arenas_bytes = arenas.bytes,
			                                  .board_bytes = board.bytes,
			                                  .member_count = 1 };
		bytes = sizeof(packet->opened);
		break;
	case ZI_MESSAGE_COLL_GROUPED:
		packet->grouped = (struct zi_coll_grouped){ .group = 1,
			                                    .member_count = 1,
			                                    .board_bytes = board.bytes };
		bytes = sizeof(packet->grouped);
		break;
	case ZI_MESSAGE_BLOB:
		packet->blob.total_bytes = fuzz_u8(input);
		bytes = sizeof(packet->blob) + fuzz_u8(input);
		break;
	case ZI_MESSAGE_ERROR:
		packet->error = (struct zi_error_message){ .error = -EBUSY, .text = { "busy" } };
		bytes = sizeof(packet->error);
		break;
	case ZI_MESSAGE_NOTICE:
		packet->notice = (struct zi_notice){ .error = -EPIPE, .text = { "gone" } };
		bytes = sizeof(packet->notice);
		break;
	default:
		break;
	}
	packet->header = (struct zi_message_header){ .magic = ZI_CONTROL_MAGIC,
		                                     .type = type,
		                                     .bytes = bytes };
}

/* One packet. @how: bit 0 MORE, 1 another sequence, 2 a field changed, 3 other descriptors, 4 cut,
 * 5 a word of the header changed. */
static void send_packet(struct fuzz_input *input, uint32_t sequence)
{
	static union packet packet;
	uint16_t type = fuzz_u8(input) % (_ZI_MESSAGE_COUNT + 1u);
	uint8_t how = fuzz_u8(input);
	int fds[ZI_MESSAGE_FDS_MAX] = { -1, -1, -1, -1, -1, -1, -1, -1 };
	uint32_t fd_count;
	union {
		char bytes[CMSG_SPACE(ZI_MESSAGE_FDS_MAX * sizeof(int))];
		struct cmsghdr head;
	} control = { { 0 } };
	struct iovec vector = { .iov_base = &packet };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1 };

	memset(&packet, 0, sizeof(packet));
	put_sound(&packet, type, input);
	packet.header.sequence = how & 2 ? fuzz_u8(input) : sequence;
	packet.header.flags = how & 1;
	if (how & 4) {
		uint32_t offset = 16 + fuzz_u8(input) * 4u % (packet.header.bytes - 12);
		uint64_t value = fuzz_u64(input);

		memcpy(packet.bytes + offset, &value, sizeof(value));
	}
	fd_count = put_fds(type, how & 8 ? fuzz_u8(input) : 0, fds);
	vector.iov_len = how & 16 ? fuzz_u8(input) : packet.header.bytes;
	if (how & 32) {
		uint32_t word = fuzz_u32(input);

		memcpy(packet.bytes + fuzz_u8(input) % 4 * 4, &word, sizeof(word));
	}
	if (fd_count) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		control.head = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
			                         .cmsg_type = SCM_RIGHTS,
			                         .cmsg_len = CMSG_LEN(fd_count * sizeof(int)) };
		memcpy(CMSG_DATA(&control.head), fds, fd_count * sizeof(int));
	}
	(void)!sendmsg(daemon_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT); /* Full: not sent. */
}

/* ---- the daemon's words in memory ---- */

static void change_word(struct fuzz_input *input)
{
	struct zi_downlink_header *down = downlink.base;
	uint8_t which = fuzz_u8(input) % 6;
	uint32_t value = fuzz_u32(input);

	switch (which) {
	case 0:
		zi_line_store(&down->sq_head, value);
		return;
	case 1:
		zi_line_store(&down->cq_tail, zi_line_load(&down->cq_tail) + value);
		return;
	case 2:
		zi_line_store(&down->sq_need_wakeup, value);
		return;
	case 3:
		zi_line_store(&down->spin_us, value % 64);
		return;
	case 4:
		/* One whose notice never comes is waited for, a second long. */
		zi_line_store(&down->broken, is_open ? 0 : value);
		return;
	default:
		memset(&down->stats, (int)value, sizeof(down->stats));
		return;
	}
}

/* A completion where the next one is looked for. @how: bit 0 of another ticket, 1 failed, 2 text,
 * 3 anything. */
static void complete(struct fuzz_input *input)
{
	struct zi_downlink_header *down = downlink.base;
	const struct zi_uplink_header *up = uplink.base;
	uint32_t tail = zi_line_load(&down->cq_tail);
	uint8_t how = fuzz_u8(input);
	uint8_t ticket = fuzz_u8(input);
	struct zi_cqe cqe = { 0 };

	/* Tickets come from the last free entry, and grow by the entries with each use. */
	cqe.user_data = how & 1 ? ticket : ENTRIES + (ENTRIES - 1) + ticket / 16 * ENTRIES;
	if (how & 16)
		cqe.user_data = ((
			const struct zi_sqe *)(const void *)((const char *)up +
		                                             ZI_UPLINK_SQ_OFFSET))[ticket % ENTRIES]
		                        .user_data;
	cqe.result = how & 2 ? -(int32_t)fuzz_u8(input) : 0;
	cqe.text_index = how & 4 ? fuzz_u8(input) % 20 : 0;
	if (how & 8)
		fuzz_take(input, &cqe, sizeof(cqe));
	memcpy((char *)downlink.base + ZI_DOWNLINK_CQ_OFFSET +
	               (uint64_t)(tail % ENTRIES) * ZI_SLOT_BYTES,
	       &cqe, sizeof(cqe));
	zi_line_store(&down->cq_tail, tail + 1);
	/* What was taken is taken. */
	zi_line_store(&down->sq_head, zi_line_load(&up->sq_tail));
}

/* ---- the library ---- */

static void call_step(struct zinf *zinf, struct fuzz_input *input)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	struct zinf_step_stats stats = { .bytes = sizeof(stats) };
	zinf_ticket ticket = fuzz_u8(input);
	bool is_done;

	switch (fuzz_u8(input) % 4) {
	case 0:
		(void)zinf_step_begin(zinf, &options);
		return;
	case 1:
		(void)zinf_step(zinf, "blob", 4, &ticket);
		return;
	case 2:
		(void)zinf_wait(zinf, ticket, &stats);
		return;
	default:
		(void)zinf_test(zinf, ticket, &is_done);
		return;
	}
}

static void call_model(struct zinf *zinf, uint8_t which, uint32_t unit)
{
	static float state[ELEMENTS];
	char blob[300];
	size_t blob_bytes;

	switch (which) {
	case 0:
		(void)zinf_materialize(zinf);
		return;
	case 1:
		(void)zinf_unshard(zinf, unit);
		return;
	case 2:
		(void)zinf_reshard(zinf, unit);
		return;
	case 3:
		(void)zinf_prefetch(zinf, unit);
		return;
	case 4:
		(void)zinf_grad_acquire(zinf, unit);
		return;
	case 5:
		(void)zinf_reduce(zinf, unit);
		return;
	case 6:
		(void)zinf_param_write_begin(zinf, unit);
		return;
	case 7:
		(void)zinf_param_write_end(zinf, unit, 0);
		return;
	case 8:
		(void)zinf_commit(zinf, "blob", 4);
		return;
	case 9:
		(void)zinf_blob_get(zinf, blob, sizeof(blob), &blob_bytes);
		return;
	case 10:
		(void)zinf_barrier(zinf);
		return;
	case 11:
		(void)zinf_param_write_keep(zinf, unit, 0);
		return;
	case 12:
		(void)zinf_state_read(zinf, unit, ZINF_STATE_EXP_AVG, state, ELEMENTS);
		return;
	case 13:
		(void)zinf_state_write(zinf, unit, ZINF_STATE_EXP_AVG_SQ, state, ELEMENTS, 0);
		return;
	case 14:
		(void)zinf_update_count_set(zinf, unit, 0.5, 0.5);
		return;
	default:
		(void)zinf_ping(zinf);
		return;
	}
}

/* Of a world of one: nothing waits for others. */
static void call_coll(struct zinf *zinf, struct fuzz_input *input, uint8_t which)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	static float values[COLL_COUNT], joined[COLL_COUNT];
	struct zi_verdicts *told = verdicts.base;
	const uint32_t self = 0;
	uint8_t group = fuzz_u8(input) % 3;
	uint64_t value;

	options.group = group;
	switch (which % 8) {
	case 0:
		(void)zinf_coll_open(zinf, ZI_HUGE_PAGE_BYTES);
		return;
	case 1:
		(void)zinf_coll_group(zinf, &self, 1, NULL, &options.group);
		return;
	case 2:
		(void)zinf_coll_group_free(zinf, group);
		return;
	case 3:
		(void)zinf_coll_all_reduce(zinf, values, joined, COLL_COUNT, ZINF_F32, ZINF_SUM,
		                           &options);
		return;
	case 4:
		(void)zinf_coll_barrier(zinf, &options);
		return;
	case 5:
		(void)zinf_coll_all_gather(zinf, values, joined, COLL_COUNT, ZINF_F32, &options);
		return;
	case 6:
		zi_line_store(&told->groups[group], fuzz_u8(input));
		return;
	default:
		value = fuzz_u64(input);
		memcpy((char *)board.base + fuzz_u32(input) % (board.bytes / 8) * 8, &value,
		       sizeof(value));
		return;
	}
}

/* What the library says it may touch can be touched. */
static void touch(struct zinf *zinf)
{
	for (uint32_t i = 0; i < UNITS; i++) {
		const volatile float *values = zinf_param_data(zinf, i);
		volatile float *slopes = zinf_grad_data(zinf, i);

		if (!values || !slopes)
			continue;
		(void)values[0];
		(void)values[ELEMENTS - 1];
		slopes[0] = slopes[ELEMENTS - 1] = 1;
	}
}

static void use(struct zinf *zinf, struct fuzz_input *input)
{
	const uint64_t shape = ELEMENTS;

	for (uint32_t i = 0; i < UNITS; i++) {
		uint32_t index;

		(void)zinf_unit_add(zinf, i ? "b" : "a", &index);
		(void)zinf_param_add(zinf, i ? "b.w" : "a.w", 1, &shape, &index);
	}
	for (uint32_t i = 0; i < CALLS_MAX && input->byte_count; i++) {
		uint8_t what = fuzz_u8(input);

		if (what < 64)
			change_word(input);
		else if (what < 128)
			complete(input);
		else if (what < 144)
			call_step(zinf, input);
		else if (what >= 240)
			call_coll(zinf, input, what);
		else
			call_model(zinf, what % 16, fuzz_u8(input) % (UNITS + 1));
		fuzz_check(memchr(zinf_error_text(zinf), 0, ZI_ERROR_TEXT_BYTES) != NULL,
		           "a text without end");
	}
	touch(zinf);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	struct zi_downlink_header *down = downlink.base;
	struct fuzz_input input = { bytes, byte_count };
	struct zinf_options options = ZINF_OPTIONS_INIT;
	struct zinf *zinf = NULL;
	uint32_t packet_count = fuzz_u8(&input) % PACKETS_MAX;
	int fds[2];

	is_open = fuzz_u8(&input) % 16 == 15; /* Seldom: then silence is waited for. */
	memset(downlink.base, 0, downlink.bytes);
	memset(uplink.base, 0, uplink.bytes);
	memset(verdicts.base, 0, verdicts.bytes);
	memset(board.base, 0, board.bytes);
	down->magic = ZI_DOWNLINK_MAGIC;
	down->version = ZI_REGION_VERSION;
	fuzz_check(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), "socketpair");
	client_fd = fds[0];
	daemon_fd = fds[1];
	bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	event_fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	for (uint32_t i = 0; i < packet_count; i++)
		send_packet(&input, i + 1);
	if (!is_open) /* Writing to it fails then, reading goes on to the end. */
		fuzz_check(!shutdown(daemon_fd, SHUT_WR), "shutdown");
	options.timeout_ms = 2;
	options.rank = 0;
	options.world_size = 1;
	options.job = "fuzz";
	if (!zinf_attach(&options, &zinf)) {
		use(zinf, &input);
		zinf_detach(zinf);
	} else {
		fuzz_check(zinf_attach_error()[0] != '\0', "a refusal without words");
	}
	client_fd = zi_close(client_fd);
	daemon_fd = zi_close(daemon_fd);
	bell_fd = zi_close(bell_fd);
	event_fd = zi_close(event_fd);
	return 0;
}
