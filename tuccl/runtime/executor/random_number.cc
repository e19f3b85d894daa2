#include "random_number.h"

#include <atomic>
#include <cerrno>
#include <ctime>
#include <sys/random.h>
#include <unistd.h>

namespace tuccl {

bool random_bytes(void *bytes, size_t count) {
    ssize_t got = 0;
    do
        got = getrandom(bytes, count, 0); // Up to 256 bytes come whole.
    while (got < 0 && errno == EINTR);
    return got == static_cast<ssize_t>(count);
}

uint64_t random_number() {
    uint64_t number = 0;
    if (random_bytes(&number, sizeof number))
        return number;
    static std::atomic<uint64_t> calls{0};
    timespec now = {};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (static_cast<uint64_t>(now.tv_sec) << 30 ^ static_cast<uint64_t>(now.tv_nsec)) +
           (static_cast<uint64_t>(getpid()) << 40) + calls.fetch_add(1);
}

} // namespace tuccl
