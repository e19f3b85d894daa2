#include "own_sockets.h"

#include <array>
#include <atomic>
#include <mutex>
#include <netinet/tcp.h>
#include <pthread.h>
#include <unistd.h>

namespace tuccl {

namespace {

// Bits of descriptors, read in a forked process, where no lock can be taken.
constexpr size_t kMostDescriptors = size_t{1} << 20;
constexpr size_t kBits = 64;
std::array<std::atomic<uint64_t>, kMostDescriptors / kBits> open_ones;

void close_in_child() {
    for (size_t i = 0; i < open_ones.size(); i++) {
        const uint64_t bits = open_ones[i].exchange(0);
        for (size_t bit = 0; bit < kBits && bits != 0; bit++)
            if ((bits >> bit & 1) != 0)
                (void)close(static_cast<int>(i * kBits + bit));
    }
}

void set(int socket, int level, int option, int value) {
    (void)setsockopt(socket, level, option, &value, sizeof value);
}

} // namespace

int own(int descriptor) {
    static std::once_flag once;
    std::call_once(once, [] { (void)pthread_atfork(nullptr, nullptr, close_in_child); });
    const auto index = static_cast<size_t>(descriptor);
    if (descriptor >= 0 && index < kMostDescriptors)
        open_ones[index / kBits].fetch_or(uint64_t{1} << index % kBits);
    return descriptor;
}

void close_own(int descriptor) {
    if (descriptor < 0)
        return;
    const auto index = static_cast<size_t>(descriptor);
    if (index < kMostDescriptors)
        open_ones[index / kBits].fetch_and(~(uint64_t{1} << index % kBits));
    (void)close(descriptor);
}

int open_own_socket(const SocketAddress &address) {
    return own(socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

void tune_connection(int socket) {
    set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 5);
    set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

} // namespace tuccl
