// How communicators come to be served or not, and how they end.
#include "agreement.h"
#include "plan.h"
#include "real_nccl.h"
#include "requests.h"
#include "scenarios.h"
#include "session.h"

#include <atomic>
#include <chrono>
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

bool is_served(Rank &rank, ncclComm_t comm, int ranks) {
    AllReduce call(rank);
    call.expected = 0; // Which ranks take part is the caller's business.
    CHECK(call.start(comm, &rank.stream) == 0);
    rank.stream.wait();
    CHECK(call.receive[0] > 0);
    static std::atomic<int> served{0};
    on_rank_0(rank, [&] { served.store(Notes().count("executor 4")); });
    CHECK(served.load() == 0 || served.load() == ranks);
    return served.load() == ranks;
}

SCENARIO(one_thread_for_all) {
    ncclComm_t comms[3];
    CHECK(ncclCommInitAll(comms, 3, nullptr) == 0);
    (void)stand_in::take_notes();
    stand_in::Stream streams[3];
    std::vector<int> data[3];
    CHECK(ncclGroupStart() == 0);
    for (int rank = 0; rank < 3; rank++) {
        data[rank].assign(64, 1 + rank);
        CHECK(ncclAllReduce(data[rank].data(), data[rank].data(), 64, kInt32, kSum, comms[rank],
                            &streams[rank]) == 0);
    }
    CHECK(ncclGroupEnd() == 0);
    for (int rank = 0; rank < 3; rank++) {
        streams[rank].wait();
        CHECK(data[rank] == std::vector<int>(64, 6));
    }
    for (ncclComm_t comm : comms)
        CHECK(ncclCommDestroy(comm) == 0);
    const Notes notes;
    CHECK(notes.count("executor 4") == 3 && notes.count("destroy") == 3);
}

// One thread makes several ranks' communicators in a group, as single-process jobs do.
SCENARIO(made_in_a_group) {
    const ncclUniqueId id = new_id();
    ncclComm_t comms[2] = {nullptr, nullptr};
    CHECK(ncclGroupStart() == 0);
    for (int rank = 0; rank < 2; rank++)
        CHECK(ncclCommInitRank(&comms[rank], 2, id, rank) == 0);
    CHECK(ncclGroupEnd() == 0);
    (void)stand_in::take_notes();
    stand_in::Stream streams[2];
    int data[2] = {1, 2};
    for (int rank = 0; rank < 2; rank++)
        CHECK(ncclAllReduce(&data[rank], &data[rank], 1, kInt32, kSum, comms[rank],
                            &streams[rank]) == 0);
    for (int rank = 0; rank < 2; rank++) {
        streams[rank].wait();
        CHECK(data[rank] == 3 && ncclCommDestroy(comms[rank]) == 0);
    }
    CHECK(Notes().count("executor 4") == 2);
}

SCENARIO(split) {
    with_communicator(4, [](Rank &rank) {
        ncclComm_t part = nullptr;
        // Rank 3 has no part.
        CHECK(ncclCommSplit(rank.comm, rank.rank < 3 ? 7 : -1, 0, &part, nullptr) == 0);
        CHECK((part != nullptr) == (rank.rank < 3));
        on_rank_0(rank, [&] { (void)stand_in::take_notes(); });
        int data = 1;
        if (part != nullptr) {
            CHECK(ncclAllReduce(&data, &data, 1, kInt32, kSum, part, &rank.stream) == 0);
            rank.stream.wait();
            CHECK(data == 3 && ncclCommDestroy(part) == 0);
        }
        on_rank_0(rank, [&] { CHECK(Notes().count("executor 4") == 3); });
        CHECK(is_served(rank, rank.comm, 4)); // The parent goes on.
    });
}

// Rank 1 may count the parent's children otherwise than the others from now on: all of them leave
// the next ones to NCCL.
SCENARIO(split_fails_once) {
    setenv("STAND_IN_SPLIT_FAILS", "1:1", 1);
    with_communicator(3, [](Rank &rank) {
        ncclComm_t part = nullptr;
        if (rank.rank == 1)
            CHECK(ncclCommSplit(rank.comm, 0, 0, &part, nullptr) == tuccl::kNcclInvalidUsage);
        for (int turn = 0; turn < 2; turn++) {
            CHECK(ncclCommSplit(rank.comm, 0, 0, &part, nullptr) == 0);
            CHECK(!is_served(rank, part, 3) && ncclCommDestroy(part) == 0);
        }
        // NCCL's destroy of the last rank waits for the devices of all.
        meet_threads();
        CHECK(is_served(rank, rank.comm, 3));
    });
}

