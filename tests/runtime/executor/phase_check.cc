// TUCCL_CHECK and TUCCL_GUARD with a process for each rank, on one host or several, and with the
// tuner plugin.
#include "phase_job.h"

namespace {

constexpr int kFloat = 7;
constexpr size_t kCount = 64;

struct Floats {
    std::vector<float> data = std::vector<float>(32 * kCount, 1.0F);

    int reduce(ncclComm_t comm, stand_in::Stream *stream) {
        return ncclAllReduce(data.data(), data.data(), kCount, kFloat, kSum, comm, stream);
    }
    int gather(ncclComm_t comm, stand_in::Stream *stream) {
        return ncclAllGather(data.data(), data.data(), kCount, kFloat, comm, stream);
    }
};

// Whether the executor runs all_reduces, and gathers.
void runs_both(Seat &seat, ncclComm_t comm, bool reduces, bool gathers) {
    Floats floats;
    CHECK(runs(seat, [&] { CHECK(floats.reduce(comm, &seat.stream) == 0); }) == reduces);
    CHECK(runs(seat, [&] { CHECK(floats.gather(comm, &seat.stream) == 0); }) == gathers);
    seat.stream.wait();
}

// The kernels of all_reduces inside nodes are slow, those of gathers are not.
SCENARIO(check_across_hosts) {
    const ncclComm_t comm = seat.started();
    runs_both(seat, comm, false, true);
    seat.meet("called");
    CHECK(ncclCommDestroy(comm) == 0 && stand_in_live_communicators() == 0);
}

// On one rank alone, or for another time.
SCENARIO(check_differs) {
    if (seat.rank == 1)
        unsetenv("TUCCL_CHECK");
    const ncclComm_t comm = seat.started();
    runs_both(seat, comm, true, true);
    CHECK(ncclCommDestroy(comm) == 0);
    if (seat.rank == 1)
        setenv("TUCCL_CHECK", "1s", 1);
    const ncclComm_t other = seat.started();
    runs_both(seat, other, true, true);
    CHECK(ncclCommDestroy(other) == 0);
}

// How many all_reduces and gathers this rank's plugin answers from the table.
void answers(Seat &seat, ncclComm_t comm, int reduces, int gathers) {
    Floats floats;
    (void)stand_in::take_notes();
    CHECK(floats.reduce(comm, &seat.stream) == 0 && floats.gather(comm, &seat.stream) == 0);
    seat.stream.wait();
    const Notes notes;
    CHECK(notes.count("nccl setting AllReduce") == reduces);
    CHECK(notes.count("nccl setting AllGather") == gathers);
}

// The table has settings of NCCL alone: that of all_reduce is slow.
SCENARIO(check_settings) {
    ncclConfig config = does_not_block();
    for (ncclConfig *given : {static_cast<ncclConfig *>(nullptr), &config}) {
        ncclComm_t comm = nullptr;
        CHECK(seat.start(&comm, given) == (given == nullptr ? 0 : tuccl::kNcclInProgress));
        CHECK(settled(comm) == 0);
        seat.meet("started");
        answers(seat, comm, 0, 1);
        ncclComm_t half = nullptr;
        CHECK(ncclCommSplit(comm, seat.rank / 2, 0, &half, nullptr) ==
              (given == nullptr ? 0 : tuccl::kNcclInProgress));
        CHECK(settled(half) == 0);
        answers(seat, half, 1, 1); // No entry is for so many ranks.
        seat.meet("called");
        for (const ncclComm_t ended : {half, comm})
            CHECK(ncclCommDestroy(ended) == 0);
    }
}

// Two communicators start in one group: nobody knows whose request a plugin takes.
SCENARIO(check_of_settings_in_a_group) {
    ncclComm_t comms[2] = {};
    CHECK(ncclGroupStart() == 0);
    for (ncclComm_t &comm : comms) {
        CHECK(seat.start(&comm) == 0);
        seat.meet("has its id"); // The stand-in waits for nobody at the group's end.
    }
    CHECK(ncclGroupEnd() == 0);
    seat.meet("started");
    answers(seat, comms[0], 1, 1);
    seat.meet("called");
    for (const ncclComm_t comm : comms)
        CHECK(ncclCommDestroy(comm) == 0);
}

// A job whose host is a few calls ahead: a trial of all_reduces, and twice 128 calls of all.
void call_until_concluded(Seat &seat, ncclComm_t comm) {
    Floats floats;
    for (int i = 0; i < 440; i++) {
        CHECK((i % 4 == 0 ? floats.reduce(comm, &seat.stream)
                          : floats.gather(comm, &seat.stream)) == 0);
        if (i % 8 == 7)
            seat.stream.wait();
    }
    seat.stream.wait();
}

// As in the check: the setting of all_reduce is slow, in groups too, where the plugin is asked at
// their end.
SCENARIO(guard_settings) {
    const ncclComm_t comm = seat.started();
    answers(seat, comm, 1, 1);
    call_until_concluded(seat, comm);
    answers(seat, comm, 0, 1);
    CHECK(ncclGroupStart() == 0);
    Floats floats;
    CHECK(floats.reduce(comm, &seat.stream) == 0 && ncclGroupEnd() == 0);
    seat.stream.wait();
    CHECK(Notes().count("nccl setting") == 0);
    seat.meet("called");
    CHECK(ncclCommDestroy(comm) == 0 && stand_in_live_communicators() == 0);
}

// Later, the setting that is out is in another trial: 15 calls and one before them.
SCENARIO(guard_tries_settings_again) {
    const ncclComm_t comm = seat.started();
    call_until_concluded(seat, comm);
    (void)stand_in::take_notes();
    Floats floats;
    for (int i = 0; i < 4150; i++) {
        CHECK(floats.reduce(comm, &seat.stream) == 0);
        if (i % 8 == 7)
            seat.stream.wait();
    }
    seat.stream.wait();
    CHECK(Notes().count("nccl setting AllReduce") == 16);
    seat.meet("called");
    CHECK(ncclCommDestroy(comm) == 0);
}

// The check leaves out all_reduce; then the guard ends with the table.
SCENARIO(guard_ends_behind_a_check) {
    const ncclComm_t comm = seat.started();
    answers(seat, comm, 0, 1);
    call_until_concluded(seat, comm);
    answers(seat, comm, 0, 0);
    seat.meet("called");
    CHECK(ncclCommDestroy(comm) == 0);
}

// Kernels of all_reduces inside nodes are slow.
SCENARIO(guard_across_hosts) {
    const ncclComm_t comm = seat.started();
    runs_both(seat, comm, true, true);
    call_until_concluded(seat, comm);
    runs_both(seat, comm, false, true);
    seat.meet("called");
    CHECK(ncclCommDestroy(comm) == 0 && stand_in_live_communicators() == 0);
}

// On one rank less: no rank guards, so that none waits for another.
SCENARIO(guard_differs) {
    if (seat.rank == 1)
        unsetenv("TUCCL_GUARD");
    const ncclComm_t comm = seat.started();
    runs_both(seat, comm, true, true);
    runs_both(seat, comm, true, true);
    CHECK(ncclCommDestroy(comm) == 0);
}

} // namespace
