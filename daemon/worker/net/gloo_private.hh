/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of C++ share, gloo*.cc: a mesh, a lane, and what serves them in the device's
 * thread, which is Gloo's own. Floor 3, of zinf-net alone.
 */
#pragma once

#include <gloo/context.h>
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/loop.h>
#include <gloo/transport/tcp/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

extern "C" {
#include "common/base/clock.h"
#include "common/base/text.h"
}
#include "daemon/worker/net/gloo.h"

namespace net
{

/* A year is for ever: the clock's nanoseconds have to bear it. */
constexpr uint64_t longest_ms = 365ull * 86400 * 1000;

/* What Gloo says, without its source line. */
std::string words(const std::exception &error);

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

	explicit Courier(std::shared_ptr<gloo::transport::tcp::Device> device);
	~Courier() override;

	/* False: it is small, and none to its peer is before it: the caller may as well. */
	bool take(const Errand &errand);
	/* None of @lane's is under way, or will be, after this. */
	void forget(const net_lane *lane);
	/* Nothing is under way after this, or begins, until as many have resumed it. */
	void pause();
	void resume();
	/* False: something is left at @deadline_ns. */
	bool flush(uint64_t deadline_ns);

	void handleEvents(int events) override;

      private:
	bool has(uint32_t peer) const;
	void ring();

	std::shared_ptr<gloo::transport::tcp::Device> device_;
	int bell_;
	std::mutex lock_; /* guards all below */
	std::condition_variable idle_;
	std::deque<Errand> errands_;
	Errand running_{}; /* lane: nullptr, or under way */
	uint32_t pause_count_ = 0;
};

/*
 * Wakes who waits on a lane beyond its deadline, in the device's thread. It is set for the first
 * of all deadlines, and when that has passed for the first of those that are waited for then: so
 * that calls, whose deadlines only grow, need not set it.
 */
class Alarm : public gloo::transport::tcp::Handler
{
      public:
	Alarm(net_mesh *mesh, std::shared_ptr<gloo::transport::tcp::Device> device);
	~Alarm() override;

	/* A lane says already that it waits until then. */
	void set(uint64_t due_ns);

	void handleEvents(int events) override;

      private:
	void arm(uint64_t due_ns);

	net_mesh *mesh_; /* its lock guards what is written here */
	std::shared_ptr<gloo::transport::tcp::Device> device_;
	int timer_;
	std::atomic<uint64_t> armed_ns_{ ZI_DEADLINE_NEVER };
};

/*
 * The end of a connection that is there already. Gloo's own rendezvous listens at a port of each
 * pair, and takes whoever comes first for the peer. An exception in the device's thread ends the
 * connection here, not the process.
 */
class Pair : public gloo::transport::tcp::Pair
{
      public:
	using gloo::transport::tcp::Pair::Pair;

	/* The device's thread, right after the pair was made: nothing has been accepted then at
	 * the port at which Gloo's constructor listens. Throws as Gloo does; @fd is closed then. */
	void adopt(int fd);

	void handleEvents(int events) override;
};

/* Holds pairs as they are adopted. */
class Context : public gloo::transport::tcp::Context
{
      public:
	using gloo::transport::tcp::Context::Context;

	/* Not the device's thread. Throws as Gloo does; @fd is closed then. */
	void adopt(uint32_t peer, int fd);
};

/* Calls @job in the device's thread, and waits. What @job throws is thrown here. */
void run_in_device(gloo::transport::tcp::Device &device, const std::function<void()> &job);

} // namespace net

struct net_mesh {
	std::shared_ptr<gloo::transport::Device> device;
	std::unique_ptr<net::Courier> courier;
	std::shared_ptr<net::Context> transport;
	std::shared_ptr<gloo::Context> connections; /* of that transport */
	std::vector<std::string> names;
	std::atomic<bool> is_aborted{ false };
	std::mutex lock; /* guards lanes: net_mesh_abort() is any thread's */
	std::list<net_lane *> lanes;
	std::unique_ptr<net::Alarm> alarm; /* the last one here: the first to go */
};

struct net_lane {
	net_mesh *mesh;
	uint32_t peer;
	std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
	/* Until when somebody waits here; read by the alarm, in the device's thread. */
	std::atomic<uint64_t> receive_due_ns{ ZI_DEADLINE_NEVER }, send_due_ns{ ZI_DEADLINE_NEVER };
	std::atomic<uint64_t> begun_count{ 0 }; /* sends that are Gloo's to end */
	uint64_t ended_count = 0;               /* sends that were waited for */
	std::string failure;                    /* of a send in the device's thread */
	std::atomic<bool> has_failed{ false };  /* after that was written */
};
