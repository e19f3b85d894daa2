#include "watchdog.h"

#include "log.h"
#include "real_nccl.h"
#include "register.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <thread>
#include <unistd.h>

namespace tuccl {

namespace {

constexpr auto kPeriod = std::chrono::milliseconds(100);

class Watchdog {
  public:
    Watchdog() : process_(getpid()), thread_([this] { watch(); }) {
    }

    // At exit: before NCCL and CUDA are destroyed.
    void stop() {
        if (getpid() != process_) // A forked process has no such thread.
            return;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            stopped_ = true;
        }
        wake_.notify_all();
        thread_.join();
    }

  private:
    void watch() {
        std::unique_lock<std::mutex> lock(mutex_);
        while (!wake_.wait_for(lock, kPeriod, [this] { return stopped_; }))
            Register::of_process().for_each(look_at);
    }

    static int error_of(ncclComm_t comm) {
        const int error = state_of(comm);
        return error == kNcclInProgress ? int{kNcclSuccess} : error;
    }

    static void look_at(Communicator &communicator) {
        const InUse use(&communicator, communicator.nccl());
        if (!use)
            return;
        int error = error_of(communicator.nccl());
        if (const auto rails = communicator.rails(); rails != nullptr && error == kNcclSuccess)
            error = rails->error();
        if (error != kNcclSuccess && communicator.give_up())
            log_warning("executor ends what runs on a communicator: NCCL reports error %d on it",
                        error);
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    bool stopped_ = false;
    pid_t process_;
    std::thread thread_; // Last member: it uses the others.
};

} // namespace

void start_watchdog() {
    if (real_nccl().CommGetAsyncError == nullptr)
        return;
    static Watchdog *const only = [] {
        static Watchdog *const instance = new Watchdog;
        std::atexit([] { instance->stop(); });
        return instance;
    }();
    (void)only;
}

} // namespace tuccl
