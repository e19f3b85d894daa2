// Determines whether every rank of a communicator runs the executor, before the communicator is
// used: a rank without it would not take part, and the others would wait for ever.
//
// Each rank enters its number before it calls NCCL, and reads all entries when NCCL has started.
// The start is a barrier: no rank completes it before all have begun. So the entries are complete
// by then, and equal for all ranks, without waiting. Entries are stored in this process and, for
// ranks of other processes, in a file of the host's shared memory. Ranks that do not share that
// memory, as on another node, find each other missing; unless the executor could serve them: then
// the roll is on the network instead, at the process that made the id (roll_place.h). A
// communicator uses the one or the other, which its id says to all ranks alike.
//
// Why no rank serves a communicator that another leaves to NCCL:
// - A rank that cannot be entered is in nobody's roll: all leave it to NCCL. Only where all ranks
//   are in this process nobody needs the file, and that is the same for all as well.
// - A start that failed takes its entry back before the rank can try again, and the entry of a
//   process that died is none. So of one rank there is one entry, that of the start which NCCL
//   counts, also where the same id is tried again.
// - The file is removed by whoever reads it first, when nobody opens it any more, or when nobody
//   alive is in it. Where others removed it between two openings ranks are in several files, and
//   each of these lacks some rank.
// - After that a rank can fail, or die, and then the communicator has no use. Those who greet one
//   another look at somebody_left() and fail as well, instead of waiting for ever. A failure stands
//   beside the entry, so that all who read later greet, too, and fail alike. A rank that does not
//   find itself (somebody damaged the file) takes itself back, so that nobody waits for it.
#ifndef TUCCL_EXECUTOR_ROLL_CALL_H
#define TUCCL_EXECUTOR_ROLL_CALL_H

#include "network_roll.h"
#include "roll_file.h"
#include "secrets.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace tuccl {

enum class Reach { kHost, kProcess, kNetwork };

struct Roll {
    uint32_t present = 0; // Mask of the ranks found.
    bool marks_agree = false;
    std::string fault; // Why peers cannot see this rank; empty if they can.
};

class RollCall {
  public:
    // Enters this rank, with a mark. Only the communicator's ranks have the secret. `reach`:
    // kProcess if all of them are in this process, kNetwork with the place of the roll.
    RollCall(const Digest &secret, uint32_t rank, uint64_t mark, Reach reach,
             const std::optional<RollPlace> &place = std::nullopt);
    // Withdraws the entry unless the roll was read.
    ~RollCall();
    RollCall(const RollCall &) = delete;
    RollCall &operator=(const RollCall &) = delete;

    // Reads the roll when NCCL has started the communicator.
    Roll read(uint32_t ranks);
    // Returns whether a rank of the roll has failed or died.
    bool somebody_left() const;
    // Reports that this rank has read the roll and cannot continue.
    void fail();

    // Reports that this rank will no longer disturb kernels on other devices of this process.
    void arrive();
    // Waits until all ranks of this process have arrived or left, or `gives_up` returns true.
    void wait_for_those_here(const std::function<bool()> &gives_up);

  private:
    class Here;

    void take_back();
    Roll read_network(uint32_t ranks);

    uint32_t rank_;
    RollEntry mine_;
    std::shared_ptr<Here> here_;
    std::optional<RollFile> file_;
    std::optional<NetworkRoll> network_;
    std::string fault_;
    RollEntries seen_; // Empty before reading, and if a rank is missing.
    bool seen_here_ = false;
    bool was_read_ = false;
};

} // namespace tuccl

#endif
