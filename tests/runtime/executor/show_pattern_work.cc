// Which kernel a launch of a pattern takes: show_pattern_work ll|ll128 SEND RECEIVE STRIDE BYTES,
// addresses as numbers; "whole" or "any".
#include "staging.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

int main(int count, char **arguments) {
    if (count != 6)
        return 2;
    const auto number = [&](int index) { return std::strtoull(arguments[index], nullptr, 0); };
    tuccl::Work work = {};
    work.send = reinterpret_cast<const char *>(number(2));
    work.receive = reinterpret_cast<char *>(number(3));
    work.stride = number(4);
    work.bytes = static_cast<uint32_t>(number(5));
    const uint32_t protocol = std::strcmp(arguments[1], "ll") == 0 ? TUCCL_LL : TUCCL_LL128;
    std::puts(tuccl::is_whole(work, protocol) ? "whole" : "any");
    return 0;
}
