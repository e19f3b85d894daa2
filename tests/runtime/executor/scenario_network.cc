// Who is there at the start of a communicator whose roll is on the network.
#include "network_place.h"
#include "network_roll.h"
#include "rolls.h"
#include "scenarios.h"
#include "session.h"

namespace {

using tuccl::Digest;
using tuccl::NetworkRoll;
using tuccl::Reach;
using tuccl::Roll;
using tuccl::RollCall;
using tuccl::RollPlace;

OpenRoll roll_at(const RollPlace &place) {
    return {place.key, Reach::kNetwork, place};
}

double seconds_of(const std::function<void()> &body) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

SCENARIO(network_roll_of_processes) {
    const RollPlace place = place_elsewhere(1);
    all_see_all(roll_at(place));
    // A child of it has a roll of its own, by the same id.
    auto *child = share<std::array<Barrier, 2>>();
    in_processes(2, [&](uint32_t rank) {
        RollCall roll(tuccl::sha256("child"), rank, kMark, Reach::kNetwork, place);
        (*child)[0].meet(2);
        const Roll seen = roll.read(2);
        CHECK(seen.present == 2 && seen.marks_agree && seen.fault.empty());
        (*child)[1].meet(2);
    });
}

// A rank does not run the executor: the others know at once, whoever asks first.
SCENARIO(network_rank_missing) {
    const RollPlace place = place_elsewhere(2);
    auto *start = share<Barrier>();
    CHECK(seconds_of([&] {
              in_processes(3, [&](uint32_t rank) {
                  std::optional<RollCall> roll;
                  if (rank != 1)
                      roll.emplace(place.key, rank, kMark, Reach::kNetwork, place);
                  start->meet(3);
                  if (rank == 1)
                      return;
                  const Roll seen = roll->read(3);
                  CHECK(seen.present == 2 && seen.fault.empty() && !roll->somebody_left());
              });
          }) < 4);
}

// A start that failed, or whose process was killed, is tried again with the same id.
SCENARIO(network_tried_again) {
    for (const bool killed : {false, true}) {
        const RollPlace place = place_elsewhere(killed ? 3 : 4);
        auto *start = share<std::array<Barrier, 3>>();
        in_processes(3, [&](uint32_t rank) {
            if (rank == 1 && killed) {
                const pid_t child = in_process([&] {
                    const RollCall roll = roll_at(place).enter(1);
                    (void)raise(SIGKILL);
                });
                int status = 0;
                CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
            }
            if (rank == 1 && !killed)
                const RollCall failed = roll_at(place).enter(1);
            (*start)[0].meet(3);
            RollCall roll = roll_at(place).enter(rank);
            (*start)[1].meet(3);
            const Roll seen = roll.read(3);
            CHECK(seen.present == 3 && seen.marks_agree && !roll.somebody_left());
            (*start)[2].meet(3);
        });
    }
}

SCENARIO(network_after_reading) {
    others_learn_who_goes([](uint32_t end) { return roll_at(place_elsewhere(10 + end)); });
}

// The process that made the id dies: before the question nobody counts anybody, after the answer
// nobody can know of the others.
SCENARIO(network_listener_dies) {
    struct Plan {
        RollPlace place;
        std::array<Barrier, 3> start;
    };
    for (const bool late : {false, true}) {
        auto *plan = share<Plan>();
        const pid_t listener = in_process([&] {
            plan->place = open_place(20);
            plan->start[0].meet(3);
            for (;;)
                (void)pause();
        });
        std::vector<pid_t> ranks;
        for (uint32_t rank = 0; rank < 2; rank++)
            ranks.push_back(in_process([&] {
                plan->start[0].meet(3);
                RollCall roll = roll_at(plan->place).enter(rank);
                plan->start[1].meet(2);
                if (late)
                    CHECK(roll.read(2).present == 2);
                plan->start[2].meet(3);
                plan->start[0].meet(3);
                if (!late) {
                    const Roll seen = roll.read(2);
                    CHECK(seen.present == 0 && seen.fault.find("was closed") != std::string::npos);
                }
                CHECK(roll.somebody_left() == late);
            }));
        plan->start[2].meet(3);
        CHECK(kill(listener, SIGKILL) == 0);
        int status = 0;
        CHECK(waitpid(listener, &status, 0) == listener);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        plan->start[0].meet(3);
        for (const pid_t rank : ranks)
            end_well(rank);
    }
}

// Hundreds of ranks come at once; here they are threads, which RollCall would not send out.
SCENARIO(network_many_ranks) {
    constexpr uint32_t kRanks = 64;
    const RollPlace place = open_place(30);
    in_threads(kRanks, [&](Rank &rank) {
        NetworkRoll roll(place, place.name);
        CHECK(roll.enter(static_cast<uint32_t>(rank.rank), kMark, 1).empty());
        meet_threads();
        const NetworkRoll::Answer seen = roll.ask(kRanks);
        CHECK(seen.is_complete && seen.present == kRanks && seen.marks_agree);
        CHECK(!roll.somebody_left());
        meet_threads();
        if (rank.rank == 5)
            roll.fail();
        while (rank.rank != 5 && !roll.somebody_left())
            std::this_thread::yield();
        meet_threads();
    });
}

// A process that is forked from one that listens makes ids of its own, and keeps nothing open.
SCENARIO(network_forked) {
    const RollPlace place = open_place(40);
    NetworkRoll entered(place, place.name);
    CHECK(entered.enter(0, kMark, 1).empty());
    in_processes(1, [&](uint32_t) {
        const RollPlace own = open_place(41);
        CHECK(own.port != place.port);
        NetworkRoll roll(own, own.name);
        CHECK(roll.enter(0, kMark, 1).empty() && roll.ask(1).is_complete);
    });
    // The connection of a rank that dies is not kept open by another process.
    auto *start = share<std::array<Barrier, 2>>();
    auto *sleeper = share<std::atomic<pid_t>>();
    const pid_t going = in_process([&] {
        NetworkRoll roll(place, place.name);
        CHECK(roll.enter(1, kMark, 1).empty());
        (*start)[1].meet(2);
        CHECK(roll.ask(2).is_complete);
        sleeper->store(in_process([] {
            for (;;)
                (void)pause();
        }));
        (*start)[0].meet(2);
        (void)raise(SIGKILL);
    });
    (*start)[1].meet(2);
    CHECK(entered.ask(2).is_complete && !entered.somebody_left());
    (*start)[0].meet(2);
    int status = 0;
    CHECK(waitpid(going, &status, 0) == going && WIFSIGNALED(status));
    for (int i = 0; i < 200 && !entered.somebody_left(); i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(25));
    CHECK(entered.somebody_left() && kill(sleeper->load(), SIGKILL) == 0);
}

bool next_id_is_marked() {
    ncclUniqueId id;
    std::memset(&id, 0xAA, sizeof id); // NCCL may leave the end as it was.
    CHECK(ncclGetUniqueId(&id) == 0);
    return tuccl::marked_place(id).has_value();
}

// Only for a table with a schedule of several nodes, or one that could be chosen, a port is opened.
SCENARIO(network_only_if_of_use) {
    for (const char *none : {"session", "nothing", "chosen", "phased", "no_bundle", "missing"}) {
        set_table(none);
        CHECK(!next_id_is_marked());
    }
    set_table("across_hosts");
    setenv("TUCCL_BUNDLE_CRC", "00000000", 1);
    CHECK(!next_id_is_marked());
    unsetenv("TUCCL_BUNDLE_CRC");
    CHECK(next_id_is_marked());
    CHECK(tuccl_executor_choose(nullptr, 0) == nullptr); // The process makes choices from now on.
    set_table("chosen");
    CHECK(!next_id_is_marked());
    set_table("phased");
    CHECK(next_id_is_marked());
    setenv("TUCCL_BUNDLE", "", 1);
    CHECK(!next_id_is_marked() && ncclGetUniqueId(nullptr) != 0);
}

SCENARIO(network_storm) {
    constexpr uint32_t kRounds = 60;
    auto *places = share<std::array<RollPlace, kRounds>>();
    listen_elsewhere([&] {
        for (uint32_t round = 0; round < kRounds; round++)
            (*places)[round] = open_place(100 + round);
    });
    ride_a_storm(kRounds, [&](uint32_t round) { return roll_at((*places)[round]); });
}

} // namespace
