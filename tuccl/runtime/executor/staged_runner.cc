#include "staged_runner.h"

#include "nccl_call.h"
#include "program_staging.h"
#include "real_nccl.h"
#include "side_streams.h"

extern "C" {
#include "program.h"
}

#include <algorithm>

namespace tuccl {

namespace {

bool is_reduction(uint32_t operation) {
    return operation == TUCCL_ALL_REDUCE || operation == TUCCL_REDUCE_SCATTER ||
           operation == TUCCL_REDUCE;
}

// As for programs of one node (program_plan.cc).
bool fits(const tuccl_staged_header &header, const tuccl_call &call) {
    const bool rooted = call.operation == TUCCL_BROADCAST || call.operation == TUCCL_REDUCE;
    if (call.operation != header.operation || call.type >= TUCCL_TYPES ||
        (rooted && call.root != header.root))
        return false;
    // NCCL divides before it adds: sums that overflow 16 bits here have an average there.
    if (is_reduction(call.operation) &&
        (call.reduction >= TUCCL_REDUCTIONS ||
         (call.reduction == TUCCL_AVG &&
          (call.type == TUCCL_FLOAT16 || (header.flags & TUCCL_PROGRAM_AVERAGES) == 0))))
        return false;
    return call.nthreads >= 32 && call.nthreads <= kMostProgramThreads && call.nthreads % 32 == 0 &&
           call.nchannels >= 1 && call.nchannels <= kMostProgramBlocks;
}

} // namespace

StagedRunner::StagedRunner(const Grid &grid, const void *programs, const Decision *decision)
    : programs_(programs) {
    if (decision == nullptr)
        for (uint32_t program = 0; program < tuccl_programs_count(programs); program++)
            add(program, grid);
    else
        decision->for_each([&](uint32_t, const Rule &rule) { add(rule.program, grid); });
}

void StagedRunner::add(uint32_t program, const Grid &grid) {
    tuccl_staged staged;
    if (!has(program) && tuccl_staged_at(programs_, program, &staged) && is_for(staged, grid))
        plans_.emplace(program, plan_staged(staged, grid, &steps_));
}

const char *StagedRunner::load(tuccl_device_comm *device, const tuccl_staging &staging,
                               size_t scratch_bytes, uint32_t most_lanes) {
    device_ = device;
    staging_ = staging;
    scratch_bytes_ = scratch_bytes;
    most_lanes_ = most_lanes;
    return plans_.empty() ? nullptr
                          : tuccl_device_load_stages(device, steps_.data(), steps_.size());
}

// One call on its way into the streams.
class StagedRunner::Run {
  public:
    Run(const StagedRunner &runner, const tuccl_staged_header &header, const StagedPlan &plan,
        const tuccl_call &call, ncclStream stream, const std::atomic<bool> &gave_up)
        : runner_(runner), header_(header), plan_(plan), call_(call), stream_(stream),
          gave_up_(gave_up), cut_(cut_chunks(header, call)),
          slices_(slice_chunks(header, cut_, call.buffer_bytes)),
          sides_(runner.device_, runner.most_lanes_, slices_.slices > 1 ? 1 : 0, stream),
          scratch_(static_cast<char *>(tuccl_device_scratch(runner.device_))) {
    }

    // At each step the oldest slice goes first.
    int enqueue() const {
        if (const int failed = sides_.fork(kStartMark))
            return failed;
        const uint64_t items = plan_.items.size();
        for (uint64_t step = 0; step + 1 < slices_.slices + items; step++)
            for (uint64_t number = items; number-- > 0;) {
                if (number > step || step - number >= slices_.slices)
                    continue;
                if (const int failed = run_item(number, step - number))
                    return failed;
            }
        return sides_.join(kEndMark);
    }

  private:
    // Each slice has a mark of what was enqueued of it last.
    static constexpr uint32_t kStartMark = kMostChunkSlices;
    static constexpr uint32_t kEndMark = kStartMark + 1;
    static_assert(kEndMark < TUCCL_DEVICE_MARKS, "marks of a call");

    int run_item(uint64_t number, uint64_t slice) const {
        const StagedItem &item = plan_.items[number];
        const ncclStream own = sides_ && item.is_round ? sides_.of(0) : stream_;
        const auto mark = static_cast<uint32_t>(slice);
        // Stages and rounds take turns, so what came before is on the other stream.
        if (sides_ && number > 0 && tuccl_device_await(runner_.device_, mark, own) != 0)
            return kNcclUnhandledCudaError;
        const ChunkRange range = range_of(cut_, slices_, slice);
        const int failed =
            item.is_round ? send_and_receive(item.messages, range, own) : launch(item, range);
        if (failed != kNcclSuccess)
            return failed;
        const bool goes_on = number + 1 < plan_.items.size();
        if (sides_ && goes_on && tuccl_device_mark(runner_.device_, mark, own) != 0)
            return kNcclUnhandledCudaError;
        return kNcclSuccess;
    }