// The same with and without the executor's help, because something is in its way on one rank.
void off_on_all(int ranks) {
    with_communicator(ranks, [ranks](Rank &rank) { CHECK(!is_served(rank, rank.comm, ranks)); });
    CHECK(Notes().count("nccl Destroy") == ranks);
}

void failing(const char *step_and_rank) {
    setenv("STAND_IN_FAILS", step_and_rank, 1);
    off_on_all(3);
}
SCENARIO(create_fails) {
    failing("create:2");
}
SCENARIO(connect_fails) {
    failing("connect:1");
}

// A rank that cannot tell the others anything must not let them wait: its start fails, NCCL's
// communicator is aborted.
SCENARIO(exchange_fails) {
    setenv("STAND_IN_FAILS", "exchange:1", 1);
    const ncclUniqueId id = new_id();
    in_threads(2, [&](Rank &rank) {
        const int result = ncclCommInitRank(&rank.comm, 2, id, rank.rank);
        if (rank.rank == 1)
            CHECK(result == tuccl::kNcclUnhandledCudaError && rank.comm == nullptr);
        if (rank.comm != nullptr)
            CHECK(ncclCommDestroy(rank.comm) == 0);
    });
}

// Rank 0 would wait for rank 1's greeting for ever: it is told by the roll.
SCENARIO(exchange_fails_unheard) {
    setenv("STAND_IN_UNHEARD_ABORT", "1", 1);
    setenv("STAND_IN_FAILS", "exchange:1", 1);
    const ncclUniqueId id = new_id();
    in_threads(2, [&](Rank &rank) {
        CHECK(ncclCommInitRank(&rank.comm, 2, id, rank.rank) == tuccl::kNcclUnhandledCudaError);
        CHECK(rank.comm == nullptr);
    });
}

// Rank 2 calls NCCL itself, as in a process without the executor: it would not answer a greeting.
SCENARIO(not_on_all_ranks) {
    const tuccl::RealNccl &nccl = tuccl::real_nccl();
    const ncclUniqueId id = new_id();
    in_threads(4, [&](Rank &rank) {
        const bool bare = rank.rank == 2;
        CHECK((bare ? nccl.CommInitRank.address : ncclCommInitRank)(&rank.comm, 4, id, rank.rank) ==
              0);
        int data = 1;
        CHECK((bare ? nccl.AllReduce.address : ncclAllReduce)(&data, &data, 1, kInt32, kSum,
                                                              rank.comm, &rank.stream) == 0);
        rank.stream.wait();
        CHECK(data == 4);
        // Of two halves one has the executor on both of its ranks.
        ncclComm_t half = nullptr;
        CHECK((bare ? nccl.CommSplit.address : ncclCommSplit)(rank.comm, rank.rank / 2, 0, &half,
                                                              nullptr) == 0);
        CHECK((bare ? nccl.AllReduce.address : ncclAllReduce)(&data, &data, 1, kInt32, kSum, half,
                                                              &rank.stream) == 0);
        rank.stream.wait();
        CHECK(data == 8);
        for (ncclComm_t comm : {half, rank.comm})
            CHECK((bare ? nccl.CommDestroy.address : ncclCommDestroy)(comm) == 0);
    });
    const Notes notes;
    CHECK(notes.count("executor 4") == 2 && notes.count("nccl AllReduce") == 6);
}

SCENARIO(p2p_disabled) {
    setenv("NCCL_P2P_DISABLE", "1", 1);
    off_on_all(3);
    setenv("NCCL_P2P_DISABLE", "0", 1);
    setenv("NCCL_P2P_LEVEL", "loc", 1);
    off_on_all(3);
    setenv("NCCL_P2P_LEVEL", "NVL", 1);
    with_communicator(3, [](Rank &rank) { CHECK(is_served(rank, rank.comm, 3)); });
}

