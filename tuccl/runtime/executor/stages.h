// Stages on a device: the interface of stages.cu for device_comm.cu.
#ifndef TUCCL_EXECUTOR_STAGES_H
#define TUCCL_EXECUTOR_STAGES_H

#include "executor.h"

#include <cstddef>
#include <cuda_runtime_api.h>

namespace tuccl {

// Loads kernels and this rank's steps of all stages. NULL, or the reason in half a sentence.
const char *load_stages(tuccl_device_comm *comm, const tuccl_stage_step *steps, size_t count);

// 0, or a cudaError_t.
int launch_stage(const tuccl_device_comm &comm, const tuccl_stage_call &call, cudaStream_t stream);

} // namespace tuccl

#endif
