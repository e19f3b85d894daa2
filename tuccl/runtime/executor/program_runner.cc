#include "program_runner.h"

#include "program_plan.h"
#include "real_nccl.h"
#include "stream_order.h"
#include "uniform_plan.h"

extern "C" {
#include "program.h"
}

#include <algorithm>

namespace tuccl {

namespace {

// Each slice in flight has a mark of what was enqueued of it last.
constexpr uint32_t kStartMark = std::max<uint32_t>(kMostWindows, kMostChunkSlices);
constexpr uint32_t kFirstEndMark = kStartMark + 1;
static_assert(kFirstEndMark + TUCCL_DEVICE_SIDE_STREAMS <= TUCCL_DEVICE_MARKS, "marks of a call");
static_assert(2 * TUCCL_PROGRAM_MOST_LANES <= int{TUCCL_DEVICE_SIDE_STREAMS},
              "streams for each lane");

bool averages_integers(const tuccl_call &call) {
    return call.reduction == TUCCL_AVG && call.type <= TUCCL_UINT64;
}

tuccl_call local_call(const tuccl_call &whole, const tuccl_phase &phase, const PhaseCall &call) {
    tuccl_call local = whole;
    local.send = call.source;
    local.receive = call.target;
    local.count = call.count;
    local.operation = phase.operation;
    local.pattern = phase.pattern;
    local.root = 0;
    local.stride_bytes = call.stride_bytes;
    return local;
}

// The left-over elements are few: one phase suffices.
tuccl_call left_over_call(const tuccl_call &whole, const PhaseCall &call) {
    tuccl_phase phase = {};
    phase.operation = TUCCL_ALL_REDUCE;
    phase.pattern = TUCCL_PATTERN_ONE_PHASE;
    tuccl_call local = local_call(whole, phase, call);
    local.nchannels = 1;
    return local;
}

int to_nccl(int cuda_error) {
    return cuda_error == 0 ? kNcclSuccess : kNcclUnhandledCudaError;
}

} // namespace

// A call of a program.
struct ProgramRunner::Started {
    const tuccl_program &program;
    const tuccl_call &call;
    const ncclStream stream;
    const std::atomic<bool> &gave_up;
};

// Slices go through the phases one behind the other: at each step, of those that have a phase then
// the oldest goes first. A slice takes the window of one that has enqueued all of its phases.
template <typename Run>
int ProgramRunner::enqueue(const Run &run, const Started &started, uint64_t slices,
                           uint64_t windows, bool beside) const {
    const tuccl_program &program = started.program;
    const uint32_t last = program.header->phase_count - 1;
    const uint64_t lanes = program.header->lanes;
    // Without any, all follows one another on the call's stream.
    const SideStreams sides(device_, most_lanes_,
                            slices > 1 || beside ? std::min(slices, lanes) : 0, started.stream);
    const auto is_beside = [&](uint32_t phase) {
        return sides && is_on_network(program.phases[phase]);
    };
    const bool ends_elsewhere = is_beside(0) || is_beside(last);
    const auto mark_of = [&](uint64_t slice) { return static_cast<uint32_t>(slice % windows); };
    const auto run_phase = [&](uint32_t phase, uint64_t slice) {
        const ncclStream own = is_beside(phase) ? sides.of(slice) : started.stream;
        const bool changes_in = phase > 0 && is_beside(phase - 1) != is_beside(phase);
        const bool changes_out = phase < last && is_beside(phase + 1) != is_beside(phase);
        const bool takes_over = phase == 0 && slice >= windows && ends_elsewhere;
        if ((changes_in || takes_over) && tuccl_device_await(device_, mark_of(slice), own) != 0)
            return int{kNcclUnhandledCudaError};
        if (const int failed = run(phase, slice, own))
            return failed;
        const bool ends = phase == last && ends_elsewhere;
        return changes_out || ends ? to_nccl(tuccl_device_mark(device_, mark_of(slice), own))
                                   : int{kNcclSuccess};
    };
    if (const int failed = sides.fork(kStartMark))
        return failed;
    const uint64_t steps = slices + steps_before(program, last);
    for (uint64_t step = 0; step < steps; step++)
        for (uint32_t phase = last + 1; phase-- > 0;) {
            const uint64_t before = steps_before(program, phase);
            if (before > step || step - before >= slices)
                continue;
            if (const int failed = run_phase(phase, step - before))
                return failed;
        }
    return sides.join(kFirstEndMark);
}

// The collectives and sums of a uniform program.
class ProgramRunner::UniformRun {
  public:
    UniformRun(const ProgramRunner &runner, const Started &started)
        : runner_(runner), program_(started.program), call_(started.call), started_(started),
          slicing_(slice_call(program_, call_)),
          operands_(program_, call_, slicing_,
                    static_cast<char *>(tuccl_device_scratch(runner.device_))) {
    }

