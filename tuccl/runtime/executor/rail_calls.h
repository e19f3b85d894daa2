// The calls of NCCL that schedules across hosts make, as far as NCCL connects them differently:
// along a rail, and sends and receives of rounds.
#ifndef TUCCL_EXECUTOR_RAIL_CALLS_H
#define TUCCL_EXECUTOR_RAIL_CALLS_H

#include "decision.h"
#include "nccl_call.h"
#include "statement_plan.h"

#include <cstdint>
#include <vector>

namespace tuccl {

struct RailCall {
    uint8_t operation; // kSend: sends and receives between `pairs`.
    // The requested configuration, as in tuccl_phase; 0: NCCL's own choice.
    uint8_t algorithm;
    uint8_t protocol;
    uint8_t nchannels;
    uint32_t lanes; // The first communicators of the rail, each of which makes the call.
    // Of the larger buffer of the largest call, where NCCL's choice depends on it; else 0.
    uint64_t most_bytes;
    // Of all ranks alike: sender and receiver.
    RankPairs pairs = {};
};

// Adds the calls of a rule, each kind of call once. `obeys`:
// whether NCCL takes the requested configurations; the same on all ranks.
void add_rail_calls(const Rule &rule, const void *programs, bool obeys,
                    std::vector<RailCall> *calls);

// The calls of all rules.
std::vector<RailCall> rail_calls(const Decision &decision, const void *programs, bool obeys);

} // namespace tuccl

#endif
