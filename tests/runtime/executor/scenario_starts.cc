// Starts that fail, and neighbours, seen by a job: NCCL's functions alone.
#include "scenarios.h"
#include "session.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace {

constexpr uid_t kStranger = 65534;

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

void all_reduce_is_right(Rank &rank, ncclComm_t comm) {
    AllReduce call(rank);
    CHECK(call.start(comm, &rank.stream) == 0);
    rank.stream.wait();
    CHECK(call.is_right());
}

// Rank 1's first start fails while the others wait for it in theirs.
void first_start_fails() {
    setenv("STAND_IN_NCCL_FAILS", "1:1", 1);
    ncclUniqueId id = {};
    CHECK(ncclGetUniqueId(&id) == 0);
    in_threads(3, [&](Rank &rank) {
        if (rank.rank == 1) {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            CHECK(ncclCommInitRank(&rank.comm, 3, id, 1) == tuccl::kNcclSystemError);
        }
        CHECK(ncclCommInitRank(&rank.comm, 3, id, rank.rank) == 0);
        all_reduce_is_right(rank, rank.comm);
        CHECK(ncclCommDestroy(rank.comm) == 0);
    });
    CHECK(Notes().count("executor 4") == 3 && rolls().empty());
}

// The job gives up after its first try.
void only_start_fails() {
    setenv("STAND_IN_NCCL_FAILS", "0:1", 1);
    ncclUniqueId id = {};
    ncclComm_t comm = nullptr;
    CHECK(ncclGetUniqueId(&id) == 0);
    CHECK(ncclCommInitRank(&comm, 2, id, 0) == tuccl::kNcclSystemError);
    CHECK(rolls().empty());
}

uint64_t mixed(uint64_t hash, const void *data, size_t bytes) {
    const auto *first = static_cast<const unsigned char *>(data);
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ first[i]) * 0x100000001b3U;
    return hash;
}

// A neighbour looks at the names in /dev/shm and computes those that were made from them until
// 64-bit FNV-1a was replaced.
std::string lay_for_children_of(const std::string &name) {
    const uint64_t parent = std::strtoull(name.substr(name.size() - 16).c_str(), nullptr, 16);
    const uint64_t child = 1;
    const int color = 0;
    const uint64_t number = mixed(mixed(parent, &child, sizeof child), &color, sizeof color);
    char path[64];
    std::snprintf(path, sizeof path, "/dev/shm/tuccl-roll-%016llx",
                  static_cast<unsigned long long>(number));
    const int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0666);
    CHECK(file >= 0 && fchmod(file, 0666) == 0);
    (void)!fchown(file, kStranger, kStranger); // What root alone can.
    CHECK(close(file) == 0);
    return path;
}

void neighbour_guesses_names() {
    ncclUniqueId id = {};
    CHECK(ncclGetUniqueId(&id) == 0);
    std::string laid;
    in_threads(2, [&](Rank &rank) {
        if (rank.rank == 1) {
            while (rolls().empty())
                std::this_thread::yield();
            laid = lay_for_children_of(rolls().front());
        }
        CHECK(ncclCommInitRank(&rank.comm, 2, id, rank.rank) == 0);
        ncclComm_t part = nullptr;
        CHECK(ncclCommSplit(rank.comm, 0, 0, &part, nullptr) == 0);
        all_reduce_is_right(rank, part);
        CHECK(ncclCommDestroy(part) == 0 && ncclCommDestroy(rank.comm) == 0);
    });
    CHECK(Notes().count("executor 4") == 2);
    struct stat status;
    CHECK(stat(laid.c_str(), &status) == 0 && status.st_size == 0); // Nobody wrote there.
    CHECK(unlink(laid.c_str()) == 0 && rolls().empty());
}

} // namespace

std::vector<Scenario> start_scenarios() {
    return {
        {"first_start_fails", first_start_fails},
        {"only_start_fails", only_start_fails},
        {"neighbour_guesses_names", neighbour_guesses_names},
    };
}
