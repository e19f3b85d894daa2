#include "roll_file.h"

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <mutex>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

namespace tuccl {

namespace {

constexpr char kFolder[] = "/dev/shm";
constexpr char kPrefix[] = "tuccl-roll-";
constexpr size_t kNameDigits = 32;
constexpr uint32_t kMostSlots = 65536; // Of 32 bytes; those of other hosts take no memory here.
constexpr mode_t kMode = 0600;
// Other ranks hold the locks that make a try fail only for microseconds.
constexpr int kTries = 100;
constexpr auto kPause = std::chrono::milliseconds(1);

std::string describe(const char *step, int error) {
    if (error == ENOSPC || error == EDQUOT)
        return "/dev/shm is full: enlarge it (docker run --shm-size), or remove what fills it";
    return std::string("/dev/shm cannot be used: ") + step + " failed with error " +
           std::to_string(error) + " (" + std::generic_category().message(error) + ")";
}

bool is_own(const struct stat &status) {
    return S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
           (status.st_mode & 07777) == kMode;
}

// A lock of the open file, not of the process: ranks may be threads.
struct flock range(short kind, off_t first, off_t bytes) {
    struct flock wanted = {};
    wanted.l_type = kind;
    wanted.l_whence = SEEK_SET;
    wanted.l_start = first;
    wanted.l_len = bytes;
    return wanted;
}

bool lock_whole(int file) {
    struct flock wanted = range(F_WRLCK, 0, 0);
    return fcntl(file, F_OFD_SETLK, &wanted) == 0;
}

bool is_roll(const char *name) {
    const size_t prefix = sizeof kPrefix - 1;
    return std::strncmp(name, kPrefix, prefix) == 0 && std::strlen(name + prefix) == kNameDigits &&
           std::strspn(name + prefix, "0123456789abcdef") == kNameDigits;
}

// Removes this user's rolls whose ranks are all dead. A rank that has opened one without a lock yet
// finds it removed and opens another.
void sweep() {
    DIR *folder = opendir(kFolder);
    if (folder == nullptr)
        return;
    while (const dirent *entry = readdir(folder)) {
        if (!is_roll(entry->d_name))
            continue;
        const int file =
            openat(dirfd(folder), entry->d_name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        if (file < 0)
            continue;
        struct stat status;
        if (fstat(file, &status) == 0 && is_own(status) && status.st_nlink == 1 && lock_whole(file))
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
        (void)close(file);
    }
    (void)closedir(folder);
}

} // namespace

struct RollFile::Slot {
    uint64_t tag;
    uint64_t attempt;
    uint64_t mark;
    End end;
};

RollFile::RollFile(const std::string &name, uint64_t tag)
    : path_(std::string(kFolder) + "/" + kPrefix + name), tag_(tag) {
}

RollFile::~RollFile() {
    end(End::kSuccess);
}

std::string RollFile::enter(uint32_t rank, const RollEntry &mine) {
    static std::once_flag swept;
    std::call_once(swept, sweep);
    if (rank >= kMostSlots)
        return "a roll has no place for rank " + std::to_string(rank);
    rank_ = rank;
    std::string fault = "/dev/shm cannot be used: another process holds this rank's place";
    Opened opened = Opened::kAgain;
    for (int i = 0; i < kTries && (opened = open_file(&fault)) == Opened::kAgain; i++)
        std::this_thread::sleep_for(kPause);
    if (opened != Opened::kYes)
        return fault;
    const Slot slot = {tag_, mine.attempt, mine.mark, End::kNone};
    const ssize_t written =
        pwrite(file_, &slot, sizeof slot, static_cast<off_t>(rank * sizeof slot));
    if (written == static_cast<ssize_t>(sizeof slot)) {
        entered_ = true;
        return {};
    }
    fault = describe("writing", written < 0 ? errno : ENOSPC);
    take_back();
    return fault;
}

RollFile::Opened RollFile::open_file(std::string *fault) {
    constexpr int kFlags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
    file_ = open(path_.c_str(), kFlags | O_CREAT | O_EXCL, kMode);
    const bool created = file_ >= 0;
    if (!created && errno == EEXIST) {
        file_ = open(path_.c_str(), kFlags);
        if (file_ < 0 && errno == ENOENT)
            return Opened::kAgain;
    }
    if (file_ < 0) {
        *fault = describe("opening", errno);
        return Opened::kNo;
    }
    Opened opened = Opened::kNo;
    if (examine(created, &opened, fault))
        return Opened::kYes;
    close_file();
    return opened;
}

// Locks this rank's slot in a file that is this user's own and still has its name.
bool RollFile::examine(bool created, Opened *opened, std::string *fault) {
    struct stat status;
    if (fstat(file_, &status) != 0) {
        *fault = describe("examining", errno);
        return false;
    }
    const bool sound = is_own(status) && status.st_nlink <= 1 &&
                       status.st_size <= static_cast<off_t>(kMostSlots * sizeof(Slot)) &&
                       status.st_size % static_cast<off_t>(sizeof(Slot)) == 0;
    if (!sound) {
        char text[160];
        std::snprintf(text, sizeof text,
                      " is not this job's (owner %u, mode %o, %u links, %lld bytes): remove it",
                      status.st_uid, static_cast<unsigned>(status.st_mode),
                      static_cast<unsigned>(status.st_nlink),
                      static_cast<long long>(status.st_size));
        *fault = path_ + text;
        if (created)
            remove_name();
        return false;
    }
    if (!lock(F_WRLCK, rank_)) {
        const int error = errno;
        *opened = error == EAGAIN || error == EACCES ? Opened::kAgain : Opened::kNo;
        if (*opened == Opened::kNo) {
            *fault = describe("locking", error);
            if (created)
                remove_name();
        }
        return false;
    }
    *opened = Opened::kAgain;
    return fstat(file_, &status) == 0 && status.st_nlink == 1;
}

bool RollFile::lock(short kind, uint32_t slot) const {
    struct flock wanted =
        range(kind, static_cast<off_t>(slot * sizeof(Slot)), static_cast<off_t>(sizeof(Slot)));
    return fcntl(file_, F_OFD_SETLK, &wanted) == 0;
}

bool RollFile::read_slot(uint32_t rank, Slot *slot) const {
    return pread(file_, slot, sizeof *slot, static_cast<off_t>(rank * sizeof *slot)) ==
               static_cast<ssize_t>(sizeof *slot) &&
           slot->tag == tag_;
}

// Slots of ranks on other hosts are holes, and skipped.
RollEntries RollFile::read() const {
    RollEntries entries;
    std::vector<Slot> slots(4096 / sizeof(Slot));
    const auto bytes = static_cast<off_t>(slots.size() * sizeof(Slot));
    for (off_t at = 0; (at = lseek(file_, at, SEEK_DATA)) >= 0; at += bytes) {
        at -= at % bytes;
        const ssize_t got = pread(file_, slots.data(), static_cast<size_t>(bytes), at);
        if (got <= 0)
            break;
        for (size_t i = 0; i < static_cast<size_t>(got) / sizeof(Slot); i++) {
            const auto rank = static_cast<uint32_t>(at / static_cast<off_t>(sizeof(Slot)) +
                                                    static_cast<off_t>(i));
            if (slots[i].tag == tag_ && is_alive(rank, slots[i]))
                entries[rank] = {slots[i].attempt, slots[i].mark};
        }
    }
    return entries;
}

bool RollFile::has_left(uint32_t rank, const RollEntry &entry) const {
    Slot slot = {};
    return !read_slot(rank, &slot) || slot.attempt != entry.attempt || slot.end == End::kFailure ||
           !is_alive(rank, slot);
}

// Whether a rank still holds its lock, or has ended, which it says before it unlocks.
bool RollFile::is_alive(uint32_t rank, const Slot &slot) const {
    if (slot.end != End::kNone || rank == rank_)
        return true;
    struct flock held =
        range(F_WRLCK, static_cast<off_t>(rank * sizeof slot), static_cast<off_t>(sizeof slot));
    if (fcntl(file_, F_OFD_GETLK, &held) != 0 || held.l_type != F_UNLCK)
        return true;
    Slot later = {};
    return read_slot(rank, &later) && later.attempt == slot.attempt && later.end != End::kNone;
}

void RollFile::remove_name() {
    struct stat opened;
    struct stat named;
    if (file_ >= 0 && fstat(file_, &opened) == 0 && opened.st_nlink > 0 &&
        lstat(path_.c_str(), &named) == 0 && named.st_dev == opened.st_dev &&
        named.st_ino == opened.st_ino)
        (void)unlink(path_.c_str());
}

// The rank that unlocks last can lock the whole file: then no other rank uses it.
void RollFile::take_back() {
    if (file_ < 0)
        return;
    const Slot nobody = {};
    if (entered_)
        (void)!pwrite(file_, &nobody, sizeof nobody, static_cast<off_t>(rank_ * sizeof nobody));
    (void)lock(F_UNLCK, rank_);
    if (lock_whole(file_))
        remove_name();
    close_file();
}

void RollFile::end(End how) {
    if (file_ < 0)
        return;
    (void)!pwrite(file_, &how, sizeof how,
                  static_cast<off_t>(rank_ * sizeof(Slot) + offsetof(Slot, end)));
    close_file();
}

void RollFile::close_file() {
    (void)close(file_);
    file_ = -1;
    entered_ = false;
}

} // namespace tuccl
