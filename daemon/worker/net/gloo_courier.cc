/* SPDX-License-Identifier: Apache-2.0 */
/* Large sends, begun in Gloo's own thread: errands in a queue, and a bell. Floor 3, of zinf-net. */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "daemon/worker/net/gloo_private.hh"

using std::chrono::milliseconds;

namespace net
{

/* Sends from here on are the device's thread's to begin, and those behind them to the same peer;
 * else a wake-up costs more. */
static constexpr uint64_t large_bytes = 64u << 10;

/* What is left, in milliseconds, which no clock of C++ has to be added to. */
static milliseconds until(uint64_t deadline_ns)
{
	uint64_t now_ns = zi_clock_now_ns();
	uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
	uint64_t left_ms = left_ns / ZI_NS_PER_MS + 1;

	return milliseconds(left_ms < longest_ms ? left_ms : longest_ms);
}

/* Throws as Gloo does, and std::bad_alloc where no descriptor is left. */
Courier::Courier(std::shared_ptr<gloo::transport::tcp::Device> device)
    : device_(std::move(device)), bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))
{
	if (bell_ < 0)
		throw std::bad_alloc();
	device_->registerDescriptor(bell_, EPOLLIN, this);
}

/* The device's thread is not in it after this. */
Courier::~Courier()
{
	device_->unregisterDescriptor(bell_, this);
	close(bell_);
}

/* Under the lock. */
bool Courier::has(uint32_t peer) const
{
	for (const Errand &errand : errands_)
		if (errand.peer == peer)
			return true;
	return running_.lane && running_.peer == peer;
}

/* Wakes the device's thread; a bell that is full is rung as well. */
void Courier::ring()
{
	uint64_t one = 1;
	ssize_t r = write(bell_, &one, sizeof(one));

	(void)r;
}

/* The rest is documented in the header. */
bool Courier::take(const Errand &errand)
{
	std::lock_guard<std::mutex> guard(lock_);

	if (errand.bytes < large_bytes && !has(errand.peer))
		return false;
	errands_.push_back(errand);
	ring();
	return true;
}

/* Of any thread that owns @lane. */
void Courier::forget(const net_lane *lane)
{
	std::unique_lock<std::mutex> guard(lock_);

	errands_.erase(std::remove_if(errands_.begin(), errands_.end(),
	                              [=](const Errand &errand) { return errand.lane == lane; }),
	               errands_.end());
	idle_.notify_all(); /* Who flushes. */
	idle_.wait(guard, [&] { return running_.lane != lane; });
}

/* Of any thread but the device's, and for no longer than Gloo takes to close its connections. */
void Courier::pause()
{
	std::unique_lock<std::mutex> guard(lock_);

	pause_count_++;
	idle_.wait(guard, [&] { return !running_.lane; });
}

/* Of whoever paused it: what was left is begun. */
void Courier::resume()
{
	std::lock_guard<std::mutex> guard(lock_);

	if (!--pause_count_ && !errands_.empty())
		ring();
}

/* Of any thread but the device's. */
bool Courier::flush(uint64_t deadline_ns)
{
	std::unique_lock<std::mutex> guard(lock_);

	return idle_.wait_for(guard, until(deadline_ns),
	                      [&] { return errands_.empty() && !running_.lane; });
}

/* The device's thread. */
void Courier::handleEvents(int events)
{
	uint64_t count;
	ssize_t r = read(bell_, &count, sizeof(count)); /* Rung for nothing is no harm. */
	std::unique_lock<std::mutex> guard(lock_);

	(void)events;
	(void)r;
	while (!errands_.empty() && !pause_count_) {
		Errand errand = errands_.front();
		net_lane *lane = errand.lane;

		errands_.pop_front();
		running_ = errand;
		guard.unlock();
		try {
			lane->buffer->send(lane->peer, errand.slot, errand.offset_bytes,
			                   errand.bytes);
			lane->begun_count++;
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

} // namespace net
