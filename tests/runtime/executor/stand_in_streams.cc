#include "stand_in_streams.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <set>

namespace stand_in {

namespace {

std::mutex global_mutex;
std::vector<std::string> all_notes;
std::set<Stream *> live;

} // namespace

namespace {

uint64_t next_number() {
    static std::atomic<uint64_t> numbers{0};
    return ++numbers;
}

} // namespace

Stream::Stream() : number(next_number()), thread_([this] { run(); }) {
    const std::lock_guard<std::mutex> lock(global_mutex);
    live.insert(this);
}

Stream::~Stream() {
    {
        const std::lock_guard<std::mutex> lock(global_mutex);
        live.erase(this);
    }
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void Stream::forget() {
    const std::lock_guard<std::mutex> lock(global_mutex);
    live.erase(this);
}

void Stream::run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return ends_ || !queue_.empty(); });
        if (queue_.empty())
            return;
        const Work work = std::move(queue_.front());
        queue_.pop_front();
        busy_ = true;
        lock.unlock();
        work();
        lock.lock();
        busy_ = false;
        changed_.notify_all();
    }
}

void Stream::put(Work work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (capture_ != nullptr) {
        capture_->work.push_back(std::move(work));
        return;
    }
    queue_.push_back(std::move(work));
    changed_.notify_all();
}

void Stream::wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return queue_.empty() && !busy_; });
}

bool Stream::is_idle() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return queue_.empty() && !busy_;
}

void Stream::begin_capture() {
    static std::atomic<uint64_t> captures{0};
    const std::lock_guard<std::mutex> lock(mutex_);
    capture_ = std::make_shared<Capture>(Capture{++captures, {}});
}

std::shared_ptr<Capture> Stream::end_capture() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::move(capture_);
}

std::shared_ptr<Capture> Stream::capture() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return capture_;
}

void Stream::launch(const Capture &graph) {
    for (const Work &work : graph.work)
        put(work);
}

Device &Device::of(int number) {
    // Never destroyed: streams may still run when the process ends.
    static auto *const devices = new std::array<Device, 16>;
    return devices->at(static_cast<size_t>(number));
}

void Device::launch() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return freeing_ == 0; });
    running_++;
}

void Device::end() {
    const std::lock_guard<std::mutex> lock(mutex_);
    running_--;
    changed_.notify_all();
}

void Device::free() {
    std::unique_lock<std::mutex> lock(mutex_);
    freeing_++;
    changed_.wait(lock, [this] { return running_ == 0; });
    freeing_--;
    changed_.notify_all();
}

void put_kernel(Stream *stream, int device, Work work) {
    if (stream->capture() != nullptr) {
        stream->put(std::move(work));
        return;
    }
    Device::of(device).launch();
    stream->put([device, work = std::move(work)] {
        work();
        Device::of(device).end();
    });
}

int order(Stream *before, Stream *after) {
    {
        const std::lock_guard<std::mutex> lock(global_mutex);
        if (live.count(before) == 0 || live.count(after) == 0)
            return 400;
    }
    note("order");
    const auto capture = before->capture();
    if (capture != nullptr) {
        const std::lock_guard<std::mutex> lock(after->mutex_);
        if (after->capture_ != nullptr && after->capture_ != capture)
            return 905;
        after->capture_ = capture; // It joins, as a stream that waits for a captured event does.
        return 0;
    }
    if (after->capture() != nullptr)
        return 905;
    Event event;
    (void)record(before, &event);
    after->put([event] { event.reached->get_future().wait(); });
    return 0;
}

int record(Stream *stream, Event *event) {
    event->reached = std::make_shared<std::promise<void>>();
    stream->put([reached = event->reached] { reached->set_value(); });
    return 0;
}

int wait(Stream *stream, const Event &event) {
    note("order");
    stream->put([future = event.reached->get_future().share()] { future.wait(); });
    return 0;
}

uint64_t capture_of(Stream *stream) {
    const std::lock_guard<std::mutex> lock(global_mutex);
    if (live.count(stream) == 0) {
        std::fprintf(stderr, "a stream was used that is gone\n");
        std::abort();
    }
    const auto capture = stream->capture();
    return capture != nullptr ? capture->id : 0;
}

void note(const std::string &line) {
    const std::lock_guard<std::mutex> lock(global_mutex);
    all_notes.push_back(line);
    if (std::getenv("STAND_IN_SHOWS") != nullptr)
        std::fprintf(stderr, "%s\n", line.c_str());
}

std::vector<std::string> take_notes() {
    const std::lock_guard<std::mutex> lock(global_mutex);
    return std::move(all_notes);
}

} // namespace stand_in

// For programs in C.
extern "C" void *stand_in_stream_create() {
    return new stand_in::Stream;
}
extern "C" void stand_in_stream_wait(void *stream) {
    static_cast<stand_in::Stream *>(stream)->wait();
}
extern "C" void stand_in_stream_destroy(void *stream) {
    delete static_cast<stand_in::Stream *>(stream);
}
