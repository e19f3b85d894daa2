// TUCCL_METRICS in one process: what ran each call, in a file when the process ends.
#include "scenarios.h"
#include "session.h"

#include <sys/wait.h>
#include <unistd.h>

namespace {

void count_here() {
    setenv("TUCCL_METRICS", std::getenv("TEST_FOLDER"), 1);
}

int32_t data[3][1 << 17];

void reduce(Rank &rank, size_t count) {
    int32_t *mine = data[rank.rank];
    CHECK(ncclAllReduce(mine, mine, count, kInt32, kSum, rank.comm, &rank.stream) == 0);
}

void gather(Rank &rank, size_t count) {
    int32_t *mine = data[rank.rank];
    CHECK(ncclAllGather(mine + count * static_cast<size_t>(rank.rank), mine, count, kInt32,
                        rank.comm, &rank.stream) == 0);
}

// A rank's calls: 6 all_reduces by a schedule, of 64 elements; 4 by NCCL, of which 3 have 100,000;
// 2 gathers by a schedule, of 64; and one by NCCL, of 64.
SCENARIO(metrics) {
    count_here();
    with_communicator(3, [](Rank &rank) {
        for (int i = 0; i < 4; i++)
            reduce(rank, 64);
        for (int i = 0; i < 3; i++)
            reduce(rank, 100'000);
        gather(rank, 64);
        gather(rank, 64);
        CHECK(ncclGroupStart() == 0);
        reduce(rank, 64);
        CHECK(ncclGroupStart() == 0);
        reduce(rank, 64);
        CHECK(ncclGroupEnd() == 0);
        CHECK(ncclGroupEnd() == 0);
        CHECK(ncclGroupStart() == 0); // Of two operations: NCCL's.
        reduce(rank, 64);
        gather(rank, 64);
        CHECK(ncclGroupEnd() == 0);
        CHECK(ncclGroupStart() == 0); // They do not run.
        reduce(rank, 100'000);
        CHECK(ncclGroupSimulateEnd(nullptr) == 0);
        rank.stream.wait();
    });
    const pid_t child = fork(); // It ends like any process, and writes nothing.
    if (child == 0)
        std::exit(0);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

// With a table that has nothing for three ranks, and one that the process does not have.
SCENARIO(metrics_of_communicators) {
    count_here();
    set_table("one_phase");
    with_communicator(3, [](Rank &rank) { reduce(rank, 64); });
    with_communicator(2, [](Rank &) {});
    unsetenv("TUCCL_BUNDLE");
    with_communicator(2, [](Rank &) {});
    with_communicator(1, [](Rank &) {});
    set_table("damaged");
    with_communicator(2, [](Rank &) {});
}

} // namespace