    int enqueue() const {
        return slicing_.slices == 0
                   ? left_over_alone()
                   : runner_.enqueue(*this, started_, slicing_.slices, slicing_.windows);
    }

    int operator()(uint32_t number, uint64_t slice, ncclStream stream) const {
        const tuccl_phase &phase = program_.phases[number];
        const bool takes_left_over = slicing_.left_over > 0 && slice + 1 == slicing_.slices;
        switch (phase.kind) {
        case TUCCL_PHASE_LOCAL:
            if (takes_left_over && number == 0)
                if (const int failed = launch_left_over(stream))
                    return failed;
            for (uint32_t repeat = 0; repeat < phase.repeats; repeat++) {
                const tuccl_call local =
                    local_call(call_, phase, operands_.of(phase, slice, repeat));
                if (tuccl_device_launch(runner_.device_, &local, stream) != 0)
                    return kNcclUnhandledCudaError;
            }
            return kNcclSuccess;
        case TUCCL_PHASE_SUM: {
            const PhaseCall sum = operands_.of(phase, slice, 0);
            return to_nccl(tuccl_device_sum(runner_.device_, sum.source, sum.target, sum.count,
                                            phase.repeats, call_.type, call_.reduction, stream));
        }
        default:
            return call_rail(phase, slice, takes_left_over && is_first_rail(number), stream);
        }
    }

  private:
    bool is_first_rail(uint32_t number) const {
        return std::none_of(program_.phases, program_.phases + number, is_on_network);
    }

    // NCCL launches the calls of a group together.
    int call_rail(const tuccl_phase &phase, uint64_t slice, bool with_left_over,
                  ncclStream stream) const {
        const RailRequested requested(runner_.request_, phase);
        const bool groups = phase.repeats > 1 || with_left_over;
        int failed = groups ? real_nccl().GroupStart() : int{kNcclSuccess};
        if (failed != kNcclSuccess)
            return failed;
        for (uint32_t repeat = 0; repeat < phase.repeats && failed == kNcclSuccess; repeat++)
            failed =
                pass_on_rail(phase.operation, operands_.of(phase, slice, repeat), slice, stream);
        if (failed == kNcclSuccess && with_left_over)
            failed = pass_on_rail(TUCCL_ALL_REDUCE, operands_.left_over_rail(), slice, stream);
        const int ended = groups ? real_nccl().GroupEnd() : int{kNcclSuccess};
        return failed != kNcclSuccess ? failed : ended;
    }

    int pass_on_rail(uint8_t operation, const PhaseCall &call, uint64_t slice,
                     ncclStream stream) const {
        if (started_.gave_up.load())
            return kNcclSystemError;
        const ncclComm_t rail = runner_.rails_[slice % program_.header->lanes];
        return pass_on({call.source, call.target, call.count, call_.type,
                        tuccl_is_reduction(operation) ? call_.reduction : 0, 0, rail, stream,
                        static_cast<CallKind>(operation)});
    }

    int launch_left_over(ncclStream stream) const {
        const tuccl_call local = left_over_call(call_, operands_.left_over_local());
        return to_nccl(tuccl_device_launch(runner_.device_, &local, stream));
    }

    int left_over_alone() const {
        if (const int failed = launch_left_over(started_.stream))
            return failed;
        return pass_on_rail(TUCCL_ALL_REDUCE, operands_.left_over_rail(), 0, started_.stream);
    }

