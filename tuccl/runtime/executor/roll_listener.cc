#include "roll_place.h"

#include "roll_table.h"
#include "secrets.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <sys/epoll.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace tuccl {

namespace {

constexpr auto kHandshake = std::chrono::seconds(5);
constexpr auto kTick = std::chrono::milliseconds(50);
constexpr size_t kMostPending = 128;
// For so long a pending connection is not closed for another one: ranks of a large communicator
// come at once, and need as long as a message takes.
constexpr auto kGrace = std::chrono::milliseconds(100);
constexpr int kAcceptedAtOnce = 16;
constexpr int kEventsAtOnce = 64;
constexpr Connection kListening = 0; // Connections have the numbers from 1 on.

struct Peer {
    int socket;
    Clock::time_point since;
    Nonce nonce;
    Digest key = {};
    bool has_entered = false;
    RollReader reader;
};

class Listener {
  public:
    uint16_t listen_at(const SocketAddress &address, std::string *fault);
    bool expect(const RollPlace &place) {
        const std::lock_guard<std::mutex> lock(mutex_);
        return table_.expect(place.name, place.key);
    }

    const pid_t process = getpid();

  private:
    std::string start(SocketAddress address);
    [[noreturn]] void run();
    void handle(const epoll_event &event);
    void accept_some();
    bool make_room();
    bool greet(int socket);
    void read(Connection connection);
    bool take(Connection connection, Peer *peer, const RollMessage &message);
    bool admit(Connection connection, Peer *peer, const RollMessage &message);
    void deliver();
    void drop(Connection connection);
    void pause_accepting(bool pauses);
    void look_at_the_clock();

    std::mutex mutex_; // Protects all below.
    bool was_started_ = false;
    std::string fault_;
    SocketAddress address_ = {};
    uint16_t port_ = 0;
    int listening_ = -1;
    int epoll_ = -1;
    bool is_paused_ = false;
    Clock::time_point paused_at_;
    RollTable table_;
    std::map<Connection, Peer> peers_; // In order of their arrival.
    size_t pending_ = 0;
    Connection next_ = kListening + 1;
};

bool is_same_host(const SocketAddress &one, const SocketAddress &other) {
    return one.any.sa_family == other.any.sa_family && one.host() == other.host();
}

uint16_t Listener::listen_at(const SocketAddress &address, std::string *fault) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!was_started_) {
        was_started_ = true;
        address_ = address;
        fault_ = start(address);
    }
    *fault = fault_;
    if (fault_.empty() && !is_same_host(address, address_))
        *fault = "this process listens at " + address_.host() + " already";
    return fault->empty() ? port_ : 0;
}

