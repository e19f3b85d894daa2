#include "rails.h"

#include "device_exchange.h"
#include "rail_warm_up.h"
#include "real_nccl.h"

#include <algorithm>
#include <utility>

namespace tuccl {

namespace {

constexpr char kAborted[] = "the communicator was aborted";

// Adds the memory that the current device lost during its life. Others on the device may take and
// free some meanwhile: it is an estimate.
class MemoryTaken {
  public:
    explicit MemoryTaken(uint64_t *sum) : sum_(sum), before_(tuccl_device_free_bytes()) {
    }
    ~MemoryTaken() {
        const uint64_t after = tuccl_device_free_bytes();
        *sum_ += before_ > after ? before_ - after : 0;
    }
    MemoryTaken(const MemoryTaken &) = delete;
    MemoryTaken &operator=(const MemoryTaken &) = delete;

  private:
    uint64_t *sum_;
    uint64_t before_;
};

bool is_same_kind(const RailCall &first, const RailCall &second) {
    return first.operation == second.operation && first.algorithm == second.algorithm &&
           first.protocol == second.protocol && first.nchannels == second.nchannels;
}

} // namespace

Rails::Rails(const Grid &grid) : grid_(grid), request_(new_rail_request(grid.nodes)) {
}

Rails::~Rails() {
    abort();
}

int Rails::split(ncclComm_t comm, ncclComm_t *lane) const {
    const auto split_once = [&] {
        return real_nccl().CommSplit(comm, static_cast<int>(grid_.local),
                                     static_cast<int>(grid_.node), lane, nullptr);
    };
    return request_ != nullptr ? split_with(request_, split_once) : split_once();
}

const char *Rails::make(ncclComm_t comm, uint32_t lanes) {
    if (real_nccl().CommSplit == nullptr)
        return "NCCL has no ncclCommSplit, which came with 2.18";
    const MemoryTaken taken(&nccl_bytes_);
    for (size_t made = count(); made < lanes; made++) {
        ncclComm_t lane = nullptr;
        if (split(comm, &lane) != kNcclSuccess || lane == nullptr)
            return "NCCL could not split its communicator";
        if (!add(lane)) {
            (void)real_nccl().CommAbort(lane);
            return kAborted;
        }
    }
    return nullptr;
}

bool Rails::add(ncclComm_t lane) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!taken_)
        lanes_.push_back(lane);
    return !taken_;
}

std::vector<RailCall> Rails::not_connected(const std::vector<RailCall> &calls) const {
    std::vector<RailCall> missing;
    std::copy_if(calls.begin(), calls.end(), std::back_inserter(missing), [&](const auto &call) {
        return std::none_of(connected_.begin(), connected_.end(), [&](const auto &known) {
            return is_same_kind(known, call) && known.lanes >= call.lanes &&
                   known.most_bytes >= call.most_bytes;
        });
    });
    return missing;
}

const char *Rails::connect(const std::vector<RailCall> &calls, const RailMemory &memory,
                           const std::function<const char *()> &obstacle) {
    if (calls.empty())
        return nullptr;
    const MemoryTaken taken(&nccl_bytes_);
    const std::vector<ncclComm_t> now = lanes();
    if (std::any_of(calls.begin(), calls.end(),
                    [&](const RailCall &call) { return call.lanes > now.size(); }))
        return kAborted;
    const auto abort_lanes = [this] { abort(); };
    const WarmUpEnd end = warm_up_rail({now, calls, request_, grid_.nodes, grid_.node, memory},
                                       obstacle, abort_lanes);
    is_stuck_ = end.is_stuck;
    if (end.fault == nullptr)
        connected_.insert(connected_.end(), calls.begin(), calls.end());
    return end.fault;
}

size_t Rails::count() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return lanes_.size();
}

bool Rails::has_ended() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return taken_;
}

std::vector<ncclComm_t> Rails::lanes() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return lanes_;
}

std::vector<ncclComm_t> Rails::take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    taken_ = true;
    return std::exchange(lanes_, {});
}

void Rails::abort() {
    for (const ncclComm_t lane : take())
        (void)real_nccl().CommAbort(lane);
}

int Rails::error() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const ncclComm_t lane : lanes_) {
        const int error = is_preparing_.load() ? int{kNcclSuccess} : state_of(lane);
        if (error != kNcclSuccess && error != kNcclInProgress)
            return error;
    }
    return kNcclSuccess;
}

bool Rails::obey_requests() const {
    return request_ != nullptr && is_obeyed(*request_, static_cast<uint32_t>(count()));
}

} // namespace tuccl
