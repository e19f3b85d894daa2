#include "zero_copy.cuh"

#include "device_comm.h"
#include "mappings.h"

namespace tuccl {

bool zero_copy_supports(const tuccl_device_comm &comm, const tuccl_call &call) {
    return comm.mappings != nullptr && call.pattern == TUCCL_PATTERN_DIRECT &&
           call.protocol == TUCCL_SIMPLE && call.type < TUCCL_TYPES &&
           (call.operation == TUCCL_ALL_GATHER || call.operation == TUCCL_ALLTOALL) &&
           call.nchannels >= 1 && call.nchannels <= kMostZeroCopyBlocks && call.nthreads <= 1024 &&
           call.nthreads % kWarp == 0 && call.nthreads >= kWarp * comm.peers.ranks;
}

int load_zero_copy() {
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, zero_copy);
}

int launch_zero_copy(const tuccl_device_comm &comm, const tuccl_call &call, cudaStream_t stream) {
    const Peers &peers = comm.peers;
    Mappings &mappings = *comm.mappings;
    mappings.open_wanted();
    ZeroCopyLaunch launch = {};
    for (uint32_t rank = 0; rank < peers.ranks; rank++)
        launch.area[rank] = zero_copy_area(comm, rank);
    launch.abort = peers.abort;
    launch.mappings = mappings.on_device();
    launch.wanted = mappings.wanted();
    launch.part = call.count * type_bytes(call.type);
    launch.place = mappings.place_of(call.receive, launch.part * peers.ranks);
    launch.send = static_cast<const char *>(call.send);
    launch.receive = static_cast<char *>(call.receive);
    launch.send_stride = call.operation == TUCCL_ALLTOALL ? launch.part : 0;
    launch.rank = peers.rank;
    launch.ranks = peers.ranks;
    launch.here = comm.here;
    void *arguments[] = {&launch};
    return cudaLaunchKernel(reinterpret_cast<const void *>(zero_copy), dim3(call.nchannels),
                            dim3(call.nthreads), arguments, 0, stream);
}

} // namespace tuccl
