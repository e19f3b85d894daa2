// The interpreter's kernels, and a communicator's programs.
#include "interpreter.h"
#include "interpreter_moves.h"

#include "device_comm.h"
#include "device_machine.cuh"
#include "program_plan.h"

#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace tuccl {

namespace {

template <typename Wire, typename Pair>
__global__ void __launch_bounds__(kMostProgramThreads, 1)
    interpret(const __grid_constant__ ProgramLaunch launch) {
    Interpreter<Wire, Pair, DeviceMachine>(launch, DeviceMachine{}).run();
}

template <typename Wire, typename Pair, typename Launch>
__global__ void __launch_bounds__(kMostProgramThreads, 1)
    run_moves(const __grid_constant__ Launch launch) {
    MoveRunner<Wire, Pair, DeviceMachine, Launch>(launch, DeviceMachine{}).run();
}

// Steps one by one, or moves.
template <typename Launch, typename Wire, typename Pair> const void *kernel_of() {
    if constexpr (std::is_same_v<Launch, ProgramLaunch>)
        return reinterpret_cast<const void *>(interpret<Wire, Pair>);
    else
        return reinterpret_cast<const void *>(run_moves<Wire, Pair, Launch>);
}

// Other types and reductions are selected for each unit.
template <typename Launch> const void *kernel_of(const tuccl_call &call) {
    return with_frequent_sum(call.type, call.reduction, [&](auto element) {
        using Pair = PairFor<typename decltype(element)::Type>;
        switch (call.protocol) {
        case TUCCL_LL:
            return kernel_of<Launch, LlWire, Pair>();
        case TUCCL_LL128:
            return kernel_of<Launch, Ll128Wire, Pair>();
        default:
            return kernel_of<Launch, SimpleWire, Pair>();
        }
    });
}

const char *load_kernels(int device) {
    tuccl_call call = {};
    for (uint8_t protocol = TUCCL_LL; protocol <= TUCCL_SIMPLE; protocol++)
        for (uint8_t type = 0; type < TUCCL_TYPES; type++) {
            call.protocol = protocol;
            call.type = type;
            for (const void *kernel : {kernel_of<ProgramLaunch>(call), kernel_of<FewMoves>(call),
                                       kernel_of<ManyMoves>(call)})
                if (const char *reason = load_whole_launch(device, kernel))
                    return reason;
        }
    return nullptr;
}

bool plan_call(const tuccl_device_comm &comm, const tuccl_call &call, tuccl_program *program,
               ProgramLaunch *launch) {
    return comm.programs.here != nullptr && (call.protocol != TUCCL_LL128 || comm.nvlink) &&
           tuccl_programs_at(comm.programs.here, call.program, program) &&
           program->header->nodes == 1 && program->header->ranks == comm.peers.ranks &&
           plan_program(*program, call, comm.programs.rearranged[call.program].need, launch) &&
           (has_room<ManyMoves>(comm.programs.rearranged[call.program].need) ||
            has_room_for_threadblocks(*program, call)) &&
           place_launch(comm.staging, call.protocol, launch);
}

template <typename Launch>
int launch_moves(const Moves &moves, const ProgramLaunch &plan, const tuccl_call &call,
                 cudaStream_t stream) {
    Launch launch;
    launch.plan = plan;
    set_moves(moves, &launch);
    void *arguments[] = {&launch};
    return cudaLaunchKernel(kernel_of<Launch>(call), dim3(plan.instances), dim3(call.nthreads),
                            arguments, 0, stream);
}

// Kept only if they fit a launch, and only for this rank.
std::vector<Programs::Rearranged> rearrange(const void *section, uint32_t rank) {
    std::vector<Programs::Rearranged> all(tuccl_programs_count(section));
    uint64_t comparisons = kMostComparisons;
    for (uint32_t i = 0; i < all.size(); i++) {
        tuccl_program program;
        if (!tuccl_programs_at(section, i, &program) || program.header->nodes > 1)
            continue;
        Moves moves = moves_of(program, &comparisons);
        const MovesNeed need = need_of(moves);
        if (!has_room<ManyMoves>(need))
            continue;
        for (uint32_t peer = 0; peer < moves.ranks.size(); peer++)
            if (peer != rank)
                moves.ranks[peer] = {};
        all[i] = {std::move(moves), need};
    }
    return all;
}

const char *copy_programs(Programs *programs, uint32_t rank, const void *section, size_t bytes) {
    programs->here = std::malloc(bytes);
    if (programs->here == nullptr)
        return "there is no memory for its programs";
    std::memcpy(programs->here, section, bytes);
    programs->rearranged = rearrange(programs->here, rank);
    return copy_to_device(section, bytes, &programs->on_device);
}

} // namespace

const char *load_programs(tuccl_device_comm *comm, const void *section, size_t bytes) {
    free_programs(comm);
    const char *reason = load_kernels(comm->device);
    if (reason == nullptr)
        reason = copy_programs(&comm->programs, comm->peers.rank, section, bytes);
    if (reason != nullptr) {
        free_programs(comm);
        (void)cudaGetLastError(); // Returned here, so the job must not find it again.
    }
    return reason;
}

void free_programs(tuccl_device_comm *comm) {
    std::free(comm->programs.here);
    (void)cudaFree(comm->programs.on_device);
    comm->programs = Programs{};
}

bool program_supports(const tuccl_device_comm &comm, const tuccl_call &call) {
    tuccl_program program;
    ProgramLaunch launch;
    return plan_call(comm, call, &program, &launch);
}

int launch_program(const tuccl_device_comm &comm, const tuccl_call &call, cudaStream_t stream) {
    tuccl_program program;
    ProgramLaunch launch;
    if (!plan_call(comm, call, &program, &launch))
        return cudaErrorInvalidValue;
    if (call.count == 0)
        return cudaSuccess;
    set_rank(program, comm.peers.rank,
             static_cast<const char *>(comm.programs.on_device) -
                 static_cast<const char *>(comm.programs.here),
             &launch);
    for (uint32_t rank = 0; rank < comm.peers.ranks; rank++)
        launch.area[rank] = comm.areas[rank] + comm.program_first;
    launch.own_area = launch.area[launch.rank];
    launch.abort = comm.peers.abort;
    const Programs::Rearranged &rearranged = comm.programs.rearranged[call.program];
    if (is_plain(rearranged.need, launch))
        return launch_moves<FewMoves>(rearranged.moves, launch, call, stream);
    if (has_room<ManyMoves>(rearranged.need))
        return launch_moves<ManyMoves>(rearranged.moves, launch, call, stream);
    void *arguments[] = {&launch};
    return cudaLaunchKernel(kernel_of<ProgramLaunch>(call),
                            dim3(launch.own_blocks * launch.instances), dim3(call.nthreads),
                            arguments, 0, stream);
}

} // namespace tuccl
