#include "whole_file.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace tuccl {

namespace {

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

// A file system on the network may report only at a close what it could not write.
bool flush(int file) {
    const int again = dup(file);
    return again >= 0 && close(again) == 0;
}

} // namespace

int make_file(int folder, const std::string &name) {
    constexpr mode_t kMode = 0644;
    const int file =
        openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kMode);
    if (file >= 0)
        (void)fchmod(file, kMode); // Whatever the job's umask.
    return file;
}

std::string put_in_place(int file, int folder, const std::string &made, const std::string &name,
                         const std::string &text) {
    std::string fault;
    if (!write_all(file, text) || !flush(file))
        fault = failed_step("writing", errno);
    else if (renameat(folder, made.c_str(), folder, name.c_str()) != 0)
        fault = failed_step("renaming", errno);
    if (!fault.empty())
        (void)unlinkat(folder, made.c_str(), 0);
    return fault;
}

std::string quoted(const std::string &text) {
    std::string made = "\"";
    for (const char each : text) {
        const auto code = static_cast<unsigned char>(each);
        if (each == '"' || each == '\\')
            made += '\\';
        made += code < 0x20 || code >= 0x7F ? '?' : each;
    }
    return made + "\"";
}

std::string failed_step(const char *step, int error) {
    return std::string(step) + " failed: " + std::generic_category().message(error);
}

} // namespace tuccl
