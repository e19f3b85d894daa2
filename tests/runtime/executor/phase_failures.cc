// Starts of communicators across hosts that fail on a rank, and their ends.
#include "phase_job.h"

#include "real_nccl.h"

#include <chrono>
#include <thread>

namespace {

constexpr size_t kSliced = 1000; // Elements of a call of several slices.
constexpr int kRemoteError = 6;

int error_of(ncclComm_t comm) {
    int error = 0;
    CHECK(ncclCommGetAsyncError(comm, &error) == 0);
    return error;
}

// On the second host's first rank alone.
void failing(Seat &seat, const char *step) {
    if (seat.rank == seat.local_ranks)
        setenv("STAND_IN_FAILS", (std::string(step) + ":0").c_str(), 1);
    off_on_all(seat);
}
SCENARIO(prepare_phases_fails) {
    failing(seat, "prepare_phases");
}
SCENARIO(load_stages_fails) {
    failing(seat, "load_stages");
}
SCENARIO(create_fails) {
    failing(seat, "create");
}
SCENARIO(connect_fails) {
    failing(seat, "connect");
}

// A rank whose ncclCommSplit fails cannot tell the others, who wait inside theirs: the start fails
// on all ranks. The next one is served.
SCENARIO(split_fails_on_one_rank) {
    if (seat.rank == 1)
        setenv("STAND_IN_SPLIT_FAILS", "1:1", 1);
    ncclComm_t comm = nullptr;
    CHECK(seat.start(&comm) != 0 && comm == nullptr);
    CHECK(stand_in_live_communicators() == 0);
    served(seat);
}

// Where it fails on all ranks nobody waits, and NCCL serves the communicator.
SCENARIO(split_fails_on_all_ranks) {
    setenv("STAND_IN_SPLIT_FAILS", (std::to_string(seat.rank) + ":1").c_str(), 1);
    off_on_all(seat);
}

SCENARIO(rank_without_preload) {
    const bool has_it = seat.rank < seat.ranks - 1;
    ncclComm_t comm = nullptr;
    CHECK(seat.start(&comm, has_it) == 0);
    int data = 1 + seat.rank;
    const uint64_t before = tuccl_executor_calls();
    const auto all_reduce = has_it ? ncclAllReduce : tuccl::real_nccl().AllReduce.address;
    CHECK(all_reduce(&data, &data, 1, kInt32, kSum, comm, &seat.stream) == 0);
    seat.stream.wait();
    CHECK(data == seat.ranks * (seat.ranks + 1) / 2 && tuccl_executor_calls() == before);
    CHECK((has_it ? ncclCommDestroy(comm) : tuccl::real_nccl().CommDestroy(comm)) == 0);
}

SCENARIO(different_tables) {
    if (seat.rank >= seat.ranks / 2)
        set_table("ll128");
    off_on_all(seat);
}

// NVLink joins the ranks of one host alone: LL128 is for none of them.
SCENARIO(nvlink_on_one_host) {
    set_table("ll128");
    served(seat);
    if (seat.rank >= seat.local_ranks)
        setenv("STAND_IN_FAILS", ("nvlink:" + std::to_string(seat.rank - seat.local_ranks)).c_str(),
               1);
    const ncclComm_t comm = seat.started();
    CHECK(!is_served(seat, comm, kSliced));
    CHECK(ncclCommDestroy(comm) == 0 && stand_in_live_communicators() == 0);
}

// Rails are made and destroyed with their communicators, on every rank.
SCENARIO(rails_end) {
    for (const bool aborts : {false, true, false}) {
        const ncclComm_t comm = seat.started();
        const int rails = stand_in_live_communicators() - 1;
        CHECK(rails > 0);
        CHECK(is_served(seat, comm, kSliced));
        (void)stand_in::take_notes();
        CHECK((aborts ? ncclCommAbort(comm) : ncclCommDestroy(comm)) == 0);
        CHECK(stand_in_live_communicators() == 0);
        const Notes notes;
        CHECK(notes.count("nccl Destroy") == (aborts ? 0 : 1 + rails));
        CHECK(notes.count("nccl Abort") == (aborts ? 1 + rails : 0));
        seat.meet("ended");
    }
}

// Another thread aborts while calls of many slices are on their way into the streams.
SCENARIO(abort_during_calls) {
    const ncclComm_t comm = seat.started();
    setenv("STAND_IN_SLOW_CALLS", "60", 1);
    seat.meet("slow");
    std::vector<int> data(9900, 1); // 39 slices.
    std::thread caller([&] {
        stand_in::Stream stream;
        (void)ncclAllReduce(data.data(), data.data(), data.size(), kInt32, kSum, comm, &stream);
        stream.wait();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(70 + 20 * seat.rank));
    CHECK(ncclCommAbort(comm) == 0);
    caller.join();
    CHECK(stand_in_live_communicators() == 0);
    seat.meet("aborted");
    unsetenv("STAND_IN_SLOW_CALLS");
    served(seat);
}

// A call that hangs, because the other ranks never make theirs.
SCENARIO(abort_of_a_hanging_call) {
    const ncclComm_t comm = seat.started();
    std::vector<int> data(kSliced, 1);
    if (seat.rank == 0) {
        CHECK(ncclAllReduce(data.data(), data.data(), kSliced, kInt32, kSum, comm, &seat.stream) ==
              0);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        CHECK(!seat.stream.is_idle());
    }
    seat.meet("hangs");
    CHECK(ncclCommAbort(comm) == 0);
    seat.stream.wait();
    CHECK(stand_in_live_communicators() == 0);
}

// A call of NCCL's own hangs, because rank 0 alone makes it. The rails' memory is freed when its
// kernel has ended, which the job's communicator must be aborted, or revoked, for.
void ended_while_nccl_hangs(Seat &seat, bool revokes) {
    const ncclComm_t comm = seat.started();
    setenv("STAND_IN_ABORT_FREES", "1", 1);
    setenv("STAND_IN_UNHEARD_ABORT", "1", 1);
    std::vector<int> data(kSliced, 1);
    if (seat.rank == 0)
        CHECK(tuccl::real_nccl().AllReduce(data.data(), data.data(), kSliced, kInt32, kSum, comm,
                                           &seat.stream) == 0);
    seat.meet("hangs");
    if (revokes)
        CHECK(ncclCommRevoke(comm, 0) == 0 && stand_in_live_communicators() == 1);
    CHECK(ncclCommAbort(comm) == 0 && stand_in_live_communicators() == 0);
    seat.stream.wait();
    seat.meet("ended");
}

SCENARIO(abort_while_nccl_hangs) {
    ended_while_nccl_hangs(seat, false);
}

SCENARIO(revoke_while_nccl_hangs) {
    ended_while_nccl_hangs(seat, true);
}

// An error that NCCL finds on the rail is one of the job's communicator, also when the thread that
// looks for errors has ended the executor's part.
SCENARIO(rail_breaks) {
    if (seat.local_ranks == 1)
        return;
    const ncclComm_t comm = seat.started();
    const int expected = seat.rank == 0 ? kRemoteError : 0;
    CHECK(error_of(comm) == 0);
    seat.meet("sound");
    if (seat.rank == 0)
        stand_in_break_children();
    CHECK(error_of(comm) == expected);
    for (int i = 0; seat.rank == 0 && Notes().count("abort 0") == 0; i++) {
        CHECK(i < 400);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    CHECK(error_of(comm) == expected);
    seat.meet("broken");
    CHECK(ncclCommAbort(comm) == 0 && stand_in_live_communicators() == 0);
}

// Revoked: the executor's part ends, the rail with it, and calls are NCCL's; also where the
// communicator had an error before.
SCENARIO(revoke) {
    for (const bool breaks : {false, true}) {
        const ncclComm_t comm = seat.started();
        const int rails = stand_in_live_communicators() - 1;
        if (breaks) {
            stand_in_break(comm);
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
        }
        seat.meet("to be revoked");
        CHECK(ncclCommRevoke(comm, 0) == 0);
        const Notes notes;
        CHECK(notes.count("nccl Revoke") == 1 && notes.count("abort") == 1);
        CHECK(notes.count("nccl Abort") == rails && stand_in_live_communicators() == 1);
        seat.meet("revoked");
        if (!breaks)
            CHECK(!is_served(seat, comm, kSliced));
        CHECK(ncclCommDestroy(comm) == 0 && stand_in_live_communicators() == 0);
        seat.meet("destroyed");
    }
}

// Where a rail shares the flag by which NCCL aborts, its abort would end the job's communicator.
SCENARIO(shared_resources) {
    ncclConfig config;
    config.splitShare = 1;
    ncclComm_t comm = nullptr;
    CHECK(seat.start(&comm, &config) == 0);
    CHECK(!is_served(seat, comm, kSliced) && stand_in_live_communicators() == 1);
    ncclComm_t child = nullptr;
    CHECK(ncclCommSplit(comm, 0, seat.rank, &child, nullptr) == 0);
    CHECK(!is_served(seat, child, kSliced) && stand_in_live_communicators() == 2);
    for (const ncclComm_t ended : {child, comm})
        CHECK(ncclCommDestroy(ended) == 0);
    config.splitShare = 0;
    CHECK(seat.start(&comm, &config) == 0);
    CHECK(is_served(seat, comm, kSliced));
    CHECK(ncclCommDestroy(comm) == 0);
    setenv("NCCL_COMM_SPLIT_SHARE_RESOURCES", "1", 1);
    off_on_all(seat);
    unsetenv("NCCL_COMM_SPLIT_SHARE_RESOURCES");
    config.size = 40; // Of a release without the field.
    config.splitShare = 1;
    CHECK(seat.start(&comm, &config) == 0);
    CHECK(is_served(seat, comm, kSliced));
    CHECK(ncclCommDestroy(comm) == 0 && stand_in_live_communicators() == 0);
}

} // namespace

SCENARIO(off_on_all) {
    const ncclComm_t comm = seat.started();
    CHECK(!is_served(seat, comm, kSliced));
    CHECK(stand_in_live_communicators() == 1); // The rail is gone.
    CHECK(ncclCommDestroy(comm) == 0 && stand_in_live_communicators() == 0);
}

SCENARIO(served) {
    const ncclComm_t comm = seat.started();
    CHECK(is_served(seat, comm, kSliced));
    CHECK(ncclCommDestroy(comm) == 0 && stand_in_live_communicators() == 0);
}
