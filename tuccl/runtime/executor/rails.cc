#include "rails.h"

#include "executor.h"
#include "real_nccl.h"
#include "uniform_plan.h"

#include <algorithm>
#include <iterator>
#include <optional>
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

// Whether a call connects nothing that another one has not connected.
bool includes(const RailCall &known, const RailCall &call) {
    return known.lanes >= call.lanes && known.most_bytes >= call.most_bytes &&
           std::includes(known.pairs.begin(), known.pairs.end(), call.pairs.begin(),
                         call.pairs.end());
}

constexpr uint64_t kMostElement = 8;

void add(const RailCall &call, std::vector<RailCall> *calls) {
    for (RailCall &known : *calls) {
        if (!known.is_like(call))
            continue;
        known.lanes = std::max(known.lanes, call.lanes);
        known.most_bytes = std::max(known.most_bytes, call.most_bytes);
        RankPairs both;
        std::set_union(known.pairs.begin(), known.pairs.end(), call.pairs.begin(), call.pairs.end(),
                       std::back_inserter(both));
        known.pairs = std::move(both);
        return;
    }
    calls->push_back(call);
}

// NCCL sends and receives for other calls of any size.
bool is_chosen_by_size(const RailCall &call) {
    return call.algorithm == 0 && tuccl_asks_tuner(call.operation);
}

RailCall call_of(const tuccl_phase &phase, uint32_t lanes, bool obeys) {
    RailCall call = {};
    call.operation = phase.operation;
    call.lanes = lanes;
    if (obeys) {
        call.algorithm = phase.rail_algorithm;
        call.protocol = phase.rail_protocol;
        call.nchannels = phase.rail_nchannels;
    }
    return call;
}

// Elements that do not divide into chunks are reduced beside the first call along the rail, or
// alone where there are no others.
void add_left_over(const tuccl_program &program, const RailCall &first,
                   std::vector<RailCall> *calls) {
    const tuccl_program_header &header = *program.header;
    if (header.operation != TUCCL_ALL_REDUCE || header.chunks == 1 ||
        program.phases[0].kind != TUCCL_PHASE_LOCAL)
        return;
    RailCall beside = first;
    beside.operation = TUCCL_ALL_REDUCE;
    RailCall alone = {};
    alone.operation = TUCCL_ALL_REDUCE;
    alone.lanes = 1;
    for (RailCall call : {beside, alone}) {
        call.most_bytes = is_chosen_by_size(call) ? header.chunks * kMostElement : 0;
        add(call, calls);
    }
}

void add_rounds(const tuccl_program &program, std::vector<RailCall> *calls) {
    RailCall call = {};
    call.operation = kSend;
    call.lanes = program.header->lanes;
    call.pairs = pairs_of(program);
    add(call, calls);
}

} // namespace

void add_rail_calls(const Rule &rule, const void *programs, bool obeys,
                    std::vector<RailCall> *calls) {
    tuccl_program program;
    if (programs == nullptr || !tuccl_programs_at(programs, rule.program, &program))
        return;
    if (tuccl_program_has_statements(&program)) {
        add_rounds(program, calls);
        return;
    }
    const tuccl_program_header &header = *program.header;
    uint64_t chunk_bytes = 0;
    for_largest_calls(program, rule.max_bytes, rule.buffer_bytes,
                      [&](const Slicing &slicing, uint64_t) {
                          chunk_bytes = std::max(chunk_bytes, largest_chunk(program, slicing));
                      });
    bool is_first = true;
    for (uint32_t i = 0; i < header.phase_count; i++) {
        const tuccl_phase &phase = program.phases[i];
        if (phase.kind != TUCCL_PHASE_RAIL)
            continue;
        RailCall call = call_of(phase, header.lanes, obeys);
        const uint64_t blocks = phase.operation == TUCCL_ALL_REDUCE ? 1 : header.nodes;
        if (is_chosen_by_size(call))
            call.most_bytes = phase.chunks * chunk_bytes * blocks * phase.repeats;
        add(call, calls);
        if (is_first)
            add_left_over(program, call, calls);
        is_first = false;
    }
}

