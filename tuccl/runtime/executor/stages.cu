// Kernels of stages: the work inside a node of a schedule in stages and rounds.
#include "device_comm.h"

#include "device_machine.cuh"
#include "interpreter_stages.h"

namespace tuccl {

namespace {

template <typename Wire, typename Pair>
__global__ void __launch_bounds__(kMostProgramThreads, 1)
    run_stage(const __grid_constant__ StageLaunch launch) {
    StageRunner<Wire, Pair, DeviceMachine>(launch, DeviceMachine{}).run();
}

const void *kernel_of(const tuccl_stage_call &call) {
    return with_frequent_sum(call.type, call.reduction, [&](auto element) {
        using Pair = PairFor<typename decltype(element)::Type>;
        return call.protocol == TUCCL_LL
                   ? reinterpret_cast<const void *>(run_stage<LlWire, Pair>)
                   : reinterpret_cast<const void *>(run_stage<Ll128Wire, Pair>);
    });
}

} // namespace

const char *load_stages(tuccl_device_comm *comm, const tuccl_stage_step *steps, size_t count) {
    tuccl_stage_call call = {};
    for (const uint8_t protocol : {TUCCL_LL, TUCCL_LL128})
        for (uint8_t type = 0; type < TUCCL_TYPES; type++) {
            call.protocol = protocol;
            call.type = type;
            if (const char *reason = load_whole_launch(comm->device, kernel_of(call)))
                return reason;
        }
    return copy_to_device(steps, count * sizeof *steps, &comm->stage_steps);
}

int launch_stage(const tuccl_device_comm &comm, const tuccl_stage_call &call, cudaStream_t stream) {
    StageLaunch launch =
        stage_launch(comm.staging, call, static_cast<const tuccl_stage_step *>(comm.stage_steps));
    ProgramLaunch &plan = launch.plan;
    plan.rank = comm.peers.rank;
    plan.ranks = comm.peers.ranks;
    plan.abort = comm.peers.abort;
    for (uint32_t rank = 0; rank < comm.peers.ranks; rank++)
        plan.area[rank] = comm.areas[rank] + comm.program_first;
    plan.own_area = plan.area[plan.rank];
    void *arguments[] = {&launch};
    return cudaLaunchKernel(kernel_of(call), dim3(call.nchannels), dim3(call.nthreads), arguments,
                            0, stream);
}

} // namespace tuccl
