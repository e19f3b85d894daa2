// Starts that fail, seen by a job: NCCL's functions alone.
#include "scenarios.h"
#include "session.h"

#include <chrono>
#include <cstring>
#include <dirent.h>
#include <thread>

namespace {

std::vector<std::string> rolls() {
    std::vector<std::string> names;
    DIR *folder = opendir("/dev/shm");
    CHECK(folder != nullptr);
    while (const dirent *entry = readdir(folder))
        if (std::strncmp(entry->d_name, "tuccl-", 6) == 0)
            names.emplace_back(entry->d_name);
    CHECK(closedir(folder) == 0);
    return names;
}

// Rank 1's first start fails while the others wait for it in theirs.
SCENARIO(first_start_fails) {
    setenv("STAND_IN_NCCL_FAILS", "1:1", 1);
    const ncclUniqueId id = new_id();
    in_threads(3, [&](Rank &rank) {
        if (rank.rank == 1) {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            CHECK(ncclCommInitRank(&rank.comm, 3, id, 1) == tuccl::kNcclSystemError);
        }
        CHECK(ncclCommInitRank(&rank.comm, 3, id, rank.rank) == 0);
        AllReduce(rank).run(rank.comm, &rank.stream);
        CHECK(ncclCommDestroy(rank.comm) == 0);
    });
    CHECK(Notes().count("executor 4") == 3 && rolls().empty());
}

// The job gives up after its first try.
SCENARIO(only_start_fails) {
    setenv("STAND_IN_NCCL_FAILS", "0:1", 1);
    const ncclUniqueId id = new_id();
    ncclComm_t comm = nullptr;
    CHECK(ncclCommInitRank(&comm, 2, id, 0) == tuccl::kNcclSystemError);
    CHECK(rolls().empty());
}

} // namespace
