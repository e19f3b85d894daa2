// NCCL's C interface as far as the interposer passes calls through it: NCCL 2.4 to 2.29.
//
// The build has no nccl.h. These state binary facts: enumerations are ints, ncclUniqueId is 128
// bytes by value, communicators are only handed on, and so are configurations, of which a few
// fields are read and set.
#ifndef TUCCL_EXECUTOR_NCCL_ABI_H
#define TUCCL_EXECUTOR_NCCL_ABI_H

#include <cstddef>

struct ncclComm;
struct ncclConfig;
struct ncclSimInfo;
struct ncclWindow; // ncclWindow_vidmem
using ncclComm_t = ncclComm *;
using ncclWindow_t = ncclWindow *;
using ncclStream = void *; // A cudaStream_t.

struct ncclUniqueId {
    char internal[128];
};

namespace tuccl {

// ncclResult_t.
enum NcclResult : int {
    kNcclSuccess = 0,
    kNcclUnhandledCudaError = 1,
    kNcclSystemError = 2,
    kNcclInvalidUsage = 5,
    kNcclInProgress = 7,
};

// The first fields of ncclConfig_t as of NCCL 2.28; later ones follow. Earlier structures end
// before: with split_share (2.18), traffic_class (2.26) or nvls_blocks (2.27).
struct NcclConfigStart {
    size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
    int cluster_size;
    int min_blocks;
    int max_blocks;
    const char *net_name;
    int split_share;
    int traffic_class;
    const char *comm_name;
    int collnet;
    int block_policy;
    int shrink_share;
    int nvls_blocks;
    int channels_per_net_peer;
    int nvlink_centric;
};
constexpr unsigned kNcclConfigMagic = 0xcafebeef;

// ncclTeam_t, as of NCCL 2.28: ranks one after the other, or `stride` apart.
struct NcclTeam {
    int ranks;
    int rank; // This one among them.
    int stride;
};

// Of ncclCommWindowRegister's flags: all ranks use the same place in the window.
constexpr int kNcclWindowSymmetric = 1;

// Of ncclCommShrink's flags: what runs on the parent is ended first.
constexpr int kNcclShrinkAbort = 1;

} // namespace tuccl

#endif
