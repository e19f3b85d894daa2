// A communicator on one device: its staging memory, its peers' staging memory, and its kernels'
// state.
#ifndef TUCCL_EXECUTOR_DEVICE_COMM_H
#define TUCCL_EXECUTOR_DEVICE_COMM_H

#include "byte_counts.h"
#include "moves_launch.h"
#include "peer_memory.h"
#include "staging.h"

#include <array>
#include <cuda_runtime_api.h>
#include <vector>

namespace tuccl {

// A bundle's section of programs, on the host and byte for byte on the device.
struct Programs {
    struct Rearranged {
        Moves moves;
        MovesNeed need;
    };
    void *here;
    void *on_device;
    std::vector<Rearranged> rearranged; // By their number.
};

} // namespace tuccl

struct tuccl_device_comm {
    tuccl::Peers peers;                        // Without addresses.
    std::array<char *, TUCCL_MAX_RANKS> areas; // By rank, mapped on this device; its own included.
    tuccl_staging staging;
    size_t program_first; // Offset of the programs' area in the staging memory.
    int device;
    bool nvlink; // NVLink joins all ranks, as LL128 requires.
    uint32_t *abort_word;
    std::array<tuccl::PeerMemory, TUCCL_MAX_RANKS> memory; // Its own area, and those it opened.
    bool spans_hosts;                                      // As in tuccl_device_place.
    cudaEvent_t ordering;
    cudaEvent_t remembered; // Separate, since an event recorded in a capture is invalid outside it.
    tuccl::Programs programs;
    uint32_t here; // A bit for each rank of this process.
    // For schedules across hosts.
    void *scratch;
    void *stage_steps; // NULL without stages.
    std::array<cudaStream_t, TUCCL_DEVICE_SIDE_STREAMS> side_streams;
    std::array<cudaEvent_t, TUCCL_DEVICE_MARKS> marks;
};

namespace tuccl {

// 0, or a cudaError_t; patterns.cu.
int load_patterns(uint32_t ranks);
int launch_pattern(const tuccl_device_comm &comm, const tuccl_call &call, cudaStream_t stream);
bool pattern_supports(const tuccl_device_comm &comm, const tuccl_call &call);

// CUDA loads a kernel at its first use, which may wait for a running kernel: for ever, if that
// waits for another rank. 0, or a cudaError_t.
inline int load_kernel(const void *kernel) {
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, kernel);
}

// The same for a kernel whose blocks wait for each other: all of a launch must run at once. NULL,
// or the reason in half a sentence.
const char *load_whole_launch(int device, const void *kernel);

// Copies to new memory of the current device. NULL, or the reason in half a sentence.
const char *copy_to_device(const void *bytes, size_t count, void **copy);

// Programs; interpreter.cu.
//
// Loads a section that tuccl_programs_check accepted. Returns NULL, or the reason in half a
// sentence.
const char *load_programs(tuccl_device_comm *comm, const void *section, size_t bytes);
void free_programs(tuccl_device_comm *comm);

// Returns whether a call's program can be interpreted; depends on nothing that differs between
// ranks.
bool program_supports(const tuccl_device_comm &comm, const tuccl_call &call);

// 0, or a cudaError_t.
int launch_program(const tuccl_device_comm &comm, const tuccl_call &call, cudaStream_t stream);

// Sums of arrays, between the phases of a schedule across hosts; sums.cu. Summands are adjacent and
// `bytes` long each. The target is none of them.
struct SumWork {
    const char *source;
    char *target;
    size_t bytes;
    uint32_t summands;
    uint32_t reduction;
};

// Loads the kernels. 0, or a cudaError_t.
int load_sums();
// 0, or a cudaError_t.
int launch_sum(const SumWork &work, uint32_t type, cudaStream_t stream);

// Loads kernels and this rank's steps of all stages; stages.cu. NULL, or the reason in half a
// sentence.
const char *load_stages(tuccl_device_comm *comm, const tuccl_stage_step *steps, size_t count);
// 0, or a cudaError_t.
int launch_stage(const tuccl_device_comm &comm, const tuccl_stage_call &call, cudaStream_t stream);

} // namespace tuccl

#endif
