#include "shm_neighbours.h"

#include "session.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <random>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <thread>
#include <unistd.h>

namespace {

constexpr char kShm[] = "/dev/shm/";
constexpr char kRoll[] = "tuccl-roll-";
constexpr size_t kDigits = 32;
constexpr size_t kMostNames = 48; // So that there is room for the job.
constexpr off_t kPage = 4096;

using Random = std::mt19937_64;

void pause_us(uint64_t us) {
    std::this_thread::sleep_for(std::chrono::microseconds(us));
}

std::string digits(Random &random, size_t count) {
    std::string text;
    while (text.size() < count)
        text += "0123456789abcdef"[random() % 16];
    return text;
}

// A name that the job might use next: any roll's, or one that differs little from what is there.
std::string guess(Random &random, const std::string &seen) {
    std::string name = seen;
    if (random() % 2 == 0 || name.empty())
        name = kRoll + digits(random, kDigits);
    else
        name.back() = digits(random, 1)[0];
    return kShm + name;
}

void lay_file(const std::string &path, Random &random) {
    constexpr std::array<mode_t, 4> kModes = {0600, 0666, 0644, 0};
    constexpr std::array<off_t, 6> kSizes = {0, 32, 33, 64, off_t{1} << 21, off_t{1} << 40};
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (file < 0)
        return;
    (void)!fchmod(file, kModes[random() % kModes.size()]);
    (void)!ftruncate(file, kSizes[random() % kSizes.size()]);
    (void)close(file);
}

void lay_link(const std::string &path, const std::string &other, Random &random) {
    const std::array<std::string, 5> targets = {path, other, "/dev/zero", "/proc/self/mem",
                                                "/dev/shm/nothing"};
    (void)!symlink(targets[random() % targets.size()].c_str(), path.c_str());
}

void lay(const std::string &path, const std::string &other, Random &random) {
    switch (random() % 4) {
    case 0:
        return lay_link(path, other, random);
    case 1:
        (void)!mkfifo(path.c_str(), 0600);
        return;
    case 2:
        (void)!mkdir(path.c_str(), random() % 2 == 0 ? 0700 : 0);
        return;
    default:
        lay_file(path, random);
    }
}

void remove_path(const std::string &path) {
    if (unlink(path.c_str()) != 0)
        (void)!rmdir(path.c_str());
}

void write_into(const std::string &path, Random &random) {
    const int file = open(path.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW);
    struct stat status;
    if (file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode)) {
        std::array<uint64_t, 16> garbage;
        for (uint64_t &word : garbage)
            word = random();
        const size_t bytes = 1 + random() % sizeof garbage;
        (void)!pwrite(file, garbage.data(), bytes, static_cast<off_t>(random() % 512));
    }
    (void)close(file);
}

void copy_into(const std::string &path, const std::string &other) {
    const int from = open(other.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
    const int into = open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOFOLLOW);
    std::array<char, 256> bytes;
    const ssize_t got = from >= 0 ? pread(from, bytes.data(), bytes.size(), 0) : -1;
    if (got > 0 && into >= 0)
        (void)!pwrite(into, bytes.data(), static_cast<size_t>(got), 0);
    (void)close(from);
    (void)close(into);
}

void hold_lock(const std::string &path, Random &random) {
    const int file = open(path.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW);
    struct flock wanted = {};
    wanted.l_type = F_WRLCK;
    wanted.l_whence = SEEK_SET;
    wanted.l_len = random() % 2 == 0 ? 0 : 32;
    if (file >= 0 && fcntl(file, F_OFD_SETLK, &wanted) == 0)
        pause_us(random() % 2000);
    (void)close(file);
}

