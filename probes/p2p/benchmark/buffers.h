// Memory for sent and received data, as much as is available.
#pragma once

#include <cstddef>

namespace p2p {

// Allocates two buffers of `bytes`, or of a half, a quarter, ... of it while memory is short, but
// not below `min_bytes`. Returns the allocation's code; on success `bytes` is the size of each.
template <typename Code, typename Allocate, typename Release>
Code allocate_two(char *&a, char *&b, size_t &bytes, size_t min_bytes, Code success, Code is_short,
                  Allocate allocate, Release release) {
    for (;; bytes /= 2) {
        Code code = allocate(&a, bytes);
        if (code == success) {
            code = allocate(&b, bytes);
            if (code == success)
                return code;
            release(a); // its memory is needed for smaller buffers
        }
        if (code != is_short || bytes / 2 < min_bytes)
            return code;
    }
}

} // namespace p2p
