#include "metrics_file.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace tuccl {

namespace {

// node_exporter may be another user, and reads what ends so.
constexpr mode_t kMode = 0644;
constexpr char kSuffix[] = ".prom";
constexpr char kPartial[] = ".partial";
constexpr time_t kKept = 300;

std::string describe(const char *step, int error) {
    return std::string(step) + " failed: " + std::generic_category().message(error);
}

// Of the open file: other files of this process are none of its business.
bool lock(int file) {
    struct flock wanted = {};
    wanted.l_type = F_WRLCK;
    wanted.l_whence = SEEK_SET;
    return fcntl(file, F_OFD_SETLK, &wanted) == 0;
}

// `tuccl-NUMBER-DIGITS.prom`, or what was to become one: others name their files `tuccl-...`, too.
bool is_of_a_process(const char *name) {
    const bool is_partial = name[0] == '.';
    constexpr char kPrefix[] = "tuccl-";
    constexpr size_t kDigits = 8;
    const char *rest = name + (is_partial ? 1 : 0);
    if (std::strncmp(rest, kPrefix, sizeof kPrefix - 1) != 0)
        return false;
    rest += sizeof kPrefix - 1;
    const size_t number = std::strspn(rest, "0123456789");
    if (number == 0 || rest[number] != '-')
        return false;
    rest += number + 1;
    return std::strspn(rest, "0123456789abcdef") == kDigits &&
           std::strcmp(rest + kDigits, is_partial ? kPartial : kSuffix) == 0;
}

bool is_left(int file) {
    struct stat status;
    return fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
           status.st_nlink == 1 && status.st_mtime + kKept <= std::time(nullptr) && lock(file);
}

void sweep(int folder) {
    const int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listed = again >= 0 ? fdopendir(again) : nullptr;
    if (listed == nullptr)
        return;
    while (const dirent *entry = readdir(listed)) {
        if (!is_of_a_process(entry->d_name))
            continue;
        const int file =
            openat(folder, entry->d_name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        if (file < 0)
            continue;
        if (is_left(file))
            (void)unlinkat(folder, entry->d_name, 0);
        (void)close(file);
    }
    (void)closedir(listed);
}

bool write_all(int file, const std::string &text) {
    size_t done = 0;
    while (done < text.size()) {
        const ssize_t written = write(file, text.data() + done, text.size() - done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        done += static_cast<size_t>(written);
    }
    return true;
}

std::string replace_in(int folder, const std::string &process, const std::string &text, int *file) {
    const std::string name = "tuccl-" + process + kSuffix;
    const std::string partial = ".tuccl-" + process + kPartial;
    const int made = openat(folder, partial.c_str(),
                            O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kMode);
    if (made < 0)
        return describe("making a file", errno);
    (void)fchmod(made, kMode); // Whatever the job's umask.
    (void)lock(made);          // If the file system has none, nobody removes the file.
    std::string fault;
    if (!write_all(made, text))
        fault = describe("writing", errno);
    else if (renameat(folder, partial.c_str(), folder, name.c_str()) != 0)
        fault = describe("renaming", errno);
    if (!fault.empty()) {
        (void)unlinkat(folder, partial.c_str(), 0);
        (void)close(made);
        return fault;
    }
    if (*file >= 0)
        (void)close(*file);
    *file = made;
    return {};
}

} // namespace

std::string replace_metrics(const std::string &folder, const std::string &process,
                            const std::string &text, int *file) {
    const int opened = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (opened < 0)
        return describe("opening the folder", errno);
    if (*file < 0)
        sweep(opened);
    std::string fault = replace_in(opened, process, text, file);
    (void)close(opened);
    return fault;
}

} // namespace tuccl
