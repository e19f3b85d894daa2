// TUCCL_CHECK in one process: entries that are slower than NCCL are left to it, on all ranks.
#include "real_nccl.h"
#include "scenarios.h"
#include "session.h"

#include <chrono>

namespace {

// The executor's all_reduces take five times as long as NCCL's, its other calls less.
void all_reduce_is_slow() {
    setenv("TUCCL_CHECK", "20s", 1);
    setenv("STAND_IN_NCCL_US", "2000", 1);
    setenv("STAND_IN_SLOW_ENTRIES", "4:65536:10000", 1);
}

struct Calls {
    explicit Calls(int ranks) : data(static_cast<size_t>(64 * ranks), 1) {
    }
    void put(ncclComm_t comm, stand_in::Stream *stream) {
        const size_t part = 64;
        CHECK(ncclAllReduce(data.data(), data.data(), part, kInt32, kSum, comm, stream) == 0);
        CHECK(ncclAllGather(data.data(), data.data(), part, kInt32, comm, stream) == 0);
    }
    std::vector<int> data;
};

// That NCCL alone runs all_reduces, of all ranks, and the executor all_gathers.
void check_notes(int ranks) {
    const Notes notes;
    CHECK(notes.count("executor 4") == 0 && notes.count("nccl AllReduce") == ranks);
    CHECK(notes.count("executor 2") == ranks && notes.count("nccl AllGather") == 0);
}

void check_left_out(Rank &rank, ncclComm_t comm, int ranks) {
    on_rank_0(rank, [] { (void)stand_in::take_notes(); });
    Calls calls(ranks);
    if (comm != nullptr) {
        calls.put(comm, &rank.stream);
        rank.stream.wait();
    }
    on_rank_0(rank, [&] { check_notes(ranks); });
}

SCENARIO(check_leaves_slow_entries_out) {
    all_reduce_is_slow();
    with_communicator(3, [](Rank &rank) { check_left_out(rank, rank.comm, 3); });
}

// No entry is slower.
SCENARIO(check_keeps_fast_entries) {
    all_reduce_is_slow();
    unsetenv("STAND_IN_SLOW_ENTRIES");
    with_communicator(3, [](Rank &rank) {
        Calls calls(3);
        calls.put(rank.comm, &rank.stream);
        rank.stream.wait();
    });
    const Notes notes;
    CHECK(notes.count("executor 4") == 3 && notes.count("executor 2") == 3);
}

// NCCL's kernels take a tenth of the entry's time, and launching one takes longer than both: in a
// graph the entry is slower, and so it is out.
SCENARIO(check_counts_no_launches) {
    setenv("TUCCL_CHECK", "20s", 1);
    setenv("STAND_IN_SLOW_CALLS", "2", 1);
    setenv("STAND_IN_NCCL_US", "100", 1);
    setenv("STAND_IN_SLOW_ENTRIES", "4:65536:1000", 1);
    with_communicator(3, [](Rank &rank) { check_left_out(rank, rank.comm, 3); });
}

// Nor are sums that must not move left to NCCL, which adds in another order, where it is faster.
SCENARIO(check_keeps_sums) {
    all_reduce_is_slow();
    set_table("invariant");
    with_communicator(4, [](Rank &rank) {
        std::vector<int> data(64, 1);
        CHECK(ncclAllReduce(data.data(), data.data(), 64, kInt32, kSum, rank.comm, &rank.stream) ==
              0);
        rank.stream.wait();
        CHECK(data == std::vector<int>(64, 4));
    });
    const Notes notes;
    CHECK(notes.count("executor 4") == 4 && notes.count("nccl AllReduce") == 0);
}

SCENARIO(check_of_children) {
    all_reduce_is_slow();
    const ncclUniqueId id = new_id();
    in_threads(4, [&](Rank &rank) {
        CHECK(ncclCommInitRank(&rank.comm, 4, id, rank.rank) == 0);
        ncclComm_t split = nullptr;
        CHECK(ncclCommSplit(rank.comm, rank.rank < 3 ? 7 : -1, 0, &split, nullptr) == 0);
        check_left_out(rank, split, 3);
        int excluded = 1;
        ncclComm_t shrunk = nullptr;
        if (rank.rank != excluded)
            CHECK(ncclCommShrink(rank.comm, &excluded, 1, &shrunk, nullptr, 0) == 0);
        check_left_out(rank, shrunk, 3);
        check_left_out(rank, rank.comm, 4);
        for (ncclComm_t comm : {split, shrunk, rank.comm})
            if (comm != nullptr)
                CHECK(ncclCommDestroy(comm) == 0);
    });
}

void check_one_thread(const std::function<void(ncclComm_t comms[3])> &make) {
    all_reduce_is_slow();
    ncclComm_t comms[3] = {};
    make(comms);
    (void)stand_in::take_notes();
    stand_in::Stream streams[3];
    std::vector<Calls> calls(3, Calls(3));
    for (int rank = 0; rank < 3; rank++)
        calls[static_cast<size_t>(rank)].put(comms[rank], &streams[rank]);
    for (stand_in::Stream &stream : streams)
        stream.wait();
    check_notes(3);
    for (ncclComm_t comm : comms)
        CHECK(ncclCommDestroy(comm) == 0);
}
SCENARIO(check_of_one_thread) {
    check_one_thread([](ncclComm_t comms[3]) { CHECK(ncclCommInitAll(comms, 3, nullptr) == 0); });
}
SCENARIO(check_in_a_group) {
    check_one_thread([](ncclComm_t comms[3]) {
        const ncclUniqueId id = new_id();
        CHECK(ncclGroupStart() == 0);
        for (int rank = 0; rank < 3; rank++)
            CHECK(ncclCommInitRank(&comms[rank], 3, id, rank) == 0);
        CHECK(ncclGroupEnd() == 0);
    });
}

// In the background: nothing waits in a call, also where a thread has two ranks.
SCENARIO(check_not_blocking) {
    all_reduce_is_slow();
    ncclConfig config = does_not_block();
    check_one_thread([&](ncclComm_t comms[3]) {
        const ncclUniqueId id = new_id();
        const auto begin = std::chrono::steady_clock::now();
        for (int rank = 0; rank < 3; rank++)
            CHECK(ncclCommInitRankConfig(&comms[rank], 3, id, rank, &config) ==
                  tuccl::kNcclInProgress);
        // The check itself takes longer: fifteen pairs of twelve milliseconds.
        CHECK(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(150));
        for (int rank = 0; rank < 3; rank++)
            CHECK(settled(comms[rank]) == tuccl::kNcclSuccess);
    });
}

// A call takes longer than the whole check may: at most one step of it is beyond the limit, and
// what was not timed is kept.
SCENARIO(check_keeps_to_its_time) {
    all_reduce_is_slow();
    setenv("TUCCL_CHECK", "20ms", 1);
    setenv("STAND_IN_NCCL_US", "15000", 1);
    setenv("STAND_IN_SLOW_ENTRIES", "4:65536:45000", 1);
    const auto begin = std::chrono::steady_clock::now();
    with_communicator(2, [&](Rank &rank) {
        // Two calls of 15 ms; pairs of three times as much would have taken a second and more.
        CHECK(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(800));
        AllReduce(rank).run(rank.comm, &rank.stream);
    });
    CHECK(Notes().count("executor 4") == 2);
}

// A thread aborts the communicator while it is checked, as after a time limit of the job's.
SCENARIO(check_is_aborted) {
    all_reduce_is_slow();
    setenv("STAND_IN_NCCL_US", "100000", 1);
    setenv("STAND_IN_SLOW_ENTRIES", "4:65536:300000", 1);
    const ncclUniqueId id = new_id();
    ncclComm_t comms[2] = {};
    ncclConfig config = does_not_block();
    for (int rank = 0; rank < 2; rank++)
        CHECK(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config) == tuccl::kNcclInProgress);
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    for (ncclComm_t comm : comms) {
        int error = 0;
        CHECK(ncclCommGetAsyncError(comm, &error) == 0 && error == tuccl::kNcclInProgress);
    }
    for (ncclComm_t comm : comms)
        CHECK(ncclCommAbort(comm) == 0);
}

// One rank has no memory for it: all ranks leave the table as it is.
SCENARIO(check_lacks_events) {
    all_reduce_is_slow();
    setenv("STAND_IN_FAILS", "marks:1", 1);
    with_communicator(3, [](Rank &rank) { AllReduce(rank).run(rank.comm, &rank.stream); });
    CHECK(Notes().count("executor 4") == 3);
}

SCENARIO(check_fails_on_one_rank) {
    all_reduce_is_slow();
    setenv("STAND_IN_FAILS", "mark:1", 1);
    const ncclUniqueId id = new_id();
    in_threads(3, [&](Rank &rank) {
        CHECK(ncclCommInitRank(&rank.comm, 3, id, rank.rank) == tuccl::kNcclUnhandledCudaError);
        CHECK(rank.comm == nullptr);
    });
}

} // namespace
