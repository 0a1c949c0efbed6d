/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: `load`: the description that a client writes into the windows that it shares with
 * the daemon, and the extents that it sends. The description is right but for what the input
 * spoils, also while the daemon reads it; extents come in any order, right or wrong, and again.
 */
#include "common/wire/geometry.h"
#include "common/wire/import.h"
#include "daemon/zero/snapshot/import.h"
#include "kernels/hash.h"
#include "tests/fuzz/house.h"
#include "tests/fuzz/peer.h"

#define ACTIONS_MAX   24u
#define DESCRIPTION   8192u /* bytes that are asked for */
#define UNITS_MAX     3u
#define EXTENT_WINDOW ((uint64_t)ZI_SUBGROUP_ELEMENTS * 12)

/* What the client describes. */
struct model {
	struct zi_import_head head;
	uint64_t elements[UNITS_MAX]; /* of the one parameter of each unit */
};

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	house_build();
	return 0;
}

static void ask(struct peer *peer, const char *command)
{
	struct zi_admin message = { 0 };

	(void)snprintf(message.command, sizeof(message.command), "%s", command); /* Fits. */
	peer_send(peer, &message, ZI_MESSAGE_ADMIN, sizeof(message));
	house_settle();
	peer_receive(peer);
}

static uint32_t put_bytes(char *window, uint32_t used, const void *bytes, uint32_t byte_count)
{
	memcpy(window + used, bytes, byte_count);
	return used + byte_count;
}

/* Return: bytes of the description. */
static uint32_t describe(char *window, const struct model *model)
{
	static const uint64_t zeros[2];
	struct zi_import_blob blob = { .bytes = 5 };
	uint32_t used = put_bytes(window, 0, &model->head, sizeof(model->head));

	for (uint32_t i = 0; i < model->head.unit_count && i < UNITS_MAX; i++) {
		struct zi_layout_entry entry = { .kind = ZI_LAYOUT_UNIT };

		(void)snprintf(entry.name, sizeof(entry.name), "unit.%u", i); /* Fits. */
		used = put_bytes(window, used, &entry, sizeof(entry));
		entry = (struct zi_layout_entry){ .kind = ZI_LAYOUT_PARAM,
			                          .dim_count = 1,
			                          .shape = { model->elements[i] } };
		(void)snprintf(entry.name, sizeof(entry.name), "weight.%u", i); /* Fits. */
		used = put_bytes(window, used, &entry, sizeof(entry));
	}
	for (blob.rank = 0; blob.rank < model->head.blob_count % 8; blob.rank++) {
		used = put_bytes(window, used, &blob, sizeof(blob));
		used = put_bytes(window, used, zeros, ZI_IMPORT_ALIGN);
	}
	return used;
}

static void take_model(struct fuzz_input *input, struct model *model)
{
	static const uint64_t elements[] = { 1, 700, 16384, 20000, 262144, 300000, 1ull << 40, 0 };
	uint8_t how = fuzz_u8(input);

	*model = (struct model){ .head = { .magic = ZI_IMPORT_MAGIC,
		                           .step = 7,
		                           .beta1_power = 0.5,
		                           .beta2_power = 0.5,
		                           .world_size = 1 + how % 4,
		                           .param_dtype = ZI_DTYPE_F32,
		                           .grad_dtype = ZI_DTYPE_F32,
		                           .optimizer = ZI_OPTIMIZER_ADAMW,
		                           .schedule = ZI_SCHEDULE_LOCAL,
		                           .has_state = how >> 2 & 1,
		                           .unit_count = 1 + how / 8 % UNITS_MAX,
		                           .param_count = 1 + how / 8 % UNITS_MAX,
		                           .blob_count = how >> 6 } };
	for (uint32_t i = 0; i < UNITS_MAX; i++)
		model->elements[i] = elements[fuzz_u8(input) % (how & 128 ? 8 : 4)];
}

static void spoil(struct peer *peer, struct fuzz_input *input, uint32_t byte_count)
{
	uint32_t place = fuzz_u32(input);
	uint8_t value = fuzz_u8(input);

	if (peer->window && byte_count)
		peer->window[place % byte_count] ^= (char)value;
}

