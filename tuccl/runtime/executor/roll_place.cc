#include "roll_place.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <netinet/tcp.h>
#include <pthread.h>
#include <unistd.h>

namespace tuccl {

namespace {

struct Mark {
    char magic[8];
    uint16_t version;
    uint16_t port;
    uint32_t zero;
    IdSecret secret;
};
static_assert(sizeof(Mark) == 32, "mark");

constexpr char kMagic[] = "TuCCLid\n";
constexpr uint16_t kVersion = 1;
constexpr uint64_t kMagicOfCommId = 0x0280028002800280; // NCCL's, where NCCL_COMM_ID is set.
constexpr size_t kAddressAt = 8;
constexpr size_t kHandleBytes = 40;
constexpr size_t kMarkAt = sizeof(ncclUniqueId) - sizeof(Mark);

// The address as NCCL wrote it.
std::optional<SocketAddress> read_address(const ncclUniqueId &id) {
    SocketAddress address = {};
    std::memcpy(&address, id.internal + kAddressAt, sizeof address.v6);
    if (address.any.sa_family == AF_INET && address.v4.sin_port != 0)
        return address;
    if (address.any.sa_family == AF_INET6 && address.v6.sin6_port != 0)
        return address;
    return std::nullopt;
}

bool is_zero(const ncclUniqueId &id, size_t from, size_t to) {
    return std::all_of(id.internal + from, id.internal + to, [](char byte) { return byte == 0; });
}

} // namespace

void SocketAddress::set_port(uint16_t port) {
    if (any.sa_family == AF_INET)
        v4.sin_port = htons(port);
    else
        v6.sin6_port = htons(port);
}

std::string SocketAddress::host() const {
    char text[INET6_ADDRSTRLEN] = "";
    const void *bytes = any.sa_family == AF_INET ? static_cast<const void *>(&v4.sin_addr)
                                                 : static_cast<const void *>(&v6.sin6_addr);
    (void)inet_ntop(any.sa_family, bytes, text, sizeof text);
    return text;
}

Digest secret_of_id(const ncclUniqueId &id) {
    return sha256("TuCCL id" + std::string(id.internal, sizeof id.internal));
}

RollName roll_name(const Digest &secret) {
    const Digest digest = hmac_sha256(secret, "name of the network roll");
    RollName name;
    std::copy_n(digest.begin(), name.size(), name.begin());
    return name;
}

std::optional<SocketAddress> bootstrap_address(const ncclUniqueId &id) {
    uint64_t magic = 0;
    std::memcpy(&magic, id.internal, sizeof magic);
    if (magic == kMagicOfCommId || !is_zero(id, kHandleBytes, sizeof id.internal))
        return std::nullopt;
    return read_address(id);
}

void mark_id(ncclUniqueId *id, uint16_t port, const IdSecret &secret) {
    Mark mark = {{}, kVersion, port, 0, secret};
    std::memcpy(mark.magic, kMagic, sizeof mark.magic);
    std::memcpy(id->internal + kMarkAt, &mark, sizeof mark);
}

std::optional<RollPlace> marked_place(const ncclUniqueId &id) {
    Mark mark = {};
    std::memcpy(&mark, id.internal + kMarkAt, sizeof mark);
    if (std::memcmp(mark.magic, kMagic, sizeof mark.magic) != 0 || mark.version != kVersion ||
        mark.port == 0 || mark.zero != 0 || !is_zero(id, kHandleBytes, kMarkAt))
        return std::nullopt;
    std::optional<SocketAddress> address = read_address(id);
    if (!address)
        return std::nullopt;
    address->set_port(mark.port);
    const Digest secret = secret_of_id(id);
    return RollPlace{*address, mark.port, roll_name(secret),
                     hmac_sha256(secret, "key of the network roll")};
}

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
