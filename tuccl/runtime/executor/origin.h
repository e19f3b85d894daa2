// Origins of communicators: a secret shared by the ranks of each, by which they meet before NCCL
// creates it.
#ifndef TUCCL_EXECUTOR_ORIGIN_H
#define TUCCL_EXECUTOR_ORIGIN_H

#include "communicator_settings.h"
#include "nccl_abi.h"
#include "nccl_config.h"
#include "plan.h"
#include "requests.h"
#include "roll_call.h"

#include <memory>
#include <optional>
#include <vector>

namespace tuccl {

// A communicator that is being created from another.
class Birth;

struct Origin {
    bool is_known = true; // False for a communicator created by a function that is not interposed.
    std::shared_ptr<const Table> table; // As it was before NCCL made it.
    Digest secret = {};
    Reach reach = Reach::kHost;
    std::optional<RollPlace> place; // Of the roll that reaches over the network.
    std::shared_ptr<RollCall> roll; // NULL where it is not known, or cannot be served anyhow.
    std::shared_ptr<Birth> birth;   // NULL where it has no parent.
    // To the plugin of the communicator, until its set-up begins.
    std::shared_ptr<Offer> offer;
    // Whether its configuration lets what is split from it share its resources, among them the flag
    // by which NCCL aborts.
    bool shares = false;
    // Threadblocks of a kernel, as its configuration bounds them.
    uint16_t most_blocks = kAnyBlocks;
    std::shared_ptr<const OwnedConfig> config; // The job's; NULL where it is not known.
    bool has_settings = false; // Whether NCCL started it with the table's settings, too.
};

// Opens a roll on the network for an id that NCCL has just made, and marks the id, where a
// communicator of several hosts may be served.
void open_network_roll(ncclUniqueId *id);

// Origin of a communicator that is about to be created; each rank calls this before NCCL.
std::vector<Origin> origins_here(size_t ranks); // All ranks are in this call.
// Without a configuration a child has its parent's.
Origin origin_by_id(const ncclUniqueId &id, int ranks, int rank, const ncclConfig *config);
Origin origin_from(ncclComm_t parent, int color, const ncclConfig *config);
Origin unknown_origin();

// Reports that NCCL has created it or is in progress. Without this report it failed.
void accept(const Origin &origin);

// Offers a request to the plugin of what NCCL starts next, or none if nothing is checked or
// guarded.
void offer(Origin *origin);
// The plugin's communicator exists: what is offered to it is not for others. Idempotent.
void withdraw_offer(const Origin &origin);

// So that more can be made from it. Not of NULL.
void remember_origin(ncclComm_t comm, const Origin &origin);
void forget_origin(ncclComm_t comm);

// Returns what NCCL is to read instead of no configuration when a communicator is made from one
// that has the table's settings, which it would take over: what the job gave for that. None
// elsewhere.
std::optional<OwnedConfig> without_settings(ncclComm_t parent, const ncclConfig *given);

} // namespace tuccl

#endif
