/* Parameters of a kernel that runs a stage of a schedule in stages and rounds. */
#ifndef TUCCL_EXECUTOR_STAGE_LAUNCH_H
#define TUCCL_EXECUTOR_STAGE_LAUNCH_H

#include "program_plan.h"
#include "program_staging.h"

namespace tuccl {

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

} // namespace tuccl

#endif
