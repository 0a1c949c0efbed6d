/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that Gloo takes over, and what is run in its thread. Floor 3, of zinf-net alone. */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <new>

#include "daemon/worker/net/gloo_private.hh"

namespace net
{

/* The device's thread runs this between two looks at its descriptors. So nothing is accepted at
 * the port of Gloo's constructor: it is closed before the thread looks again. */
void Pair::adopt(int fd)
{
	std::lock_guard<std::mutex> guard(m_);

	if (fd_ >= 0) {
		device_->unregisterDescriptor(fd_, this);
		::close(fd_);
	}
	fd_ = fd;
	try {
		handleConnected();
	} catch (...) {
		/* Gloo would look for it in epoll's set, where it is not. */
		::close(fd_);
		fd_ = -1;
		throw;
	}
}

/* The device's thread. */
void Pair::handleEvents(int events)
{
	try {
		gloo::transport::tcp::Pair::handleEvents(events);
	} catch (const std::exception &error) {
		(void)signalExceptionExternal(words(error));
	}
}

namespace
{

/* Rings in the device's thread. */
class Errand : public gloo::transport::tcp::Handler
{
      public:
	Errand(gloo::transport::tcp::Device &device, const std::function<void()> &job)
	    : device_(device), job_(job), bell_(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK))
	{
		if (bell_ < 0)
			throw std::bad_alloc();
		try {
			device_.registerDescriptor(bell_, EPOLLIN, this);
		} catch (...) {
			::close(bell_);
			throw;
		}
	}

	/* The device's thread is not in it after this. */
	~Errand() override
	{
		device_.unregisterDescriptor(bell_, this);
		/* It has let go of the lock, too: ThreadSanitizer does not see how Gloo waits. */
		std::lock_guard<std::mutex> guard(lock_);
		::close(bell_);
	}

	void await()
	{
		std::unique_lock<std::mutex> guard(lock_);

		done_.wait(guard, [&] { return is_done_; });
		if (error_)
			std::rethrow_exception(error_);
	}

	void handleEvents(int events) override
	{
		std::lock_guard<std::mutex> guard(lock_);

		(void)events;
		if (is_done_)
			return; /* Not yet unregistered. */
		try {
			job_();
		} catch (...) {
			error_ = std::current_exception();
		}
		is_done_ = true;
		done_.notify_all();
	}

      private:
	gloo::transport::tcp::Device &device_;
	const std::function<void()> &job_;
	int bell_;
	std::mutex lock_; /* guards all below */
	std::condition_variable done_;
	std::exception_ptr error_;
	bool is_done_ = false;
};

} // namespace

/* Documented in the header, as is the other. */
void run_in_device(gloo::transport::tcp::Device &device, const std::function<void()> &job)
{
	Errand errand(device, job);

	errand.await();
}

/* Not the device's thread. */
void Context::adopt(uint32_t peer, int fd)
{
	bool is_taken = false;

	try {
		run_in_device(*device_, [&] {
			auto pair = std::make_unique<Pair>(this, device_.get(),
			                                   static_cast<int>(peer), getTimeout());

			is_taken = true;
			pair->adopt(fd);
			pairs_[peer] = std::move(pair);
		});
	} catch (...) {
		if (!is_taken)
			::close(fd);
		throw;
	}
}

} // namespace net
