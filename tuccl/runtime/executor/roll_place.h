// The place of a communicator's roll on the network, hidden in its unique id.
//
// NCCL's id begins with struct ncclBootstrapHandle (since 2.14): 64 random bits, the address at
// which its bootstrap listens, and since 2.30 a number of ranks, 40 bytes in all. The rest of the
// 128 bytes is zero. NCCL reads nothing there, but hashes all bytes of the id, so that all ranks
// must have the same ones: the id is changed before the job sees it, never later.
#ifndef TUCCL_EXECUTOR_ROLL_PLACE_H
#define TUCCL_EXECUTOR_ROLL_PLACE_H

#include "nccl_abi.h"
#include "secrets.h"

#include <array>
#include <cstdint>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <sys/socket.h>

namespace tuccl {

union SocketAddress {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;

    socklen_t length() const {
        return any.sa_family == AF_INET ? sizeof v4 : sizeof v6;
    }
    void set_port(uint16_t port);
    std::string host() const; // In digits.
};

using RollName = std::array<uint8_t, 16>; // Names a roll; reveals nothing of its secret.
using IdSecret = std::array<uint8_t, 16>;

struct RollPlace {
    SocketAddress address;
    uint16_t port; // Of the address.
    RollName name; // Of the id's roll, by which the listener finds the key.
    Digest key;    // Who knows it has the id.
};

// The secret of a communicator made by this id.
Digest secret_of_id(const ncclUniqueId &id);
RollName roll_name(const Digest &secret);

// Returns the address that NCCL's bootstrap listens at. None where the id is none of those above,
// is marked, or comes from NCCL_COMM_ID: then every rank may have made it, and all must be equal.
std::optional<SocketAddress> bootstrap_address(const ncclUniqueId &id);
void mark_id(ncclUniqueId *id, uint16_t port, const IdSecret &secret);
// Returns the place that a mark names, none without a mark.
std::optional<RollPlace> marked_place(const ncclUniqueId &id);

// The sockets of rolls. A process that is forked while they are open closes its copies: another
// process would keep a port taken, or a connection open whose rank has died.

// Counts an open descriptor among them; returns it. Negative ones are passed through.
int own(int descriptor);
void close_own(int descriptor);

// Returns a socket that does not block, -1 with errno where there is none.
int open_own_socket(const SocketAddress &address);
// Sets up a connection: messages leave at once, and a host that is gone is noticed.
void tune_connection(int socket);

// The listener of a process for the rolls of the ids that it makes: one port, one thread.
//
// It lasts as long as the process; nothing that the thread uses is ever destroyed. A forked process
// has no such thread, and makes its own with its first id.
//
// Listens at an address, if the process does not yet. Returns the port, 0 with a fault where it
// cannot: a process listens at the first address that it asked for.
uint16_t listen_for_rolls(const SocketAddress &address, std::string *fault);

// Takes up an id. Returns false where too many are in use.
bool expect_roll(const RollPlace &place);

} // namespace tuccl

#endif
