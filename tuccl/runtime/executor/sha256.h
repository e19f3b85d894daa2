// SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104): names derived one-way from a secret. For a few
// hundred bytes at a communicator's start.
#ifndef TUCCL_EXECUTOR_SHA256_H
#define TUCCL_EXECUTOR_SHA256_H

#include <array>
#include <cstdint>
#include <string>

namespace tuccl {

using Digest = std::array<uint8_t, 32>;

Digest sha256(const std::string &bytes);
Digest hmac_sha256(const Digest &key, const std::string &bytes);

} // namespace tuccl

#endif
