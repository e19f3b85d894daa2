// Which allocations of other ranks' processes this one has opened, and what is told of its own.
#ifndef TUCCL_EXECUTOR_MAPPINGS_H
#define TUCCL_EXECUTOR_MAPPINGS_H

#include "zero_copy.h"

#include <condition_variable>
#include <cuda_runtime_api.h>
#include <mutex>
#include <thread>
#include <vector>

namespace tuccl {

// Of one communicator, on the device that is current when it is made.
class Mappings {
  public:
    // `areas` by rank, as this device sees them. NULL, or half a sentence that says why not.
    const char *create(uint32_t rank, const std::vector<ZeroCopyArea *> &areas);
    // No kernel may use it any more.
    ~Mappings();

    // Where a receive buffer lies that begins at `address`. Its id is 0 if others cannot open it:
    // memory of CUDA's virtual memory management or of its pools, or of the host.
    Place place_of(const void *address, size_t bytes);

    // Opens what kernels have asked for.
    void open_wanted();
    // Tells the others which allocations were freed, and closes those that they freed: until then
    // their memory is not free. A thread does both, and the above, every few milliseconds.
    void tell_gone();
    void close_gone();

    const Mapping *on_device() const {
        return table_;
    }
    Wanted *wanted() const {
        return wanted_there_;
    }

  private:
    struct Own {
        uint64_t base;
        size_t bytes;
        uint64_t id;
        bool shared;
        cudaIpcMemHandle_t handle;
    };

    const Own *find_own(uint64_t address);
    std::vector<Own>::iterator forget(std::vector<Own>::iterator own);
    bool write(void *to, const uint64_t &word);
    void open(uint32_t rank, const Place &place);
    void close(uint32_t rank, uint64_t id);
    void tend();

    int device_ = 0;
    uint32_t rank_ = 0;
    std::vector<ZeroCopyArea *> areas_;
    Mapping *table_ = nullptr; // On the device.
    Wanted *wanted_ = nullptr;
    Wanted *wanted_there_ = nullptr;
    cudaStream_t stream_ = nullptr;
    std::vector<Own> own_;
    std::vector<uint64_t> gone_; // Of its own, not told yet.
    uint64_t told_gone_ = 0;
    std::vector<uint64_t> closed_;             // Of each rank's gone_count.
    std::vector<std::vector<Mapping>> opened_; // By rank, as on the device; id 0: free again.
    std::mutex mutex_;
    std::condition_variable wake_;
    bool ends_ = false;
    std::thread thread_;
};

} // namespace tuccl

#endif
