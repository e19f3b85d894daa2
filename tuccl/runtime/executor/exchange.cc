#include "exchange.h"

#include "real_nccl.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace tuccl {

namespace {

constexpr int kNcclUint8 = 1;
constexpr auto kPause = std::chrono::microseconds(20);
constexpr char kSomebodyLeft[] = "another rank failed to start, or died";
constexpr unsigned kPausesPerLook = 100; // At the roll.

} // namespace

Exchange::~Exchange() {
    if (broken_)
        return; // Freeing would wait for a kernel that may never end.
    tuccl_exchange_destroy(device_);
    for (tuccl_exchange *buffers : kept_)
        tuccl_exchange_destroy(buffers);
}

const char *Exchange::open() {
    return tuccl_exchange_create(&device_, sizeof(Greeting), ranks_);
}

// Without looking at the roll, which takes system calls.
const char *Exchange::obstacle_here() const {
    if (cancelled_ != nullptr && cancelled_->load())
        return "the communicator was aborted";
    const int error = state_of(comm_);
    if (error != kNcclSuccess && error != kNcclInProgress)
        return "NCCL reports an error while ranks greet one another";
    return end_ && std::chrono::steady_clock::now() > *end_ ? reason_of_end_ : nullptr;
}

const char *Exchange::obstacle() const {
    if (const char *reason = obstacle_here())
        return reason;
    return somebody_left() ? kSomebodyLeft : nullptr;
}

const char *Exchange::wait(const std::function<bool()> &has_ended) {
    for (unsigned pauses = 1; !has_ended(); pauses++) {
        if (const char *reason = pauses % kPausesPerLook == 0 ? obstacle() : obstacle_here())
            return reason;
        std::this_thread::sleep_for(kPause);
    }
    return nullptr;
}

const char *Exchange::wait_until(const std::function<bool()> &has_ended) {
    const char *fault = wait(has_ended);
    broken_ = broken_ || fault != nullptr;
    return fault;
}

const char *Exchange::round(const Greeting &mine, std::vector<Greeting> *all) {
    if (somebody_left())
        return kSomebodyLeft;
    const char *fault = try_round(mine, all);
    broken_ = fault != nullptr;
    return fault;
}

// NCCL may end a call of an aborted communicator without an error and without data, and then those
// of the last round are there. Where another release has no rounds there has been none before.
bool Exchange::came_back(const Greeting &mine, const std::vector<Greeting> &all) {
    return std::any_of(all.begin(), all.end(),
                       [&mine](const Greeting &greeting) {
                           return std::memcmp(&greeting, &mine, sizeof mine) == 0;
                       }) &&
           (mine.round == 0 ||
            std::all_of(all.begin(), all.end(), [&mine](const Greeting &greeting) {
                return greeting.round == mine.round;
            }));
}

const char *Exchange::try_round(const Greeting &unnumbered, std::vector<Greeting> *all) {
    Greeting mine = unnumbered;
    mine.round = rounds_++;
    const struct tuccl_exchange_view view = tuccl_exchange_view(device_);
    if (tuccl_exchange_write(device_, &mine) != 0)
        return "a copy to the device failed";
    const int result =
        real_nccl().AllGather(view.send, view.receive, sizeof mine, kNcclUint8, comm_, view.stream);
    if (result != kNcclSuccess && result != kNcclInProgress)
        return "NCCL could not gather the ranks' greetings";
    // A communicator that does not block has put nothing on the stream yet.
    const char *fault = wait([this] { return state_of(comm_) != kNcclInProgress; });
    if (fault == nullptr)
        fault = wait([this] { return tuccl_exchange_ended(device_) != 0; });
    if (fault != nullptr)
        return fault;
    all->resize(ranks_);
    if (tuccl_exchange_ended(device_) < 0 || tuccl_exchange_read(device_, all->data()) != 0)
        return "gathering the ranks' greetings failed on the device";
    return came_back(mine, *all) ? nullptr : "NCCL did not gather the ranks' greetings";
}

} // namespace tuccl
