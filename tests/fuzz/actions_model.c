/* SPDX-License-Identifier: Apache-2.0 */
/* See actions_model.h. */
#include "tests/fuzz/actions_model.h"

#include <stdio.h>
#include <string.h>

#include "common/base/text.h"
#include "common/wire/control.h"

/* Elements of a parameter: a block's part, tiles, subgroups, and what no tier holds. */
static const uint64_t param_elements[8] = { 1,      700,    16384,      20000,
	                                    262144, 300000, 1ull << 32, 1ull << 48 };

static void send_entry(struct peer *peer, const struct zi_layout_entry *entry)
{
	struct {
		struct zi_layout head;
		struct zi_layout_entry entry;
	} message = { .head = { .entry_count = 1 }, .entry = *entry };

	if (entry->kind == ZI_LAYOUT_UNIT)
		peer->unit_count++;
	else
		peer->param_count++;
	peer_send(peer, &message, ZI_MESSAGE_LAYOUT, sizeof(message));
}

void action_send_model(struct peer *peer, uint8_t units, uint8_t sizes)
{
	for (uint32_t i = 0; i < 1u + units % 4; i++) {
		struct zi_layout_entry entry = { .kind = ZI_LAYOUT_UNIT };

		(void)snprintf(entry.name, sizeof(entry.name), "unit.%u", i); /* Fits. */
		send_entry(peer, &entry);
		entry = (struct zi_layout_entry){
			.kind = ZI_LAYOUT_PARAM,
			.dim_count = 1,
			.shape = { param_elements[(sizes >> i * 2 & 3) + (units & 128 ? 4 : 0)] },
		};
		(void)snprintf(entry.name, sizeof(entry.name), "weight.%u", i); /* Fits. */
		send_entry(peer, &entry);
	}
}

void action_take_entry(struct peer *peer, struct fuzz_input *input)
{
	struct zi_layout_entry entry = { .kind = fuzz_u8(input) % 4, .dim_count = fuzz_u8(input) };

	for (uint32_t i = 0; i < entry.dim_count % (ZI_PARAM_DIMS_MAX + 1u); i++)
		entry.shape[i] = fuzz_u64(input);
	fuzz_text(input, entry.name, sizeof(entry.name) + 0u);
	send_entry(peer, &entry);
}

/* Right but for what @lie says. */
static struct zi_rendezvous make_rendezvous(uint8_t lie)
{
	struct zi_rendezvous rendezvous = { .port = lie & 32 ? UINT32_MAX - lie : 40000 };

	rendezvous.reserved = lie == 255;
	if (!(lie & 64))
		(void)zi_copy_name(rendezvous.host, sizeof(rendezvous.host), "127.0.0.1");
	(void)zi_copy_name(rendezvous.interface, sizeof(rendezvous.interface), "lo");
	(void)zi_copy_name(rendezvous.token, sizeof(rendezvous.token), "token");
	if (lie & 128) {
		memset(rendezvous.host, 'h', sizeof(rendezvous.host));
		memset(rendezvous.interface, 'i', sizeof(rendezvous.interface));
		memset(rendezvous.token, 't', sizeof(rendezvous.token));
	}
	return rendezvous;
}

void action_send_materialize(struct peer *peer, uint8_t lie)
{
	struct zi_materialize_nodes message = {
		.materialize = { .unit_count = peer->unit_count + (lie & 3),
		                 .param_count = peer->param_count + (lie >> 2 & 3) },
		.rendezvous = make_rendezvous(lie),
	};

	peer_send(peer, &message, ZI_MESSAGE_MATERIALIZE,
	          lie & 16 ? sizeof(message) : sizeof(message.materialize));
}
