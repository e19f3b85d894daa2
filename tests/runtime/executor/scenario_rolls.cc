// Who is there at a communicator's start, among processes and in a hostile /dev/shm. Each scenario
// has a /dev/shm of its own, where it leaves nothing.
#include "rolls.h"
#include "scenarios.h"
#include "session.h"

#include <array>
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using tuccl::Roll;
using tuccl::RollCall;

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

OpenRoll open_roll(const std::string &name) {
    return {tuccl::sha256(name)};
}
OpenRoll numbered(uint32_t number) {
    return open_roll("roll " + std::to_string(number));
}

// The name of a roll's file, as anybody sees it.
std::string path_of(const OpenRoll &where) {
    const RollCall roll = where.enter(0);
    const auto names = shared_files();
    CHECK(names.size() == 1);
    return names.front();
}

SCENARIO(roll_of_processes) {
    const OpenRoll where = open_roll("three");
    all_see_all(where);
    CHECK(shared_files().empty());
    RollCall alone = where.enter(0); // Nothing was left.
    const Roll seen = alone.read(2);
    CHECK(seen.present == 1 && seen.marks_agree);
}

// A rank's start fails, before or after the others have entered, and is tried again with the same
// id: everybody sees everybody.
SCENARIO(roll_tried_again) {
    for (const bool first : {true, false}) {
        auto *start = share<std::array<Barrier, 4>>();
        const OpenRoll where = open_roll(first ? "first" : "last");
        in_processes(3, [&](uint32_t rank) {
            if (rank == 1) {
                if (!first)
                    (*start)[0].meet(3);
                {
                    const RollCall failed = where.enter(1);
                }
                CHECK(shared_files().empty() == first);
                if (first)
                    (*start)[0].meet(3);
            } else if (first) {
                (*start)[0].meet(3);
            }
            RollCall roll = where.enter(rank);
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
        const OpenRoll where = open_roll(removed ? "removed" : "kept");
        const pid_t waiting = in_process([&] {
            RollCall roll = where.enter(0);
            (*start)[0].meet(2);
            (*start)[1].meet(2);
            CHECK(roll.read(2).present == (removed ? 1 : 2));
        });
        (*start)[0].meet(2);
        where.die_as(1);
        CHECK(shared_files().size() == 1);
        if (removed)
            remove_all();
        const pid_t again = in_process([&] {
            RollCall roll = where.enter(1);
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
        RollCall roll = open_roll("alive").enter(0);
        (*start)[0].meet(2);
        (*start)[1].meet(2);
    });
    (*start)[0].meet(2);
    for (const char *name : {"dead", "deader"})
        open_roll(name).die_as(3);
    CHECK(shared_files().size() == 2); // The second dead one's sweep took the first's.
    in_processes(1, [](uint32_t) { const RollCall roll = open_roll("next").enter(0, 0); });
    CHECK(shared_files().size() == 1);
    (*start)[1].meet(2);
    end_well(alive);
    CHECK(shared_files().empty());
}

SCENARIO(roll_after_reading) {
    others_learn_who_goes(numbered);
    CHECK(shared_files().empty());
}

// Ranks of one process need no file; those of several do, and one has no room for it.
SCENARIO(roll_without_room) {
    auto *start = share<Barrier>();
    const OpenRoll where = open_roll("full");
    in_processes(2, [&](uint32_t rank) {
        if (rank == 1) {
            CHECK(unshare(CLONE_NEWNS) == 0);
            CHECK(mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=4k") == 0);
            const int fill = open("/dev/shm/fill", O_WRONLY | O_CREAT, 0600);
            const std::vector<char> page(4096);
            CHECK(fill >= 0 && write(fill, page.data(), page.size()) == 4096 && close(fill) == 0);
        }
        RollCall roll = where.enter(rank);
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
    const OpenRoll where = open_roll("large");
    in_processes(2, [&](uint32_t rank) {
        RollCall roll = where.enter(rank == 0 ? 5 : 65535);
        (*start)[0].meet(2);
        struct stat status;
        if (rank == 0)
            CHECK(stat(shared_files().front().c_str(), &status) == 0 && status.st_blocks <= 16);
        (*start)[1].meet(2);
        CHECK(roll.read(2).present == 2);
    });
    RollCall beyond = where.enter(65536);
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
    const OpenRoll where = open_roll("strange");
    const std::string path = path_of(where);
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
            RollCall roll = where.enter(rank);
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
    const std::array<OpenRoll, 2> rolls = {open_roll("own"), open_roll("taken")};
    const std::string taken = path_of(rolls[1]);
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
        RollCall own = rolls[0].enter(rank);
        RollCall other = rolls[1].enter(rank);
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
    const OpenRoll where = open_roll("truncated");
    in_processes(2, [&](uint32_t rank) {
        RollCall roll = where.enter(rank);
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

// Somebody removes the file at any time.
SCENARIO(roll_storm) {
    ride_a_storm(100, numbered, [] {
        for (const std::string &path : shared_files())
            (void)unlink(path.c_str());
    });
    CHECK(shared_files().empty());
}

} // namespace