SCENARIO(sixteen_ranks) {
    set_table("sixteen");
    with_communicator(16, [](Rank &rank) { CHECK(is_served(rank, rank.comm, 16)); });
}
SCENARIO(too_many_ranks) {
    off_on_all(33);
}
SCENARIO(wrong_entry) {
    set_table("wrong_entry");
    off_on_all(2);
}
SCENARIO(no_table) {
    setenv("TUCCL_BUNDLE", "", 1);
    off_on_all(2);
}
SCENARIO(damaged_bundle) {
    set_table("no_bundle");
    off_on_all(2);
}

// TUCCL_BUNDLE names one whose table has small all_reduces for two ranks; SERVED is what is
// expected of it.
SCENARIO(from_bundle) {
    with_communicator(2, [](Rank &rank) {
        CHECK(is_served(rank, rank.comm, 2) == (std::string(std::getenv("SERVED")) == "yes"));
        AllReduce large(rank, 20000);
        large.run(rank.comm, &rank.stream);
    });
    const Notes notes;
    CHECK(notes.count("executor") == 0 && notes.count("nccl AllReduce") == 2);
    // No communicator of three ranks was tuned for.
    with_communicator(3, [](Rank &rank) { CHECK(!is_served(rank, rank.comm, 3)); });
}

// Threads have one environment, but may have a working directory each.
SCENARIO(different_tables) {
    setenv("TUCCL_BUNDLE", "table.tuccl", 1);
    const std::string folder = std::getenv("TEST_FOLDER");
    const ncclUniqueId id = new_id();
    in_threads(3, [&](Rank &rank) {
        const std::string own = folder + "/rank" + std::to_string(rank.rank);
        CHECK(unshare(CLONE_FS) == 0 && mkdir(own.c_str(), 0700) == 0 && chdir(own.c_str()) == 0);
        const std::string path = table_path(rank.rank == 2 ? "to_4096" : "to_8192");
        CHECK(symlink(path.c_str(), "table.tuccl") == 0);
        CHECK(ncclCommInitRank(&rank.comm, 3, id, rank.rank) == 0);
        meet_threads();
        CHECK(!is_served(rank, rank.comm, 3));
        CHECK(ncclCommDestroy(rank.comm) == 0);
    });
}

// Where all have the same table, and nothing in it for so many ranks, NCCL is not asked to move a
// byte.
SCENARIO(nothing_to_greet_for) {
    for (const bool some : {false, true}) {
        set_table(some ? "one_phase" : "nothing");
        (void)stand_in::take_notes();
        ncclComm_t comms[2];
        CHECK(ncclCommInitAll(comms, 2, nullptr) == 0);
        CHECK(Notes().count("nccl AllGather") == (some ? 6 : 0));
        for (ncclComm_t comm : comms)
            CHECK(ncclCommDestroy(comm) == 0);
    }
}

// Who will choose call by call gets memory for any; else the table's entries count. All ranks
// or none.
SCENARIO(memory_by_need) {
    const auto created = [] {
        (void)stand_in::take_notes();
        ncclComm_t comms[2];
        CHECK(ncclCommInitAll(comms, 2, nullptr) == 0);
        const Notes notes;
        for (ncclComm_t comm : comms)
            CHECK(ncclCommDestroy(comm) == 0);
        return notes;
    };
    set_table("one_phase");
    CHECK(created().count("staging 2048 0") == 2);
    const uint64_t mark = tuccl::read_table()->mark();
    CHECK(tuccl_executor_choose(nullptr, 0) == nullptr);
    CHECK(tuccl::read_table()->mark() != mark); // So that no rank leaves before they have talked.
    CHECK(created().count("staging 2097152 33554432") == 2);
    std::vector<tuccl::Greeting> greetings(2);
    for (tuccl::Greeting &greeting : greetings) {
        greeting.magic = tuccl::kGreetingMagic;
        greeting.version = tuccl::kExecutorVersion;
        greeting.wanted = 1;
        greeting.staging = 5;
    }
    CHECK(tuccl::judge(greetings).serve);
    greetings[1].staging++;
    CHECK(!tuccl::judge(greetings).serve);
}

