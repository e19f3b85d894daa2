// TUCCL_LEARN in one process, whose ranks start together: no plugin obeys the executor, and what
// can be learned is whether schedules or NCCL's own choice are faster.
#include "real_nccl.h"
#include "scenarios.h"
#include "session.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

// With a wait for the share of time, on a busy host.
constexpr int kLearned = 4 + 5 + 32 + 3 * 258 + 300;

void learns(const char *entry_us) {
    setenv("TUCCL_LEARN", "1", 1);
    setenv("STAND_IN_NCCL_US", "300", 1);
    setenv("STAND_IN_SLOW_ENTRIES", entry_us, 1);
}

constexpr int kFloat = 7;
constexpr int kMax = 2;

struct Maximum {
    explicit Maximum(const Rank &rank)
        : data(64, static_cast<float>(rank.rank)), expected(static_cast<float>(rank.ranks - 1)) {
    }
    int start(ncclComm_t comm, stand_in::Stream *stream) {
        return ncclAllReduce(data.data(), data.data(), data.size(), kFloat, kMax, comm, stream);
    }
    bool is_right() const {
        return data == std::vector<float>(data.size(), expected);
    }
    std::vector<float> data;
    float expected;
};

// Calls of one size, and a computation among them: the job's time.
void make_calls(Rank &rank, int count, int computation_ms = 3000) {
    std::vector<std::unique_ptr<Maximum>> calls;
    for (int i = 0; i < count; i++) {
        if (i == 100)
            std::this_thread::sleep_for(std::chrono::milliseconds(computation_ms));
        calls.push_back(std::make_unique<Maximum>(rank));
        CHECK(calls.back()->start(rank.comm, &rank.stream) == 0);
        if (i % 8 == 0)
            rank.stream.wait();
    }
    rank.stream.wait();
    for (const auto &call : calls)
        CHECK(call->is_right());
}

// `blocks`: of the executor's kernel; 0 if NCCL runs. A call alone, and one in a group.
void check_runs(Rank &rank, int ranks, int blocks) {
    for (const bool is_grouped : {false, true}) {
        on_rank_0(rank, [] { (void)stand_in::take_notes(); });
        Maximum call(rank);
        CHECK(!is_grouped || ncclGroupStart() == 0);
        CHECK(call.start(rank.comm, &rank.stream) == 0);
        CHECK(!is_grouped || ncclGroupEnd() == 0);
        rank.stream.wait();
        CHECK(call.is_right());
        on_rank_0(rank, [&] {
            const Notes notes;
            CHECK(notes.count("executor 4") == (blocks > 0 ? ranks : 0));
            CHECK(notes.count("executor 4 rank 0, blocks " + std::to_string(blocks)) ==
                  (blocks > 0 ? 1 : 0));
        });
    }
}

SCENARIO(learn_keeps_a_fast_entry) {
    learns("4:65536:50");
    with_communicator(3, [](Rank &rank) {
        make_calls(rank, kLearned);
        check_runs(rank, 3, 8);
    });
}

SCENARIO(learn_leaves_a_slow_entry) {
    learns("4:65536:1500");
    with_communicator(3, [](Rank &rank) {
        make_calls(rank, kLearned);
        check_runs(rank, 3, 0);
    });
}

SCENARIO(learn_takes_a_faster_schedule) {
    learns("4:65536:600:8");
    set_table("runners_up");
    with_communicator(3, [](Rank &rank) {
        make_calls(rank, kLearned);
        check_runs(rank, 3, 4);
    });
}

SCENARIO(learn_a_schedule_without_an_entry) {
    learns("4:65536:600:8");
    set_table("only_runners_up");
    with_communicator(3, [](Rank &rank) {
        make_calls(rank, kLearned);
        check_runs(rank, 3, 4);
    });
}

// A job that does not learn has no use for runners-up.
SCENARIO(runners_up_of_a_job_that_does_not_learn) {
    set_table("only_runners_up");
    with_communicator(3, [](Rank &rank) { make_calls(rank, 20); });
    CHECK(Notes().count("executor 4") == 0 && Notes().count("staging") == 0);
}

// On an empty table there is nothing to learn.
SCENARIO(learn_without_a_plugin) {
    learns("4:65536:50");
    set_table("nothing");
    with_communicator(2, [](Rank &rank) { make_calls(rank, 20); });
    CHECK(Notes().count("executor 4") == 0);
}

} // namespace
