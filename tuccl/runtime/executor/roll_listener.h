// The listener of a process for the rolls of the ids that it makes: one port, one thread.
//
// It lasts as long as the process; nothing that the thread uses is ever destroyed. A forked process
// has no such thread, and makes its own with its first id.
#ifndef TUCCL_EXECUTOR_ROLL_LISTENER_H
#define TUCCL_EXECUTOR_ROLL_LISTENER_H

#include "roll_place.h"

#include <string>

namespace tuccl {

// Listens at an address, if the process does not yet. Returns the port, 0 with a fault where it
// cannot: a process listens at the first address that it asked for.
uint16_t listen_for_rolls(const SocketAddress &address, std::string *fault);

// Takes up an id. Returns false where too many are in use.
bool expect_roll(const RollPlace &place);

} // namespace tuccl

#endif
