// Memory for what is sent and received, as much of it as there is.
#pragma once

#include <cstddef>

namespace p2p {

// Two buffers of the size, or of the half, quarter, ... but not below `least`, while memory is
// short. Returns the allocation's code; on success `bytes` is the size of each.
template <typename Code, typename Allocate, typename Release>
Code allocate_two(char *&a, char *&b, size_t &bytes, size_t least, Code success, Code is_short,
                  Allocate allocate, Release release) {
    for (;; bytes /= 2) {
        Code code = allocate(&a, bytes);
        if (code == success) {
            code = allocate(&b, bytes);
            if (code == success)
                return code;
            release(a); // what it holds is what is short
        }
        if (code != is_short || bytes / 2 < least)
            return code;
    }
}

} // namespace p2p
