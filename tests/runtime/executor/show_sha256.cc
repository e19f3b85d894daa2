// Digests of what it is given: show_sha256 KEY TEXT, all in hexadecimal; SHA-256 of the text, and
// HMAC-SHA256 of it with the key.
#include "secrets.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

std::string bytes_of(const std::string &digits) {
    std::string bytes;
    for (size_t i = 0; i + 1 < digits.size(); i += 2)
        bytes += static_cast<char>(std::strtoul(digits.substr(i, 2).c_str(), nullptr, 16));
    return bytes;
}

void print(const tuccl::Digest &digest) {
    for (const unsigned byte : digest)
        std::printf("%02x", byte);
    std::printf("\n");
}

} // namespace

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    const std::string key = bytes_of(arguments[1]);
    tuccl::Digest digest = {};
    if (key.size() != digest.size())
        return 2;
    key.copy(reinterpret_cast<char *>(digest.data()), digest.size());
    print(tuccl::sha256(bytes_of(arguments[2])));
    print(tuccl::hmac_sha256(digest, bytes_of(arguments[2])));
}
