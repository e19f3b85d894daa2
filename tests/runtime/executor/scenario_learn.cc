// TUCCL_LEARN in one process, whose ranks start together: no plugin obeys the executor, and what
// can be learned is whether schedules or NCCL's own choice are faster.
#include "real_nccl.h"
#include "scenarios.h"
#include "session.h"

#include <chrono>
#include <memory>
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

// Calls of one size, and a computation of a second among them: the job's time.
void make_calls(Rank &rank, int count) {
    std::vector<std::unique_ptr<Maximum>> calls;
    for (int i = 0; i < count; i++) {
        if (i == 100)
            std::this_thread::sleep_for(std::chrono::milliseconds(1000));
        calls.push_back(std::make_unique<Maximum>(rank));
        CHECK(calls.back()->start(rank.comm, &rank.stream) == 0);
        if (i % 8 == 0)
            rank.stream.wait();
    }
    rank.stream.wait();
    for (const auto &call : calls)
        CHECK(call->is_right());
}

void check_runs(Rank &rank, int ranks, bool by_entry) {
    on_rank_0(rank, [] { (void)stand_in::take_notes(); });
    Maximum call(rank);
    CHECK(call.start(rank.comm, &rank.stream) == 0);
    rank.stream.wait();
    CHECK(call.is_right());
    on_rank_0(rank, [&] { CHECK(Notes().count("executor 4") == (by_entry ? ranks : 0)); });
}

SCENARIO(learn_keeps_a_fast_entry) {
    learns("4:65536:50");
    with_communicator(3, [](Rank &rank) {
        make_calls(rank, kLearned);
        check_runs(rank, 3, true);
    });
}

SCENARIO(learn_leaves_a_slow_entry) {
    learns("4:65536:600");
    with_communicator(3, [](Rank &rank) {
        make_calls(rank, kLearned);
        check_runs(rank, 3, false);
    });
}

// On an empty table there is nothing to learn.
SCENARIO(learn_without_a_plugin) {
    learns("4:65536:50");
    set_table("nothing");
    with_communicator(2, [](Rank &rank) { make_calls(rank, 20); });
    CHECK(Notes().count("executor 4") == 0);
}

} // namespace
