// What the executor takes, what it leaves to NCCL, alone and in groups.
#include "executor.h"
#include "scenarios.h"
#include "session.h"

#include <cstdint>
#include <cstdlib>

namespace {

SCENARIO(collectives) {
    with_communicator(4, [](Rank &rank) {
        std::vector<int> send(64, 1 + rank.rank);
        std::vector<int> receive(64, -1);
        const auto ended = [&] {
            rank.stream.wait();
            return receive;
        };
        CHECK(ncclAllReduce(send.data(), receive.data(), 64, kInt32, kSum, rank.comm,
                            &rank.stream) == 0);
        CHECK(ended() == std::vector<int>(64, 10));
        CHECK(ncclAllGather(send.data(), receive.data(), 16, kInt32, rank.comm, &rank.stream) == 0);
        CHECK(ended()[16] == 2 && receive[63] == 4);
        CHECK(ncclReduceScatter(send.data(), receive.data(), 16, kInt32, 2, rank.comm,
                                &rank.stream) == 0);
        CHECK(ended()[0] == 4 && receive[15] == 4 && receive[16] == 2);
        CHECK(ncclAlltoAll(send.data(), receive.data(), 16, kInt32, rank.comm, &rank.stream) == 0);
        CHECK(ended()[0] == 1 && receive[63] == 4);
        CHECK(ncclBroadcast(send.data(), receive.data(), 64, kInt32, 2, rank.comm, &rank.stream) ==
              0);
        CHECK(ended() == std::vector<int>(64, 3));
        CHECK(ncclBcast(send.data(), 64, kInt32, 3, rank.comm, &rank.stream) == 0);
        rank.stream.wait();
        CHECK(send == std::vector<int>(64, 4));
        // In place.
        CHECK(ncclAllReduce(send.data(), send.data(), 64, kInt32, kSum, rank.comm, &rank.stream) ==
              0);
        rank.stream.wait();
        CHECK(send == std::vector<int>(64, 16));
    });
    const Notes notes;
    CHECK(notes.count("executor 4") == 8 && notes.count("executor 2") == 4);
    CHECK(notes.count("executor 3") == 4 && notes.count("executor 5") == 4);
    CHECK(notes.count("executor 0") == 8);
    CHECK(notes.count("nccl All") == 0 && notes.count("nccl Destroy") == 4);
    CHECK(notes.count("destroy") == 4);
}

constexpr size_t kLarge = 70000;
constexpr size_t kSmall = 64;

// One large and one small all_reduce of two ranks: how many of these four calls the executor ran.
uint64_t taken_of_large_and_small() {
    const uint64_t before = tuccl_executor_calls();
    with_communicator(2, [](Rank &rank) {
        std::vector<unsigned char> data(kLarge, 1);
        for (const size_t count : {kLarge, kSmall})
            CHECK(ncclAllReduce(data.data(), data.data(), count, 1, kSum, rank.comm,
                                &rank.stream) == 0);
        rank.stream.wait();
        CHECK(data[0] == 4 && data[kLarge - 1] == 2);
    });
    return tuccl_executor_calls() - before;
}

// What the process chose goes before the table, and what it did not choose is NCCL's.
SCENARIO(chosen) {
    set_table("chosen");
    CHECK(choose(entry_of(0, kLarge, 300000)) == nullptr);
    CHECK(taken_of_large_and_small() == 2);
    CHECK(Notes().count("executor 4") == 2);
    CHECK(choose(entry_of(0, 1, 300000)) == nullptr && taken_of_large_and_small() == 4);
    // Schedules of another operation, of other ranks, without a program, and none at all.
    for (const uint32_t schedule : {1U, 2U, 3U, 4U, TUCCL_NO_SCHEDULE})
        CHECK(choose(entry_of(schedule, 1, 300000)) == nullptr && taken_of_large_and_small() == 0);
    tuccl_entry_record entry = entry_of(0, 1, 300000);
    entry.schedule_nthreads = 1025;
    CHECK(choose(entry) == nullptr && taken_of_large_and_small() == 0);
    CHECK(tuccl_executor_choose(nullptr, 0) == nullptr);
    (void)stand_in::take_notes();
    CHECK(taken_of_large_and_small() == 2);
    const Notes notes; // By the table: the small ones.
    CHECK(notes.count("executor 4") == 2 && notes.count("nccl AllReduce") == 2);
}

// What is no entry is refused as a bundle with it is; what was chosen before holds no more.
SCENARIO(chosen_wrong) {
    set_table("chosen");
    const tuccl_entry_record good = entry_of(0, 1, 300000);
    for (const size_t bytes : {size_t{0}, sizeof good - 1, sizeof good + 1})
        CHECK(tuccl_executor_choose(&good, bytes) != nullptr);
    tuccl_entry_record entry = good;
    entry.max_bytes = 0;
    CHECK(choose(entry) != nullptr);
    entry = good;
    entry.schedule_protocol = 3;
    CHECK(choose(entry) != nullptr);
    entry = good;
    entry.algorithm = 7;
    CHECK(choose(entry) != nullptr);
    CHECK(choose(good) == nullptr && choose(entry) != nullptr);
    CHECK(taken_of_large_and_small() == 2); // By the table.
}

// Communicators that started before the process said that it chooses: NCCL's while it does.
SCENARIO(chosen_late) {
    set_table("chosen");
    with_communicator(2, [](Rank &rank) {
        const auto taken = [&] {
            meet_threads();
            const uint64_t before = tuccl_executor_calls();
            meet_threads();
            AllReduce call(rank);
            call.run(rank.comm, &rank.stream);
            meet_threads();
            return tuccl_executor_calls() - before;
        };
        CHECK(taken() == 2);
        if (rank.rank == 0)
            CHECK(choose(entry_of(0, 1, 300000)) == nullptr);
        CHECK(taken() == 0);
        if (rank.rank == 0)
            CHECK(tuccl_executor_choose(nullptr, 0) == nullptr);
        CHECK(taken() == 2);
    });
}

// A bundle without entries serves who says that it will choose, and nobody else.
SCENARIO(chosen_of_programs_alone) {
    set_table("programs");
    CHECK(taken_of_large_and_small() == 0);
    CHECK(tuccl_executor_choose(nullptr, 0) == nullptr);
    CHECK(taken_of_large_and_small() == 0);
    const Notes notes;
    CHECK(notes.count("executor") == 0 && notes.count("nccl AllReduce") == 4);
    CHECK(choose(entry_of(0, 1, 300000)) == nullptr && taken_of_large_and_small() == 4);
    // It has none for four ranks.
    with_communicator(4, [](Rank &rank) {
        AllReduce call(rank);
        call.run(rank.comm, &rank.stream);
    });
    CHECK(Notes().count("nccl AllReduce") == 4);
}

// Each line is a reason of its own.
SCENARIO(fallbacks) {
    constexpr int kPreMulSum = 5;
    constexpr int kFloat8 = 10;
    with_communicator(4, [](Rank &rank) {
        std::vector<unsigned char> send(1 << 21, 1);
        std::vector<unsigned char> receive(1 << 21, 0);
        const auto reduce = [&](size_t count, int type, int reduction) {
            CHECK(ncclAllReduce(send.data(), receive.data(), count, type, reduction, rank.comm,
                                &rank.stream) == 0);
        };
        reduce(65537, 1, kSum);      // No range holds it.
        reduce(16385, kInt32, kSum); // Nor this, in bytes.
        reduce(1000000, 1, kSum);    // The device does not support the range's protocol.
        reduce(64, kInt32, kPreMulSum);
        reduce(64, kFloat8, kSum);
        reduce(0, kInt32, kSum);
        // Of all_gather the result counts: 4 times 16385.
        CHECK(ncclAllGather(send.data(), receive.data(), 16385, 1, rank.comm, &rank.stream) == 0);
        // No range for the operation at all.
        CHECK(ncclReduce(send.data(), receive.data(), 64, 1, kSum, 0, rank.comm, &rank.stream) ==
              0);
        rank.stream.wait();
    });
    const Notes notes;
    CHECK(notes.count("executor") == 0 && notes.count("nccl AllReduce") == 24);
    CHECK(notes.count("nccl AllGather") == 4 && notes.count("nccl Reduce rank") == 4);
}

// Calls on symmetric windows are the executor's only if their entry was timed there.
SCENARIO(windows) {
    constexpr int kSymmetric = tuccl::kNcclWindowSymmetric;
    set_table("windows");
    with_communicator(2, [](Rank &rank) {
        AllReduce small(rank);
        AllReduce large(rank, 1000);
        const auto taken = [&](AllReduce &call) {
            meet_threads();
            const uint64_t before = tuccl_executor_calls();
            meet_threads();
            call.run(rank.comm, &rank.stream);
            meet_threads();
            return tuccl_executor_calls() - before;
        };
        const auto add = [&](std::vector<int> &buffer, ncclWindow_t *window, int flags) {
            CHECK(ncclCommWindowRegister(rank.comm, buffer.data(), buffer.size() * sizeof(int),
                                         window, flags) == 0);
        };
        ncclWindow_t send = nullptr;
        ncclWindow_t receive = nullptr;
        ncclWindow_t both[2] = {nullptr, nullptr};
        CHECK(taken(small) == 2 && taken(large) == 2);
        add(large.send, &send, kSymmetric);
        CHECK(taken(large) == 2); // One buffer alone is in a window.
        add(large.receive, &receive, 0);
        CHECK(taken(large) == 2); // Ranks may be at different places of this one.
        CHECK(ncclCommWindowDeregister(rank.comm, receive) == 0);
        add(large.receive, &receive, kSymmetric);
        CHECK(taken(large) == 0 && taken(small) == 2);
        CHECK(ncclGroupStart() == 0);
        add(small.send, &both[0], kSymmetric);
        add(small.receive, &both[1], kSymmetric);
        CHECK(ncclGroupEnd() == 0 && both[0] != nullptr);
        CHECK(taken(small) == 2); // Its entry serves windows, too.
        // The second half of one of its buffers, in a group.
        std::vector<int> whole(2000, 1 + rank.rank);
        ncclWindow_t window = nullptr;
        add(whole, &window, kSymmetric);
        meet_threads();
        const uint64_t before = tuccl_executor_calls();
        meet_threads();
        CHECK(ncclGroupStart() == 0);
        CHECK(ncclAllReduce(&whole[1000], &whole[1000], 1000, kInt32, kSum, rank.comm,
                            &rank.stream) == 0);
        CHECK(ncclGroupEnd() == 0);
        rank.stream.wait();
        meet_threads();
        CHECK(whole[999] == 1 + rank.rank && whole[1999] == 3);
        CHECK(tuccl_executor_calls() == before);
        // A rank that sends nothing may name any buffer.
        std::vector<int> data(1000, 7);
        const std::vector<int> &from = rank.rank == 0 ? data : whole;
        meet_threads();
        CHECK(ncclBroadcast(from.data(), data.data(), 1000, kInt32, 0, rank.comm, &rank.stream) ==
              0);
        rank.stream.wait();
        meet_threads();
        CHECK(tuccl_executor_calls() == before + 2);
        for (const ncclWindow_t gone : {send, receive, both[0], both[1], window})
            CHECK(ncclCommWindowDeregister(rank.comm, gone) == 0);
        CHECK(taken(large) == 2);
    });
}

// Where NCCL has no windows, and on a communicator that does not block, calls stay the executor's.
SCENARIO(windows_unknown) {
    set_table("windows");
    setenv("STAND_IN_HAS_NO_WINDOWS", "1", 1);
    const auto taken_in_windows = [](Rank &rank, ncclComm_t comm) {
        AllReduce call(rank, 1000);
        ncclWindow_t windows[2];
        CHECK(ncclCommWindowRegister(comm, call.send.data(), 4000, &windows[0], 1) == 0);
        CHECK(ncclCommWindowRegister(comm, call.receive.data(), 4000, &windows[1], 1) == 0);
        meet_threads();
        const uint64_t before = tuccl_executor_calls();
        meet_threads();
        call.run(comm, &rank.stream);
        meet_threads();
        return tuccl_executor_calls() - before;
    };
    with_communicator(2, [&](Rank &rank) { CHECK(taken_in_windows(rank, rank.comm) == 2); });
    unsetenv("STAND_IN_HAS_NO_WINDOWS");
    with_communicator(2, [&](Rank &rank) { CHECK(taken_in_windows(rank, rank.comm) == 0); });
    const ncclUniqueId id = new_id();
    in_threads(2, [&](Rank &rank) {
        ncclConfig config = does_not_block();
        CHECK(ncclCommInitRankConfig(&rank.comm, 2, id, rank.rank, &config) ==
              tuccl::kNcclInProgress);
        CHECK(settled(rank.comm) == tuccl::kNcclSuccess);
        meet_threads();
        CHECK(taken_in_windows(rank, rank.comm) == 2);
        CHECK(ncclCommDestroy(rank.comm) == 0);
    });
}

// NCCL is to say what it thinks of them.
SCENARIO(wrong_arguments) {
    with_communicator(2, [](Rank &rank) {
        int data = 1;
        const auto submit = [&](int type, int reduction, int root, size_t count) {
            (void)ncclReduce(&data, &data, count, type, reduction, root, rank.comm, &rank.stream);
            (void)ncclBroadcast(&data, &data, count, type, root, rank.comm, &rank.stream);
            (void)ncclAllReduce(&data, &data, count, type, reduction, rank.comm, &rank.stream);
        };
        stand_in_break(rank.comm); // So that NCCL's stand-in refuses what it gets.
        submit(-1, kSum, 0, 1);
        submit(kInt32, -1, -1, SIZE_MAX);
        submit(kInt32, kSum, 2, SIZE_MAX / 2);
        submit(12, 2147483647, 300, 1);
        submit(2147483647, kSum, -2147483647, 1);
    });
    const Notes notes;
    CHECK(notes.count("executor") == 0 && notes.count("nccl AllReduce") == 10);
}

SCENARIO(groups) {
    with_communicator(2, [](Rank &rank) {
        AllReduce first(rank);
        AllReduce second(rank);
        AllReduce large(rank, 20000);
        // All of it the executor's; nested.
        CHECK(ncclGroupStart() == 0 && ncclGroupStart() == 0);
        CHECK(first.start(rank.comm, &rank.stream) == 0);
        CHECK(ncclGroupEnd() == 0);
        rank.stream.wait();
        CHECK(first.receive[0] == -1); // Held back to the outermost end.
        CHECK(second.start(rank.comm, &rank.stream) == 0);
        CHECK(ncclGroupEnd() == 0);
        rank.stream.wait();
        CHECK(first.is_right() && second.is_right());
        on_rank_0(rank, [&] {
            const Notes notes;
            CHECK(notes.count("executor 4") == 4 && notes.count("nccl") == 0);
        });
        // One call that has no entry takes the others along, in their order.
        AllReduce third(rank);
        AllReduce fourth(rank);
        CHECK(ncclGroupStart() == 0);
        CHECK(third.start(rank.comm, &rank.stream) == 0);
        CHECK(large.start(rank.comm, &rank.stream) == 0);
        CHECK(fourth.start(rank.comm, &rank.stream) == 0);
        CHECK(ncclGroupEnd() == 0);
        rank.stream.wait();
        CHECK(third.is_right() && large.is_right() && fourth.is_right());
        on_rank_0(rank, [&] {
            const Notes notes;
            CHECK(notes.count("executor") == 0 && notes.count("nccl AllReduce") == 6);
        });
    });
}

SCENARIO(group_of_operations) {
    with_communicator(2, [](Rank &rank) {
        AllReduce reduced(rank);
        std::vector<int> gathered(128, -1);
        CHECK(ncclGroupStart() == 0);
        CHECK(reduced.start(rank.comm, &rank.stream) == 0);
        CHECK(ncclAllGather(reduced.send.data(), gathered.data(), 64, kInt32, rank.comm,
                            &rank.stream) == 0);
        CHECK(ncclGroupEnd() == 0);
        rank.stream.wait();
        CHECK(reduced.is_right() && gathered[0] == 1 && gathered[127] == 2);
    });
    const Notes notes;
    CHECK(notes.count("executor") == 0 && notes.count("nccl All") == 4);
}

// What NCCL only estimates is not run, and what comes after it is no longer in a group.
SCENARIO(simulated_group) {
    with_communicator(2, [](Rank &rank) {
        AllReduce first(rank);
        CHECK(ncclGroupStart() == 0);
        CHECK(first.start(rank.comm, &rank.stream) == 0);
        CHECK(ncclGroupSimulateEnd(nullptr) == 0);
        rank.stream.wait();
        CHECK(first.receive[0] == -1);
        AllReduce second(rank);
        second.run(rank.comm, &rank.stream);
    });
    const Notes notes;
    CHECK(notes.count("nccl AllReduce") == 2 && notes.count("executor 4") == 2);
}

// Only rank 0 sends something beside the collective: that must not change what rank 1 and rank 0
// make of the collective.
SCENARIO(group_with_send) {
    with_communicator(3, [](Rank &rank) {
        AllReduce reduced(rank);
        CHECK(ncclGroupStart() == 0);
        CHECK(reduced.start(rank.comm, &rank.stream) == 0);
        if (rank.rank == 0)
            CHECK(ncclSend(reduced.send.data(), 64, kInt32, 1, rank.comm, &rank.stream) == 0);
        if (rank.rank == 1)
            CHECK(ncclRecv(reduced.send.data(), 64, kInt32, 0, rank.comm, &rank.stream) == 0);
        CHECK(ncclGroupEnd() == 0);
        rank.stream.wait();
        CHECK(reduced.is_right());
    });
    const Notes notes;
    CHECK(notes.count("executor 4") == 3 && notes.count("nccl Send") == 1);
    CHECK(notes.count("nccl Recv") == 1 && notes.count("nccl AllReduce") == 0);
}

// Rank 0 groups the calls of two communicators, the others know one of them each.
SCENARIO(group_of_communicators) {
    ncclUniqueId ids[2] = {};
    CHECK(ncclGetUniqueId(&ids[0]) == 0 && ncclGetUniqueId(&ids[1]) == 0);
    in_threads(3, [&](Rank &rank) {
        ncclComm_t comms[2] = {nullptr, nullptr};
        for (int pair = 0; pair < 2; pair++)
            if (rank.rank == 0 || rank.rank == pair + 1)
                CHECK(ncclCommInitRank(&comms[pair], 2, ids[pair], rank.rank == 0 ? 0 : 1) == 0);
        meet_threads();
        std::vector<int> data[2] = {std::vector<int>(64, 1), std::vector<int>(64, 1)};
        CHECK(ncclGroupStart() == 0);
        for (int pair = 0; pair < 2; pair++)
            if (comms[pair] != nullptr)
                CHECK(ncclAllReduce(data[pair].data(), data[pair].data(), 64, kInt32, kSum,
                                    comms[pair], &rank.stream) == 0);
        CHECK(ncclGroupEnd() == 0);
        rank.stream.wait();
        for (int pair = 0; pair < 2; pair++)
            if (comms[pair] != nullptr)
                CHECK(data[pair] == std::vector<int>(64, 2) && ncclCommDestroy(comms[pair]) == 0);
    });
    CHECK(Notes().count("executor 4") == 4);
}

// Sums that the table leaves to NCCL although its own do not move: told, or refused.
SCENARIO(free_sums) {
    set_table("invariant");
    constexpr int kFloat32 = 7, kMax = 2, kInvalidUsage = 5;
    const bool strict = std::getenv("TUCCL_INVARIANT") != nullptr;
    with_communicator(4, [=](Rank &rank) {
        std::vector<float> data(64, 0.0F);
        const auto reduce = [&](int type, int reduction) {
            const int result = ncclReduce(data.data(), data.data(), 64, type, reduction, 0,
                                          rank.comm, &rank.stream);
            rank.stream.wait();
            return result;
        };
        CHECK(ncclAllReduce(data.data(), data.data(), 64, kFloat32, kSum, rank.comm,
                            &rank.stream) == 0);
        rank.stream.wait();
        CHECK(reduce(kInt32, kSum) == 0 && reduce(kFloat32, kMax) == 0);
        for (int i = 0; i < 2; i++)
            CHECK(reduce(kFloat32, kSum) == (strict ? kInvalidUsage : 0));
        // In a group, beside a gather: both are NCCL's.
        CHECK(ncclGroupStart() == 0);
        CHECK(ncclAllGather(data.data(), data.data(), 16, kFloat32, rank.comm, &rank.stream) == 0);
        CHECK(ncclAllReduce(data.data(), data.data(), 64, kFloat32, kSum, rank.comm,
                            &rank.stream) == (strict ? kInvalidUsage : 0));
        CHECK(ncclGroupEnd() == 0);
        rank.stream.wait();
    });
    with_communicator(2, [](Rank &rank) { // A sum of two has one order alone.
        std::vector<float> data(64, 0.0F);
        CHECK(ncclAllReduce(data.data(), data.data(), 64, kFloat32, kSum, rank.comm,
                            &rank.stream) == 0);
        rank.stream.wait();
    });
}

} // namespace
