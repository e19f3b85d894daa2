// The rolls that a listener keeps, without its sockets. Not thread-safe.
//
// Why ranks conclude the same: a roll is complete only if all ranks of the communicator have
// entered and asked, each over a connection that is still there. The first question comes after
// NCCL's start, a barrier, so all who will be in the roll have entered by then: if somebody is
// missing, all are told at once. If nobody is, the answer waits for the others' questions, which
// follow as soon as NCCL has started there. So an entry whose process died unheard, or whose start
// failed and went on without a roll, completes none. Whatever is concluded first stands.
#ifndef TUCCL_EXECUTOR_ROLL_TABLE_H
#define TUCCL_EXECUTOR_ROLL_TABLE_H

#include "roll_message.h"

#include <chrono>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tuccl {

using Connection = uint64_t;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kMostNetworkRanks = 65536;
constexpr size_t kMostIds = 4096;
constexpr auto kPatienceWithQuestions = std::chrono::seconds(10);

// What a connection is to be sent; without a message it is to be closed.
struct RollEvent {
    Connection to;
    std::optional<RollMessage> message; // Without a seal.
};

class RollTable {
  public:
    // Takes up a new id. Beyond the largest number the oldest one whose rolls nobody uses goes.
    // Returns false where all are in use.
    bool expect(const RollName &id, const Digest &key);
    // Returns the key of an id, NULL where it is unknown.
    const Digest *key_of(const RollName &id) const;

    // A rank enters a roll. A later start of the same rank takes the place of an earlier one.
    void enter(Connection connection, const RollMessage &message);
    // A rank that has entered sends one of its other messages.
    void receive(Connection connection, const RollMessage &message, Clock::time_point now);
    // A connection has ended without a goodbye.
    void lose(Connection connection);
    // Ends the waiting for questions whose time is over.
    void expire(Clock::time_point now);

    // Returns whether time can change anything.
    bool is_waiting() const;
    // Returns what has come of all this since the last call, in order.
    std::vector<RollEvent> take_events();

  private:
    struct Entry {
        Connection connection;
        uint64_t mark;
        uint32_t release;
        bool has_asked;
    };
    struct Roll {
        std::map<uint32_t, Entry> entries; // By rank.
        uint32_t ranks = 0;                // Of the communicator; 0 before the first question.
        uint32_t asked = 0;
        Clock::time_point deadline; // Of the questions.
        bool is_concluded = false;
        bool is_complete = false;
        bool is_left = false;
        bool marks_agree = false;
        uint32_t present = 0;
    };
    using RollKey = std::pair<RollName, RollName>; // Of the id and the roll.
    using Rolls = std::map<RollKey, Roll>;
    struct Member {
        Rolls::iterator roll;
        uint32_t rank;
    };
    struct Id {
        Digest key;
        uint64_t order;
    };

    void ask(const Member &member, uint32_t ranks, Clock::time_point now);
    void conclude(Roll *roll, bool is_complete);
    void answer(const Roll &roll, Connection connection);
    void leave(Connection connection, bool is_well);
    bool is_used(const RollName &id) const;
    void send(Connection to, RollKind kind);
    void close(Connection connection);

    std::map<RollName, Id> ids_;
    Rolls rolls_; // Those with connections.
    std::unordered_map<Connection, Member> members_;
    std::vector<RollEvent> events_;
    uint64_t next_order_ = 0;
};

} // namespace tuccl

#endif