// Threadblocks of an all_reduce on a communicator that two ranks make, or its child.
int blocks_of(Rank &rank, ncclComm_t comm) {
    on_rank_0(rank, [&] { (void)stand_in::take_notes(); });
    AllReduce call(rank);
    call.run(comm, &rank.stream);
    meet_threads();
    static int found;
    if (rank.rank == 0) {
        const Notes notes;
        for (found = 64; found > 0; found--)
            if (notes.count("executor 4 rank 0, blocks " + std::to_string(found)) == 1 &&
                notes.count("executor 4 rank 1, blocks " + std::to_string(found)) == 1)
                break;
    }
    meet_threads();
    return found;
}

ncclComm_t child_of(ncclComm_t comm, ncclConfig *config) {
    ncclComm_t child = nullptr;
    CHECK(ncclCommSplit(comm, 0, 0, &child, config) == 0);
    return child;
}

// The table has 8 threadblocks. A communicator's bound is its own, or its parent's; NCCL's variable
// goes before it. The smallest of all ranks holds.
SCENARIO(bounded_blocks) {
    const ncclUniqueId id = new_id();
    in_threads(2, [&](Rank &rank) {
        ncclConfig config;
        config.maxCTAs = rank.rank == 0 ? 5 : 3;
        CHECK(ncclCommInitRankConfig(&rank.comm, 2, id, rank.rank, &config) == 0);
        CHECK(blocks_of(rank, rank.comm) == 3);
        ncclConfig free;
        ncclConfig larger;
        larger.maxCTAs = 64;
        ncclConfig before_the_field; // NCCL 2.14 to 2.16.
        before_the_field.size = offsetof(ncclConfig, cgaClusterSize);
        before_the_field.maxCTAs = 1;
        struct {
            ncclConfig *config;
            int blocks;
        } const children[] = {{nullptr, 3}, {&free, 8}, {&larger, 8}, {&before_the_field, 8}};
        for (const auto &made : children) {
            ncclComm_t child = child_of(rank.comm, made.config);
            CHECK(blocks_of(rank, child) == made.blocks && ncclCommDestroy(child) == 0);
        }
        struct {
            const char *ctas;
            const char *channels;
            int blocks;
        } const variables[] = {{"6", "", 6},   {"", "2", 2},
                               {"6", "4", 4},  {"0", "", 3},
                               {"0x4", "", 4}, {"many", "", 3},
                               {"-2", "0", 3}, {"99999999", "", 8},
                               {"", "9e9", 3}, {"999999999999999999999", "", 3}};
        for (const auto &set : variables) {
            on_rank_0(rank, [&] {
                setenv("NCCL_MAX_CTAS", set.ctas, 1);
                setenv("NCCL_MAX_NCHANNELS", set.channels, 1);
            });
            ncclComm_t child = child_of(rank.comm, nullptr);
            CHECK(blocks_of(rank, child) == set.blocks && ncclCommDestroy(child) == 0);
        }
        CHECK(ncclCommDestroy(rank.comm) == 0);
    });
}

SCENARIO(not_blocking) {
    const ncclUniqueId id = new_id();
    in_threads(2, [&](Rank &rank) {
        ncclConfig config = does_not_block();
        CHECK(ncclCommInitRankConfig(&rank.comm, 2, id, rank.rank, &config) ==
              tuccl::kNcclInProgress);
        CHECK(settled(rank.comm) == tuccl::kNcclSuccess);
        meet_threads();
        CHECK(is_served(rank, rank.comm, 2));
        CHECK(ncclCommFinalize(rank.comm) == 0 && ncclCommDestroy(rank.comm) == 0);
    });
}

// One thread, two ranks that do not block: nothing may wait inside a call.
SCENARIO(not_blocking_in_one_thread) {
    const ncclUniqueId id = new_id();
    ncclConfig config = does_not_block();
    ncclComm_t comms[2] = {nullptr, nullptr};
    for (int rank = 0; rank < 2; rank++)
        CHECK(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config) == tuccl::kNcclInProgress);
    for (ncclComm_t comm : comms) {
        CHECK(settled(comm) == tuccl::kNcclSuccess);
    }
    for (ncclComm_t comm : comms)
        CHECK(ncclCommDestroy(comm) == 0);
    const Notes notes;
    CHECK(notes.count("destroy") == 2 && notes.count("makes a context") == 0);
}

// The second rank never comes.
SCENARIO(abort_while_setting_up) {
    const ncclUniqueId id = new_id();
    ncclConfig config = does_not_block();
    ncclComm_t comm = nullptr;
    CHECK(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == tuccl::kNcclInProgress);
    CHECK(ncclCommAbort(comm) == 0);
}

