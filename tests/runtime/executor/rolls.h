// What holds of a roll wherever it is: in the host's memory, or on the network.
#ifndef TUCCL_TEST_ROLLS_H
#define TUCCL_TEST_ROLLS_H

#include "processes.h"
#include "roll_call.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <optional>
#include <random>

constexpr uint64_t kMark = 7;

// A roll that ranks may enter.
struct OpenRoll {
    tuccl::Digest secret;
    tuccl::Reach reach = tuccl::Reach::kHost;
    std::optional<tuccl::RollPlace> place = std::nullopt;

    tuccl::RollCall enter(uint32_t rank, uint64_t mark = kMark) const {
        return {secret, rank, mark, reach, place};
    }
    // Enters a rank and dies.
    void die_as(uint32_t rank) const {
        end_killed(in_process([&] {
            const tuccl::RollCall roll = enter(rank);
            (void)raise(SIGKILL);
        }));
    }
};
using MakeRoll = std::function<OpenRoll(uint32_t number)>;

inline void all_see_all(const OpenRoll &where) {
    auto *start = share<std::array<Barrier, 2>>();
    in_processes(3, [&](uint32_t rank) {
        tuccl::RollCall roll = where.enter(rank, kMark + rank / 2);
        (*start)[0].meet(3);
        const tuccl::Roll seen = roll.read(3);
        CHECK(seen.present == 3 && !seen.marks_agree && seen.fault.empty());
        CHECK(!roll.somebody_left());
        (*start)[1].meet(3);
    });
}

// A rank goes while others greet it: they learn of it, unless it was through.
inline void others_learn_who_goes(const MakeRoll &make) {
    enum End : uint32_t { kThrough, kFailed, kKilled };
    for (const End end : {kThrough, kFailed, kKilled}) {
        const OpenRoll where = make(end);
        auto *start = share<std::array<Barrier, 2>>();
        const pid_t going = in_process([&] {
            tuccl::RollCall roll = where.enter(1);
            (*start)[0].meet(2);
            CHECK(roll.read(2).present == 2);
            (*start)[1].meet(2);
            if (end == kFailed)
                roll.fail();
            if (end == kKilled)
                (void)raise(SIGKILL);
        });
        tuccl::RollCall roll = where.enter(0);
        (*start)[0].meet(2);
        CHECK(roll.read(2).present == 2 && !roll.somebody_left());
        (*start)[1].meet(2);
        end == kKilled ? end_killed(going) : end_well(going);
        for (int i = 0; i < 200 && !roll.somebody_left(); i++) // It may come over the network.
            std::this_thread::sleep_for(std::chrono::milliseconds(end == kThrough ? 1 : 25));
        CHECK(roll.somebody_left() == (end != kThrough));
    }
}

// Ranks that fail, are killed, come back, or have no executor, in rounds, of which some are
// disturbed: after NCCL's start all conclude the same.
struct Storm {
    static constexpr uint32_t kRanks = 4;
    Barrier begin, start, end;
    std::array<uint32_t, kRanks> present;

    void ride(const OpenRoll &where, uint32_t rank, uint32_t round,
              const std::function<void()> &disturb) {
        std::mt19937 random(round * kRanks + rank);
        const auto pause = [&] {
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
        };
        const uint32_t absent = round % 5 == 0 ? round / 5 % kRanks : kRanks;
        begin.meet(kRanks);
        pause();
        for (uint32_t failures = random() % 3; failures > 0 && rank != absent; failures--) {
            if (random() % 4 == 0) {
                where.die_as(rank);
            } else {
                const tuccl::RollCall failed = where.enter(rank);
                pause();
            }
        }
        if (disturb != nullptr && rank == round % kRanks)
            disturb();
        pause();
        std::optional<tuccl::RollCall> roll;
        if (rank != absent)
            roll.emplace(where.secret, rank, kMark, where.reach, where.place);
        start.meet(kRanks);
        pause();
        present[rank] = rank != absent ? roll->read(kRanks).present : 0;
        end.meet(kRanks);
        const auto served = std::count(present.begin(), present.end(), kRanks);
        CHECK(served == 0 || served == kRanks);
        if (disturb == nullptr)
            CHECK((served == 0) == (absent < kRanks));
    }
};

// `disturb` is called in every third round, if there is one.
inline void ride_a_storm(uint32_t rounds, const MakeRoll &make,
                         const std::function<void()> &disturb = nullptr) {
    auto *storm = share<Storm>();
    in_processes(Storm::kRanks, [&](uint32_t rank) {
        for (uint32_t round = 0; round < rounds; round++)
            storm->ride(make(round), rank, round, round % 3 == 0 ? disturb : nullptr);
    });
}

#endif
