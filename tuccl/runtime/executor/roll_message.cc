#include "roll_message.h"

#include <cerrno>
#include <cstring>

namespace tuccl {

namespace {

template <typename Bytes> std::string text_of(const Bytes &bytes) {
    return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

Digest seal_of(const RollMessage &message, const Digest &connection_key, RollSide sender) {
    const std::string body(reinterpret_cast<const char *>(&message), offsetof(RollMessage, seal));
    return hmac_sha256(connection_key, (sender == RollSide::kRank ? "rank" : "listener") + body);
}

} // namespace

Digest connection_key(const Digest &key, const Nonce &of_listener, const Nonce &of_rank) {
    return hmac_sha256(key, "connection" + text_of(of_listener) + text_of(of_rank));
}

void seal(RollMessage *message, const Digest &connection_key, RollSide sender) {
    message->seal = seal_of(*message, connection_key, sender);
}

// Takes as long wherever the first wrong byte is.
bool is_sealed(const RollMessage &message, const Digest &connection_key, RollSide sender) {
    const Digest right = seal_of(message, connection_key, sender);
    unsigned different = 0;
    for (size_t i = 0; i < right.size(); i++)
        different |= static_cast<unsigned>(right[i] ^ message.seal[i]);
    return different == 0;
}

RollReader::Got RollReader::read(int socket, RollMessage *message) {
    while (filled_ < bytes_.size()) {
        const ssize_t got =
            recv(socket, bytes_.data() + filled_, bytes_.size() - filled_, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return Got::kNothing;
        if (got <= 0)
            return Got::kEnd;
        filled_ += static_cast<size_t>(got);
    }
    filled_ = 0;
    std::memcpy(message, bytes_.data(), sizeof *message);
    return Got::kMessage;
}

bool send_now(int socket, const RollMessage &message) {
    ssize_t sent = 0;
    do
        sent = send(socket, &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(sizeof message);
}

} // namespace tuccl