static void send_description(struct peer *peer, struct fuzz_input *input, struct model *model)
{
	uint8_t how = fuzz_u8(input);
	uint32_t byte_count;
	char command[64];

	take_model(input, model);
	if (!peer->window)
		return;
	byte_count = describe(peer->window, model);
	for (uint32_t i = 0; i < how % 4; i++)
		spoil(peer, input, byte_count);
	if (how & 128)
		byte_count = fuzz_u32(input) % (how & 64 ? UINT32_MAX : 2 * DESCRIPTION);
	(void)snprintf(command, sizeof(command), "load describe %u", byte_count); /* Fits. */
	ask(peer, command);
}

/* Bytes of extent @index, and of its elements; 0: none. */
static uint64_t extent_bytes(const struct model *model, uint32_t index, uint32_t *ret_width)
{
	const struct catalog_job_config config = { .param_dtype = model->head.param_dtype,
		                                   .optimizer = model->head.optimizer };

	for (uint32_t i = 0; i < model->head.unit_count && i < UNITS_MAX; i++) {
		uint64_t padded = zi_geometry_padded(model->elements[i]);
		uint32_t count = 2 * (uint32_t)zi_geometry_subgroup_count(padded);

		if (index < count) {
			*ret_width = import_plane_width(&config, index % 2);
			return zi_geometry_subgroup_elements(padded, index / 2) * *ret_width;
		}
		index -= count;
	}
	return 0;
}

static uint64_t digest_of(const char *bytes, uint64_t byte_count, uint32_t width)
{
	uint64_t hashes[ZI_SUBGROUP_ELEMENTS / ZI_TILE_ELEMENTS], tile_bytes;
	uint32_t count = 0;

	tile_bytes = (uint64_t)ZI_TILE_ELEMENTS * width;
	for (uint64_t first = 0; first < byte_count; first += tile_bytes)
		hashes[count++] = kern_hash_tile(
			bytes + first,
			byte_count - first < tile_bytes ? byte_count - first : tile_bytes, width);
	return kern_hash(hashes, count * sizeof(hashes[0]));
}

static void put_extent(struct peer *peer, struct fuzz_input *input, const struct model *model)
{
	uint8_t how = fuzz_u8(input);
	uint32_t index = how & 64 ? fuzz_u32(input) : how % 8, window = how / 8 % 4, width = 1;
	uint64_t bytes = extent_bytes(model, index, &width), digest = 0;
	char command[64];

	if (peer->window && bytes && bytes <= EXTENT_WINDOW && model->elements[0] < 1ull << 32)
		digest = digest_of(peer->window + window * EXTENT_WINDOW, bytes, width);
	(void)snprintf(command, sizeof(command), "load put %u %u %016llx", index,
	               how & 32 ? fuzz_u8(input) : window,
	               (unsigned long long)(digest ^ (how >> 7))); /* Fits. */
	ask(peer, command);
}

static void act(struct peer *peer, struct fuzz_input *input, struct model *model)
{
	uint8_t what = fuzz_u8(input);
	char command[64];

	switch (what % 8) {
	case 0:
		ask(peer, what & 8 ? "load open new 8192" : "load open new/other 100000");
		return;
	case 1:
		send_description(peer, input, model);
		return;
	case 2:
	case 3:
		put_extent(peer, input, model);
		return;
	case 4:
		(void)snprintf(command, sizeof(command), "load wait %u", what / 8 % 5); /* Fits. */
		ask(peer, command);
		return;
	case 5:
		ask(peer, "load end");
		return;
	case 6:
		spoil(peer, input, 1u << 20);
		return;
	default:
		ask(peer, what & 8 ? "snapshot list" : "snapshot rm new/step-7");
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	struct fuzz_input input = { bytes, byte_count };
	struct zi_hello hello = peer_hello(ZI_PROTOCOL_MAJOR);
	struct model model = { .head = { .unit_count = 0 } };
	struct peer peer;

	house_open();
	peer_init(&peer);
	peer_connect(&peer);
	peer_send(&peer, &hello, ZI_MESSAGE_HELLO, sizeof(hello));
	house_settle();
	ask(&peer, "load open new 8192");
	send_description(&peer, &input, &model);
	for (uint32_t i = 0; i < ACTIONS_MAX && input.byte_count; i++)
		act(&peer, &input, &model);
	peer_receive(&peer);
	house_close();
	peer_close(&peer);
	return 0;
}
