#include "stand_in_streams.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <future>
#include <set>

namespace stand_in {

namespace {

std::mutex global_mutex;
std::vector<std::string> all_notes;
std::set<Stream *> live;
thread_local std::chrono::nanoseconds told_to_take{0};

} // namespace

namespace {

uint64_t next_number() {
    static std::atomic<uint64_t> numbers{0};
    return ++numbers;
}

// The work of all streams, in the order in which it was put.
class OneQueue {
  public:
    Work in_turn(Work work) {
        const uint64_t turn = put_++;
        return [this, turn, work = std::move(work)] {
            std::unique_lock<std::mutex> lock(mutex_);
            changed_.wait(lock, [&] { return done_ == turn; });
            lock.unlock();
            work();
            lock.lock();
            done_++;
            changed_.notify_all();
        };
    }

  private:
    std::atomic<uint64_t> put_{0};
    std::mutex mutex_;
    std::condition_variable changed_;
    uint64_t done_ = 0;
};

// As on a device that runs all streams one after the other, if a test wants it.
Work in_turn(Work work) {
    static const bool is_wanted = std::getenv("STAND_IN_ONE_QUEUE") != nullptr;
    static auto *const queue = new OneQueue; // Streams may still run when the process ends.
    return is_wanted ? queue->in_turn(std::move(work)) : work;
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
    if (capture_ != nullptr && !capture_->has_ended.load()) {
        capture_->work.push_back(std::move(work));
        capture_->streams[this][this]++;
        return;
    }
    queue_.push_back(in_turn(std::move(work)));
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
    capture_ = std::make_shared<Capture>(++captures, this);
}

std::shared_ptr<Capture> Stream::end_capture() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::shared_ptr<Capture> capture = std::move(capture_);
    if (capture->origin != this) {
        capture->streams.erase(this);
        return capture;
    }
    capture->has_ended.store(true);
    Behind &awaited = capture->streams[this];
    for (const auto &[stream, behind] : capture->streams)
        if (const auto own = behind.find(stream);
            own != behind.end() && awaited[stream] < own->second) {
            std::fprintf(stderr, "a capture ends before a stream that joined it\n");
            std::abort();
        }
    return capture;
}

std::shared_ptr<Capture> Stream::capture() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return capture_ != nullptr && !capture_->has_ended.load() ? capture_ : nullptr;
}

void Stream::launch(const Capture &graph) {
    for (const Work &work : graph.work)
        put(work);
}

Device &Device::of(int number) {
    // Never destroyed: streams may still run when the process ends.
    static auto *const devices = new std::array<Device, 64>;
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

int join(Stream *stream, const std::shared_ptr<Capture> &capture, const Behind &behind) {
    const auto own = stream->capture();
    if (own != nullptr && own != capture)
        return 902;
    {
        const std::lock_guard<std::mutex> lock(stream->mutex_);
        stream->capture_ = capture;
    }
    Behind &now = capture->streams[stream];
    for (const auto &[other, count] : behind)
        now[other] = std::max(now[other], count);
    return 0;
}

int order(Stream *before, Stream *after) {
    {
        const std::lock_guard<std::mutex> lock(global_mutex);
        if (live.count(before) == 0 || live.count(after) == 0)
            return 400;
    }
    note("order");
    Event event;
    record(before, &event);
    return wait(after, event);
}

void record(Stream *stream, Event *event) {
    const auto capture = stream->capture();
    if (capture != nullptr) {
        *event = {{}, capture, capture->streams[stream]};
        return;
    }
    const auto reached = std::make_shared<std::promise<void>>();
    *event = {reached->get_future().share(), nullptr, {}};
    stream->put([reached] { reached->set_value(); });
}

int wait(Stream *stream, const Event &event) {
    if (event.capture != nullptr)
        return event.capture->has_ended.load() ? 907 : join(stream, event.capture, event.behind);
    if (!event.reached.valid())
        return 0;
    if (stream->capture() != nullptr)
        return 905;
    stream->put([reached = event.reached] { reached.wait(); });
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

std::chrono::nanoseconds stream_time() {
    timespec computed = {};
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &computed) != 0)
        std::abort();
    return told_to_take + std::chrono::seconds(computed.tv_sec) +
           std::chrono::nanoseconds(computed.tv_nsec);
}

void take(std::chrono::microseconds time) {
    std::this_thread::sleep_for(time);
    told_to_take += time;
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
