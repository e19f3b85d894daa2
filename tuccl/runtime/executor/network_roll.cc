#include "network_roll.h"

#include "agreement.h"
#include "roll_place.h"
#include "secrets.h"
#include "singleton.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <poll.h>
#include <system_error>
#include <thread>

namespace tuccl {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(5); // For a connection, and again for a handshake.
constexpr auto kPatienceInAll = 2 * kPatience;
// More than the listener waits for the other ranks' questions.
constexpr auto kPatienceWithAnswer = std::chrono::seconds(30);
constexpr auto kForgetting = std::chrono::seconds(60);
// The listener closes the oldest of too many connections that have not entered.
constexpr int kTries = 4;

// Hosts that could not be reached: further communicators do not wait for them again soon.
class Unreachable {
  public:
    void add(const std::string &host) {
        const std::lock_guard<std::mutex> lock(mutex_);
        until_[host] = Clock::now() + kForgetting;
    }
    bool has(const std::string &host) {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (auto each = until_.begin(); each != until_.end();)
            each = each->second <= Clock::now() ? until_.erase(each) : std::next(each);
        return until_.count(host) > 0;
    }

  private:
    std::mutex mutex_;
    std::map<std::string, Clock::time_point> until_;
};

// Returns whether a socket is ready, or has ended, before the deadline.
bool wait_for(int socket, short event, Clock::time_point deadline) {
    for (;;) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
        pollfd wanted = {socket, event, 0};
        const int count = poll(&wanted, 1, static_cast<int>(std::max<long long>(left, 0)));
        if (count > 0)
            return true;
        if (left <= 0 || (count < 0 && errno != EINTR))
            return false;
    }
}

using Heard = RollReader::Got;

Heard hear(int socket, RollReader *reader, RollMessage *message, Clock::time_point deadline) {
    for (;;) {
        const Heard heard = reader->read(socket, message);
        if (heard != Heard::kNothing || !wait_for(socket, POLLIN, deadline))
            return heard;
    }
}

std::string at(const RollPlace &place) {
    return "its ranks' roll at " + place.address.host() + " port " + std::to_string(place.port);
}

} // namespace

NetworkRoll::~NetworkRoll() {
    leave();
}

std::string NetworkRoll::enter(uint32_t rank, uint64_t mark, uint64_t attempt) {
    const std::lock_guard<std::mutex> lock(mutex_);
    RollMessage entry = {};
    entry.kind = RollKind::kEnter;
    entry.release = kExecutorVersion;
    entry.id = place_.name;
    entry.roll = roll_;
    entry.rank = rank;
    entry.mark = mark;
    entry.attempt = attempt;
    std::string fault;
    bool again = true;
    const auto deadline = Clock::now() + kPatienceInAll;
    for (int i = 0; i < kTries && again; i++) {
        again = false;
        fault = connect(std::min(deadline, Clock::now() + kPatience));
        if (fault.empty())
            fault = shake_hands(entry, std::min(deadline, Clock::now() + kPatience), &again);
        if (!fault.empty())
            close();
    }
    return fault;
}

