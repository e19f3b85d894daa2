// Runs a rank's steps of a stage, on the same bytes of each chunk. A thread moves the same bytes of
// a chunk in every step, here and on all ranks, so nothing waits but a thread, or a warp, for its
// own lines. Each message has lines of its own, so no sender waits within a launch.
//
// Written once for CUDA's blocks and for host threads, as interpreter.h is.
#ifndef TUCCL_EXECUTOR_INTERPRETER_STAGES_H
#define TUCCL_EXECUTOR_INTERPRETER_STAGES_H

#include "interpreter_epoch.h"
#include "interpreter_mover.h"
#include "interpreter_wires.h"
#include "program_plan.h"

namespace tuccl {

// Parameters of a kernel.
struct StageLaunch {
    ProgramLaunch plan; // Its ranks are those of the node.
    const tuccl_stage_step *steps;
    char *scratch;
    uint64_t first; // Of the launch's bytes in each chunk.
    uint32_t bytes;
    uint32_t step_count;
    uint32_t receivers; // A bit for each rank that this one sends to.
    uint32_t divisor;   // Of an average.
};

// Sets all but the areas, this rank and the abort flag. `steps`: of all stages.
inline StageLaunch stage_launch(const tuccl_staging &staging, const tuccl_stage_call &call,
                                const tuccl_stage_step *steps) {
    StageLaunch launch = {};
    ProgramLaunch &plan = launch.plan;
    (void)place_launch(staging, call.protocol, &plan);
    plan.chunk_bytes = call.chunk_bytes;
    plan.part_bytes = call.part_bytes;
    plan.part_chunks = call.part_chunks;
    plan.advance = 1; // Every line is written once.
    plan.type = call.type;
    plan.reduction = call.reduction;
    plan.send = static_cast<const char *>(call.send);
    plan.receive = static_cast<char *>(call.receive);
    launch.steps = steps + call.first_step;
    launch.scratch = static_cast<char *>(call.scratch);
    launch.first = call.first;
    launch.bytes = call.bytes;
    launch.step_count = call.steps;
    launch.receivers = call.receivers;
    launch.divisor = call.divisor;
    return launch;
}

// All threads of a launch share each chunk.
template <typename Machine> class AllThreads {
  public:
    __device__ __forceinline__ explicit AllThreads(const Machine &machine) : machine_(machine) {
    }
    __device__ __forceinline__ uint32_t thread() const {
        return machine_.block() * machine_.threads() + machine_.thread();
    }
    __device__ __forceinline__ uint32_t threads() const {
        return machine_.blocks() * machine_.threads();
    }

  private:
    const Machine machine_;
};

template <typename Wire, typename Pair, typename Machine> class StageRunner {
  public:
    static_assert(Wire::kFlagsInLines, "no barrier stands between messages");

    __device__ __forceinline__ StageRunner(const StageLaunch &launch, const Machine &machine)
        : launch_(launch), plan_(launch.plan), machine_(machine), epoch_(launch.plan, machine),
          lines_first_(launch.plan.lines_first + epoch_.half() * launch.plan.half_bytes) {
    }

    __device__ __forceinline__ void run() {
        if (!epoch_.is_clear())
            for (uint32_t rank = 0; rank < plan_.ranks; rank++)
                if ((launch_.receivers >> rank & 1) != 0)
                    epoch_.wait_for(rank);
        for (uint32_t i = 0; i < launch_.step_count; i++)
            run_step(launch_.steps[i]);
        epoch_.finish(false, false);
    }

  private:
    __device__ __forceinline__ Span span(uint32_t buffer, uint32_t chunk) const {
        if (buffer == TUCCL_BUFFER_SCRATCH)
            return {launch_.scratch + chunk * plan_.chunk_bytes + launch_.first, launch_.bytes};
        char *user = buffer == TUCCL_BUFFER_INPUT ? const_cast<char *>(plan_.send) : plan_.receive;
        const uint32_t part = chunk / plan_.part_chunks;
        const uint64_t offset =
            (chunk - part * plan_.part_chunks) * plan_.chunk_bytes + launch_.first;
        if (offset >= plan_.part_bytes)
            return {user, 0};
        return {user + part * plan_.part_bytes + offset,
                smaller<uint64_t>(plan_.part_bytes - offset, launch_.bytes)};
    }

    __device__ __forceinline__ void run_step(const tuccl_stage_step step) {
        const Action action(step.type);
        const bool completes = (step.flags & TUCCL_STEP_COMPLETES) != 0;
        const uint32_t reduction =
            plan_.reduction == TUCCL_AVG && !completes ? uint32_t{TUCCL_SUM} : plan_.reduction;
        const AllThreads<Machine> threads(machine_);
        ChunkMover<Wire, Pair, AllThreads<Machine>> mover(plan_, threads, epoch_.stopped(),
                                                          launch_.divisor);
        const uint64_t line_bytes = Wire::line_bytes(launch_.bytes);
        const uint32_t receiver = action.sends ? step.receiver : plan_.rank;
        Letter letter = {plan_.area[receiver] + lines_first_ + step.line * line_bytes,
                         epoch_.base() + 1};
        for (uint32_t chunk = 0; chunk < step.chunks; chunk++, letter.lines += line_bytes) {
            Span source = {nullptr, 0};
            Span target = {nullptr, 0};
            if (action.reads)
                source = span(step.source_buffer, step.source + chunk);
            if (action.writes)
                target = span(step.target_buffer, step.target + chunk);
            // In place a chunk may be copied onto itself.
            if (step.type != TUCCL_STEP_CPY || source.first != target.first)
                mover.move(action, reduction, launch_.bytes, source, target, letter, letter);
        }
    }

    const StageLaunch &launch_;
    const ProgramLaunch &plan_;
    const Machine machine_;
    Epoch<Machine> epoch_;
    const uint64_t lines_first_;
};

} // namespace tuccl

#endif
