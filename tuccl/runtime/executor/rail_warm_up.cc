#include "rails.h"

#include "exchange.h"
#include "executor.h"
#include "real_nccl.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

// Of one call. Tests are compiled with less.
#ifndef TUCCL_RAIL_PATIENCE_MS
#define TUCCL_RAIL_PATIENCE_MS 30000
#endif

namespace tuccl {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::milliseconds(TUCCL_RAIL_PATIENCE_MS);
constexpr auto kPause = std::chrono::microseconds(20);
constexpr auto kPauseOfLooks = std::chrono::milliseconds(5);
constexpr auto kPatienceOutsideNccl = std::chrono::seconds(1);
constexpr auto kPatienceAfterAbort = std::chrono::seconds(5);

constexpr size_t kElements = 4; // Of a block in the small call.
constexpr uint64_t kFirstBytes = 1024;
constexpr uint64_t kStep = 8; // From one larger call to the next.

// What a rank of the rail sends: elements of int32, whose sums over 4096 nodes are exact.
int32_t sent(uint32_t node, size_t element) {
    return static_cast<int32_t>(1 + node * 7 + element);
}

int32_t total(uint32_t nodes, size_t element) {
    int32_t sum = 0;
    for (uint32_t node = 0; node < nodes; node++)
        sum += sent(node, element);
    return sum;
}

std::vector<int32_t> expected(uint8_t operation, uint32_t nodes, uint32_t node) {
    std::vector<int32_t> elements;
    const size_t first = tuccl_splits(operation) ? node * kElements : 0;
    for (uint32_t from = 0; from < (tuccl_joins(operation) ? nodes : 1); from++)
        for (size_t i = first; i < first + kElements; i++)
            elements.push_back(tuccl_joins(operation) ? sent(from, i) : total(nodes, i));
    return elements;
}

// The thread that makes the calls, and what it shares with the one that waits for it.
class Caller {
  public:
    explicit Caller(WarmUp warm_up) : warm_up_(std::move(warm_up)) {
    }

    const char *open() {
        const size_t bytes = warm_up_.grid.ranks() * kElements * sizeof(int32_t);
        return tuccl_exchange_create(&buffers_, bytes, 1);
    }
    // Of a caller whose last call has ended on the device.
    tuccl_exchange *buffers() const {
        return buffers_;
    }

    void run() {
        const bool has_device = tuccl_device_enter(warm_up_.memory.device_number, nullptr) == 0;
        const char *fault = has_device ? make_all() : "its device cannot be made the current one";
        const std::lock_guard<std::mutex> lock(mutex_);
        fault_ = fault;
        has_ended_ = true;
        changed_.notify_all();
    }

    bool wait_for(Clock::duration time) {
        std::unique_lock<std::mutex> lock(mutex_);
        return changed_.wait_for(lock, time, [this] { return has_ended_; });
    }
    // Of a caller that has ended.
    const char *fault() {
        const std::lock_guard<std::mutex> lock(mutex_);
        return fault_;
    }
    void stop() {
        stopped_.store(true);
    }
    bool is_late() const {
        return Clock::now().time_since_epoch().count() - last_call_.load() >
               std::chrono::duration_cast<Clock::duration>(kPatience).count();
    }

  private:
    const char *make_all() {
        for (const RailCall &call : warm_up_.calls) {
            if (call.operation == TUCCL_ALLTOALL && !real_nccl().AlltoAll)
                continue; // Schedules with it are not run.
            for (uint32_t lane = 0; lane < call.lanes; lane++)
                if (const char *fault = make_on(lane, call))
                    return fault;
        }
        return nullptr;
    }

    const char *make_on(uint32_t lane, const RailCall &call) {
        if (call.operation == kSend)
            return make_pairs(call.pairs, warm_up_.round_lanes[lane]);
        const char *fault = make_small(call, warm_up_.lanes[lane]);
        return fault != nullptr ? fault : make_larger(call, warm_up_.lanes[lane]);
    }

    // Writes this node's or rank's elements, a block for each of the others.
    const char *write(uint32_t number) {
        std::vector<int32_t> mine;
        for (size_t i = 0; i < warm_up_.grid.ranks() * kElements; i++)
            mine.push_back(sent(number, i));
        return tuccl_exchange_write(buffers_, mine.data()) == 0 ? nullptr
                                                                : "a copy to the device failed";
    }
    const char *read(std::vector<int32_t> *received) {
        received->resize(warm_up_.grid.ranks() * kElements);
        return tuccl_exchange_read(buffers_, received->data()) == 0
                   ? nullptr
                   : "a copy from the device failed";
    }

    // Each element of its buffers is written and checked.
    const char *make_small(const RailCall &call, ncclComm_t lane) {
        if (const char *fault = write(warm_up_.grid.node))
            return fault;
        const struct tuccl_exchange_view view = tuccl_exchange_view(buffers_);
        if (const char *fault = make(call, lane, view.send, view.receive, kElements))
            return fault;
        std::vector<int32_t> received;
        if (const char *fault = read(&received))
            return fault;
        const std::vector<int32_t> right =
            expected(call.operation, warm_up_.grid.nodes, warm_up_.grid.node);
        return std::equal(right.begin(), right.end(), received.begin())
                   ? nullptr
                   : "NCCL's first call along its rail gave a wrong result";
    }

