/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one file of C++: Gloo behind net/gloo.h. Floor 3, of zinf-net alone.
 *
 * Gloo's rendezvous is not used: it would connect all pairs in one call, and say of none of them
 * that it is the one who does not come. A lane is an unbound buffer for one peer, since a buffer
 * counts what has ended but not whose it was. A wait that times out makes Gloo close all of the
 * mesh's connections, so that peers hear of it; -ECANCELED leaves them open until the mesh goes.
 */
#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

extern "C" {
#include "common/base/clock.h"
#include "common/base/text.h"
}
#include "daemon/worker/net/gloo.h"

using std::chrono::milliseconds;

namespace
{

/* Gloo waits five times its time-out for a connection. */
constexpr uint64_t connect_factor = 5;
/* A year is for ever: the clock's nanoseconds have to bear it. */
constexpr uint64_t longest_ms = 365ull * 86400 * 1000;

/* gloo::Context keeps its connections where only a class of its own may put them. */
class Connections : public gloo::Context
{
      public:
	Connections(int node, int node_count) : gloo::Context(node, node_count)
	{
	}

	void open(const std::shared_ptr<gloo::transport::Device> &device, milliseconds timeout)
	{
		setTimeout(timeout);
		device_ = device;
		transportContext_ = device->createContext(rank, size);
		transportContext_->setTimeout(timeout);
		for (int peer = 0; peer < size; peer++)
			if (peer != rank)
				transportContext_->createPair(peer);
	}
};

/* What Gloo says, without its source line. */
std::string words(const std::exception &error)
{
	std::string text = error.what();
	size_t end = text.find("] ");

	return text[0] == '[' && end != std::string::npos ? text.substr(end + 2) : text;
}

/* What is left, as Gloo takes it. */
milliseconds until(uint64_t deadline_ns)
{
	uint64_t now_ns = zi_clock_now_ns();
	uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
	/* Zero would be "at once", what is below "the default". */
	uint64_t left_ms = left_ns / ZI_NS_PER_MS + 1;

	return milliseconds(left_ms < longest_ms ? left_ms : longest_ms);
}

} // namespace

struct net_mesh {
	std::shared_ptr<gloo::transport::Device> device;
	std::shared_ptr<Connections> connections;
	std::vector<std::string> names;
	std::atomic<bool> is_aborted{ false };
	std::mutex lock; /* guards lanes: net_mesh_abort() is any thread's */
	std::list<net_lane *> lanes;
};

struct net_lane {
	net_mesh *mesh;
	uint32_t peer;
	std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
};

/* Documented in the header, as are all of these. */
int net_mesh_new(const struct net_mesh_options *options, struct zi_text *text,
                 struct net_mesh **ret_mesh)
{
	try {
		auto mesh = std::make_unique<net_mesh>();
		gloo::transport::tcp::attr attr(options->address);

		mesh->device = gloo::transport::tcp::CreateDevice(attr);
		mesh->connections =
			std::make_shared<Connections>(options->node, options->node_count);
		mesh->connections->open(
			mesh->device,
			milliseconds(options->connect_ns / ZI_NS_PER_MS / connect_factor + 1));
		mesh->names.resize(options->node_count);
		*ret_mesh = mesh.release();
		return 0;
	} catch (const std::bad_alloc &) {
		return -ENOMEM;
	} catch (const std::exception &error) {
		return zi_text_error(text, -EADDRNOTAVAIL,
		                     "Gloo cannot listen at %s: %s; set ZINF_NET_INTERFACE to the "
		                     "interface that the other nodes reach",
		                     options->address, words(error).c_str());
	}
}

struct net_mesh *net_mesh_free(struct net_mesh *mesh)
{
	if (!mesh)
		return nullptr;
	try {
		/* Resets them: nothing waits for what is unsent. */
		if (mesh->connections)
			mesh->connections->closeConnections();
	} catch (const std::exception &) {
		/* They are closed by their destructors then. */
	}
	delete mesh;
	return nullptr;
}

size_t net_mesh_address(const struct net_mesh *mesh, uint32_t peer, void *address, size_t capacity)
{
	try {
		auto bytes = mesh->connections->getPair(peer)->address().bytes();

		if (bytes.size() > capacity)
			return 0;
		memcpy(address, bytes.data(), bytes.size());
		return bytes.size();
	} catch (const std::exception &) {
		return 0;
	}
}

