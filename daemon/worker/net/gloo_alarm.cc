/* SPDX-License-Identifier: Apache-2.0 */
/* The deadlines of all lanes of a mesh: one timer in Gloo's own loop. Floor 3, of zinf-net. */
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "daemon/worker/net/gloo_private.hh"

namespace net
{

/* Throws as Gloo does, and std::bad_alloc where no descriptor is left. */
Alarm::Alarm(net_mesh *mesh, std::shared_ptr<gloo::transport::tcp::Device> device)
    : mesh_(mesh), device_(std::move(device)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK))
{
	if (timer_ < 0)
		throw std::bad_alloc();
	device_->registerDescriptor(timer_, EPOLLIN, this);
}

/* The device's thread is not in it after this. */
Alarm::~Alarm()
{
	device_->unregisterDescriptor(timer_, this);
	close(timer_);
}

/* Under the mesh's lock. */
void Alarm::arm(uint64_t due_ns)
{
	struct itimerspec at = {};

	if (due_ns >= armed_ns_)
		return;
	armed_ns_ = due_ns;
	due_ns = std::max<uint64_t>(due_ns, 1); /* Zero would disarm it. */
	at.it_value.tv_sec = static_cast<time_t>(due_ns / ZI_NS_PER_S);
	at.it_value.tv_nsec = static_cast<long>(due_ns % ZI_NS_PER_S);
	(void)timerfd_settime(timer_, TFD_TIMER_ABSTIME, &at, nullptr);
}

/* Documented in the header. */
void Alarm::set(uint64_t due_ns)
{
	if (due_ns >= armed_ns_)
		return;
	std::lock_guard<std::mutex> guard(mesh_->lock);
	arm(due_ns);
}

/* The device's thread. */
void Alarm::handleEvents(int events)
{
	uint64_t count, now_ns, next_ns = ZI_DEADLINE_NEVER;
	ssize_t r = read(timer_, &count, sizeof(count)); /* Set anew meanwhile: early is no harm. */
	std::lock_guard<std::mutex> guard(mesh_->lock);

	(void)events;
	(void)r;
	/* Before the lanes are looked at: who begins to wait looks at this after it. */
	armed_ns_ = ZI_DEADLINE_NEVER;
	now_ns = zi_clock_now_ns();
	for (net_lane *lane : mesh_->lanes) {
		uint64_t receive_ns = lane->receive_due_ns, send_ns = lane->send_due_ns;

		if (receive_ns <= now_ns)
			lane->buffer->abortWaitRecv();
		if (send_ns <= now_ns)
			lane->buffer->abortWaitSend();
		next_ns = std::min(next_ns, receive_ns > now_ns ? receive_ns : next_ns);
		next_ns = std::min(next_ns, send_ns > now_ns ? send_ns : next_ns);
	}
	arm(next_ns);
}

} // namespace net
