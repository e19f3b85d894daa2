// Whether a device's NVLink is up, asked of NVML.
#ifndef TUCCL_EXECUTOR_NVLINK_H
#define TUCCL_EXECUTOR_NVLINK_H

namespace tuccl {

// False too where NVML cannot be asked: LL128 is left out then, which is slower and never wrong.
bool has_active_nvlink(int cuda_device);

} // namespace tuccl

#endif
