// Connections along rails: all of them are made when a communicator starts, or when a process
// chooses a schedule; what happens where that fails.
#include "executor.h"
#include "phase_job.h"

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

namespace {

constexpr size_t kSliced = 1000; // Elements of a call of several slices.

int connections() {
    return Notes().count("nccl connects");
}

int all_reduce(ncclComm_t comm, std::vector<int> *data, stand_in::Stream *stream) {
    return ncclAllReduce(data->data(), data->data(), data->size(), kInt32, kSum, comm, stream);
}

// The first calls of two communicators, in different groups and orders on the ranks.
SCENARIO(grouped_differently) {
    const ncclComm_t comms[] = {seat.started(), seat.started()};
    stand_in::Stream other;
    stand_in::Stream *const streams[] = {&seat.stream, &other};
    const std::vector<int> mine(kSliced, 1 + seat.rank);
    std::vector<int> data[] = {mine, mine};
    const size_t first = static_cast<size_t>(seat.rank % 2);
    if (seat.rank >= 2)
        CHECK(ncclGroupStart() == 0);
    for (const size_t i : {first, 1 - first})
        CHECK(all_reduce(comms[i], &data[i], streams[i]) == 0);
    if (seat.rank >= 2)
        CHECK(ncclGroupEnd() == 0);
    for (size_t i = 0; i < 2; i++) {
        streams[i]->wait();
        CHECK(data[i] == std::vector<int>(kSliced, seat.ranks * (seat.ranks + 1) / 2));
    }
    for (const ncclComm_t comm : comms)
        CHECK(ncclCommDestroy(comm) == 0);
}

// A start while the job captures puts nothing into the capture.
SCENARIO(start_beside_a_capture) {
    seat.stream.begin_capture();
    const ncclComm_t comm = seat.started();
    CHECK(seat.stream.end_capture()->work.empty());
    CHECK(is_served(seat, comm, kSliced));
    CHECK(connections() == 0);
    CHECK(ncclCommDestroy(comm) == 0 && stand_in_live_communicators() == 0);
}

// Two communicators in one group, in different orders, and children of one that is served.
SCENARIO(started_in_a_group_and_split) {
    const ncclComm_t parent = seat.started();
    ncclComm_t children[2] = {};
    const size_t first = static_cast<size_t>(seat.rank % 2);
    for (const size_t i : {size_t{0}, size_t{1}})
        CHECK(ncclCommSplit(parent, 0, seat.rank, &children[i], nullptr) == 0);
    seat.meet("split");
    for (const size_t i : {first, 1 - first})
        CHECK(children[i] != nullptr);
    (void)stand_in::take_notes();
    for (const ncclComm_t comm : {children[1], parent, children[0]})
        CHECK(is_served(seat, comm, kSliced));
    CHECK(connections() == 0);
    for (const ncclComm_t comm : {parent, children[0], children[1]})
        CHECK(ncclCommDestroy(comm) == 0);
    CHECK(stand_in_live_communicators() == 0);
}

// One rank of the last node fails to connect; the next start succeeds.
void failing(Seat &seat, const char *fault) {
    if (seat.rank == seat.ranks - 1)
        setenv("STAND_IN_CONNECT", fault, 1);
    off_on_all(seat);
    unsetenv("STAND_IN_CONNECT");
    seat.meet("off");
    served(seat);
}
SCENARIO(connecting_fails) {
    failing(seat, "fails");
}
SCENARIO(connecting_hangs) {
    failing(seat, "hangs");
}
SCENARIO(connecting_breaks) {
    failing(seat, "breaks");
}
SCENARIO(first_result_is_wrong) {
    failing(seat, "spoils");
}

// A process that ends while it connects ends the start of the others.
SCENARIO(rank_leaves_while_connecting) {
    if (seat.rank == seat.ranks - 1)
        setenv("STAND_IN_CONNECT", "leaves", 1);
    ncclComm_t comm = nullptr;
    CHECK(seat.start(&comm) != 0 && comm == nullptr);
    CHECK(stand_in_live_communicators() == 0);
}

// NCCL writes a handle without looking at who reads it.
__attribute__((no_sanitize("thread"))) ncclComm_t handle_in(const volatile ncclComm_t *comm) {
    return *comm;
}

// Another thread aborts a communicator whose handle NCCL has written, while it connects.
SCENARIO(abort_while_connecting) {
    if (seat.rank == seat.ranks - 1)
        setenv("STAND_IN_CONNECT", "hangs", 1);
    seat.meet("begin");
    ncclComm_t comm = nullptr;
    std::thread watcher([&] {
        ncclComm_t seen = nullptr;
        while ((seen = handle_in(&comm)) == nullptr)
            std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        CHECK(ncclCommAbort(seen) == 0);
    });
    CHECK(seat.start(&comm) != 0);
    watcher.join();
    CHECK(stand_in_live_communicators() == 0);
}

// NCCL takes the memory of rails and of their connections at the start, and gives it back.
SCENARIO(memory_of_rails) {
    const auto free_bytes = [&] { return stand_in::Device::of(seat.rank).free_bytes(); };
    const int64_t before = free_bytes();
    const ncclComm_t comm = seat.started();
    const int64_t started = free_bytes();
    CHECK(started < before);
    CHECK(is_served(seat, comm, kSliced));
    CHECK(free_bytes() == started);
    CHECK(ncclCommDestroy(comm) == 0);
    CHECK(free_bytes() == before);
}

// Of the table "programs".
const char *choose(uint32_t schedule) {
    return choose(entry_of(schedule, 1, 20000, 1024));
}

// All_reduce schedules of the table: of one lane, and of several.
uint32_t schedule_of(const char *variable) {
    return static_cast<uint32_t>(std::atoi(std::getenv(variable)));
}

ncclComm_t started_to_choose(Seat &seat) {
    set_table("programs");
    CHECK(tuccl_executor_choose(nullptr, 0) == nullptr);
    return seat.started();
}

// Lanes of a rail, or of all ranks, are made when a schedule needs them, connected then, and kept.
SCENARIO(chosen_when_needed) {
    const ncclComm_t comm = started_to_choose(seat);
    CHECK(stand_in_live_communicators() == 1);
    CHECK(!is_served(seat, comm, kSliced));
    const uint32_t one = schedule_of("ONE_LANE");
    const uint32_t several = schedule_of("SEVERAL_LANES");
    for (int turn = 0; turn < 2; turn++) {
        int lanes = turn == 0 ? 1 : 3;
        for (const uint32_t schedule : {one, several}) {
            (void)stand_in::take_notes();
            CHECK(choose(schedule) == nullptr);
            lanes = schedule == several ? 3 : lanes;
            CHECK(stand_in_live_communicators() == 1 + lanes);
            CHECK(turn == 0 || connections() == 0);
            (void)stand_in::take_notes();
            CHECK(is_served(seat, comm, kSliced) && is_served(seat, comm, 1));
            CHECK(connections() == 0);
        }
        CHECK(tuccl_executor_choose(nullptr, 0) == nullptr);
        CHECK(!is_served(seat, comm, kSliced));
    }
    // A communicator that starts while a choice is set is prepared with the next one.
    CHECK(choose(one) == nullptr);
    const ncclComm_t late = seat.started();
    CHECK(!is_served(seat, late, kSliced) && is_served(seat, comm, kSliced));
    CHECK(choose(one) == nullptr);
    CHECK(is_served(seat, late, kSliced) && is_served(seat, comm, kSliced));
    for (const ncclComm_t ended : {comm, late})
        CHECK(ncclCommDestroy(ended) == 0);
    CHECK(stand_in_live_communicators() == 0);
}

// Where a rank cannot connect, all ranks say so, and NCCL runs the calls of that communicator.
void choice_fails(Seat &seat, const char *fault) {
    const ncclComm_t comm = started_to_choose(seat);
    if (seat.rank == seat.ranks - 1)
        setenv("STAND_IN_CONNECT", fault, 1);
    CHECK(choose(schedule_of("ONE_LANE")) != nullptr);
    unsetenv("STAND_IN_CONNECT");
    CHECK(stand_in_live_communicators() == 1);
    CHECK(!is_served(seat, comm, kSliced));
    CHECK(choose(schedule_of("SEVERAL_LANES")) != nullptr);
    CHECK(!is_served(seat, comm, kSliced));
    CHECK(ncclCommDestroy(comm) == 0 && stand_in_live_communicators() == 0);
}
SCENARIO(choice_cannot_connect) {
    choice_fails(seat, "fails");
}
SCENARIO(choice_connects_wrongly) {
    choice_fails(seat, "spoils");
}
SCENARIO(choice_breaks) {
    choice_fails(seat, "breaks");
}
SCENARIO(choice_hangs) {
    choice_fails(seat, "hangs");
}

SCENARIO(choices_differ) {
    const ncclComm_t comm = started_to_choose(seat);
    const char *fault = choose(schedule_of(seat.rank == 1 ? "ONE_LANE" : "SEVERAL_LANES"));
    CHECK(fault != nullptr && std::strstr(fault, "ranks 0 and 1 chose different") != nullptr);
    CHECK(!is_served(seat, comm, kSliced));
    CHECK(ncclCommDestroy(comm) == 0 && stand_in_live_communicators() == 0);
}

// Another thread aborts, or revokes, a communicator for which this one prepares a choice.
void ended_while_choosing(Seat &seat, int (*end)(ncclComm_t comm), int left) {
    const ncclComm_t comm = started_to_choose(seat);
    if (seat.rank == seat.ranks - 1)
        setenv("STAND_IN_CONNECT", "hangs", 1);
    std::thread watcher([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        CHECK(end(comm) == 0);
    });
    CHECK(choose(schedule_of("SEVERAL_LANES")) != nullptr);
    watcher.join();
    CHECK(stand_in_live_communicators() == left);
    seat.meet("ended");
}
SCENARIO(abort_while_choosing) {
    ended_while_choosing(seat, ncclCommAbort, 0);
}
SCENARIO(revoke_while_choosing) {
    ended_while_choosing(seat, [](ncclComm_t comm) { return ncclCommRevoke(comm, 0); }, 1);
}

} // namespace
