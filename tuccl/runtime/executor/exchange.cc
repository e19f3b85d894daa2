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
constexpr unsigned kPausesPerLook = 100; // At the roll, which takes system calls.

int async_error(ncclComm_t comm) {
    int error = kNcclSuccess;
    if (real_nccl().CommGetAsyncError == nullptr)
        return error;
    const int result = real_nccl().CommGetAsyncError(comm, &error);
    return result != kNcclSuccess ? result : error;
}

} // namespace

Exchange::~Exchange() {
    if (!broken_)
        tuccl_exchange_destroy(device_);
}

bool Exchange::is_cancelled() const {
    return cancelled_ != nullptr && cancelled_->load();
}

const char *Exchange::open() {
    return tuccl_exchange_create(&device_, sizeof(Greeting), ranks_);
}

const char *Exchange::wait(bool (*ended)(const Exchange &)) {
    for (unsigned pauses = 1; !ended(*this); pauses++) {
        if (is_cancelled())
            return "the communicator was aborted";
        const int error = async_error(comm_);
        if (error != kNcclSuccess && error != kNcclInProgress)
            return "NCCL reports an error while ranks greet one another";
        if (pauses % kPausesPerLook == 0 && roll_.somebody_left())
            return kSomebodyLeft;
        if (end_ && std::chrono::steady_clock::now() > *end_)
            return "ncclCommSplit failed on this rank, and other ranks still wait inside it";
        std::this_thread::sleep_for(kPause);
    }
    return nullptr;
}

const char *Exchange::round(const Greeting &mine, std::vector<Greeting> *all) {
    if (roll_.somebody_left())
        return kSomebodyLeft;
    const char *fault = try_round(mine, all);
    broken_ = fault != nullptr;
    return fault;
}

const char *Exchange::try_round(const Greeting &mine, std::vector<Greeting> *all) {
    const struct tuccl_exchange_view view = tuccl_exchange_view(device_);
    if (tuccl_exchange_write(device_, &mine) != 0)
        return "a copy to the device failed";
    const int result =
        real_nccl().AllGather(view.send, view.receive, sizeof mine, kNcclUint8, comm_, view.stream);
    if (result != kNcclSuccess && result != kNcclInProgress)
        return "NCCL could not gather the ranks' greetings";
    // A communicator that does not block has put nothing on the stream yet.
    const char *fault = wait(
        [](const Exchange &exchange) { return async_error(exchange.comm_) != kNcclInProgress; });
    if (fault == nullptr)
        fault = wait(
            [](const Exchange &exchange) { return tuccl_exchange_ended(exchange.device_) != 0; });
    if (fault != nullptr)
        return fault;
    all->resize(ranks_);
    if (tuccl_exchange_ended(device_) < 0 || tuccl_exchange_read(device_, all->data()) != 0)
        return "gathering the ranks' greetings failed on the device";
    // NCCL may end a call of an aborted communicator without an error, and without data.
    const bool came_back = std::any_of(all->begin(), all->end(), [&mine](const Greeting &greeting) {
        return std::memcmp(&greeting, &mine, sizeof mine) == 0;
    });
    return came_back ? nullptr : "NCCL did not gather the ranks' greetings";
}

} // namespace tuccl
