// Device memory that other ranks map: by CUDA's IPC handles on one host, by fabric handles where
// NVLink joins several. Fabric handles need CUDA 12.3, and an IMEX domain of these hosts
// (nvidia-imex), as NCCL's own do.
#ifndef TUCCL_EXECUTOR_PEER_MEMORY_H
#define TUCCL_EXECUTOR_PEER_MEMORY_H

#include <cstddef>

namespace tuccl {

// Of either kind.
struct MemoryHandle {
    unsigned char bytes[64];
};

// Memory of the current device. A failed call leaves nothing behind and returns the reason in half
// a sentence (static text), else NULL.
struct PeerMemory {
    void *address = nullptr;
    size_t bytes = 0;
    bool is_fabric = false;
    bool is_own = false; // Else another rank's.

    const char *allocate(size_t count, bool spans_hosts, MemoryHandle *handle);
    const char *open(const MemoryHandle &handle, size_t count, bool spans_hosts);
    void close();
};

} // namespace tuccl

#endif
