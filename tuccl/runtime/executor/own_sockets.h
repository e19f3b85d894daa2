// The sockets of rolls. A process that is forked while they are open closes its copies: another
// process would keep a port taken, or a connection open whose rank has died.
#ifndef TUCCL_EXECUTOR_OWN_SOCKETS_H
#define TUCCL_EXECUTOR_OWN_SOCKETS_H

#include "roll_place.h"

namespace tuccl {

// Counts an open descriptor among them; returns it. Negative ones are passed through.
int own(int descriptor);
void close_own(int descriptor);

// Returns a socket that does not block, -1 with errno where there is none.
int open_own_socket(const SocketAddress &address);
// Sets up a connection: messages leave at once, and a host that is gone is noticed.
void tune_connection(int socket);

} // namespace tuccl

#endif
