// Who is there at a communicator's start, among processes and in a hostile /dev/shm. Each scenario
// has a /dev/shm of its own, where it leaves nothing.
#include "processes.h"
#include "roll_call.h"
#include "scenarios.h"
#include "session.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <random>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace {

using tuccl::Digest;
using tuccl::Reach;
using tuccl::Roll;
using tuccl::RollCall;

constexpr uint64_t kMark = 7;
constexpr uid_t kStranger = 65534;

std::vector<std::string> shared_files() {
    std::vector<std::string> names;
    DIR *folder = opendir("/dev/shm");
    CHECK(folder != nullptr);
    while (const dirent *entry = readdir(folder))
        if (entry->d_name[0] != '.')
            names.push_back(std::string("/dev/shm/") + entry->d_name);
    CHECK(closedir(folder) == 0);
    return names;
}

void remove_all() {
    for (const std::string &path : shared_files())
        CHECK(unlink(path.c_str()) == 0 || rmdir(path.c_str()) == 0);
}

Digest secret_of(const std::string &text) {
    return tuccl::sha256(text);
}

// Enters a rank and dies.
void die_as(const Digest &secret, uint32_t rank) {
    const pid_t child = in_process([&] {
        const RollCall roll(secret, rank, kMark, Reach::kHost);
        (void)raise(SIGKILL);
    });
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
}

// The name of a roll's file, as anybody sees it.
std::string path_of(const Digest &secret) {
    const RollCall roll(secret, 0, kMark, Reach::kHost);
    const auto names = shared_files();
    CHECK(names.size() == 1);
    return names.front();
}

SCENARIO(roll_of_processes) {
    auto *start = share<Barrier>();
    in_processes(3, [&](uint32_t rank) {
        RollCall roll(secret_of("three"), rank, kMark + rank / 2, Reach::kHost);
        start->meet(3);
        const Roll seen = roll.read(3);
        CHECK(seen.present == 3 && !seen.marks_agree && seen.fault.empty());
    });
    CHECK(shared_files().empty());
    RollCall alone(secret_of("three"), 0, kMark, Reach::kHost); // Nothing was left.
    const Roll seen = alone.read(2);
    CHECK(seen.present == 1 && seen.marks_agree);
}

// A rank's start fails, before or after the others have entered, and is tried again with the same
// id: everybody sees everybody.
SCENARIO(roll_tried_again) {
    for (const bool first : {true, false}) {
        auto *start = share<std::array<Barrier, 4>>();
        const Digest secret = secret_of(first ? "first" : "last");
        in_processes(3, [&](uint32_t rank) {
            if (rank == 1) {
                if (!first)
                    (*start)[0].meet(3);
                {
                    const RollCall failed(secret, 1, kMark, Reach::kHost);
                }
                CHECK(shared_files().empty() == first);
                if (first)
                    (*start)[0].meet(3);
            } else if (first) {
                (*start)[0].meet(3);
            }
            RollCall roll(secret, rank, kMark, Reach::kHost);
            if (rank != 1 && !first)
                (*start)[0].meet(3);
            (*start)[1].meet(3);
            const Roll seen = roll.read(3);
            CHECK(seen.present == 3 && seen.marks_agree && !roll.somebody_left());
            (*start)[2].meet(3);
        });
        CHECK(shared_files().empty());
    }
}

// A rank is killed while the others wait for it, and started again with the same id. Where somebody
// has removed the file in between (RemoveIPC of logind), all find somebody missing.
SCENARIO(roll_killed_and_started_again) {
    for (const bool removed : {false, true}) {
        auto *start = share<std::array<Barrier, 2>>();
        const Digest secret = secret_of(removed ? "removed" : "kept");
        const pid_t waiting = in_process([&] {
            RollCall roll(secret, 0, kMark, Reach::kHost);
            (*start)[0].meet(2);
            (*start)[1].meet(2);
            CHECK(roll.read(2).present == (removed ? 1 : 2));
        });
        (*start)[0].meet(2);
        die_as(secret, 1);
        CHECK(shared_files().size() == 1);
        if (removed)
            remove_all();
        const pid_t again = in_process([&] {
            RollCall roll(secret, 1, kMark, Reach::kHost);
            (*start)[1].meet(2);
            CHECK(roll.read(2).present == (removed ? 1 : 2));
        });
        end_well(waiting);
        end_well(again);
        CHECK(shared_files().empty());
    }
}

// What the dead left is removed by the next process that starts, and what the living use stays.
SCENARIO(roll_sweeps_after_the_dead) {
    auto *start = share<std::array<Barrier, 2>>();
    const pid_t alive = in_process([&] {
        RollCall roll(secret_of("alive"), 0, kMark, Reach::kHost);
        (*start)[0].meet(2);
        (*start)[1].meet(2);
    });
    (*start)[0].meet(2);
    for (const char *name : {"dead", "deader"})
        die_as(secret_of(name), 3);
    CHECK(shared_files().size() == 2); // The second dead one's sweep took the first's.
    in_processes(1, [](uint32_t) { const RollCall roll(secret_of("next"), 0, 0, Reach::kHost); });
    CHECK(shared_files().size() == 1);
    (*start)[1].meet(2);
    end_well(alive);
    CHECK(shared_files().empty());
}

