#include "log.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tuccl {

namespace {

enum Level { kNone, kWarning, kInfo };

Level level() {
    static const Level read = [] {
        const char *wanted = std::getenv("NCCL_DEBUG");
        if (wanted == nullptr)
            return kNone;
        for (const char *name : {"INFO", "ABORT", "TRACE"})
            if (strcasecmp(wanted, name) == 0)
                return kInfo;
        return strcasecmp(wanted, "WARN") == 0 ? kWarning : kNone;
    }();
    return read;
}

// One write per line, so that lines of several ranks do not run into each other.
void print(const char *kind, const char *format, va_list arguments) {
    const std::string host = host_name();
    char text[640];
    char line[800];
    std::vsnprintf(text, sizeof text, format, arguments);
    std::snprintf(line, sizeof line, "%s:%d:%ld NCCL %s TuCCL: %s\n",
                  host.substr(0, host.find('.')).c_str(), static_cast<int>(getpid()),
                  syscall(SYS_gettid), kind, text);
    std::fputs(line, stdout);
    std::fflush(stdout);
}

} // namespace

std::string host_name() {
    char name[256] = "";
    return gethostname(name, sizeof name - 1) == 0 ? name : "host";
}

void log_warning(const char *format, ...) {
    if (level() < kWarning)
        return;
    va_list arguments;
    va_start(arguments, format);
    print("WARN", format, arguments);
    va_end(arguments);
}

void log_info(const char *format, ...) {
    if (level() < kInfo)
        return;
    va_list arguments;
    va_start(arguments, format);
    print("INFO", format, arguments);
    va_end(arguments);
}

} // namespace tuccl
