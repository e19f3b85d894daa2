// Messages between a rank and the listener of a roll on the network: all of one length, and sealed
// by the key of their connection but for the listener's first one.
//
//   listener -> rank   kHello    its nonce
//   rank -> listener   kEnter    whose id, which roll, the rank's nonce, the rank's entry
//   listener -> rank   kEntered  the entry stands; or kRefused
//   rank -> listener   kAsk      NCCL has started a communicator of so many ranks: is it complete?
//   listener -> rank   kAnswer   present, of how many, whether marks agree
//   rank -> listener   kFail     set-up has failed; or kGoodbye
//   listener -> rank   kLeft     a rank of a complete roll has failed or died
//
// The key of a connection follows from both nonces and the id's key, which is never sent: nobody
// else can make a message, or use one again.
#ifndef TUCCL_EXECUTOR_ROLL_MESSAGE_H
#define TUCCL_EXECUTOR_ROLL_MESSAGE_H

#include "roll_place.h"

#include <cstddef>
#include <cstdint>

namespace tuccl {

// Numbers with which no other protocol's first message begins.
enum class RollKind : uint32_t {
    kHello = 0x4C4F5201,
    kEnter = 0x4C4F5202,
    kEntered = 0x4C4F5203,
    kRefused = 0x4C4F5204,
    kAsk = 0x4C4F5205,
    kAnswer = 0x4C4F5206,
    kFail = 0x4C4F5207,
    kGoodbye = 0x4C4F5208,
    kLeft = 0x4C4F5209,
};

using Nonce = std::array<uint8_t, 16>;

// Fields without a meaning for a kind are zero.
struct RollMessage {
    RollKind kind;
    uint32_t release; // kEnter: of the executor.
    RollName id;      // kEnter: RollPlace::name.
    RollName roll;    // kEnter: of the communicator, which may be a child of the id's.
    Nonce nonce;      // kHello, kEnter.
    uint32_t rank;    // kEnter.
    uint32_t ranks;   // kAsk, kAnswer.
    uint64_t mark;    // kEnter; kAnswer: 1 if marks agree.
    uint64_t attempt; // kEnter; kAnswer: ranks present.
    Digest seal;
};
static_assert(sizeof(RollMessage) == 112, "no padding");

enum class RollSide { kListener, kRank };

Digest connection_key(const Digest &key, const Nonce &of_listener, const Nonce &of_rank);
void seal(RollMessage *message, const Digest &connection_key, RollSide sender);
bool is_sealed(const RollMessage &message, const Digest &connection_key, RollSide sender);

// Collects messages from a socket that does not block.
class RollReader {
  public:
    enum class Got { kNothing, kMessage, kEnd };
    // Returns kEnd where the connection has ended, also in an error.
    Got read(int socket, RollMessage *message);

  private:
    std::array<unsigned char, sizeof(RollMessage)> bytes_;
    size_t filled_ = 0;
};

// Sends a message at once. Returns false, with the connection of no more use, where it cannot: a
// peer that reads so little is not served.
bool send_now(int socket, const RollMessage &message);

} // namespace tuccl

#endif