// Two ranks that do not block, of which rank 1's greeting is as `step` says.
void start_both(const char *step, ncclComm_t *comms) {
    setenv("STAND_IN_FAILS", step, 1);
    const ncclUniqueId id = new_id();
    ncclConfig config = does_not_block();
    for (int rank = 0; rank < 2; rank++)
        CHECK(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config) == tuccl::kNcclInProgress);
}

// The second rank comes late; the first waits for it until it is aborted. What its kernel may still
// use stays allocated.
SCENARIO(abort_while_greeting) {
    ncclComm_t comms[2] = {nullptr, nullptr};
    start_both("late_exchange:1", comms);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    int error = tuccl::kNcclSuccess;
    CHECK(ncclCommGetAsyncError(comms[0], &error) == 0 && error == tuccl::kNcclInProgress);
    CHECK(ncclCommAbort(comms[0]) == 0 && ncclCommAbort(comms[1]) == 0);
}

// The second rank cannot greet: both say that they failed.
SCENARIO(fail_while_greeting) {
    ncclComm_t comms[2] = {nullptr, nullptr};
    start_both("exchange:1", comms);
    for (ncclComm_t comm : comms) {
        CHECK(settled(comm) == tuccl::kNcclUnhandledCudaError);
    }
    CHECK(ncclCommAbort(comms[1]) == 0 && ncclCommAbort(comms[0]) == 0);
}

// Rank 1 does not take part; rank 0 is freed by an abort in another thread.
SCENARIO(aborted) {
    with_communicator(2, [](Rank &rank) {
        AllReduce call(rank);
        if (rank.rank == 0) {
            CHECK(call.start(rank.comm, &rank.stream) == 0);
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            CHECK(!rank.stream.is_idle());
            meet_threads();
            std::thread([&rank] { CHECK(ncclCommAbort(rank.comm) == 0); }).join();
        } else {
            meet_threads();
            CHECK(ncclCommAbort(rank.comm) == 0);
        }
        rank.comm = nullptr;
    });
    const Notes notes;
    CHECK(notes.count("abort") == 2 && notes.count("nccl Abort") == 2);
}

// One thread aborts two communicators whose calls hang. Freeing the first one's memory would wait
// for the second's kernel; it is freed when another communicator starts.
SCENARIO(abort_one_after_another) {
    const ncclUniqueId id = new_id();
    with_communicator(2, [&](Rank &rank) {
        ncclComm_t second = nullptr;
        CHECK(ncclCommInitRank(&second, 2, id, rank.rank) == 0);
        stand_in::Stream other;
        AllReduce on_first(rank);
        AllReduce on_second(rank);
        if (rank.rank == 0) {
            CHECK(on_first.start(rank.comm, &rank.stream) == 0);
            CHECK(on_second.start(second, &other) == 0);
        }
        meet_threads();
        CHECK(ncclCommAbort(rank.comm) == 0 && ncclCommAbort(second) == 0);
        rank.comm = nullptr;
        other.wait();
        rank.stream.wait();
    });
    CHECK(Notes().count("destroy") == 0);
    ncclComm_t comms[2];
    CHECK(ncclCommInitAll(comms, 2, nullptr) == 0);
    CHECK(Notes().count("destroy") == 4);
    for (ncclComm_t comm : comms)
        CHECK(ncclCommDestroy(comm) == 0);
}

// Kernels of ranks of one process write to one another's memory: it lasts until the last is gone.
SCENARIO(leave_one_after_another) {
    with_communicator(3, [](Rank &rank) {
        for (int turn = 0; turn < 3; turn++) {
            if (rank.rank == turn)
                CHECK((turn == 1 ? ncclCommAbort : ncclCommDestroy)(rank.comm) == 0);
            on_rank_0(rank, [&] {
                const Notes notes;
                CHECK(notes.count("quiesce") == (turn == 2 ? 3 : 0));
                CHECK(notes.count("destroy") == (turn == 2 ? 3 : 0));
            });
        }
        rank.comm = nullptr;
    });
}