    const ProgramRunner &runner_;
    const tuccl_program &program_;
    const tuccl_call &call_;
    const Started &started_;
    const Slicing slicing_;
    const PhaseOperands operands_;
};

// Stages by the executor's kernels, rounds as groups of NCCL's sends and receives.
class ProgramRunner::StatementRun {
  public:
    StatementRun(const ProgramRunner &runner, const Started &started, const StatementPlan &plan)
        : runner_(runner), header_(*started.program.header), plan_(plan), call_(started.call),
          started_(started), cut_(cut_chunks(header_, call_)),
          slices_(slice_chunks(header_, cut_, call_.buffer_bytes)),
          scratch_(static_cast<char *>(tuccl_device_scratch(runner.device_))) {
    }

    int enqueue() const {
        return runner_.enqueue(*this, started_, slices_.slices, slices_.slices, plan_.has_beside);
    }

    int operator()(uint32_t number, uint64_t slice, ncclStream stream) const {
        const StatementPhase &phase = plan_.phases[number];
        const ChunkRange range = range_of(cut_, slices_, slice);
        const int failed = send_and_receive(phase.messages, range, lane_of(slice), stream);
        return failed != kNcclSuccess ? failed : launch(phase, range, started_.stream);
    }

  private:
    // If the messages of a stage do not fit the staging memory there are several launches.
    int launch(const StatementPhase &stage, const ChunkRange &range, ncclStream stream) const {
        if (!stage.runs)
            return kNcclSuccess;
        tuccl_stage_call call = stage_call(stage);
        const uint64_t most =
            stage_slice_bytes(runner_.staging_, call_.protocol, plan_.arrivals, cut_.chunk_bytes);
        const uint64_t end = range.first + range.bytes;
        for (call.first = range.first; call.first < end; call.first += most) {
            call.bytes = static_cast<uint32_t>(std::min<uint64_t>(most, end - call.first));
            if (tuccl_device_run_stage(runner_.device_, &call, stream) != 0)
                return kNcclUnhandledCudaError;
        }
        return kNcclSuccess;
    }

    tuccl_stage_call stage_call(const StatementPhase &stage) const {
        tuccl_stage_call call = {};
        call.send = call_.send;
        call.receive = call_.receive;
        call.scratch = scratch_;
        call.part_bytes = cut_.part_bytes;
        call.chunk_bytes = cut_.chunk_bytes;
        call.part_chunks = cut_.part_chunks;
        call.first_step = stage.first_step;
        call.steps = stage.steps;
        call.receivers = stage.receivers;
        call.divisor = header_.ranks;
        call.type = call_.type;
        call.reduction = call_.reduction;
        call.protocol = call_.protocol;
        call.nchannels = call_.nchannels;
        call.nthreads = call_.nthreads;
        return call;
    }

    ncclComm_t lane_of(uint64_t slice) const {
        return runner_.round_lanes_[slice % header_.lanes];
    }

