#include "secrets.h"

#include <atomic>
#include <cerrno>
#include <ctime>
#include <sys/random.h>
#include <unistd.h>

namespace tuccl {

namespace {

constexpr size_t kBlock = 64;

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t rotated(uint32_t word, int bits) {
    return word >> bits | word << (32 - bits);
}

void take_block(std::array<uint32_t, 8> *state, const uint8_t *block) {
    uint32_t schedule[64];
    for (size_t i = 0; i < 16; i++)
        schedule[i] = uint32_t{block[4 * i]} << 24 | uint32_t{block[4 * i + 1]} << 16 |
                      uint32_t{block[4 * i + 2]} << 8 | uint32_t{block[4 * i + 3]};
    for (size_t i = 16; i < 64; i++) {
        const uint32_t early = schedule[i - 15];
        const uint32_t late = schedule[i - 2];
        schedule[i] = schedule[i - 16] + schedule[i - 7] +
                      (rotated(early, 7) ^ rotated(early, 18) ^ early >> 3) +
                      (rotated(late, 17) ^ rotated(late, 19) ^ late >> 10);
    }
    auto [a, b, c, d, e, f, g, h] = *state;
    for (size_t i = 0; i < 64; i++) {
        const uint32_t first = h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) +
                               ((e & f) ^ (~e & g)) + kRound[i] + schedule[i];
        const uint32_t second =
            (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + first;
        d = c;
        c = b;
        b = a;
        a = first + second;
    }
    const uint32_t added[] = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; i++)
        (*state)[i] += added[i];
}

// A one, zeros, and the number of bits, to whole blocks.
std::string padded(std::string bytes) {
    const uint64_t bits = uint64_t{bytes.size()} * 8;
    bytes += '\x80';
    while (bytes.size() % kBlock != kBlock - sizeof bits)
        bytes += '\0';
    for (int shift = 56; shift >= 0; shift -= 8)
        bytes += static_cast<char>(bits >> shift & 0xFF);
    return bytes;
}

std::string text_of(const Digest &digest) {
    return {digest.begin(), digest.end()};
}

} // namespace

Digest sha256(const std::string &bytes) {
    std::array<uint32_t, 8> state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const std::string message = padded(bytes);
    for (size_t at = 0; at < message.size(); at += kBlock)
        take_block(&state, reinterpret_cast<const uint8_t *>(message.data()) + at);
    Digest digest;
    for (size_t i = 0; i < digest.size(); i++)
        digest[i] = static_cast<uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
    return digest;
}

Digest hmac_sha256(const Digest &key, const std::string &bytes) {
    std::string inner(kBlock, '\x36');
    std::string outer(kBlock, '\x5c');
    for (size_t i = 0; i < key.size(); i++) {
        inner[i] = static_cast<char>(inner[i] ^ key[i]);
        outer[i] = static_cast<char>(outer[i] ^ key[i]);
    }
    return sha256(outer + text_of(sha256(inner + bytes)));
}

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
