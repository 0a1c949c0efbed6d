/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gloo behind net/gloo.h: meshes, and the waits on lanes. Floor 3, of zinf-net alone.
 *
 * Gloo's rendezvous is not used: it would connect all pairs in one call, say of none of them that
 * it is the one that does not come, and take anybody for a peer (gloo_pair.cc). A lane is an
 * unbound buffer for one peer, since a buffer counts what has ended but not whose it was. A wait
 * that times out makes Gloo close all of the mesh's connections, so that peers hear of it;
 * -ECANCELED leaves them open until the mesh goes. Closing, Gloo holds a connection's lock until
 * its own thread comes round, which never does where it waits for that lock to send for us: so a
 * wait of Gloo's may only time out while the courier is paused, and until then it is the alarm
 * that looks at the clock.
 */
#include <gloo/transport/context.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "daemon/worker/net/gloo_private.hh"

using namespace net;
using std::chrono::milliseconds;

namespace
{

/* Gloo's own time-out, which nothing waits for: each wait on a lane has its own. */
constexpr milliseconds gloo_timeout(30000);

/* gloo::Context keeps its transport where only a class of its own may put it. */
class Connections : public gloo::Context
{
      public:
	Connections(const std::shared_ptr<gloo::transport::Device> &device,
	            const std::shared_ptr<net::Context> &transport)
	    : gloo::Context(transport->rank, transport->size)
	{
		setTimeout(gloo_timeout);
		device_ = device;
		transportContext_ = transport;
	}
};

} // namespace

/* What Gloo says, without its source line. */
std::string net::words(const std::exception &error)
{
	std::string text = error.what();
	size_t end = text.find("] ");

	return text[0] == '[' && end != std::string::npos ? text.substr(end + 2) : text;
}

/* Documented in the header, as are all of these. */
int net_mesh_new(const struct net_mesh_options *options, struct zi_text *text,
                 struct net_mesh **ret_mesh)
{
	try {
		auto mesh = std::make_unique<net_mesh>();
		gloo::transport::tcp::attr attr(options->address);

		mesh->device = gloo::transport::tcp::CreateDevice(attr);
		auto device = std::dynamic_pointer_cast<gloo::transport::tcp::Device>(mesh->device);
		mesh->courier = std::make_unique<Courier>(device);
		mesh->alarm = std::make_unique<Alarm>(mesh.get(), device);
		mesh->transport =
			std::make_shared<net::Context>(device, options->node, options->node_count);
		mesh->transport->setTimeout(gloo_timeout);
		mesh->connections = std::make_shared<Connections>(mesh->device, mesh->transport);
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

int net_mesh_adopt(struct net_mesh *mesh, uint32_t peer, const char *name, int fd,
                   struct zi_text *text)
{
	try {
		mesh->names[peer] = name;
		mesh->transport->adopt(peer, fd);
		return 0;
	} catch (const std::bad_alloc &) {
		return zi_text_error(text, -ENOMEM, "no memory for the connection to %s", name);
	} catch (const std::exception &error) {
		return zi_text_error(text, -EPIPE, "connecting to %s: %s", name,
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

int net_mesh_flush(struct net_mesh *mesh, uint64_t deadline_ns)
{
	return mesh->courier->flush(deadline_ns) ? 0 : -ETIMEDOUT;
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
	lane->mesh->courier->forget(lane);
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
		if (!lane->mesh->courier->take({ lane, lane->peer, slot, offset_bytes, bytes })) {
			lane->buffer->send(lane->peer, slot, offset_bytes, bytes);
			lane->begun_count++;
		}
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

/* The deadline has passed. What has come all the same counts; else Gloo itself times out. */
template <typename Wait> static int wait_last(struct net_lane *lane, Wait wait)
{
	int r;

	lane->mesh->courier->pause();
	try {
		do
			r = lane->mesh->is_aborted  ? -ECANCELED
			    : wait(milliseconds(1)) ? 0
			                            : -EAGAIN;
		while (r == -EAGAIN);
	} catch (const std::exception &) {
		r = -ETIMEDOUT;
	}
	lane->mesh->courier->resume();
	return r;
}

/* The connection is lost, which Gloo tells who slept before what has come: that counts. */
template <typename Wait> static bool has_ended(Wait wait)
{
	try {
		return wait(milliseconds(1));
	} catch (const std::exception &) {
		return false;
	}
}

/*
 * Until one more has ended. Who breaks a wait off says why before it does, and may come too late
 * for the wait that was meant: so all reasons are looked at, and where there is none it goes on.
 * Gloo tells an abort before what has come: hence wait_last(). The alarm rings once for all that
 * a caller waits for: so what is waited for after the deadline is not left to it.
 */
template <typename IsLost, typename Wait>
static int wait_one(struct net_lane *lane, uint64_t deadline_ns, struct zi_text *text,
                    IsLost is_lost, Wait wait)
{
	const char *name = lane->mesh->names[lane->peer].c_str();
	uint64_t from_ns = zi_clock_now_ns();
	int r = -EAGAIN;

	try {
		while (r == -EAGAIN) {
			if (lane->mesh->is_aborted)
				r = -ECANCELED;
			else if (is_lost())
				return zi_text_error(text, -EPIPE, "%s: %s", name,
				                     lane->failure.c_str());
			else if (from_ns < deadline_ns && wait(milliseconds(longest_ms)))
				r = 0;
			else if (zi_clock_now_ns() >= deadline_ns)
				r = wait_last(lane, wait);
		}
	} catch (const std::exception &error) {
		if (has_ended(wait))
			return 0;
		/* Also of another's deadline, which closed the connection. */
		return explain(lane, error, zi_clock_now_ns() >= deadline_ns ? -ETIMEDOUT : -EPIPE,
		               text);
	}
	if (r == -ECANCELED)
		return zi_text_error(text, r, "broken off");
	if (r == -ETIMEDOUT)
		return zi_text_error(text, r, "%s: timed out after %llu ms", name,
		                     static_cast<unsigned long long>((zi_clock_now_ns() - from_ns) /
		                                                     ZI_NS_PER_MS));
	return r;
}

int net_lane_wait_sent(struct net_lane *lane, uint32_t count, uint64_t deadline_ns,
                       struct zi_text *text)
{
	int r = 0;

	lane->send_due_ns = deadline_ns;
	lane->mesh->alarm->set(deadline_ns);
	for (uint32_t i = 0; i < count && !r; i++) {
		r = wait_one(
			lane, deadline_ns, text,
			/* What was begun before it ends, or the connection is lost. */
			[=] { return lane->has_failed && lane->ended_count >= lane->begun_count; },
			[=](milliseconds most) { return lane->buffer->waitSend(most); });
		lane->ended_count += !r;
	}
	lane->send_due_ns = ZI_DEADLINE_NEVER;
	return r;
}

int net_lane_wait_received(struct net_lane *lane, uint32_t count, uint64_t deadline_ns,
                           struct zi_text *text)
{
	int r = 0;

	lane->receive_due_ns = deadline_ns;
	lane->mesh->alarm->set(deadline_ns);
	for (uint32_t i = 0; i < count && !r; i++)
		r = wait_one(
			lane, deadline_ns, text, [] { return false; },
			[=](milliseconds most) { return lane->buffer->waitRecv(most); });
	lane->receive_due_ns = ZI_DEADLINE_NEVER;
	return r;
}
