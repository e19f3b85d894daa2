// TUCCL_LEARN with a process for each rank and the tuner plugin: settings of NCCL that are faster
// in the job become its choice.
#include "phase_job.h"

#include <chrono>
#include <memory>
#include <random>
#include <thread>

namespace {

constexpr size_t kCount = 64;

// An all_reduce of floats with a result that is checked; 1 + rank is what each contributes.
struct Reduction {
    Reduction(const Seat &seat, size_t count)
        : send(count, static_cast<float>(1 + seat.rank)), receive(count, -1.0F),
          expected(static_cast<float>(seat.ranks * (seat.ranks + 1) / 2)) {
    }
    int start(ncclComm_t comm, stand_in::Stream *stream) {
        constexpr int kFloat = 7;
        return ncclAllReduce(send.data(), receive.data(), send.size(), kFloat, kSum, comm, stream);
    }
    bool is_right() const {
        return receive == std::vector<float>(receive.size(), expected);
    }
    std::vector<float> send;
    std::vector<float> receive;
    float expected;
};

// Calls of one size, with a computation among them: the job's time.
void make_calls(Seat &seat, ncclComm_t comm, int count, int computation_ms) {
    std::vector<std::unique_ptr<Reduction>> calls;
    for (int i = 0; i < count; i++) {
        if (i == 100)
            std::this_thread::sleep_for(std::chrono::milliseconds(computation_ms));
        calls.push_back(std::make_unique<Reduction>(seat, kCount));
        CHECK(calls.back()->start(comm, &seat.stream) == 0);
        if (i % 8 == 0)
            seat.stream.wait();
    }
    seat.stream.wait();
    for (const auto &call : calls)
        CHECK(call->is_right());
}

// 4 before the first trial, 5 in it; heats of rings, of trees with NVLS and of one more tree, of 16
// calls and of 32 that end them; after each trial twice 128; waits for the share of time.
constexpr int kLearned = 4 + 5 + 2 * 16 + 3 * 32 + 6 * 258 + 300;

// One more call of each kind runs by ring with LL128.
SCENARIO(learn_settings) {
    const ncclComm_t comm = seat.started();
    make_calls(seat, comm, kLearned, 6000);
    for (const bool is_grouped : {false, true}) {
        (void)stand_in::take_notes();
        Reduction call(seat, kCount);
        if (is_grouped)
            CHECK(ncclGroupStart() == 0);
        CHECK(call.start(comm, &seat.stream) == 0);
        if (is_grouped)
            CHECK(ncclGroupEnd() == 0);
        seat.stream.wait();
        CHECK(call.is_right() && Notes().count("nccl tries 1/1 AllReduce") == 1);
    }
    seat.meet("called");
    CHECK(ncclCommDestroy(comm) == 0 && stand_in_live_communicators() == 0);
}

// What runs at the end is in the file of what was learned.
SCENARIO(learn_schedule) {
    const ncclComm_t comm = seat.started();
    make_calls(seat, comm, kLearned, 3000);
    seat.meet("called");
    CHECK(ncclCommDestroy(comm) == 0 && stand_in_live_communicators() == 0);
}

// Calls as a job might make them, alone and in groups, of many sizes, on two communicators: results
// are those of any job, and ranks go on alike.
SCENARIO(learn_random_calls) {
    const ncclComm_t comms[] = {seat.started(), seat.started()};
    make_calls(seat, comms[0], 300, 500);
    std::mt19937 program(1);
    std::mt19937 own(2 + static_cast<unsigned>(seat.rank));
    for (int step = 0; step < 40; step++) {
        std::vector<std::unique_ptr<Reduction>> calls;
        const unsigned last = 40 + program() % 60;
        for (unsigned i = 0; i < last; i++) {
            const bool rare = program() % 8 == 0;
            const size_t count = rare ? 1 + program() % 2000 : kCount << program() % 2;
            const ncclComm_t comm = comms[program() % 2];
            const bool is_grouped = program() % 16 == 0;
            calls.push_back(std::make_unique<Reduction>(seat, count));
            if (is_grouped)
                CHECK(ncclGroupStart() == 0);
            CHECK(calls.back()->start(comm, &seat.stream) == 0);
            if (is_grouped)
                CHECK(ncclGroupEnd() == 0);
            if (own() % 50 == 0)
                std::this_thread::sleep_for(std::chrono::microseconds(own() % 500));
        }
        seat.stream.wait();
        for (const auto &call : calls)
            CHECK(call->is_right());
    }
    CHECK(Notes().count("nccl tries") > 0);
    seat.meet("called");
    for (const ncclComm_t comm : comms)
        CHECK(ncclCommDestroy(comm) == 0);
}

} // namespace