// A rank goes while others greet it: they learn of it, unless it was through.
SCENARIO(roll_after_reading) {
    enum End { kThrough, kFailed, kKilled };
    for (const End end : {kThrough, kFailed, kKilled}) {
        auto *start = share<std::array<Barrier, 2>>();
        const Digest secret = secret_of("end " + std::to_string(end));
        const pid_t going = in_process([&] {
            RollCall roll(secret, 1, kMark, Reach::kHost);
            (*start)[0].meet(2);
            CHECK(roll.read(2).present == 2);
            (*start)[1].meet(2);
            if (end == kFailed)
                roll.fail();
            if (end == kKilled)
                (void)raise(SIGKILL);
        });
        RollCall roll(secret, 0, kMark, Reach::kHost);
        (*start)[0].meet(2);
        CHECK(roll.read(2).present == 2 && !roll.somebody_left() && shared_files().empty());
        (*start)[1].meet(2);
        int status = 0;
        CHECK(waitpid(going, &status, 0) == going && WIFSIGNALED(status) == (end == kKilled));
        CHECK(roll.somebody_left() == (end != kThrough));
    }
}

// Ranks of one process need no file; those of several do, and one has no room for it.
SCENARIO(roll_without_room) {
    auto *start = share<Barrier>();
    const Digest secret = secret_of("full");
    in_processes(2, [&](uint32_t rank) {
        if (rank == 1) {
            CHECK(unshare(CLONE_NEWNS) == 0);
            CHECK(mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=4k") == 0);
            const int fill = open("/dev/shm/fill", O_WRONLY | O_CREAT, 0600);
            const std::vector<char> page(4096);
            CHECK(fill >= 0 && write(fill, page.data(), page.size()) == 4096 && close(fill) == 0);
        }
        RollCall roll(secret, rank, kMark, Reach::kHost);
        start->meet(2);
        const Roll seen = roll.read(2);
        CHECK(seen.present == 1);
        CHECK((seen.fault.find("--shm-size") != std::string::npos) == (rank == 1));
        CHECK(shared_files().size() == rank);
    });
}

// A communicator of two ranks of a large parent takes as much memory as others.
SCENARIO(roll_of_a_large_parent) {
    auto *start = share<std::array<Barrier, 2>>();
    const Digest secret = secret_of("large");
    in_processes(2, [&](uint32_t rank) {
        RollCall roll(secret, rank == 0 ? 5 : 65535, kMark, Reach::kHost);
        (*start)[0].meet(2);
        struct stat status;
        if (rank == 0)
            CHECK(stat(shared_files().front().c_str(), &status) == 0 && status.st_blocks <= 16);
        (*start)[1].meet(2);
        CHECK(roll.read(2).present == 2);
    });
    RollCall beyond(secret, 65536, kMark, Reach::kHost);
    CHECK(!beyond.read(2).fault.empty() && shared_files().empty());
}

enum Kind { kOtherMode, kLink, kPipe, kFolder, kTwoNames, kOtherSize, kOtherOwner };

// False where this user cannot make one.
bool lay(Kind kind, const std::string &path) {
    const std::string other = path + "-other";
    if (kind == kPipe)
        return mkfifo(path.c_str(), 0600) == 0;
    if (kind == kFolder)
        return mkdir(path.c_str(), 0700) == 0;
    const std::string &file = kind == kLink || kind == kTwoNames ? other : path;
    const int made = open(file.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(made >= 0 && ftruncate(made, kind == kOtherSize ? 33 : 64) == 0);
    if (kind == kOtherMode)
        CHECK(fchmod(made, 0666) == 0);
    if (kind == kLink)
        CHECK(symlink(other.c_str(), path.c_str()) == 0);
    if (kind == kTwoNames)
        CHECK(link(other.c_str(), path.c_str()) == 0);
    const bool is_laid = kind != kOtherOwner || fchown(made, kStranger, kStranger) == 0;
    CHECK(close(made) == 0);
    return is_laid;
}

// What is in the roll's place is not this job's: all leave it alone, and say so.
SCENARIO(roll_in_a_strangers_place) {
    const Digest secret = secret_of("strange");
    const std::string path = path_of(secret);
    for (const Kind kind :
         {kOtherMode, kLink, kPipe, kFolder, kTwoNames, kOtherSize, kOtherOwner}) {
        if (!lay(kind, path)) {
            std::printf("kind %d was not tried: this user cannot make it\n", kind);
            remove_all();
            continue;
        }
        struct stat before;
        CHECK(lstat(path.c_str(), &before) == 0);
        auto *start = share<Barrier>();
        in_processes(2, [&](uint32_t rank) {
            RollCall roll(secret, rank, kMark, Reach::kHost);
            start->meet(2);
            const Roll seen = roll.read(2);
            CHECK(seen.present == 1 && seen.fault.find("/dev/shm") == 0);
        });
        struct stat after;
        CHECK(lstat(path.c_str(), &after) == 0 && after.st_ino == before.st_ino &&
              after.st_size == before.st_size);
        remove_all();
    }
}

// Another user of the host finds nothing to open, and what it lays in a roll's place is refused.
SCENARIO(roll_beside_a_neighbour) {
    // setfsuid says what it replaces.
    if (geteuid() != 0 || setfsuid(kStranger) != 0 || setfsuid(0) != static_cast<int>(kStranger)) {
        std::puts("there is no second user here");
        return;
    }
    auto *start = share<std::array<Barrier, 3>>();
    const std::array<Digest, 2> secrets = {secret_of("own"), secret_of("taken")};
    const std::string taken = path_of(secrets[1]);
    const pid_t neighbour = in_process([&] {
        CHECK(setresgid(kStranger, kStranger, kStranger) == 0);
        CHECK(setresuid(kStranger, kStranger, kStranger) == 0);
        CHECK(close(open(taken.c_str(), O_RDWR | O_CREAT | O_EXCL, 0666)) == 0);
        (*start)[0].meet(3);
        (*start)[1].meet(3);
        for (const std::string &path : shared_files())
            if (path != taken)
                CHECK(open(path.c_str(), O_RDONLY) < 0 && truncate(path.c_str(), 0) != 0 &&
                      unlink(path.c_str()) != 0);
        CHECK(truncate(taken.c_str(), 0) == 0);
        (*start)[2].meet(3);
        CHECK(unlink(taken.c_str()) == 0);
    });
    in_processes(2, [&](uint32_t rank) {
        (*start)[0].meet(3);
        RollCall own(secrets[0], rank, kMark, Reach::kHost);
        RollCall other(secrets[1], rank, kMark, Reach::kHost);
        (*start)[1].meet(3);
        (*start)[2].meet(3);
        CHECK(own.read(2).present == 2);
        const Roll seen = other.read(2);
        CHECK(seen.present == 1 && seen.fault.find("/dev/shm") == 0);
    });
    end_well(neighbour);
    CHECK(shared_files().empty());
}

// The user's own processes can damage the file: nobody crashes, and who went on is told.
SCENARIO(roll_truncated) {
    auto *start = share<std::array<Barrier, 3>>();
    const Digest secret = secret_of("truncated");
    in_processes(2, [&](uint32_t rank) {
        RollCall roll(secret, rank, kMark, Reach::kHost);
        (*start)[0].meet(2);
        if (rank == 0) {
            const int file = open(shared_files().front().c_str(), O_RDWR);
            CHECK(roll.read(2).present == 2 && !roll.somebody_left());
            CHECK(ftruncate(file, 0) == 0 && close(file) == 0);
        }
        (*start)[1].meet(2);
        if (rank == 1) {
            const Roll seen = roll.read(2);
            CHECK(seen.present == 0 && seen.fault.find("damaged") != std::string::npos);
        }
        (*start)[2].meet(2);
        CHECK(rank == 1 || roll.somebody_left());
    });
    CHECK(shared_files().empty());
}

// Ranks that fail, are killed, come back, or have no executor, and a file that is removed at any
// time: after NCCL's start all conclude the same.
struct Storm {
    static constexpr uint32_t kRanks = 4;
    Barrier begin, start, end;
    std::array<uint32_t, kRanks> present;
};

void ride(Storm *storm, uint32_t rank, uint32_t round, uint32_t absent, bool removing) {
    std::mt19937 random(round * Storm::kRanks + rank);
    const auto pause = [&] {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    };
    const Digest secret = secret_of("round " + std::to_string(round));
    storm->begin.meet(Storm::kRanks);
    pause();
    for (uint32_t failures = random() % 3; failures > 0 && rank != absent; failures--) {
        if (random() % 4 == 0) {
            die_as(secret, rank);
        } else {
            const RollCall failed(secret, rank, kMark, Reach::kHost);
            pause();
        }
    }
    if (removing && rank == round % Storm::kRanks)
        for (const std::string &path : shared_files())
            (void)unlink(path.c_str());
    pause();
    std::optional<RollCall> roll;
    if (rank != absent)
        roll.emplace(secret, rank, kMark, Reach::kHost);
    storm->start.meet(Storm::kRanks);
    pause();
    storm->present[rank] = rank != absent ? roll->read(Storm::kRanks).present : 0;
    storm->end.meet(Storm::kRanks);
    const auto served = std::count(storm->present.begin(), storm->present.end(), Storm::kRanks);
    CHECK(served == 0 || served == Storm::kRanks);
    if (!removing)
        CHECK((served == 0) == (absent < Storm::kRanks));
}

SCENARIO(roll_storm) {
    auto *storm = share<Storm>();
    in_processes(Storm::kRanks, [&](uint32_t rank) {
        for (uint32_t round = 0; round < 100; round++)
            ride(storm, rank, round, round % 5 == 0 ? round / 5 % Storm::kRanks : Storm::kRanks,
                 round % 3 == 0);
    });
    CHECK(shared_files().empty());
}

} // namespace