    // Where the messages of a stage do not fit the staging memory there are several launches.
    int launch(const StagedItem &item, const ChunkRange &range) const {
        if (!item.runs)
            return kNcclSuccess;
        tuccl_stage_call call = stage_call(item);
        const uint64_t most =
            stage_slice_bytes(runner_.staging_, call_.protocol, plan_.arrivals, cut_.chunk_bytes);
        const uint64_t end = range.first + range.bytes;
        for (call.first = range.first; call.first < end; call.first += most) {
            call.bytes = static_cast<uint32_t>(std::min<uint64_t>(most, end - call.first));
            if (tuccl_device_run_stage(runner_.device_, &call, stream_) != 0)
                return kNcclUnhandledCudaError;
        }
        return kNcclSuccess;
    }

    tuccl_stage_call stage_call(const StagedItem &item) const {
        tuccl_stage_call call = {};
        call.send = call_.send;
        call.receive = call_.receive;
        call.scratch = scratch_;
        call.part_bytes = cut_.part_bytes;
        call.chunk_bytes = cut_.chunk_bytes;
        call.part_chunks = cut_.part_chunks;
        call.first_step = item.first_step;
        call.steps = item.steps;
        call.receivers = item.receivers;
        call.divisor = header_.ranks;
        call.type = call_.type;
        call.reduction = call_.reduction;
        call.protocol = call_.protocol;
        call.nchannels = call_.nchannels;
        call.nthreads = call_.nthreads;
        return call;
    }

    // A rank without messages has nothing to do in a round.
    int send_and_receive(const std::vector<RoundMessage> &messages, const ChunkRange &range,
                         ncclStream stream) const {
        if (messages.empty())
            return kNcclSuccess;
        int failed = real_nccl().GroupStart();
        if (failed != kNcclSuccess)
            return failed;
        for (const RoundMessage &message : messages)
            for_each_run(cut_, range, message,
                         [&](uint64_t source, uint64_t target, uint64_t bytes) {
                             if (failed == kNcclSuccess)
                                 failed = pass_on_run(message, {source, target, bytes}, stream);
                         });
        const int ended = real_nccl().GroupEnd();
        return failed != kNcclSuccess ? failed : ended;
    }

    // A run of a message's bytes, from and to which place in its buffers.
    struct Bytes {
        uint64_t source;
        uint64_t target;
        uint64_t bytes;
    };
    int pass_on_run(const RoundMessage &message, const Bytes &run, ncclStream stream) const {
        if (gave_up_.load())
            return kNcclSystemError;
        NcclCall call = {};
        call.count = run.bytes;
        call.type = TUCCL_UINT8;
        call.root = static_cast<int>(message.peer);
        call.comm = runner_.network_;
        call.stream = stream;
        call.kind = message.is_sent ? kSend : kRecv;
        if (message.is_sent)
            call.send = buffer(message.source_buffer) + run.source;
        else
            call.receive = buffer(message.target_buffer) + run.target;
        return pass_on(call);
    }

    char *buffer(uint8_t number) const {
        if (number == TUCCL_BUFFER_SCRATCH)
            return scratch_;
        return number == TUCCL_BUFFER_INPUT
                   ? const_cast<char *>(static_cast<const char *>(call_.send))
                   : static_cast<char *>(call_.receive);
    }

    const StagedRunner &runner_;
    const tuccl_staged_header &header_;
    const StagedPlan &plan_;
    const tuccl_call &call_;
    const ncclStream stream_;
    const std::atomic<bool> &gave_up_;
    const ChunkCut cut_;
    const ChunkSlices slices_;
    const SideStreams sides_; // Of rounds; none: they run on the call's stream.
    char *const scratch_;
};

bool StagedRunner::supports(const tuccl_call &call) const {
    const auto plan = plans_.find(call.program);
    tuccl_staged staged;
    if (network_ == nullptr || plan == plans_.end() ||
        !tuccl_staged_at(programs_, call.program, &staged) || !fits(*staged.header, call))
        return false;
    if (call.protocol > TUCCL_LL128 ||
        (call.protocol == TUCCL_LL128 && tuccl_device_has_nvlink(device_) == 0))
        return false;
    const ChunkCut cut = cut_chunks(*staged.header, call);
    return staged_scratch_bytes(*staged.header, cut) <= scratch_bytes_ &&
           stage_slice_bytes(staging_, call.protocol, plan->second.arrivals, cut.chunk_bytes) > 0;
}

int StagedRunner::run(const tuccl_call &call, ncclStream stream,
                      const std::atomic<bool> &gave_up) const {
    const auto plan = plans_.find(call.program);
    tuccl_staged staged;
    if (plan == plans_.end() || !tuccl_staged_at(programs_, call.program, &staged))
        return kNcclInvalidUsage;
    return Run(*this, *staged.header, plan->second, call, stream, gave_up).enqueue();
}

} // namespace tuccl
