// TUCCL_CHECK: the table's entries against NCCL's own choice, timed when a communicator starts.
//
// Each entry is timed at one size, in turn with NCCL, on the communicator itself. After each step
// the ranks gather their times in greetings: the slowest rank counts, all read the same bytes and
// conclude the same. So no rank needs another one's leave, and an entry is left out on all ranks or
// on none.
#ifndef TUCCL_EXECUTOR_START_CHECK_H
#define TUCCL_EXECUTOR_START_CHECK_H

#include "communicator.h"
#include "exchange.h"
#include "requests.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tuccl {

// An entry that lost, at the size that was timed.
struct LostEntry {
    tuccl_left_out range;
    uint64_t bytes;
    float entry_us;
    float nccl_us;
};

struct CheckEnd {
    std::string obstacle; // Why nothing was timed; empty: something was, or there is no entry.
    size_t entries = 0;   // That can be timed.
    size_t of_plugin = 0; // Further ones, of a plugin that does not obey requests on all ranks.
    size_t timed = 0;     // Of them, as often as their verdict takes.
    uint64_t time_us = 0; // Of the slowest rank.
    std::vector<LostEntry> lost;
};

struct CheckWork {
    ncclComm_t comm;
    uint32_t rank;
    uint64_t limit_us;
    const Serving
        *serving; // Its decision has the executor's rules; without a device there are none.
    const tuccl_bundle *bundle;
    tuccl_request *request; // Which the plugin obeys on all ranks; NULL: its entries are not timed.
    const std::atomic<bool> *cancelled;
    // Called after what may disturb kernels on other devices of this process: waits for its other
    // ranks.
    std::function<void()> meet;
};

// All ranks call it alike. Returns NULL with the end, or why this rank could not go on: then
// kernels may run that wait for other ranks, as after a round of the exchange.
const char *check_entries(const CheckWork &work, Exchange *exchange, CheckEnd *end);

// Leaves the entries that lost to NCCL: the executor's rules, and for the job the plugin's. Returns
// their ranges.
std::vector<tuccl_left_out> leave_out(const CheckEnd &end, tuccl_request *request,
                                      Decision *decision);

// In a line; of the entries that lost the first few.
std::string describe(const LostEntry &entry);
std::string describe(const CheckEnd &end, uint64_t limit_us);

} // namespace tuccl

#endif
