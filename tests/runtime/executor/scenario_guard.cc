// TUCCL_GUARD in one process: entries that are slower than NCCL in the job are left to it.
#include "real_nccl.h"
#include "scenarios.h"
#include "session.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>

namespace {

constexpr int kFloat = 7;
constexpr int kMax = 2;
constexpr size_t kCount = 64;
// With one all_reduce in four: 4 before a trial and 32 in it, then twice 128 calls of all.
constexpr int kConcluded = 440;

// The executor's all_reduces take ten times as long as NCCL's, its other calls less.
void all_reduce_is_slow() {
    setenv("TUCCL_GUARD", "1", 1);
    setenv("STAND_IN_NCCL_US", "500", 1);
    setenv("STAND_IN_SLOW_ENTRIES", "4:65536:5000", 1);
}

struct Floats {
    explicit Floats(const Rank &rank) : data(kCount * static_cast<size_t>(rank.ranks), 1.0F) {
    }
    void reduce(ncclComm_t comm, stand_in::Stream *stream) {
        CHECK(ncclAllReduce(data.data(), data.data(), kCount, kFloat, kMax, comm, stream) == 0);
    }
    void gather(ncclComm_t comm, stand_in::Stream *stream) {
        CHECK(ncclAllGather(data.data(), data.data(), kCount, kFloat, comm, stream) == 0);
    }
    std::vector<float> data;
};

// A job whose host is so many calls ahead of the device at most.
void make_calls(Rank &rank, ncclComm_t comm, int count, int ahead) {
    Floats floats(rank);
    for (int i = 0; i < count; i++) {
        if (i % 4 == 0)
            floats.reduce(comm, &rank.stream);
        else
            floats.gather(comm, &rank.stream);
        if ((i + 200) % ahead == 0)
            rank.stream.wait();
    }
    rank.stream.wait();
}

void call_until_concluded(Rank &rank, ncclComm_t comm) {
    make_calls(rank, comm, kConcluded, 8);
}

// Of one call of each, on all ranks: whether the executor runs all_reduces; it runs all_gathers.
void check_runs(Rank &rank, ncclComm_t comm, int ranks, bool reduces,
                const std::function<void(Floats &)> &run) {
    on_rank_0(rank, [] { (void)stand_in::take_notes(); });
    Floats floats(rank);
    if (comm != nullptr)
        run(floats);
    rank.stream.wait();
    on_rank_0(rank, [&] {
        const Notes notes;
        CHECK(notes.count("executor 4") == (reduces ? ranks : 0));
        CHECK(notes.count("nccl AllReduce") == (reduces ? 0 : ranks));
        CHECK(notes.count("executor 2") == ranks && notes.count("nccl AllGather") == 0);
    });
}

void check_eager(Rank &rank, ncclComm_t comm, int ranks, bool reduces) {
    check_runs(rank, comm, ranks, reduces, [&](Floats &floats) {
        floats.reduce(comm, &rank.stream);
        floats.gather(comm, &rank.stream);
    });
}

// For calls of each kind, outside and inside groups and captures.
SCENARIO(guard_leaves_slow_entries_out) {
    all_reduce_is_slow();
    with_communicator(3, [](Rank &rank) {
        check_eager(rank, rank.comm, 3, true);
        call_until_concluded(rank, rank.comm);
        check_eager(rank, rank.comm, 3, false);
        check_runs(rank, rank.comm, 3, false, [&](Floats &floats) {
            rank.stream.begin_capture();
            floats.reduce(rank.comm, &rank.stream);
            floats.gather(rank.comm, &rank.stream);
            rank.stream.launch(*rank.stream.end_capture());
        });
        check_runs(rank, rank.comm, 3, false, [&](Floats &floats) {
            for (const bool reduces : {true, false}) {
                CHECK(ncclGroupStart() == 0);
                if (reduces)
                    floats.reduce(rank.comm, &rank.stream);
                else
                    floats.gather(rank.comm, &rank.stream);
                CHECK(ncclGroupEnd() == 0);
            }
        });
    });
}

// No entry is slower.
SCENARIO(guard_keeps_fast_entries) {
    all_reduce_is_slow();
    unsetenv("STAND_IN_SLOW_ENTRIES");
    with_communicator(3, [](Rank &rank) {
        call_until_concluded(rank, rank.comm);
        check_eager(rank, rank.comm, 3, true);
    });
}

// Calls in groups and captures are neither counted nor timed: the second call of a trial is NCCL's,
// however many of these are before it.
SCENARIO(guard_counts_no_groups) {
    all_reduce_is_slow();
    with_communicator(2, [](Rank &rank) {
        for (int i = 0; i < 5; i++) // 4 before the trial, and its first one.
            check_eager(rank, rank.comm, 2, true);
        Floats floats(rank);
        for (int i = 0; i < 51; i++) {
            CHECK(ncclGroupStart() == 0);
            floats.reduce(rank.comm, &rank.stream);
            CHECK(ncclGroupEnd() == 0);
            rank.stream.begin_capture();
            floats.reduce(rank.comm, &rank.stream);
            (void)rank.stream.end_capture();
        }
        check_runs(rank, rank.comm, 2, false, [&](Floats &more) {
            more.reduce(rank.comm, &rank.stream);
            CHECK(ncclGroupStart() == 0);
            more.gather(rank.comm, &rank.stream);
            CHECK(ncclGroupEnd() == 0);
        });
    });
}

// The host waits at its calls 100, 400 and 700: the trial, which ends at 144, is not done when it
// is reported at 273, and is when it is reported again, 256 calls later than it would have been
// known.
SCENARIO(guard_reports_again) {
    all_reduce_is_slow();
    with_communicator(2, [](Rank &rank) {
        make_calls(rank, rank.comm, 1000, 300);
        check_eager(rank, rank.comm, 2, false);
    });
}

// A rank that cannot mark its times concludes nothing, and so do the others.
SCENARIO(guard_lacks_times) {
    all_reduce_is_slow();
    setenv("STAND_IN_FAILS", "trial_mark:1", 1);
    with_communicator(3, [](Rank &rank) {
        call_until_concluded(rank, rank.comm);
        check_eager(rank, rank.comm, 3, true);
    });
}

// A call of a trial that cannot be ordered behind the last one, on another stream, is not made.
SCENARIO(guard_cannot_order) {
    all_reduce_is_slow();
    with_communicator(2, [](Rank &rank) {
        Floats floats(rank);
        for (int i = 0; i < 4 + 2; i++) // The next one is timed.
            floats.reduce(rank.comm, &rank.stream);
        rank.stream.wait();
        on_rank_0(rank, [&] {
            setenv("STAND_IN_FAILS", "order:0", 1);
            stand_in::Stream other;
            CHECK(ncclAllReduce(floats.data.data(), floats.data.data(), kCount, kFloat, kMax,
                                rank.comm, &other) == tuccl::kNcclUnhandledCudaError);
            unsetenv("STAND_IN_FAILS");
        });
    });
}

SCENARIO(guard_lacks_memory) {
    all_reduce_is_slow();
    setenv("STAND_IN_FAILS", "trials:1", 1);
    with_communicator(3, [](Rank &rank) {
        call_until_concluded(rank, rank.comm);
        check_eager(rank, rank.comm, 3, true);
    });
}

// Sums that must not move stay the table's.
SCENARIO(guard_keeps_sums) {
    all_reduce_is_slow();
    set_table("invariant");
    with_communicator(4, [](Rank &rank) {
        Floats floats(rank);
        for (int i = 0; i < 40; i++)
            floats.reduce(rank.comm, &rank.stream);
        rank.stream.wait();
    });
    const Notes notes;
    CHECK(notes.count("executor 4") == 160 && notes.count("nccl AllReduce") == 0);
}

// Hosts go on while the device has hardly begun: trials conclude nothing, or hosts wait for what
// was concluded, and all results are right.
SCENARIO(guard_of_hosts_far_ahead) {
    setenv("TUCCL_GUARD", "1", 1);
    setenv("STAND_IN_LATE_REPORTS", "100", 1);
    with_communicator(3, [](Rank &rank) {
        std::vector<AllReduce> calls(700, AllReduce(rank));
        for (AllReduce &call : calls)
            CHECK(call.start(rank.comm, &rank.stream) == 0);
        rank.stream.wait();
        for (const AllReduce &call : calls)
            CHECK(call.is_right());
    });
}

SCENARIO(guard_of_children) {
    all_reduce_is_slow();
    const ncclUniqueId id = new_id();
    in_threads(4, [&](Rank &rank) {
        CHECK(ncclCommInitRank(&rank.comm, 4, id, rank.rank) == 0);
        ncclComm_t split = nullptr;
        CHECK(ncclCommSplit(rank.comm, rank.rank < 3 ? 7 : -1, 0, &split, nullptr) == 0);
        if (split != nullptr)
            call_until_concluded(rank, split);
        check_eager(rank, split, 3, false);
        check_eager(rank, rank.comm, 4, true); // Another communicator.
        int excluded = 1;
        ncclComm_t shrunk = nullptr;
        if (rank.rank != excluded)
            CHECK(ncclCommShrink(rank.comm, &excluded, 1, &shrunk, nullptr, 0) == 0);
        if (shrunk != nullptr)
            call_until_concluded(rank, shrunk);
        check_eager(rank, shrunk, 3, false);
        for (ncclComm_t comm : {split, shrunk, rank.comm})
            if (comm != nullptr)
                CHECK(ncclCommDestroy(comm) == 0);
    });
}

// The other rank makes no call from the report on: this one waits for it at the call from which the
// conclusion would hold, until another thread aborts the communicator.
SCENARIO(guard_wait_is_aborted) {
    setenv("TUCCL_GUARD", "1", 1);
    constexpr int kReport = 165; // 4 before the trial, 32 of it, 128 behind them.
    constexpr int kTake = kReport + 128;
    with_communicator(2, [](Rank &rank) {
        std::vector<AllReduce> calls(kTake, AllReduce(rank));
        std::atomic<int> made{0};
        std::thread caller([&] {
            for (int i = 0; i < (rank.rank == 0 ? kTake : kReport - 1); i++) {
                if (i == 100)
                    rank.stream.wait();
                const int said = calls[static_cast<size_t>(i)].start(rank.comm, &rank.stream);
                CHECK(said == (i < kTake - 1 ? 0 : tuccl::kNcclSystemError));
                made++;
            }
        });
        if (rank.rank == 1)
            caller.join();
        else
            while (made.load() < kTake - 1)
                std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        CHECK(made.load() == (rank.rank == 0 ? kTake - 1 : kReport - 1));
        meet_threads();
        CHECK(ncclCommAbort(rank.comm) == 0);
        if (rank.rank == 0)
            caller.join();
        CHECK(made.load() == (rank.rank == 0 ? kTake : kReport - 1));
        rank.comm = nullptr;
        rank.stream.wait();
        meet_threads(); // The other rank may have been reading this one's buffer.
    });
}

SCENARIO(guard_not_blocking) {
    all_reduce_is_slow();
    ncclComm_t comms[2] = {};
    ncclConfig config = does_not_block();
    const ncclUniqueId id = new_id();
    for (int rank = 0; rank < 2; rank++)
        CHECK(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config) == tuccl::kNcclInProgress);
    for (ncclComm_t comm : comms)
        CHECK(settled(comm) == tuccl::kNcclSuccess);
    for (ncclComm_t comm : comms)
        CHECK(ncclCommDestroy(comm) == 0);
}

