// A communicator that the executor serves.
#ifndef TUCCL_EXECUTOR_COMMUNICATOR_H
#define TUCCL_EXECUTOR_COMMUNICATOR_H

#include "decision.h"
#include "local_ranks.h"
#include "nccl_call.h"
#include "stream_order.h"

#include <atomic>
#include <memory>

struct tuccl_bundle;

namespace tuccl {

// What it takes to serve; made at set-up.
struct Serving {
    tuccl_device_comm *device = nullptr;
    int device_number = 0;
    uint32_t ranks = 0;
    std::shared_ptr<LocalRanks> local;
    Decision decision;
    // Whose programs the device has; NULL where the process has not said that it will choose.
    std::shared_ptr<const tuccl_bundle> bundle;
    StreamOrder order;
};

// Objects of this class are never freed, only used again for another communicator: NCCL may be
// asked to abort in one thread while another is inside a call, and that one finds here what it can
// still read.
class Communicator {
  public:
    // Whether the executor takes the call, and as what. The same on every rank: it looks at nothing
    // that differs between them, such as addresses.
    bool decide(const NcclCall &call, tuccl_call *decided) const;

    // ncclResult_t of putting it on the stream.
    int launch(const tuccl_call &call, ncclStream stream);
    // The same order for what NCCL is about to put there, and when it has put it there.
    int order_next(ncclStream stream);
    int order_done();

    // Ends what runs, and serves no more; false if it did so before.
    bool give_up();

    // Of one that was taken out of service.
    int device_number() const {
        return serving_.device_number;
    }

    ncclComm_t nccl() const {
        return nccl_.load(std::memory_order_acquire);
    }

  private:
    friend class InUse;
    friend class Register;

    std::atomic<ncclComm_t> nccl_{nullptr};
    std::atomic<uint32_t> users_{0};
    std::atomic<bool> gave_up_{false};
    Serving serving_;
};

// Keeps a communicator from being taken apart.
class InUse {
  public:
    InUse(Communicator *communicator, ncclComm_t nccl) : communicator_(communicator) {
        communicator_->users_.fetch_add(1);
        serves_ = communicator_->nccl_.load() == nccl && !communicator_->gave_up_.load();
    }
    ~InUse() {
        communicator_->users_.fetch_sub(1, std::memory_order_release);
    }
    InUse(const InUse &) = delete;
    InUse &operator=(const InUse &) = delete;

    // Whether it is still this communicator's, and serves.
    explicit operator bool() const {
        return serves_;
    }

  private:
    Communicator *communicator_;
    bool serves_;
};

} // namespace tuccl

#endif
