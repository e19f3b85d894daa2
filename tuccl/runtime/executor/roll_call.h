// Whether every rank of a communicator runs the executor, known before it uses the communicator: a
// rank without it would take no part, and the others would wait for ever.
//
// Each rank counts itself in a file of the host's shared memory before NCCL starts, and reads the
// count when NCCL has started. Starting is a barrier: no rank is through before all have begun. So
// the count is complete by then and the same for all, with no waiting. Ranks that do not share that
// memory, on another node say, find each other missing; the executor could not serve them anyway.
#ifndef TUCCL_EXECUTOR_ROLL_CALL_H
#define TUCCL_EXECUTOR_ROLL_CALL_H

#include "nccl_abi.h"
#include "plan.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tuccl {

class RollCall {
  public:
    // Counts this rank of the communicator of this name, with a mark.
    RollCall(uint64_t name, uint64_t mark);
    ~RollCall();
    RollCall(const RollCall &) = delete;
    RollCall &operator=(const RollCall &) = delete;

    uint64_t name() const {
        return name_;
    }
    // How many ranks have counted themselves, and whether all of them have this one's mark.
    uint32_t present() const;
    bool marks_agree() const;

    // This rank has done, or will not do, what may disturb kernels on other devices of this
    // process.
    void arrive();
    // Waits until all ranks of this process have, or until `cancelled` (may be NULL).
    void wait_for_those_here(const std::atomic<bool> *cancelled);

  private:
    struct Host;
    struct Here;
    static std::shared_ptr<Here> here_of(uint64_t name);

    uint64_t name_;
    uint64_t mark_;
    std::string path_;
    Host *host_ = nullptr; // NULL where the host has no such memory.
    std::shared_ptr<Here> here_;
    bool arrived_ = false;
};

// Where a communicator comes from.
struct Origin {
    bool is_known = true; // Not of one that was made by a function that is not interposed.
    std::shared_ptr<const Table> table; // As it was before NCCL made it.
    std::shared_ptr<RollCall> roll;     // NULL where it is not known.
};

// Of a communicator that is about to be made; each rank calls it before NCCL.
std::vector<Origin> origins_here(size_t ranks); // Of one whose ranks are all in this call.
Origin origin_by_id(const ncclUniqueId &id);
Origin origin_from(ncclComm_t parent, int color);

// So that more can be made from it. Not of NULL.
void remember_origin(ncclComm_t comm, const Origin &origin);
void forget_origin(ncclComm_t comm);

} // namespace tuccl

#endif