// Calls as a job might make them, of two communicators, on two streams, alone and in groups, of
// more sizes than the guard compares, and ranks that come late: results are those of any job.
void make_random_calls(unsigned seed, int steps) {
    setenv("TUCCL_GUARD", "1", 1);
    const ncclUniqueId ids[2] = {new_id(), new_id()};
    in_threads(3, [&](Rank &rank) {
        ncclComm_t comms[2];
        for (int i = 0; i < 2; i++)
            CHECK(ncclCommInitRank(&comms[i], 3, ids[i], rank.rank) == 0);
        std::mt19937 program(seed);
        std::mt19937 own(seed + 1 + static_cast<unsigned>(rank.rank));
        stand_in::Stream other;
        for (int step = 0; step < steps; step++) {
            std::vector<std::unique_ptr<AllReduce>> calls;
            const unsigned last = 20 + program() % 60;
            const bool rare = program() % 4 == 0;
            for (unsigned i = 0; i < last; i++) {
                const size_t count = rare ? 1 + program() % 2000 : size_t{64} << program() % 3;
                ncclComm_t comm = comms[program() % 2];
                stand_in::Stream *stream = program() % 8 == 0 ? &other : &rank.stream;
                const bool is_grouped = program() % 16 == 0;
                calls.push_back(std::make_unique<AllReduce>(rank, count));
                if (is_grouped)
                    CHECK(ncclGroupStart() == 0);
                CHECK(calls.back()->start(comm, stream) == 0);
                if (is_grouped)
                    CHECK(ncclGroupEnd() == 0);
                if (own() % 50 == 0)
                    std::this_thread::sleep_for(std::chrono::microseconds(own() % 500));
            }
            rank.stream.wait();
            other.wait();
            for (const auto &call : calls)
                CHECK(call->is_right());
        }
        for (ncclComm_t comm : comms)
            CHECK(ncclCommDestroy(comm) == 0);
    });
}
// TEST_SEED gives others.
SCENARIO(guard_random_calls) {
    const char *seed = std::getenv("TEST_SEED");
    make_random_calls(seed != nullptr ? static_cast<unsigned>(std::atoi(seed)) : 1, 30);
}

} // namespace
