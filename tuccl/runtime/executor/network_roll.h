// A rank's part in a communicator's roll on the network (roll_table.h).
//
// Every wait has an end. Where a rank has no answer to its question it cannot know whether others
// take it for complete, and its start must fail: to leave the communicator to NCCL would hang them.
#ifndef TUCCL_EXECUTOR_NETWORK_ROLL_H
#define TUCCL_EXECUTOR_NETWORK_ROLL_H

#include "roll_message.h"

#include <chrono>
#include <mutex>
#include <string>

namespace tuccl {

class NetworkRoll {
  public:
    // `roll`: the name of the communicator's, which may be another one than that of the id.
    NetworkRoll(const RollPlace &place, const RollName &roll) : place_(place), roll_(roll) {
    }
    ~NetworkRoll(); // Ends in success unless ended before.
    NetworkRoll(const NetworkRoll &) = delete;
    NetworkRoll &operator=(const NetworkRoll &) = delete;

    // Enters this rank. Returns an empty text, or the reason of a failure, which leaves no entry
    // that counts.
    std::string enter(uint32_t rank, uint64_t mark, uint64_t attempt);

    struct Answer {
        bool is_complete;
        uint32_t present;
        bool marks_agree;
        std::string fault; // Why nobody counts this rank; empty if they may.
    };
    // Asks whether all ranks of the communicator, which NCCL has started, are in the roll.
    Answer ask(uint32_t ranks);

    // Returns whether a rank of a complete roll has failed or died, or cannot be known of.
    bool somebody_left() const;
    // Reports that this rank cannot continue.
    void fail();
    // Says goodbye: takes the entry back before the answer, ends in success after it.
    void leave();

  private:
    using Clock = std::chrono::steady_clock;
    std::string connect(Clock::time_point deadline);
    std::string shake_hands(const RollMessage &entry, Clock::time_point deadline, bool *again);
    void say(RollKind kind);
    void close();

    const RollPlace place_;
    const RollName roll_;
    mutable std::mutex mutex_; // Protects all below.
    int socket_ = -1;
    Digest key_ = {};
    mutable RollReader reader_;
    mutable bool has_lost_somebody_ = false;
    bool is_complete_ = false;
};

} // namespace tuccl

#endif
