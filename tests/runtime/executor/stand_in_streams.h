// CUDA streams of threads: what is put on one runs in its order, later, beside the others. Captures
// collect instead. NCCL's stand-in and that of the executor's device side both work on these.
#ifndef TUCCL_TEST_STAND_IN_STREAMS_H
#define TUCCL_TEST_STAND_IN_STREAMS_H

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace stand_in {

using Work = std::function<void()>;

class Stream;

// How much work of each stream of a capture is done before what comes next.
using Behind = std::map<const Stream *, size_t>;

struct Capture {
    Capture(uint64_t id_, const Stream *origin_) : id(id_), origin(origin_) {
    }
    const uint64_t id;
    const Stream *const origin;
    std::atomic<bool> has_ended{false};
    std::vector<Work> work; // In an order in which it may run.
    std::map<const Stream *, Behind> streams;
};

class Stream {
  public:
    Stream();
    ~Stream(); // Waits for what is on it.

    // As a destroyed stream: nobody knows it any more, what is on it goes on.
    void forget();
    const uint64_t number;

    void put(Work work);
    void wait();
    bool is_idle();

    void begin_capture();
    // Ends a capture on the stream that began it. Stops the process where work on another one is
    // not awaited by then, unless that stream left before, which CUDA has no way to do.
    std::shared_ptr<Capture> end_capture();
    void launch(const Capture &graph);
    std::shared_ptr<Capture> capture();

  private:
    friend int join(Stream *stream, const std::shared_ptr<Capture> &capture, const Behind &behind);
    void run();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Work> queue_;
    std::shared_ptr<Capture> capture_;
    bool busy_ = false;
    bool ends_ = false;
    std::thread thread_;
};

// The end of what was on a stream. As in CUDA, one that was recorded in a capture takes the streams
// that wait for it into the capture.
struct Event {
    std::shared_future<void> reached; // Invalid before it was recorded: nobody waits then.
    std::shared_ptr<Capture> capture;
    Behind behind;
};
void record(Stream *stream, Event *event);
// A cudaError_t: two captures would be merged (902), captured and eager work mixed (905), or the
// event belongs to a capture that has ended (907).
int wait(Stream *stream, const Event &event);

// What runs on a device, by whichever stream. Freeing memory waits for all of it, and nothing is
// launched there meanwhile, by any thread, as CUDA has it; other devices go on.
class Device {
  public:
    static Device &of(int number);

    void launch();
    void end();
    void free();

    // Memory that others than the executor take there; negative: give back.
    void take_bytes(int64_t bytes) {
        taken_bytes_ += bytes;
    }
    int64_t free_bytes() const {
        return (int64_t{1} << 40) - taken_bytes_.load();
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int running_ = 0;
    int freeing_ = 0;
    std::atomic<int64_t> taken_bytes_{0};
};

// Puts a kernel of a device on a stream. A captured one is not seen on the device.
void put_kernel(Stream *stream, int device, Work work);

// Orders as cudaEventRecord and cudaStreamWaitEvent do: a cudaError_t, of which mixing captured and
// eager work is one (905), and a stream that is gone another (400).
int order(Stream *before, Stream *after);

// The capture that a stream is in, 0 when in none. Stops the process where the stream is gone.
uint64_t capture_of(Stream *stream);

// The time of the stream that this thread runs: what its work was told to take, and what the thread
// computed. It leaves out how long a thread of a busy host waits for a core, and how much longer it
// sleeps than it asked for.
std::chrono::nanoseconds stream_time();
// Work that takes so long.
void take(std::chrono::microseconds time);

// What happened, in the order in which it was asked for.
void note(const std::string &line);
std::vector<std::string> take_notes();

// Makes a device that of a thread of the job's (stand_in_device.cc).
void set_device(int device);
// How many kernels of the executor this thread has launched (stand_in_device.cc).
int launched_by_this_thread();

} // namespace stand_in

#endif