std::string Listener::start(SocketAddress address) {
    const auto describe = [](const char *step) {
        const int error = errno;
        return std::string(step) + " failed: " + std::generic_category().message(error);
    };
    address.set_port(0);
    socklen_t bytes = address.length();
    listening_ = open_own_socket(address);
    if (listening_ < 0 || bind(listening_, &address.any, bytes) != 0 ||
        listen(listening_, SOMAXCONN) != 0 || getsockname(listening_, &address.any, &bytes) != 0)
        return describe("listening");
    epoll_ = own(epoll_create1(EPOLL_CLOEXEC));
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = kListening;
    if (epoll_ < 0 || epoll_ctl(epoll_, EPOLL_CTL_ADD, listening_, &event) != 0)
        return describe("waiting for connections");
    port_ = ntohs(address.any.sa_family == AF_INET ? address.v4.sin_port : address.v6.sin6_port);
    // The job's signals are for the job's threads.
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    std::string fault;
    try {
        std::thread([this] { run(); }).detach();
    } catch (const std::system_error &) {
        fault = "a thread could not be started";
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return fault;
}

void Listener::run() {
    (void)pthread_setname_np(pthread_self(), "tuccl-roll");
    bool ticks = false;
    for (;;) {
        epoll_event events[kEventsAtOnce];
        const int timeout = ticks ? static_cast<int>(kTick.count()) : -1;
        const int count = epoll_wait(epoll_, events, kEventsAtOnce, timeout);
        if (count < 0 && errno != EINTR) // The job closed what is not its own.
            std::this_thread::sleep_for(kTick);
        const std::lock_guard<std::mutex> lock(mutex_);
        for (int i = 0; i < count; i++)
            handle(events[i]);
        look_at_the_clock();
        ticks = pending_ > 0 || is_paused_ || table_.is_waiting();
    }
}

void Listener::handle(const epoll_event &event) {
    if (event.data.u64 == kListening)
        accept_some();
    else
        read(event.data.u64);
    deliver();
}

void Listener::accept_some() {
    for (int i = 0; i < kAcceptedAtOnce; i++) {
        if (!make_room()) {
            pause_accepting(true);
            return;
        }
        const int socket = own(accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (socket < 0) {
            // Without descriptors or memory the connection stays in the queue.
            if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
                pause_accepting(true);
            return;
        }
        if (!greet(socket))
            close_own(socket);
    }
}

// Closes the oldest pending connection where there are too many. Returns false if it is too young.
bool Listener::make_room() {
    if (pending_ < kMostPending)
        return true;
    for (const auto &[connection, peer] : peers_)
        if (!peer.has_entered) {
            if (Clock::now() - peer.since < kGrace)
                return false;
            drop(connection);
            return true;
        }
    return true;
}

bool Listener::greet(int socket) {
    tune_connection(socket);
    Peer peer = {};
    peer.socket = socket;
    peer.since = Clock::now();
    RollMessage hello = {};
    hello.kind = RollKind::kHello;
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = next_;
    if (!random_bytes(peer.nonce.data(), peer.nonce.size()))
        return false;
    hello.nonce = peer.nonce;
    if (!send_now(socket, hello) || epoll_ctl(epoll_, EPOLL_CTL_ADD, socket, &event) != 0)
        return false;
    peers_.emplace(next_++, peer);
    pending_++;
    return true;
}

void Listener::read(Connection connection) {
    for (;;) {
        const auto found = peers_.find(connection);
        if (found == peers_.end())
            return;
        Peer &peer = found->second;
        RollMessage message;
        const RollReader::Got got = peer.reader.read(peer.socket, &message);
        if (got == RollReader::Got::kNothing)
            return;
        if (got == RollReader::Got::kEnd || !take(connection, &peer, message))
            drop(connection);
        deliver();
    }
}

// Returns false where the connection is to be closed.
bool Listener::take(Connection connection, Peer *peer, const RollMessage &message) {
    if (!peer->has_entered)
        return admit(connection, peer, message);
    if (!is_sealed(message, peer->key, RollSide::kRank))
        return false;
    table_.receive(connection, message, Clock::now());
    return true;
}

bool Listener::admit(Connection connection, Peer *peer, const RollMessage &message) {
    const Digest *key = message.kind == RollKind::kEnter ? table_.key_of(message.id) : nullptr;
    if (key == nullptr)
        return false;
    peer->key = connection_key(*key, peer->nonce, message.nonce);
    if (!is_sealed(message, peer->key, RollSide::kRank))
        return false;
    peer->has_entered = true;
    pending_--;
    table_.enter(connection, message);
    return true;
}

void Listener::deliver() {
    for (auto events = table_.take_events(); !events.empty(); events = table_.take_events())
        for (RollEvent &event : events) {
            const auto found = peers_.find(event.to);
            if (found == peers_.end())
                continue;
            if (event.message)
                seal(&*event.message, found->second.key, RollSide::kListener);
            if (!event.message || !send_now(found->second.socket, *event.message))
                drop(event.to);
        }
}

// By value: what it is called with may lie in what it erases.
void Listener::drop(const Connection connection) {
    const auto found = peers_.find(connection);
    if (found == peers_.end())
        return;
    if (found->second.has_entered)
        table_.lose(connection);
    else
        pending_--;
    close_own(found->second.socket);
    peers_.erase(found);
}

void Listener::pause_accepting(bool pauses) {
    if (is_paused_ == pauses)
        return;
    is_paused_ = pauses;
    paused_at_ = Clock::now();
    epoll_event event = {};
    event.events = pauses ? 0U : EPOLLIN;
    event.data.u64 = kListening;
    (void)epoll_ctl(epoll_, EPOLL_CTL_MOD, listening_, &event);
}

void Listener::look_at_the_clock() {
    const Clock::time_point now = Clock::now();
    for (auto each = peers_.begin(); pending_ > 0 && each != peers_.end();) {
        const auto &[connection, peer] = *each++;
        if (!peer.has_entered && now - peer.since > kHandshake)
            drop(connection);
    }
    table_.expire(now);
    deliver();
    if (is_paused_ && now - paused_at_ >= kTick)
        pause_accepting(false);
}

std::atomic<Listener *> of_process{nullptr};

// No lock: another thread may have held it when this process was forked.
Listener &listener() {
    Listener *found = of_process.load();
    while (found == nullptr || found->process != getpid()) {
        auto made = std::make_unique<Listener>();
        if (of_process.compare_exchange_strong(found, made.get()))
            found = made.release();
    }
    return *found;
}

} // namespace

uint16_t listen_for_rolls(const SocketAddress &address, std::string *fault) {
    return listener().listen_at(address, fault);
}

bool expect_roll(const RollPlace &place) {
    return listener().expect(place);
}

} // namespace tuccl
