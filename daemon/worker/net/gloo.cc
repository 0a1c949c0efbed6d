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
#include <gloo/transport/tcp/loop.h>
#include <gloo/transport/unbound_buffer.h>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
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
/* Sends from here on are the device's thread's to begin, and those behind them to the same peer;
 * else a wake-up costs more. */
constexpr uint64_t large_bytes = 64u << 10;

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

/*
 * Begins large sends in the device's thread. Who sends writes all that the socket takes with the
 * connection locked; the device's thread, when something comes meanwhile, tries that lock, fails,
 * and asks epoll again, which says the same: it burns a CPU until the write is over. In its own
 * thread nobody waits for the lock. Sends to a peer keep their order, whatever their lanes: who
 * hears that something was sent before (mail_link.h) need not wait for it.
 */
class Courier : public gloo::transport::tcp::Handler
{
      public:
	struct Errand {
		net_lane *lane;
		uint32_t peer;
		uint64_t slot, offset_bytes, bytes;
	};

	explicit Courier(std::shared_ptr<gloo::transport::tcp::Device> device)
	    : device_(std::move(device)), bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))
	{
		if (bell_ < 0)
			throw std::bad_alloc(); /* No descriptor is left. */
		device_->registerDescriptor(bell_, EPOLLIN, this);
	}

	~Courier() override
	{
		device_->unregisterDescriptor(bell_, this); /* Waits for its thread. */
		close(bell_);
	}

	/* False: it is small, and none to its peer is before it: the caller may as well. */
	bool take(const Errand &errand)
	{
		std::lock_guard<std::mutex> guard(lock_);

		if (errand.bytes < large_bytes && !has(errand.peer))
			return false;
		errands_.push_back(errand);
		ring();
		return true;
	}

	/* None of @lane's is under way, or will be, after this. */
	void forget(const net_lane *lane)
	{
		std::unique_lock<std::mutex> guard(lock_);

		for (auto i = errands_.begin(); i != errands_.end();)
			i = i->lane == lane ? errands_.erase(i) : i + 1;
		idle_.wait(guard, [&] { return running_.lane != lane; });
	}

	void handleEvents(int events) override;

      private:
	bool has(uint32_t peer) const
	{
		for (const Errand &errand : errands_)
			if (errand.peer == peer)
				return true;
		return running_.lane && running_.peer == peer;
	}

	void ring()
	{
		uint64_t one = 1;
		/* Full is rung as well. */
		ssize_t r = write(bell_, &one, sizeof(one));

		(void)r;
	}

	std::shared_ptr<gloo::transport::tcp::Device> device_;
	int bell_;
	std::mutex lock_; /* guards errands_ and running_ */
	std::condition_variable idle_;
	std::deque<Errand> errands_;
	Errand running_{}; /* lane: nullptr, or under way */
};

} // namespace

struct net_mesh {
	std::shared_ptr<gloo::transport::Device> device;
	std::unique_ptr<Courier> courier;
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
	std::string failure;                   /* of a send in the device's thread */
	std::atomic<bool> has_failed{ false }; /* after that was written */
};

/* The device's thread: the errands are here. */
void Courier::handleEvents(int events)
{
	uint64_t count;
	ssize_t r = read(bell_, &count, sizeof(count)); /* Rung for nothing is no harm. */
	std::unique_lock<std::mutex> guard(lock_);

	(void)events;
	(void)r;
	while (!errands_.empty()) {
		Errand errand = errands_.front();
		net_lane *lane = errand.lane;

		errands_.pop_front();
		running_ = errand;
		guard.unlock();
		try {
			lane->buffer->send(lane->peer, errand.slot, errand.offset_bytes,
			                   errand.bytes);
		} catch (const std::exception &error) {
			if (!lane->has_failed) {
				lane->failure = words(error);
				lane->has_failed = true;
			}
			lane->buffer->abortWaitSend();
		}
		guard.lock();
		running_ = {};
		idle_.notify_all();
	}
}

/* Documented in the header, as are all of these. */
int net_mesh_new(const struct net_mesh_options *options, struct zi_text *text,
                 struct net_mesh **ret_mesh)
{
	try {
		auto mesh = std::make_unique<net_mesh>();
		gloo::transport::tcp::attr attr(options->address);

		mesh->device = gloo::transport::tcp::CreateDevice(attr);
		mesh->courier = std::make_unique<Courier>(
			std::dynamic_pointer_cast<gloo::transport::tcp::Device>(mesh->device));
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
		if (!lane->mesh->courier->take({ lane, lane->peer, slot, offset_bytes, bytes }))
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
			bool has_come = !lane->mesh->is_aborted && !lane->has_failed &&
			                wait(until(deadline_ns));

			if (!has_come && lane->has_failed && !lane->mesh->is_aborted)
				return zi_text_error(text, -EPIPE, "%s: %s",
				                     lane->mesh->names[lane->peer].c_str(),
				                     lane->failure.c_str());
			if (!has_come)
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
