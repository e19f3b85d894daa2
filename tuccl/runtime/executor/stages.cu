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

template <typename Wire> const void *kernel_of(const tuccl_stage_call &call) {
    if (call.reduction == TUCCL_SUM || call.reduction == TUCCL_AVG) {
        switch (call.type) {
        case TUCCL_FLOAT16:
            return reinterpret_cast<const void *>(run_stage<Wire, PairOf<__half>>);
        case TUCCL_BFLOAT16:
            return reinterpret_cast<const void *>(run_stage<Wire, PairOf<__nv_bfloat16>>);
        case TUCCL_FLOAT32:
            return reinterpret_cast<const void *>(run_stage<Wire, PairOf<float>>);
        default:
            break;
        }
    }
    return reinterpret_cast<const void *>(run_stage<Wire, AnyPair>);
}

const void *kernel_of(const tuccl_stage_call &call) {
    return call.protocol == TUCCL_LL ? kernel_of<LlWire>(call) : kernel_of<Ll128Wire>(call);
}

// As load_kernels of interpreter.cu: all blocks of a launch must run at once.
const char *load_kernels(int device) {
    int multiprocessors = 0;
    if (cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device) !=
        cudaSuccess)
        return "its device does not tell how large it is";
    tuccl_stage_call call = {};
    for (const uint8_t protocol : {TUCCL_LL, TUCCL_LL128})
        for (uint8_t type = 0; type < TUCCL_TYPES; type++) {
            call.protocol = protocol;
            call.type = type;
            int blocks = 0;
            if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                    &blocks, kernel_of(call), kMostProgramThreads, 0) != cudaSuccess)
                return "its stages' kernels are not for this device";
            if (blocks * multiprocessors < static_cast<int>(kMostProgramBlocks))
                return "its device is too small for stages";
        }
    return nullptr;
}

const char *copy_steps(const tuccl_stage_step *steps, size_t count, void **copied) {
    // On a stream of its own: the legacy stream would wait for all others.
    cudaStream_t stream = nullptr;
    const size_t bytes = count * sizeof *steps;
    if (cudaMalloc(copied, bytes > 0 ? bytes : 1) != cudaSuccess ||
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess)
        return "there is no device memory for its stages";
    const bool is_there =
        cudaMemcpyAsync(*copied, steps, bytes, cudaMemcpyHostToDevice, stream) == cudaSuccess &&
        cudaStreamSynchronize(stream) == cudaSuccess;
    (void)cudaStreamDestroy(stream);
    return is_there ? nullptr : "its stages could not be brought to the device";
}

} // namespace

const char *load_stages(tuccl_device_comm *comm, const tuccl_stage_step *steps, size_t count) {
    const char *reason = load_kernels(comm->device);
    return reason != nullptr ? reason : copy_steps(steps, count, &comm->stage_steps);
}

int launch_stage(const tuccl_device_comm &comm, const tuccl_stage_call &call, cudaStream_t stream) {
    StageLaunch launch =
        stage_launch(comm.staging, call, static_cast<const tuccl_stage_step *>(comm.stage_steps));
    ProgramLaunch &plan = launch.plan;
    plan.rank = comm.peers.rank;
    plan.ranks = comm.peers.ranks;
    plan.abort = comm.peers.abort;
    for (uint32_t rank = 0; rank < comm.peers.ranks; rank++)
        plan.area[rank] = comm.peers.staging[rank] + comm.program_first;
    plan.own_area = plan.area[plan.rank];
    void *arguments[] = {&launch};
    return cudaLaunchKernel(kernel_of(call), dim3(call.nchannels), dim3(call.nthreads), arguments,
                            0, stream);
}

} // namespace tuccl
