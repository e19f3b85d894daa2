// What can meet a roll on the network: other ids, late ranks, strangers, and peers that say
// anything.
#include "network_place.h"
#include "network_roll.h"
#include "processes.h"
#include "roll_place.h"
#include "roll_table.h"
#include "scenarios.h"
#include "session.h"

#include <algorithm>
#include <array>
#include <poll.h>
#include <random>

namespace {

using tuccl::Clock;
using tuccl::Connection;
using tuccl::NetworkRoll;
using tuccl::RollKind;
using tuccl::RollMessage;
using tuccl::RollPlace;
using tuccl::RollReader;
using tuccl::RollSide;
using tuccl::RollTable;

// Only ids with a known address, nothing behind it, and a magic number of their own are marked.
SCENARIO(network_ids) {
    ncclUniqueId id = plain_id(77, "10.1.2.3");
    CHECK(tuccl::bootstrap_address(id)->host() == "10.1.2.3" && !tuccl::marked_place(id));
    tuccl::mark_id(&id, 4321, {5});
    const auto place = tuccl::marked_place(id);
    CHECK(place && place->port == 4321 && place->address.host() == "10.1.2.3");
    CHECK(ntohs(place->address.v4.sin_port) == 4321);
    CHECK(!tuccl::bootstrap_address(id)); // Marked already.
    ncclUniqueId other = id;
    other.internal[127] ^= 1; // Another secret has another key and another name.
    CHECK(tuccl::marked_place(other)->key != place->key);
    CHECK(tuccl::marked_place(other)->name != place->name);
    id.internal[60] = 1;
    CHECK(!tuccl::marked_place(id));

    ncclUniqueId six = {};
    sockaddr_in6 address = {};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(9);
    address.sin6_addr = in6addr_loopback;
    std::memcpy(six.internal + 8, &address, sizeof address);
    CHECK(tuccl::bootstrap_address(six)->host() == "::1");
    CHECK(!tuccl::bootstrap_address(plain_id(0x0280028002800280))); // By NCCL_COMM_ID.
    ncclUniqueId strange = plain_id(1);
    strange.internal[8] = 99; // Of no known family.
    CHECK(!tuccl::bootstrap_address(strange));
    strange = plain_id(1);
    strange.internal[100] = 1; // A later NCCL puts something there.
    CHECK(!tuccl::bootstrap_address(strange));
}

RollMessage entry_of(uint32_t rank, uint64_t mark = 7, uint8_t roll = 1) {
    RollMessage message = {};
    message.kind = RollKind::kEnter;
    message.id = {1};
    message.roll = {roll};
    message.rank = rank;
    message.mark = mark;
    return message;
}

RollMessage saying(RollKind kind, uint32_t ranks = 0) {
    RollMessage message = {};
    message.kind = kind;
    message.ranks = ranks;
    return message;
}

// Events as text: connection, kind's last digit or x for the end, present.
std::string told(RollTable *table) {
    std::string text;
    for (const auto &event : table->take_events()) {
        text += std::to_string(event.to) + ":";
        text +=
            event.message ? std::to_string(static_cast<uint32_t>(event.message->kind) & 15) : "x";
        if (event.message && event.message->kind == RollKind::kAnswer)
            text += "=" + std::to_string(event.message->attempt) + "/" +
                    std::to_string(event.message->ranks);
        text += " ";
    }
    return text;
}

SCENARIO(network_table) {
    const auto now = Clock::now();
    const auto ask = [&](RollTable *table, Connection from, uint32_t ranks) {
        table->receive(from, saying(RollKind::kAsk, ranks), now);
    };
    const auto fresh = [] {
        RollTable table;
        for (uint32_t rank = 0; rank < 3; rank++)
            table.enter(rank + 1, entry_of(rank));
        CHECK(told(&table) == "1:3 2:3 3:3 ");
        return table;
    };
    { // The answer waits for all questions.
        RollTable table = fresh();
        ask(&table, 1, 3);
        ask(&table, 2, 3);
        CHECK(told(&table).empty() && table.is_waiting());
        ask(&table, 3, 3);
        CHECK(told(&table) == "1:6=3/3 2:6=3/3 3:6=3/3 " && !table.is_waiting());
        table.enter(4, entry_of(1)); // Too late.
        CHECK(told(&table) == "4:4 4:x ");
        table.receive(1, saying(RollKind::kGoodbye), now);
        CHECK(told(&table) == "1:x ");
        table.lose(2);
        CHECK(told(&table) == "3:9 ");
        table.receive(3, saying(RollKind::kFail), now);
        table.enter(5, entry_of(0)); // Nobody is left of the roll: a new one.
        CHECK(told(&table) == "3:x 5:3 ");
    }
    { // Somebody does not ask in time, and asks later.
        RollTable table = fresh();
        ask(&table, 1, 3);
        ask(&table, 3, 3);
        table.expire(now + tuccl::kPatienceWithQuestions - std::chrono::milliseconds(1));
        CHECK(told(&table).empty());
        table.expire(now + tuccl::kPatienceWithQuestions);
        CHECK(told(&table) == "1:6=2/0 3:6=2/0 ");
        ask(&table, 2, 3);
        CHECK(told(&table) == "2:6=2/0 ");
    }
    { // Somebody goes before asking; of those who were told, nobody's going concerns the others.
        RollTable table = fresh();
        ask(&table, 1, 3);
        table.lose(2);
        CHECK(told(&table) == "1:6=2/0 ");
        table.lose(1);
        ask(&table, 3, 3);
        CHECK(told(&table) == "3:6=2/0 ");
    }
    { // Ranks ask about different communicators, or are too many: never complete.
        RollTable table = fresh();
        ask(&table, 1, 3);
        ask(&table, 2, 4);
        ask(&table, 3, 3);
        CHECK(told(&table) == "1:6=2/0 2:6=2/0 3:6=2/0 ");
        RollTable few = fresh();
        ask(&few, 1, 2);
        CHECK(told(&few) == "1:6=1/0 ");
        RollTable none = fresh();
        ask(&none, 1, 0);
        ask(&none, 1, 0); // A second question ends the connection.
        CHECK(told(&none) == "1:6=0/0 1:x ");
    }
    { // A later start takes the place of an earlier one; one behind the first question takes none.
        RollTable table = fresh();
        table.enter(9, entry_of(1));
        CHECK(told(&table) == "2:x 9:3 ");
        table.lose(2);
        ask(&table, 1, 3);
        table.enter(10, entry_of(2));
        CHECK(told(&table) == "1:6=1/0 10:4 10:x ");
        table.enter(11, entry_of(tuccl::kMostNetworkRanks, 7, 2));
        CHECK(told(&table) == "11:4 11:x ");
    }
}

SCENARIO(network_ids_are_bounded) {
    RollTable table;
    const auto name = [](size_t number) {
        tuccl::RollName name = {};
        std::memcpy(name.data(), &number, sizeof number);
        return name;
    };
    for (size_t i = 0; i < tuccl::kMostIds; i++)
        CHECK(table.expect(name(i), {}));
    RollMessage entry = entry_of(0);
    entry.id = name(0);
    table.enter(1, entry);
    CHECK(table.expect(name(5000), {}) && table.key_of(name(0)) != nullptr);
    CHECK(table.key_of(name(1)) == nullptr && table.key_of(name(5000)) != nullptr);
    table.lose(1);
    CHECK(table.expect(name(5001), {}) && table.key_of(name(0)) == nullptr);
}

// A socket that listens in place of a roll's listener.
int listen_at(const char *host, int backlog, RollPlace *place) {
    sockaddr_in address = place_at(1, host).address.v4;
    address.sin_port = 0;
    socklen_t bytes = sizeof address;
    auto *any = reinterpret_cast<sockaddr *>(&address);
    const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(made >= 0 && bind(made, any, bytes) == 0 && listen(made, backlog) == 0);
    CHECK(getsockname(made, any, &bytes) == 0);
    *place = place_at(ntohs(address.sin_port), host);
    return made;
}

int connect_to(const RollPlace &place) {
    const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(made >= 0 && connect(made, &place.address.any, place.address.length()) == 0);
    return made;
}

bool has_ended(int connection) {
    std::array<char, 4096> bytes;
    ssize_t got = 0;
    while ((got = recv(connection, bytes.data(), bytes.size(), MSG_DONTWAIT)) > 0) {
    }
    return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

// Where a message must come a busy machine may take its time.
constexpr int kMustComeMs = 5000;

bool receive_whole(int connection, RollMessage *message, int patience_ms = 20) {
    RollReader reader;
    for (;;) {
        const RollReader::Got got = reader.read(connection, message);
        if (got != RollReader::Got::kNothing)
            return got == RollReader::Got::kMessage;
        pollfd wanted = {connection, POLLIN, 0};
        if (poll(&wanted, 1, patience_ms) <= 0)
            return false;
    }
}

void all_enter(const RollPlace &place, const tuccl::RollName &roll) {
    in_threads(3, [&](Rank &rank) {
        NetworkRoll mine(place, roll);
        CHECK(mine.enter(static_cast<uint32_t>(rank.rank), 7, 1).empty());
        meet_threads();
        const NetworkRoll::Answer seen = mine.ask(3);
        CHECK(seen.is_complete && seen.present == 3);
        meet_threads();
    });
}

// Strangers keep no rank out, however many they are; what they leave open is closed.
SCENARIO(network_strangers) {
    const RollPlace place = open_place(50);
    std::vector<int> strangers;
    for (int i = 0; i < 300; i++) {
        strangers.push_back(connect_to(place));
        if (i % 3 == 0) {
            const std::string page = "GET / HTTP/1.1\r\n";
            CHECK(send(strangers.back(), page.data(), page.size(), MSG_NOSIGNAL) > 0);
        }
    }
    all_enter(place, place.name);
    const auto open = [&] {
        return std::count_if(strangers.begin(), strangers.end(),
                             [](int connection) { return !has_ended(connection); });
    };
    CHECK(open() <= 128);
    for (int i = 0; i < 80 && open() > 0; i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    CHECK(open() == 0);
    for (const int connection : strangers)
        CHECK(close(connection) == 0);
    all_enter(place, place.name);
}

// Who has seen an id's name, but not the id, neither enters nor keeps its place as a listener.
SCENARIO(network_without_the_key) {
    const RollPlace place = open_place(51);
    RollPlace guessed = place;
    guessed.key[0] ^= 1;
    NetworkRoll stranger(guessed, place.name);
    CHECK(stranger.enter(0, 7, 1).find("does not know the id") != std::string::npos);
    // Without a word, at the entry and behind it.
    for (const bool enters : {false, true}) {
        const int connection = connect_to(place);
        RollMessage reply;
        CHECK(receive_whole(connection, &reply, kMustComeMs) && reply.kind == RollKind::kHello);
        RollMessage entry = entry_of(0);
        entry.id = place.name;
        if (enters)
            tuccl::seal(&entry, tuccl::connection_key(place.key, reply.nonce, entry.nonce),
                        RollSide::kRank);
        CHECK(send(connection, &entry, sizeof entry, MSG_NOSIGNAL) == sizeof entry);
        pollfd wanted = {connection, POLLIN, 0};
        if (enters) {
            const RollMessage question = saying(RollKind::kAsk, 1);
            CHECK(poll(&wanted, 1, 10000) == 1 && receive_whole(connection, &reply) &&
                  reply.kind == RollKind::kEntered);
            CHECK(send(connection, &question, sizeof question, MSG_NOSIGNAL) == sizeof question);
        }
        CHECK(poll(&wanted, 1, 10000) == 1 && !receive_whole(connection, &reply));
        CHECK(close(connection) == 0);
    }
    CHECK(tuccl::expect_roll(guessed)); // Now the listener is the one without the key.
    NetworkRoll rank(place, place.name);
    CHECK(rank.enter(0, 7, 1).find("does not know the id") != std::string::npos);
    CHECK(tuccl::expect_roll(place));
    all_enter(place, place.name);

    RollPlace lying;
    const int listening = listen_at("127.0.0.1", 1, &lying);
    std::thread liar([listening] {
        const int connection = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
        RollMessage heard;
        for (const RollKind kind : {RollKind::kHello, RollKind::kEntered}) {
            RollMessage message = saying(kind);
            tuccl::seal(&message, {}, RollSide::kListener);
            CHECK(send(connection, &message, sizeof message, MSG_NOSIGNAL) == sizeof message);
            (void)receive_whole(connection, &heard);
        }
        CHECK(close(connection) == 0);
    });
    NetworkRoll misled(lying, lying.name);
    CHECK(misled.enter(0, 7, 1).find("does not know the id") != std::string::npos);
    liar.join();
    CHECK(close(listening) == 0);
}

// Nobody listens, somebody accepts nothing, somebody says nothing: each costs a rank its deadline
// at most, and the next communicator nothing.
SCENARIO(network_unreachable) {
    RollPlace full;
    RollPlace silent;
    (void)listen_at("127.0.0.2", 0, &full);
    (void)listen_at("127.0.0.3", 16, &silent);
    (void)connect_to(full); // The queue is full: the next one waits.
    const std::array<RollPlace, 3> places = {place_at(1), full, silent};
    const std::array<std::string, 3> reasons = {"Connection refused", "timed out", "not answer"};
    for (const bool first : {true, false}) {
        const auto begin = Clock::now();
        in_threads(3, [&](Rank &rank) {
            const auto index = static_cast<size_t>(rank.rank);
            NetworkRoll roll(places[index], places[index].name);
            const std::string fault = roll.enter(0, 7, 1);
            const bool remembered = !first && index > 0;
            CHECK(fault.find(remembered ? "a moment ago" : reasons[index]) != std::string::npos);
            CHECK(!roll.ask(2).fault.empty() && !roll.somebody_left());
        });
        CHECK(Clock::now() - begin < std::chrono::seconds(first ? 8 : 2));
    }
}

void mutate(RollMessage *message, std::mt19937_64 *random) {
    auto *bytes = reinterpret_cast<unsigned char *>(message);
    const std::array<uint64_t, 6> telling = {0, 1, 65535, 65536, 0xFFFFFFFF, UINT64_MAX};
    for (uint64_t times = 1 + (*random)() % 3; times > 0; times--) {
        const size_t at = (*random)() % offsetof(RollMessage, seal);
        const uint64_t value = telling[(*random)() % telling.size()];
        if ((*random)() % 2 == 0)
            bytes[at] ^= static_cast<unsigned char>(1U << (*random)() % 8);
        else
            std::memcpy(bytes + at / 4 * 4, &value, 4);
    }
    if ((*random)() % 4 == 0)
        message->kind =
            static_cast<RollKind>(static_cast<uint32_t>(RollKind::kHello) + (*random)() % 10);
}

// A peer that knows an id, or does not, says anything in any order: the listener serves the others.
SCENARIO(network_mutated_ranks) {
    const RollPlace place = open_place(60);
    std::mt19937_64 random(1);
    for (int i = 0; i < 1500; i++) {
        const int connection = connect_to(place);
        RollMessage hello;
        CHECK(receive_whole(connection, &hello, kMustComeMs) && hello.kind == RollKind::kHello);
        RollMessage message = entry_of(static_cast<uint32_t>(random() % 3));
        message.id = place.name;
        message.roll = {static_cast<uint8_t>(random() % 2)};
        const tuccl::Digest key = tuccl::connection_key(
            place.key, hello.nonce, random() % 8 == 0 ? hello.nonce : message.nonce);
        for (uint64_t sent = random() % 4; sent < 4; sent++) {
            if (random() % 2 == 0)
                mutate(&message, &random);
            tuccl::seal(&message, key, RollSide::kRank);
            if (random() % 8 == 0)
                message.seal[random() % message.seal.size()] ^= 1;
            const size_t bytes = random() % 8 == 0 ? random() % sizeof message : sizeof message;
            (void)send(connection, &message, bytes, MSG_NOSIGNAL);
            message = saying(random() % 2 == 0 ? RollKind::kAsk : RollKind::kFail,
                             static_cast<uint32_t>(random() % 4));
        }
        if (random() % 4 == 0)
            (void)receive_whole(connection, &message);
        CHECK(close(connection) == 0);
        if (i % 300 == 299)
            all_enter(place, {200});
    }
    all_enter(place, place.name);
}

// Whatever a listener says, a rank goes on before its deadlines.
SCENARIO(network_mutated_listener) {
    std::mt19937_64 random(2);
    RollPlace place;
    const int listening = listen_at("127.0.0.1", 64, &place);
    std::atomic<bool> ended{false};
    std::thread listener([&] {
        while (!ended.load()) {
            pollfd wanted = {listening, POLLIN, 0};
            if (poll(&wanted, 1, 20) <= 0)
                continue;
            const int connection = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
            CHECK(connection >= 0);
            RollMessage message = saying(RollKind::kHello);
            RollMessage heard = {};
            tuccl::Digest key = {};
            for (int step = 0; step < 4; step++) {
                if (random() % 6 == 0)
                    mutate(&message, &random);
                tuccl::seal(&message, key, RollSide::kListener);
                if (random() % 6 == 0)
                    message.seal[3] ^= 1;
                const bool is_cut = random() % 8 == 0;
                (void)send(connection, &message, is_cut ? 50 : sizeof message, MSG_NOSIGNAL);
                if (is_cut || !receive_whole(connection, &heard))
                    break;
                if (step == 0)
                    key = tuccl::connection_key(place.key, message.nonce, heard.nonce);
                message = saying(step == 0   ? RollKind::kEntered
                                 : step == 1 ? RollKind::kAnswer
                                             : RollKind::kLeft,
                                 2);
                message.attempt = 2;
            }
            CHECK(close(connection) == 0);
        }
    });
    int answers = 0;
    int faults = 0;
    const auto begin = Clock::now();
    for (int i = 0; i < 600; i++) {
        NetworkRoll roll(place, place.name);
        const std::string fault = roll.enter(0, 7, 1);
        const NetworkRoll::Answer seen = roll.ask(2);
        CHECK(seen.present <= 2 && seen.is_complete == (seen.present == 2));
        CHECK(fault.empty() || !seen.is_complete);
        (void)roll.somebody_left();
        (seen.is_complete && !roll.somebody_left() ? answers : faults)++;
    }
    CHECK(answers > 50 && faults > 50 && Clock::now() - begin < std::chrono::seconds(40));
    ended.store(true);
    listener.join();
    CHECK(close(listening) == 0);
}

} // namespace
