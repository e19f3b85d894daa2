// Places of rolls on the network for the scenarios, as ncclGetUniqueId makes them.
#ifndef TUCCL_TEST_NETWORK_PLACE_H
#define TUCCL_TEST_NETWORK_PLACE_H

#include "processes.h"
#include "roll_place.h"
#include "session.h"

#include <arpa/inet.h>
#include <csignal>
#include <cstring>
#include <optional>
#include <sys/prctl.h>

// An id as NCCL makes it, with a magic number of its own.
inline ncclUniqueId plain_id(uint64_t magic, const char *host = "127.0.0.1") {
    ncclUniqueId id = {};
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(1);
    CHECK(inet_pton(AF_INET, host, &address.sin_addr) == 1);
    std::memcpy(id.internal, &magic, sizeof magic);
    std::memcpy(id.internal + sizeof magic, &address, sizeof address);
    return id;
}

// A place at a port where this process does not listen.
inline tuccl::RollPlace place_at(uint16_t port, const char *host = "127.0.0.1") {
    ncclUniqueId id = plain_id(port, host);
    tuccl::mark_id(&id, port, {1, 2, 3});
    return *tuccl::marked_place(id);
}

// A place at this process's listener.
inline tuccl::RollPlace open_place(uint64_t magic) {
    ncclUniqueId id = plain_id(magic);
    std::string fault;
    const uint16_t port = tuccl::listen_for_rolls(*tuccl::bootstrap_address(id), &fault);
    CHECK(port != 0 && fault.empty());
    tuccl::mark_id(&id, port, {9, 8, 7});
    const std::optional<tuccl::RollPlace> place = tuccl::marked_place(id);
    CHECK(place.has_value() && tuccl::expect_roll(*place));
    return *place;
}

// Opens places of rolls in a process of its own, which lasts as long as this one: whoever forks
// must have no listener's thread, which may hold the allocator's lock just then.
inline void listen_elsewhere(const std::function<void()> &open) {
    auto *opened = share<Barrier>();
    (void)in_process([&] {
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        open();
        opened->meet(2);
        for (;;)
            (void)pause();
    });
    opened->meet(2);
}

inline tuccl::RollPlace place_elsewhere(uint64_t magic) {
    auto *place = share<tuccl::RollPlace>();
    listen_elsewhere([&] { *place = open_place(magic); });
    return *place;
}

#endif
