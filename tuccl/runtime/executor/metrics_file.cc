#include "metrics_file.h"

#include "whole_file.h"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tuccl {

namespace {

// node_exporter reads what ends so.
constexpr char kSuffix[] = ".prom";
constexpr char kPartial[] = ".partial";
constexpr time_t kKept = 300;

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

std::string replace_in(int folder, const std::string &process, const std::string &text, int *file) {
    const std::string name = "tuccl-" + process + kSuffix;
    const std::string partial = ".tuccl-" + process + kPartial;
    const int made = make_file(folder, partial);
    if (made < 0)
        return failed_step("making a file", errno);
    (void)lock(made); // If the file system has none, nobody removes the file.
    std::string fault = put_in_place(made, folder, partial, name, text);
    if (!fault.empty()) {
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
        return failed_step("opening the folder", errno);
    if (*file < 0)
        sweep(opened);
    std::string fault = replace_in(opened, process, text, file);
    (void)close(opened);
    return fault;
}

} // namespace tuccl