int net_mesh_connect(struct net_mesh *mesh, uint32_t peer, const char *name, const void *address,
                     size_t address_bytes, struct zi_text *text)
{
	try {
		const char *begin = static_cast<const char *>(address);

		mesh->names[peer] = name;
		mesh->connections->getPair(peer)->connect(
			std::vector<char>(begin, begin + address_bytes));
		return 0;
	} catch (const std::bad_alloc &) {
		return -ENOMEM;
	} catch (const std::exception &error) {
		return zi_text_error(text, -ETIMEDOUT, "connecting to %s: %s", name,
		                     words(error).c_str());
	}
}

void net_mesh_abort(struct net_mesh *mesh)
{
	std::lock_guard<std::mutex> guard(mesh->lock);

	mesh->is_aborted = true;
	for (net_lane *lane : mesh->lanes) {
		lane->buffer->abortWaitRecv();
		lane->buffer->abortWaitSend();
	}
}

int net_lane_new(struct net_mesh *mesh, uint32_t peer, void *memory, uint64_t bytes,
                 struct net_lane **ret_lane)
{
	try {
		auto lane = std::make_unique<net_lane>();

		lane->mesh = mesh;
		lane->peer = peer;
		lane->buffer = mesh->connections->createUnboundBuffer(memory, bytes);
		std::lock_guard<std::mutex> guard(mesh->lock);
		mesh->lanes.push_back(lane.get());
		*ret_lane = lane.release();
		return 0;
	} catch (const std::exception &) {
		return -ENOMEM;
	}
}

struct net_lane *net_lane_free(struct net_lane *lane)
{
	if (!lane)
		return nullptr;
	{
		std::lock_guard<std::mutex> guard(lane->mesh->lock);

		lane->mesh->lanes.remove(lane);
	}
	/* Waits for the device's thread, where that is in the midst of a transfer of this one. */
	delete lane;
	return nullptr;
}

static int explain(const struct net_lane *lane, const std::exception &error, int r,
                   struct zi_text *text)
{
	return zi_text_error(text, r, "%s: %s", lane->mesh->names[lane->peer].c_str(),
	                     words(error).c_str());
}

int net_lane_send(struct net_lane *lane, uint64_t slot, uint64_t offset_bytes, uint64_t bytes,
                  struct zi_text *text)
{
	try {
		lane->buffer->send(lane->peer, slot, offset_bytes, bytes);
		return 0;
	} catch (const std::exception &error) {
		return explain(lane, error, -EPIPE, text);
	}
}

int net_lane_receive(struct net_lane *lane, uint64_t slot, uint64_t offset_bytes, uint64_t bytes,
                     struct zi_text *text)
{
	try {
		lane->buffer->recv(lane->peer, slot, offset_bytes, bytes);
		return 0;
	} catch (const std::exception &error) {
		return explain(lane, error, -EPIPE, text);
	}
}

/* Gloo tells a deadline from a lost connection by its words alone: so the clock decides. */
template <typename Wait>
static int wait_for(struct net_lane *lane, uint32_t count, uint64_t deadline_ns,
                    struct zi_text *text, Wait wait)
{
	for (uint32_t i = 0; i < count; i++) {
		try {
			if (lane->mesh->is_aborted || !wait(until(deadline_ns)))
				return zi_text_error(text, -ECANCELED, "broken off");
		} catch (const std::exception &error) {
			return explain(lane, error,
			               zi_clock_now_ns() >= deadline_ns ? -ETIMEDOUT : -EPIPE,
			               text);
		}
	}
	return 0;
}

int net_lane_wait_sent(struct net_lane *lane, uint32_t count, uint64_t deadline_ns,
                       struct zi_text *text)
{
	return wait_for(lane, count, deadline_ns, text,
	                [lane](milliseconds timeout) { return lane->buffer->waitSend(timeout); });
}

int net_lane_wait_received(struct net_lane *lane, uint32_t count, uint64_t deadline_ns,
                           struct zi_text *text)
{
	return wait_for(lane, count, deadline_ns, text,
	                [lane](milliseconds timeout) { return lane->buffer->waitRecv(timeout); });
}
