#include "phase_runner.h"

#include "real_nccl.h"
#include "side_streams.h"

#include <algorithm>

namespace tuccl {

namespace {

// Marks of all phases of the slices that have windows, of a call's start, and of its lanes' ends.
static_assert(kMostWindows * kMostPhases + 1 + TUCCL_DEVICE_SIDE_STREAMS <= TUCCL_DEVICE_MARKS,
              "marks of a call");
static_assert(2 * TUCCL_PHASED_MOST_LANES <= int{TUCCL_DEVICE_SIDE_STREAMS},
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

// One call on its way into the streams.
class PhaseRunner::Run {
  public:
    Run(const PhaseRunner &runner, const tuccl_phased &phased, const tuccl_call &call,
        const Slicing &slicing, ncclStream stream, const std::atomic<bool> &gave_up)
        : runner_(runner), phased_(phased), call_(call), slicing_(slicing), stream_(stream),
          gave_up_(gave_up), sides_(sides_of(runner, phased, slicing, stream)),
          operands_(phased, call, slicing,
                    static_cast<char *>(tuccl_device_scratch(runner.device_))) {
    }

    // At each step, of the slices that have a phase then the oldest goes first.
    int enqueue() const {
        const uint32_t phases = phased_.header->phase_count;
        if (slicing_.slices == 0)
            return left_over_alone();
        if (const int failed = sides_.fork(kStartMark))
            return failed;
        const uint64_t steps = slicing_.slices + steps_before(phased_, phases - 1);
        for (uint64_t step = 0; step < steps; step++)
            for (uint32_t phase = phases; phase-- > 0;) {
                const uint64_t before = steps_before(phased_, phase);
                if (before > step || step - before >= slicing_.slices)
                    continue;
                if (const int failed = run_phase(phase, step - before))
                    return failed;
            }
        return sides_.join(kFirstEndMark);
    }

  private:
    static constexpr uint32_t kStartMark = kMostWindows * kMostPhases;
    static constexpr uint32_t kFirstEndMark = kStartMark + 1;

    // One for each lane that the call uses.
    static SideStreams sides_of(const PhaseRunner &runner, const tuccl_phased &phased,
                                const Slicing &slicing, ncclStream stream) {
        const uint64_t lanes = phased.header->lanes;
        return {runner.device_, runner.most_lanes_,
                slicing.slices > 1 ? std::min(slicing.slices, lanes) : 0, stream};
    }

    bool is_beside(uint32_t phase) const {
        return sides_ && phased_.phases[phase].kind == TUCCL_PHASE_RAIL;
    }
    uint32_t mark_of(uint32_t phase, uint64_t slice) const {
        return static_cast<uint32_t>(slice % slicing_.windows) * kMostPhases + phase;
    }

    int run_phase(uint32_t phase, uint64_t slice) const {
        const ncclStream own = is_beside(phase) ? sides_.of(slice) : stream_;
        const uint32_t last = phased_.header->phase_count - 1;
        const bool changes_in = phase > 0 && is_beside(phase - 1) != is_beside(phase);
        const bool changes_out = phase < last && is_beside(phase + 1) != is_beside(phase);
        int error = 0;
        if (changes_in)
            error = tuccl_device_await(runner_.device_, mark_of(phase - 1, slice), own);
        // The window was used by an earlier slice, whose last phase may be on another stream.
        if (error == 0 && phase == 0 && slice >= slicing_.windows && ends_elsewhere())
            error =
                tuccl_device_await(runner_.device_, mark_of(last, slice - slicing_.windows), own);
        if (error != 0)
            return kNcclUnhandledCudaError;
        if (const int failed = run_calls(phase, slice, own))
            return failed;
        if (changes_out || (phase == last && ends_elsewhere()))
            error = tuccl_device_mark(runner_.device_, mark_of(phase, slice), own);
        return to_nccl(error);
    }

    bool ends_elsewhere() const {
        return is_beside(0) || is_beside(phased_.header->phase_count - 1);
    }

    int run_calls(uint32_t number, uint64_t slice, ncclStream stream) const {
        const tuccl_phase &phase = phased_.phases[number];
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

    bool is_first_rail(uint32_t number) const {
        for (uint32_t i = 0; i < number; i++)
            if (phased_.phases[i].kind == TUCCL_PHASE_RAIL)
                return false;
        return true;
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
        if (gave_up_.load())
            return kNcclSystemError;
        const ncclComm_t rail = runner_.rails_[slice % phased_.header->lanes];
        const bool reduces = operation == TUCCL_ALL_REDUCE || operation == TUCCL_REDUCE_SCATTER;
        return pass_on({call.source, call.target, call.count, call_.type,
                        reduces ? call_.reduction : 0, 0, rail, stream,
                        static_cast<CallKind>(operation)});
    }

    int launch_left_over(ncclStream stream) const {
        const tuccl_call local = left_over_call(call_, operands_.left_over_local());
        return to_nccl(tuccl_device_launch(runner_.device_, &local, stream));
    }

    int left_over_alone() const {
        if (const int failed = launch_left_over(stream_))
            return failed;
        return pass_on_rail(TUCCL_ALL_REDUCE, operands_.left_over_rail(), 0, stream_);
    }

    const PhaseRunner &runner_;
    const tuccl_phased &phased_;
    const tuccl_call &call_;
    const Slicing &slicing_;
    const ncclStream stream_;
    const std::atomic<bool> &gave_up_;
    const SideStreams sides_; // Of rail phases; none: they run on the call's stream.
    const PhaseOperands operands_;
};

RailMemory PhaseRunner::memory(int device_number) const {
    return {device_number, tuccl_device_scratch(device_), scratch_bytes_};
}

bool PhaseRunner::supports(const tuccl_call &call) const {
    tuccl_phased phased;
    // Any call may be in place, and ranks decide alike without looking; an alltoall never is.
    if (!tuccl_phased_at(programs_, call.program, &phased) ||
        phased.header->operation != call.operation || phased.header->phase_count > kMostPhases ||
        steps_before(phased, phased.header->phase_count) > kMostWindows ||
        phased.header->lanes > rails_.size() || averages_integers(call) ||
        ((phased.header->flags & TUCCL_PROGRAM_RUNS_IN_PLACE) == 0 &&
         call.operation != TUCCL_ALLTOALL))
        return false;
    const Slicing slicing = slice_call(phased, call);
    if (slicing.scratch_bytes() > scratch_bytes_)
        return false;
    const PhaseCall nothing = {};
    for (uint32_t i = 0; i < phased.header->phase_count; i++) {
        const tuccl_phase &phase = phased.phases[i];
        const bool lacks = phase.kind == TUCCL_PHASE_RAIL && phase.operation == TUCCL_ALLTOALL &&
                           real_nccl().AlltoAll == nullptr;
        const tuccl_call local = local_call(call, phase, nothing);
        if (lacks ||
            (phase.kind == TUCCL_PHASE_LOCAL && tuccl_device_supports(device_, &local) == 0))
            return false;
    }
    const tuccl_call left_over = left_over_call(call, nothing);
    return slicing.left_over == 0 || (phased.phases[0].kind == TUCCL_PHASE_LOCAL &&
                                      tuccl_device_supports(device_, &left_over) != 0);
}

int PhaseRunner::run(const tuccl_call &call, ncclStream stream,
                     const std::atomic<bool> &gave_up) const {
    tuccl_phased phased;
    if (!tuccl_phased_at(programs_, call.program, &phased))
        return kNcclInvalidUsage;
    const Slicing slicing = slice_call(phased, call);
    return Run(*this, phased, call, slicing, stream, gave_up).enqueue();
}

} // namespace tuccl