    // A rank without messages has nothing to do in a round.
    int send_and_receive(const std::vector<RoundMessage> &messages, const ChunkRange &range,
                         ncclComm_t lane, ncclStream stream) const {
        if (messages.empty())
            return kNcclSuccess;
        int failed = real_nccl().GroupStart();
        if (failed != kNcclSuccess)
            return failed;
        for (const RoundMessage &message : messages)
            for_each_run(
                cut_, range, message, [&](uint64_t source, uint64_t target, uint64_t bytes) {
                    if (failed == kNcclSuccess)
                        failed = pass_on_run(message, {source, target, bytes}, lane, stream);
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
    int pass_on_run(const RoundMessage &message, const Bytes &run, ncclComm_t lane,
                    ncclStream stream) const {
        if (started_.gave_up.load())
            return kNcclSystemError;
        NcclCall call = {};
        call.count = run.bytes;
        call.type = TUCCL_UINT8;
        call.root = static_cast<int>(message.peer);
        call.comm = lane;
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

    const ProgramRunner &runner_;
    const tuccl_program_header &header_;
    const StatementPlan &plan_;
    const tuccl_call &call_;
    const Started &started_;
    const ChunkCut cut_;
    const ChunkSlices slices_;
    char *const scratch_;
};

ProgramRunner::ProgramRunner(const Grid &grid, const void *programs, const Decision *decision)
    : programs_(programs) {
    if (decision == nullptr)
        for (uint32_t number = 0; number < tuccl_programs_count(programs); number++)
            add(number, grid);
    else
        decision->for_each([&](uint32_t, const Rule &rule) { add(rule.program, grid); });
}

void ProgramRunner::add(uint32_t number, const Grid &grid) {
    tuccl_program program;
    if (plans_.count(number) == 0 && tuccl_programs_at(programs_, number, &program) &&
        tuccl_program_has_statements(&program) && is_for(program, grid))
        plans_.emplace(number, plan_statements(program, grid, &steps_));
}

const char *ProgramRunner::load(tuccl_device_comm *device, const tuccl_staging &staging,
                                size_t scratch_bytes, uint32_t most_lanes) {
    device_ = device;
    staging_ = staging;
    scratch_bytes_ = scratch_bytes;
    most_lanes_ = most_lanes;
    return plans_.empty() ? nullptr
                          : tuccl_device_load_stages(device, steps_.data(), steps_.size());
}

void ProgramRunner::use(Rails &rails) {
    rails_ = rails.lanes();
    request_ = rails.request();
    round_lanes_ = rails.round_lanes();
}

RailMemory ProgramRunner::memory(int device_number) const {
    return {device_number, tuccl_device_scratch(device_), scratch_bytes_};
}

bool ProgramRunner::supports_uniform(const tuccl_program &program, const tuccl_call &call) const {
    const tuccl_program_header &header = *program.header;
    if (steps_before(program, header.phase_count) > kMostWindows || header.lanes > rails_.size() ||
        averages_integers(call))
        return false;
    const Slicing slicing = slice_call(program, call);
    if (slicing.scratch_bytes() > scratch_bytes_)
        return false;
    const PhaseCall nothing = {};
    for (uint32_t i = 0; i < header.phase_count; i++) {
        const tuccl_phase &phase = program.phases[i];
        const bool lacks = phase.kind == TUCCL_PHASE_RAIL && phase.operation == TUCCL_ALLTOALL &&
                           !real_nccl().AlltoAll;
        const tuccl_call local = local_call(call, phase, nothing);
        if (lacks ||
            (phase.kind == TUCCL_PHASE_LOCAL && tuccl_device_supports(device_, &local) == 0))
            return false;
    }
    const tuccl_call left_over = left_over_call(call, nothing);
    return slicing.left_over == 0 || (program.phases[0].kind == TUCCL_PHASE_LOCAL &&
                                      tuccl_device_supports(device_, &left_over) != 0);
}

bool ProgramRunner::supports_statements(const tuccl_program &program,
                                        const tuccl_call &call) const {
    const auto plan = plans_.find(call.program);
    if (program.header->lanes > round_lanes_.size() || plan == plans_.end() ||
        !fits(*program.header, call) || call.protocol > TUCCL_LL128 ||
        (call.protocol == TUCCL_LL128 && tuccl_device_has_nvlink(device_) == 0))
        return false;
    const ChunkCut cut = cut_chunks(*program.header, call);
    return statement_scratch_bytes(*program.header, cut) <= scratch_bytes_ &&
           stage_slice_bytes(staging_, call.protocol, plan->second.arrivals, cut.chunk_bytes) > 0;
}

bool ProgramRunner::supports(const tuccl_call &call) const {
    tuccl_program program;
    if (!tuccl_programs_at(programs_, call.program, &program) || program.header->nodes == 1 ||
        program.header->operation != call.operation)
        return false;
    // Any call that NCCL takes in place may be, and ranks decide alike without looking.
    if ((program.header->flags & TUCCL_PROGRAM_RUNS_IN_PLACE) == 0 &&
        tuccl_has_place(call.operation))
        return false;
    return tuccl_program_has_statements(&program) ? supports_statements(program, call)
                                                  : supports_uniform(program, call);
}

int ProgramRunner::run(const tuccl_call &call, ncclStream stream,
                       const std::atomic<bool> &gave_up) const {
    tuccl_program program;
    if (!tuccl_programs_at(programs_, call.program, &program))
        return kNcclInvalidUsage;
    const Started started = {program, call, stream, gave_up};
    if (!tuccl_program_has_statements(&program))
        return UniformRun(*this, started).enqueue();
    const auto plan = plans_.find(call.program);
    return plan == plans_.end() ? int{kNcclInvalidUsage}
                                : StatementRun(*this, started, plan->second).enqueue();
}

} // namespace tuccl
