// Requests to the tuner plugin for a rail's calls (tuccl/runtime/rail_request.h).
#ifndef TUCCL_EXECUTOR_RAIL_REQUEST_H
#define TUCCL_EXECUTOR_RAIL_REQUEST_H

#include "../rail_request.h"
#include "program_layout.h"

#include <cstdint>
#include <functional>

namespace tuccl {

// A request for a rail of so many nodes, which is never freed: a plugin may hold it.
tuccl_rail_request *new_rail_request(uint32_t nodes);

// Calls `split`, during which the plugin of the rail's communicator can take the request. Returns
// the result of `split`. While another rail of this process is split, in another thread, a plugin
// cannot know whose request it takes: then neither is obeyed. (No lock is held: the ranks of two
// communicators could take it in different orders, and wait for each other inside NCCL.)
int split_with(tuccl_rail_request *request, const std::function<int()> &split);

// Returns whether exactly the rail's communicators obey the request.
bool is_obeyed(const tuccl_rail_request &request, uint32_t rails);

// Requests the configuration of a phase for the calls during its life.
class RailRequested {
  public:
    // `request` may be NULL.
    RailRequested(tuccl_rail_request *request, const tuccl_phase &phase);
    ~RailRequested();
    RailRequested(const RailRequested &) = delete;
    RailRequested &operator=(const RailRequested &) = delete;

  private:
    tuccl_rail_request *request_;
};

} // namespace tuccl

extern "C" tuccl_rail_request *tuccl_executor_rail_request();

#endif