std::vector<RailCall> rail_calls(const Decision &decision, const void *programs, bool obeys) {
    std::vector<RailCall> calls;
    decision.for_each(
        [&](uint32_t, const Rule &rule) { add_rail_calls(rule, programs, obeys, &calls); });
    return calls;
}

Rails::Rails(const Grid &grid) : grid_(grid), request_(new_rail_request(grid.nodes)) {
}

Rails::~Rails() {
    abort();
}

int Rails::split_rail(ncclComm_t comm, ncclComm_t *lane) const {
    std::optional<Offer> offer;
    if (request_ != nullptr)
        offer.emplace(request_);
    return real_nccl().CommSplit(comm, static_cast<int>(grid_.local), static_cast<int>(grid_.node),
                                 lane, nullptr);
}

int Rails::split_all(ncclComm_t comm, ncclComm_t *lane) const {
    return real_nccl().CommSplit(comm, 0, static_cast<int>(grid_.rank()), lane, nullptr);
}

const char *Rails::make(ncclComm_t comm, const NetworkNeed &need) {
    if (!real_nccl().CommSplit)
        return "NCCL has no ncclCommSplit, which came with 2.18";
    const MemoryTaken taken(&nccl_bytes_);
    const char *fault = nullptr;
    for (size_t made = count(); made < need.lanes && fault == nullptr; made++)
        fault = make_lane(comm, &Rails::split_rail, &lanes_);
    for (size_t made = round_lanes().size(); made < need.round_lanes && fault == nullptr; made++)
        fault = make_lane(comm, &Rails::split_all, &round_lanes_);
    return fault;
}

bool Rails::has(const NetworkNeed &need) const {
    return count() >= need.lanes && round_lanes().size() >= need.round_lanes;
}

const char *Rails::make_lane(ncclComm_t comm, Split split, std::vector<ncclComm_t> *lanes) {
    ncclComm_t made = nullptr;
    if ((this->*split)(comm, &made) != kNcclSuccess || made == nullptr)
        return "NCCL could not split its communicator";
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!taken_) {
            lanes->push_back(made);
            return nullptr;
        }
    }
    (void)real_nccl().CommAbort(made);
    return kAborted;
}

std::vector<RailCall> Rails::not_connected(const std::vector<RailCall> &calls) const {
    std::vector<RailCall> missing;
    std::copy_if(calls.begin(), calls.end(), std::back_inserter(missing), [&](const auto &call) {
        return std::none_of(connected_.begin(), connected_.end(), [&](const auto &known) {
            return known.is_like(call) && includes(known, call);
        });
    });
    return missing;
}

const char *Rails::connect(const std::vector<RailCall> &calls, const RailMemory &memory,
                           Exchange *exchange) {
    if (calls.empty())
        return nullptr;
    const MemoryTaken taken(&nccl_bytes_);
    const std::vector<ncclComm_t> now = lanes();
    const std::vector<ncclComm_t> of_all = round_lanes();
    if (std::any_of(calls.begin(), calls.end(), [&](const RailCall &call) {
            return call.lanes > (call.operation == kSend ? of_all : now).size();
        }))
        return kAborted;
    const auto abort_all = [this] { abort(); };
    const WarmUpEnd end =
        warm_up_rail({now, of_all, calls, request_, grid_, memory}, exchange, abort_all);
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

std::vector<ncclComm_t> Rails::round_lanes() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return round_lanes_;
}

std::vector<ncclComm_t> Rails::all() const {
    std::vector<ncclComm_t> all = lanes_;
    all.insert(all.end(), round_lanes_.begin(), round_lanes_.end());
    return all;
}

std::vector<ncclComm_t> Rails::take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::vector<ncclComm_t> taken = all();
    taken_ = true;
    lanes_.clear();
    round_lanes_.clear();
    return taken;
}

Aborting Rails::start_abort() {
    return Aborting(take());
}

int Rails::error() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const ncclComm_t lane : all()) {
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
