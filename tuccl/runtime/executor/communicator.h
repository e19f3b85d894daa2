// A communicator that the executor serves.
#ifndef TUCCL_EXECUTOR_COMMUNICATOR_H
#define TUCCL_EXECUTOR_COMMUNICATOR_H

#include "grid.h"
#include "local_ranks.h"
#include "plan.h"
#include "program_runner.h"
#include "real_nccl.h"
#include "stream_order.h"
#include "windows.h"

#include <atomic>
#include <memory>
#include <mutex>

struct tuccl_entry_record;

namespace tuccl {

class Guard;

struct FreeDevice {
    void operator()(tuccl_device_comm *device) const {
        tuccl_device_comm_destroy(device);
    }
};

// The state that serves a communicator, created at set-up.
struct Serving {
    // NULL where the executor has no call here, but guards the plugin's.
    std::unique_ptr<tuccl_device_comm, FreeDevice> device;
    int device_number = 0;
    Grid grid = {};
    std::shared_ptr<LocalRanks> local;
    Plan plan; // Its table is NULL on one node unless the process makes choices.
    std::unique_ptr<ProgramRunner> runner; // NULL on one node.
    std::shared_ptr<Rails> rails;          // Created for this communicator; NULL on one node.
    uint64_t number = 0;                   // The same on all ranks.
    bool blocks = true;                    // NCCL's calls on it return when they are done.
    std::shared_ptr<Guard> guard;          // NULL where nothing is guarded.
    StreamOrder order;
};

// A call of the job's as the executor's, by a rule that suits its operation and root.
tuccl_call call_by(const Rule &rule, const NcclCall &call);
// Whether the executor can run it; the same on every rank.
bool supports(const Serving &serving, const tuccl_call &call);
// Puts it on a stream; returns an ncclResult_t. `gave_up` may be set by another thread, which then
// ends the communicators.
int put(const Serving &serving, const tuccl_call &call, ncclStream stream,
        const std::atomic<bool> &gave_up);

// Objects are never freed, only reused for other communicators: one thread may abort a communicator
// while another is inside a call and still reads its object.
class Communicator {
  public:
    // Returns the executor's call, or nothing if NCCL runs it. The same on every rank: it depends
    // on nothing that differs between ranks. Of addresses it looks at whether they are in windows.
    bool decide(const NcclCall &call, tuccl_call *decided) const;

    // The same without the guard's conclusions.
    bool decide_by_table(const NcclCall &call, tuccl_call *decided) const;
    // The same by a rule of the plan's, whose range holds the call.
    bool decide_by(const Rule &rule, const NcclCall &call, tuccl_call *decided) const;

    // Launches the call on the stream; returns an ncclResult_t.
    int launch(const tuccl_call &call, ncclStream stream);
    // Hands the call to NCCL, behind the last one on this communicator.
    int hand_over_in_order(const NcclCall &call);
    // Order a call of NCCL's in the same way: before it is enqueued, and after.
    int order_next(ncclStream stream);
    int order_done();

    // Ends running calls and stops serving; false if it had stopped before.
    bool give_up();
    // For an error that NCCL reports of it.
    void give_up_for(int error);
    bool has_given_up() const {
        return gave_up_.load();
    }
    // Waits, after giving up, until no thread is inside a call: it may be about to call NCCL on a
    // communicator that the caller ends. Only briefly, because a thread that NCCL holds returns
    // when the communicator ends.
    void wait_for_calls() const;

    // Whether its calls contain calls of NCCL, which must not be in a group.
    bool calls_nccl() const {
        return serving_.runner != nullptr;
    }
    // Makes and connects what a choice needs along the rail, so that its calls do not wait for
    // that. All ranks call it alike, and not beside a call. Returns NULL, or why they cannot.
    const char *prepare(const tuccl_entry_record &choice);

    // Runs its calls outside groups; NULL where nothing is guarded.
    Guard *guard() const {
        return serving_.guard.get();
    }
    // The communicators made for this one; NULL without.
    std::shared_ptr<Rails> rails() const {
        const std::lock_guard<std::mutex> lock(rails_mutex_);
        return rails_;
    }
    // Memory that the job registers. NULL for communicators that do not block: their ranks learn at
    // different times whether NCCL has registered it.
    Windows *windows() {
        return serving_.blocks ? &windows_ : nullptr;
    }
    // Whether NCCL's calls on it return when they are done.
    bool blocks() const {
        return serving_.blocks;
    }
    // An order of communicators that is the same on all ranks.
    uint64_t number() const {
        return serving_.number;
    }

    // For a communicator that was taken out of service.
    int device_number() const {
        return serving_.device_number;
    }

    ncclComm_t nccl() const {
        return nccl_.load(std::memory_order_acquire);
    }

  private:
    friend class InUse;
    friend class Register;

    std::vector<RailCall> missing_calls(const Rule &rule) const;
    std::string agree_on_rails(const Rule &rule, const NetworkNeed &need);
    const char *prepare_rails(const Rule &rule);

    std::atomic<ncclComm_t> nccl_{nullptr};
    std::atomic<uint32_t> users_{0};
    std::atomic<bool> gave_up_{false};
    mutable std::mutex rails_mutex_;
    std::shared_ptr<Rails> rails_; // As in `serving_`, for threads beside its calls.
    Windows windows_;
    Serving serving_;
};

// Prevents the destruction of a communicator.
class InUse {
  public:
    InUse(Communicator *communicator, ncclComm_t nccl) : communicator_(communicator) {
        communicator_->users_.fetch_add(1);
        exists_ = communicator_->nccl_.load() == nccl;
        serves_ = exists_ && !communicator_->gave_up_.load();
    }
    ~InUse() {
        communicator_->users_.fetch_sub(1, std::memory_order_release);
    }
    InUse(const InUse &) = delete;
    InUse &operator=(const InUse &) = delete;

    // Whether the object still belongs to this communicator and serves it.
    explicit operator bool() const {
        return serves_;
    }
    // Whether the object still belongs to this communicator.
    bool exists() const {
        return exists_;
    }

  private:
    Communicator *communicator_;
    bool exists_;
    bool serves_;
};

} // namespace tuccl

#endif