std::string NetworkRoll::connect(Clock::time_point deadline) {
    Unreachable &unreachable = singleton<Unreachable>();
    const std::string host = place_.address.host();
    if (unreachable.has(host))
        return at(place_) + " could not be reached a moment ago";
    socket_ = open_own_socket(place_.address);
    int error = 0;
    if (socket_ < 0 || ::connect(socket_, &place_.address.any, place_.address.length()) != 0)
        error = errno;
    if (socket_ >= 0 && (error == EINPROGRESS || error == EINTR)) {
        error = ETIMEDOUT;
        socklen_t bytes = sizeof error;
        if (wait_for(socket_, POLLOUT, deadline) &&
            getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
            error = errno;
    }
    if (error == 0) {
        tune_connection(socket_);
        return {};
    }
    if (error != ECONNREFUSED) // That one takes no time.
        unreachable.add(host);
    return at(place_) + " cannot be reached: " + std::generic_category().message(error) +
           "; ranks need a TCP port of that host";
}

// Sets `again` where the listener closed the connection before it looked at it.
std::string NetworkRoll::shake_hands(const RollMessage &entry, Clock::time_point deadline,
                                     bool *again) {
    reader_ = {};
    RollMessage hello;
    RollMessage mine = entry;
    Heard heard = hear(socket_, &reader_, &hello, deadline);
    if (heard == Heard::kMessage && hello.kind != RollKind::kHello)
        return at(place_) + " is something else";
    if (!random_bytes(mine.nonce.data(), mine.nonce.size()))
        return "the kernel has no random numbers";
    RollMessage reply;
    if (heard == Heard::kMessage) {
        key_ = connection_key(place_.key, hello.nonce, mine.nonce);
        seal(&mine, key_, RollSide::kRank);
        heard = send_now(socket_, mine) ? hear(socket_, &reader_, &reply, deadline) : Heard::kEnd;
    }
    if (heard == Heard::kNothing) {
        singleton<Unreachable>().add(place_.address.host());
        return at(place_) + " does not answer";
    }
    if (heard == Heard::kEnd) {
        *again = true;
        return at(place_) + " closed the connection: its process does not know the id";
    }
    if (!is_sealed(reply, key_, RollSide::kListener))
        return at(place_) + " does not know the id";
    return reply.kind == RollKind::kEntered ? std::string() : at(place_) + " is closed";
}

NetworkRoll::Answer NetworkRoll::ask(uint32_t ranks) {
    const std::lock_guard<std::mutex> lock(mutex_);
    // Before the question nobody counts this rank.
    RollMessage reply = {};
    if (socket_ < 0 || reader_.read(socket_, &reply) != Heard::kNothing) {
        close();
        return {false, 0, false, at(place_) + " was closed"};
    }
    RollMessage question = {};
    question.kind = RollKind::kAsk;
    question.ranks = ranks;
    seal(&question, key_, RollSide::kRank);
    const bool is_heard =
        send_now(socket_, question) &&
        hear(socket_, &reader_, &reply, Clock::now() + kPatienceWithAnswer) == Heard::kMessage &&
        is_sealed(reply, key_, RollSide::kListener) && reply.kind == RollKind::kAnswer;
    if (!is_heard) {
        close();
        is_complete_ = has_lost_somebody_ = true;
        return {true, ranks, false, {}};
    }
    is_complete_ = reply.ranks == ranks && reply.attempt == ranks;
    const auto most = is_complete_ || ranks == 0 ? ranks : ranks - 1;
    const auto present = static_cast<uint32_t>(std::min<uint64_t>(reply.attempt, most));
    return {is_complete_, present, reply.mark == 1, {}};
}

// Whatever comes after the answer says it: kLeft, or the end of the connection.
bool NetworkRoll::somebody_left() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    RollMessage message;
    if (is_complete_ && !has_lost_somebody_)
        has_lost_somebody_ = socket_ < 0 || reader_.read(socket_, &message) != Heard::kNothing;
    return is_complete_ && has_lost_somebody_;
}

void NetworkRoll::fail() {
    say(RollKind::kFail);
}

void NetworkRoll::leave() {
    say(RollKind::kGoodbye);
}

void NetworkRoll::say(RollKind kind) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (socket_ < 0)
        return;
    RollMessage message = {};
    message.kind = kind;
    seal(&message, key_, RollSide::kRank);
    (void)send_now(socket_, message);
    close();
}

// A process that was forked meanwhile may have a copy of the socket: that does not keep it open.
void NetworkRoll::close() {
    if (socket_ >= 0)
        (void)shutdown(socket_, SHUT_RDWR);
    close_own(socket_);
    socket_ = -1;
}

} // namespace tuccl