void change(const std::string &path, const std::string &other, Random &random) {
    constexpr std::array<off_t, 6> kSizes = {0, 1, 32, 33, off_t{1} << 21, off_t{1} << 40};
    constexpr std::array<mode_t, 5> kModes = {0, 0400, 0600, 0666, 07777};
    const std::string moved = kShm + ("moved-" + digits(random, 4));
    const timespec times[2] = {{0, 0}, {4000000000, 0}};
    switch (random() % 11) {
    case 0:
        (void)!truncate(path.c_str(), kSizes[random() % kSizes.size()]);
        return;
    case 1:
        return remove_path(path);
    case 2:
        remove_path(path);
        return lay(path, other, random);
    case 3:
        (void)!chmod(path.c_str(), kModes[random() % kModes.size()]);
        return;
    case 4:
        (void)!utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW);
        return;
    case 5:
        return write_into(path, random);
    case 6:
        return copy_into(path, other);
    case 7:
        return hold_lock(path, random);
    case 8:
        (void)!rename(path.c_str(), moved.c_str());
        return;
    case 9:
        (void)!renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE);
        return;
    default:
        (void)!link(path.c_str(), moved.c_str());
    }
}

} // namespace

std::vector<std::string> shm_names() {
    std::vector<std::string> names;
    DIR *folder = opendir(kShm);
    CHECK(folder != nullptr);
    while (const dirent *entry = readdir(folder))
        if (entry->d_name[0] != '.')
            names.emplace_back(entry->d_name);
    CHECK(closedir(folder) == 0);
    return names;
}

bool is_sound_roll(const std::string &name, uid_t owner) {
    struct stat status;
    return name.compare(0, sizeof kRoll - 1, kRoll) == 0 &&
           name.size() == sizeof kRoll - 1 + kDigits &&
           lstat((kShm + name).c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
           status.st_uid == owner && status.st_nlink == 1 && (status.st_mode & 07777) == 0600;
}

void fill_shm(int free_pages, int free_inodes) {
    if (free_pages >= 0) {
        const int fill = open("/dev/shm/fill", O_WRONLY | O_CREAT, 0600);
        const std::vector<char> page(kPage);
        while (fill >= 0 && write(fill, page.data(), page.size()) > 0)
            continue;
        struct stat status;
        if (fill >= 0 && fstat(fill, &status) == 0)
            (void)!ftruncate(fill, std::max(off_t{0}, status.st_size - free_pages * kPage));
        (void)close(fill);
    }
    if (free_inodes < 0)
        return;
    const auto path = [](int i) { return "/dev/shm/inode-" + std::to_string(i); };
    int made = 0;
    for (int file; (file = open(path(made).c_str(), O_WRONLY | O_CREAT, 0600)) >= 0; made++)
        (void)close(file);
    for (int i = std::max(0, made - free_inodes); i < made; i++)
        (void)unlink(path(i).c_str());
}

void clean_shm(uid_t owner) {
    for (const std::string &name : shm_names())
        if (!is_sound_roll(name, owner))
            remove_path(kShm + name);
}

void become(uid_t user) {
    if (user == geteuid())
        return;
    CHECK(setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0);
    CHECK(prctl(PR_SET_DUMPABLE, 1) == 0); // So that /proc/self stays its own.
}

void change_what_is_there(uint64_t seed) {
    Random random(seed);
    for (;;) {
        const std::vector<std::string> names = shm_names();
        const auto any = [&] {
            return names.empty() ? std::string() : names[random() % names.size()];
        };
        const std::string seen = any();
        if (names.size() > kMostNames)
            remove_path(kShm + seen);
        else if (names.empty() || random() % 8 == 0)
            lay(guess(random, seen), kShm + any(), random);
        else
            change(kShm + seen, kShm + any(), random);
        if (random() % 4 == 0)
            pause_us(random() % 400);
    }
}

void fill_again_and_again(uint64_t seed) {
    Random random(seed);
    for (;;) {
        fill_shm(static_cast<int>(random() % 3), static_cast<int>(random() % 4) - 1);
        pause_us(random() % 3000);
        for (const std::string &name : shm_names())
            if (name.compare(0, sizeof kRoll - 1, kRoll) != 0)
                (void)unlink((kShm + name).c_str());
        pause_us(random() % 3000);
    }
}