    // A few elements between all pairs at once. NCCL connects two ranks for messages of any size.
    const char *make_pairs(const RankPairs &pairs, ncclComm_t lane) {
        if (const char *fault = write(warm_up_.grid.rank()))
            return fault;
        if (stopped_.load())
            return "it was stopped";
        last_call_.store(Clock::now().time_since_epoch().count());
        int failed = real_nccl().GroupStart();
        for (const auto &[sender, receiver] : pairs)
            if (failed == kNcclSuccess &&
                (sender == warm_up_.grid.rank() || receiver == warm_up_.grid.rank()))
                failed = pass_on(message(sender, receiver, lane));
        const int ended = real_nccl().GroupEnd();
        if (failed != kNcclSuccess || ended != kNcclSuccess)
            return "NCCL could not make its first sends and receives";
        if (const char *fault = wait_for_call(lane))
            return fault;
        std::vector<int32_t> received;
        if (const char *fault = read(&received))
            return fault;
        for (const auto &[sender, receiver] : pairs)
            for (size_t i = 0; receiver == warm_up_.grid.rank() && i < kElements; i++)
                if (received[sender * kElements + i] != sent(sender, receiver * kElements + i))
                    return "NCCL's first sends and receives gave a wrong result";
        return nullptr;
    }

    // Of this rank.
    NcclCall message(uint32_t sender, uint32_t receiver, ncclComm_t lane) const {
        const struct tuccl_exchange_view view = tuccl_exchange_view(buffers_);
        const size_t block_bytes = kElements * sizeof(int32_t);
        const bool sends = sender == warm_up_.grid.rank();
        NcclCall call = {};
        call.kind = sends ? kSend : kRecv;
        call.root = static_cast<int>(sends ? receiver : sender);
        call.count = kElements;
        call.type = TUCCL_INT32;
        call.comm = lane;
        call.stream = view.stream;
        if (sends)
            call.send = static_cast<const char *>(view.send) + receiver * block_bytes;
        else
            call.receive = static_cast<char *>(view.receive) + sender * block_bytes;
        return call;
    }

    // In the memory between phases, in place; whatever is there.
    const char *make_larger(const RailCall &call, ncclComm_t lane) {
        const uint64_t most = std::min(call.most_bytes, warm_up_.memory.scratch_bytes);
        const uint64_t blocks = call.operation == TUCCL_ALL_REDUCE ? 1 : warm_up_.grid.nodes;
        for (uint64_t bytes = kFirstBytes; bytes < kStep * most; bytes *= kStep) {
            const size_t count = std::min(bytes, most) / sizeof(int32_t) / blocks;
            if (count == 0)
                continue;
            char *whole = static_cast<char *>(warm_up_.memory.scratch);
            char *own = whole + (blocks > 1 ? warm_up_.grid.node * count * sizeof(int32_t) : 0);
            const bool gathers = call.operation == TUCCL_ALL_GATHER;
            const char *fault =
                make(call, lane, gathers ? own : whole, gathers ? whole : own, count);
            if (fault != nullptr)
                return fault;
        }
        return nullptr;
    }

    const char *make(const RailCall &call, ncclComm_t lane, const void *send, void *receive,
                     size_t count) {
        if (stopped_.load())
            return "it was stopped";
        last_call_.store(Clock::now().time_since_epoch().count());
        tuccl_phase phase = {};
        phase.rail_algorithm = call.algorithm;
        phase.rail_protocol = call.protocol;
        phase.rail_nchannels = call.nchannels;
        const RailRequested requested(warm_up_.request, phase);
        const int result =
            pass_on({send, receive, count, TUCCL_INT32, TUCCL_SUM, 0, lane,
                     tuccl_exchange_view(buffers_).stream, static_cast<CallKind>(call.operation)});
        if (result != kNcclSuccess)
            return "NCCL could not make its first call along the rail";
        return wait_for_call(lane);
    }

    const char *wait_for_call(ncclComm_t lane) {
        for (;;) {
            if (stopped_.load()) // Its communicator may end from now on.
                return "it was stopped";
            const int ended = tuccl_exchange_ended(buffers_);
            const int error = state_of(lane);
            if (error != kNcclSuccess && error != kNcclInProgress)
                return "NCCL reports an error of its first call along the rail";
            if (ended < 0)
                return "NCCL's first call along its rail failed on the device";
            if (ended > 0)
                return nullptr;
            std::this_thread::sleep_for(kPause);
        }
    }

    const WarmUp warm_up_;
    tuccl_exchange *buffers_ = nullptr;
    std::atomic<bool> stopped_{false};
    std::atomic<Clock::rep> last_call_{Clock::now().time_since_epoch().count()};
    std::mutex mutex_;
    std::condition_variable changed_;
    bool has_ended_ = false;
    const char *fault_ = nullptr;
};

// Waits for the caller's end. Returns the reason of a failure, its own or what others found.
const char *watch(Caller *caller, const Exchange &exchange) {
    while (!caller->wait_for(kPauseOfLooks)) {
        if (const char *reason = exchange.obstacle())
            return reason;
        if (caller->is_late())
            return "NCCL did not connect the ranks of its rail in time";
    }
    return caller->fault();
}

} // namespace

WarmUpEnd warm_up_rail(const WarmUp &warm_up, Exchange *exchange,
                       const std::function<void()> &abort) {
    // Shared with a thread that may never end.
    const auto caller = std::make_shared<Caller>(warm_up);
    const char *fault = caller->open();
    if (fault != nullptr) {
        abort();
        return {fault, false};
    }
    std::thread thread;
    try {
        thread = std::thread([caller] { caller->run(); });
    } catch (const std::system_error &) {
        abort();
        exchange->keep(caller->buffers());
        return {"no thread could be started", false};
    }
    fault = watch(caller.get(), *exchange);
    if (fault != nullptr) {
        caller->stop();
        (void)caller->wait_for(kPatienceOutsideNccl);
        abort(); // Also ends a call that does not return.
    }
    if (!caller->wait_for(kPatienceAfterAbort)) {
        thread.detach();
        return {fault, true};
    }
    thread.join();
    exchange->keep(caller->buffers());
    return {fault, false};
}

} // namespace tuccl
