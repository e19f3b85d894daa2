// Greetings that ranks exchange at a communicator's start, and the decision that follows: the same
// on all ranks, because all read the same greetings.
#ifndef TUCCL_EXECUTOR_AGREEMENT_H
#define TUCCL_EXECUTOR_AGREEMENT_H

#include "executor.h"
#include "nccl_config.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tuccl {

constexpr uint32_t kGreetingMagic = 0x58455554; // "TUEX"
constexpr uint32_t kExecutorVersion = 14; // Version of greetings, staging layout and decisions.

// Size, magic and version keep their offsets in every release, so that ranks detect different
// releases.
struct Greeting {
    uint32_t magic;
    uint32_t version;
    uint32_t sum;
    uint16_t wanted;
    uint16_t most_blocks; // Of this rank's kernels.
    uint64_t host;
    uint64_t process; // Equal for ranks of one process.
    uint64_t number;  // Number of this set-up; rank 0's is used.
    unsigned char handle[TUCCL_HANDLE_BYTES];
    uint32_t staging;  // Checksum of its staging layout; before it is known, of what determines it.
    uint32_t core_set; // As in Cores.
    uint16_t cores;    // That this rank's process may run on.
    uint8_t does_not_block : 1; // Whether the communicator does not.
    uint8_t obeys_requests : 1; // Whether the plugin of its rail does (request.h).
    uint8_t obeys_checker : 1;  // Whether that of the communicator itself does.
    uint8_t guards : 1;         // Whether it is to be guarded.
    uint8_t lacks_nvlink : 1;   // Whether it does not join the ranks of this rank's node.
    uint8_t learns : 1;         // Whether it is to learn, too.
    uint8_t takes_settings : 1; // Whether NCCL may start it again (communicator_settings.h).
    uint8_t round;              // Of its exchange, set by that.
    uint16_t team;              // Ranks whose memory NCCL shares over NVLink (grid.h); 0: unknown.
    uint16_t check_ms;          // Of TUCCL_CHECK; 0: nothing is checked.
    char fault[72];             // Why this rank cannot serve; empty if it can.
};
static_assert(sizeof(Greeting) == 256, "greetings have 256 bytes in every release");

struct Verdict {
    bool serve;
    bool unwanted; // No rank requested the executor: nothing is logged.
    std::string reason;
};

void set_fault(Greeting *greeting, const std::string &fault);
// Names the first rank that has one; empty if no rank has.
std::string first_fault(const std::vector<Greeting> &greetings);

Verdict judge(const std::vector<Greeting> &greetings);

// Returns the bounds that all ranks allow.
ScheduleBounds schedule_bounds(const std::vector<Greeting> &greetings);

// Whether the plugins of all rails do.
bool obeys_requests(const std::vector<Greeting> &greetings);

} // namespace tuccl

#endif