// A thread per device. One rank ends a child and calls the parent's next collective at once; the
// other one comes to the child's end when that runs, and must come to the parent's call: nobody may
// wait for the first one's device. `count`: elements that the executor runs, or leaves to NCCL.
void end_beside_the_parent(size_t count) {
    constexpr int kRounds = 6;
    with_communicator(2, [count](Rank &rank) {
        for (int round = 0; round < kRounds; round++) {
            ncclComm_t child = nullptr;
            CHECK(ncclCommSplit(rank.comm, 0, 0, &child, nullptr) == 0);
            AllReduce in_child(rank);
            AllReduce in_parent(rank, count);
            CHECK(in_child.start(child, &rank.stream) == 0);
            const bool is_late = rank.rank == round % 2;
            if (is_late)
                meet_threads();
            CHECK(ncclCommDestroy(child) == 0);
            CHECK(in_parent.start(rank.comm, &rank.stream) == 0);
            if (!is_late)
                meet_threads();
            rank.stream.wait();
            CHECK(in_child.is_right() && in_parent.is_right());
            meet_threads(); // The other rank may have been reading this one's buffer.
        }
    });
    // What was left is freed behind the destroys.
    int destroyed = 0;
    for (int pauses = 0; pauses < 100 && destroyed < 2 * (kRounds + 1); pauses++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        destroyed += Notes().count("destroy");
    }
    CHECK(destroyed == 2 * (kRounds + 1));
}
SCENARIO(child_ends_beside_the_executor) {
    end_beside_the_parent(64);
}
SCENARIO(child_ends_beside_nccl) {
    end_beside_the_parent(20000);
}

// Who leaves first waits for nothing: here the other rank calls what runs on its device later.
SCENARIO(first_to_leave_does_not_wait) {
    with_communicator(2, [](Rank &rank) {
        for (int round = 0; round < 6; round++) {
            ncclComm_t child = nullptr;
            CHECK(ncclCommSplit(rank.comm, 0, 0, &child, nullptr) == 0);
            AllReduce in_parent(rank);
            const bool is_late = rank.rank == round % 2;
            if (is_late)
                meet_threads();
            CHECK(in_parent.start(rank.comm, &rank.stream) == 0);
            CHECK(ncclCommDestroy(child) == 0);
            if (!is_late)
                meet_threads();
            rank.stream.wait();
            CHECK(in_parent.is_right());
            meet_threads();
        }
    });
}

// A rank that has not ended its last call may still write: the memory stays.
SCENARIO(quiesce_fails) {
    setenv("STAND_IN_FAILS", "quiesce:1", 1);
    with_communicator(2, [](Rank &rank) { CHECK(is_served(rank, rank.comm, 2)); });
    const Notes notes;
    CHECK(notes.count("quiesce") == 2 && notes.count("destroy") == 0);
}

// Calls go on in one thread while another aborts: they end, with whatever result.
SCENARIO(abort_beside_calls) {
    for (int round = 0; round < 20; round++)
        with_communicator(2, [](Rank &rank) {
            AllReduce call(rank);
            std::atomic<int> calls{0};
            std::thread caller([&] {
                while (call.start(rank.comm, &rank.stream) == 0)
                    calls++;
            });
            while (calls.load() < 10)
                std::this_thread::yield();
            CHECK(ncclCommAbort(rank.comm) == 0);
            caller.join();
            rank.comm = nullptr;
            rank.stream.wait();
            meet_threads(); // The other rank may have been reading this one's buffer.
        });
    const Notes notes;
    CHECK(notes.count("executor 4") > 0 && notes.count("nccl AllReduce") > 0);
}

SCENARIO(watchdog) {
    with_communicator(2, [](Rank &rank) {
        AllReduce call(rank);
        if (rank.rank == 0) {
            CHECK(call.start(rank.comm, &rank.stream) == 0);
            stand_in_break(rank.comm);
            rank.stream.wait(); // Only the watchdog can end it.
            // From here on NCCL answers, with its error.
            CHECK(call.start(rank.comm, &rank.stream) == 6);
        }
    });
    CHECK(Notes().count("abort 0") == 1);
}

