// SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104): names derived one-way from a secret, for a few
// hundred bytes at a communicator's start; and random numbers.
#ifndef TUCCL_EXECUTOR_SECRETS_H
#define TUCCL_EXECUTOR_SECRETS_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tuccl {

using Digest = std::array<uint8_t, 32>;

Digest sha256(const std::string &bytes);
Digest hmac_sha256(const Digest &key, const std::string &bytes);

// Fills `bytes` from the kernel, for secrets. Returns false where it has no random bits.
bool random_bytes(void *bytes, size_t count);

// 64 random bits, from the kernel. Never fails and never throws: where the kernel has none, they
// differ from those of other calls and processes but can be guessed.
uint64_t random_number();

} // namespace tuccl

#endif
