/* Programs on a device: the interface of interpreter.cu for device_comm.cu. */
#ifndef TUCCL_EXECUTOR_PROGRAM_LAUNCH_H
#define TUCCL_EXECUTOR_PROGRAM_LAUNCH_H

#include "executor.h"
#include "moves_launch.h"

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

// Loads a section that tuccl_programs_check accepted. Returns NULL, or the reason in half a
// sentence.
const char *load_programs(tuccl_device_comm *comm, const void *section, size_t bytes);
void free_programs(tuccl_device_comm *comm);

// Returns whether a call's program can be interpreted; depends on nothing that differs between
// ranks.
bool program_supports(const tuccl_device_comm &comm, const tuccl_call &call);

// 0, or a cudaError_t.
int launch_program(const tuccl_device_comm &comm, const tuccl_call &call, cudaStream_t stream);

} // namespace tuccl

#endif