// Rank 2 is gone; what waits for it is ended by `end`, and the others go on.
void others_go_on(const std::function<void(Rank &)> &end) {
    with_communicator(3, [&](Rank &rank) {
        AllReduce call(rank);
        if (rank.rank < 2) {
            CHECK(call.start(rank.comm, &rank.stream) == 0);
            end(rank);
            rank.stream.wait();
            AllReduce after(rank);
            after.expected = 3;
            int excluded = 2;
            ncclComm_t made = nullptr;
            CHECK(ncclCommShrink(rank.comm, &excluded, 1, &made, nullptr,
                                 tuccl::kNcclShrinkAbort) == 0);
            CHECK(after.start(made, &rank.stream) == 0);
            rank.stream.wait();
            CHECK(after.is_right() && ncclCommDestroy(made) == 0);
        }
        meet_threads(); // The others may have been reading this one's buffer.
    });
    const Notes notes;
    CHECK(notes.count("abort") == 2 && notes.count("nccl AllReduce") == 0);
}
SCENARIO(shrunk_with_abort) {
    others_go_on([](Rank &rank) {
        int excluded = 2;
        ncclComm_t made = nullptr;
        CHECK(ncclCommShrink(rank.comm, &excluded, 1, &made, nullptr, tuccl::kNcclShrinkAbort) ==
              0);
        CHECK(ncclCommDestroy(made) == 0);
    });
}
SCENARIO(revoked) {
    others_go_on([](Rank &rank) { CHECK(ncclCommRevoke(rank.comm, 0) == 0); });
}

// Addresses of communicators come back; what was remembered of the old one must not.
SCENARIO(made_again_and_again) {
    for (int round = 0; round < 30; round++) {
        set_table(round % 2 == 0 ? "session" : "nothing");
        with_communicator(
            2, [round](Rank &rank) { CHECK(is_served(rank, rank.comm, 2) == (round % 2 == 0)); });
    }
}

// The process ends with communicators and the watchdog alive.
SCENARIO(exit_without_destroying) {
    with_communicator(2, [](Rank &rank) {
        CHECK(is_served(rank, rank.comm, 2));
        rank.comm = nullptr;
    });
}

SCENARIO(missing_functions) {
    with_communicator(2, [](Rank &rank) {
        ncclComm_t made = nullptr;
        ncclUniqueId id = {};
        CHECK(ncclCommInitRankScalable(&made, 2, rank.rank, 1, &id, nullptr) ==
              tuccl::kNcclInvalidUsage);
        CHECK(is_served(rank, rank.comm, 2));
    });
}

// What NCCL starts beside the split of a rail, with as many ranks, follows its table.
SCENARIO(no_other_start_takes_the_request_of_a_rail) {
    setenv("STAND_IN_PLUGIN", "1", 1);
    tuccl_request *rail = tuccl::new_rail_request(2);
    {
        const tuccl::Offer offer(rail);
        CHECK(tuccl_executor_request() == rail);
        with_communicator(2, [](Rank &) {});
    }
    CHECK(rail->takers % (1 << 16) == 0 && !tuccl::is_obeyed(*rail, 0));
    const tuccl::Offer alone(tuccl::new_rail_request(2));
    CHECK(tuccl_executor_request() == alone.request());
}

// Meanwhile no thread can be started: none has so large a stack.
class NoThreads {
  public:
    NoThreads() {
        CHECK(pthread_getattr_default_np(&before_) == 0);
        pthread_attr_t large;
        CHECK(pthread_attr_init(&large) == 0);
        CHECK(pthread_attr_setstacksize(&large, size_t{1} << 46) == 0);
        CHECK(pthread_setattr_default_np(&large) == 0 && pthread_attr_destroy(&large) == 0);
    }
    ~NoThreads() {
        CHECK(pthread_setattr_default_np(&before_) == 0 && pthread_attr_destroy(&before_) == 0);
    }
    NoThreads(const NoThreads &) = delete;
    NoThreads &operator=(const NoThreads &) = delete;

  private:
    pthread_attr_t before_;
};

SCENARIO(no_thread_in_the_background) {
    const ncclUniqueId id = new_id();
    ncclConfig config = does_not_block();
    ncclComm_t comms[2] = {nullptr, nullptr};
    const NoThreads none;
    for (int rank = 0; rank < 2; rank++)
        CHECK(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config) ==
              tuccl::kNcclSystemError);
    for (const ncclComm_t comm : comms)
        CHECK(ncclCommAbort(comm) == 0);
}

} // namespace
