// What ranks tell one another at a communicator's start, and what follows from it: the same on all
// of them, because all read the same greetings.
#ifndef TUCCL_EXECUTOR_AGREEMENT_H
#define TUCCL_EXECUTOR_AGREEMENT_H

#include "executor.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tuccl {

constexpr uint32_t kGreetingMagic = 0x58455554; // "TUEX"
constexpr uint32_t kExecutorVersion = 2;        // Of greetings, staging layout and decisions.

// Size, magic and version stay where they are in every release: ranks of different releases must
// be able to find out that they differ.
struct Greeting {
    uint32_t magic;
    uint32_t version;
    uint32_t sum;
    uint32_t wanted;
    uint64_t host;
    uint64_t process; // Equal for ranks of one process.
    uint64_t number;  // Of this set-up; rank 0's counts.
    unsigned char handle[TUCCL_HANDLE_BYTES];
    uint32_t staging; // Sum of how its staging memory is laid out.
    uint32_t zero;
    char fault[80]; // Why this rank cannot; empty when it can.
};
static_assert(sizeof(Greeting) == 256, "greetings have 256 bytes in every release");

struct Verdict {
    bool serve;
    bool unwanted; // Nobody asked for anything: no reason to say a word.
    std::string reason;
};

Verdict judge(const std::vector<Greeting> &greetings);

} // namespace tuccl

#endif
