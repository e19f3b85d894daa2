// 64 random bits, from the kernel. Never fails and never throws: where the kernel has none, they
// differ from those of other calls and processes but can be guessed.
#ifndef TUCCL_EXECUTOR_RANDOM_NUMBER_H
#define TUCCL_EXECUTOR_RANDOM_NUMBER_H

#include <cstddef>
#include <cstdint>

namespace tuccl {

uint64_t random_number();

// Fills `bytes` from the kernel, for secrets. Returns false where it has no random bits.
bool random_bytes(void *bytes, size_t count);

} // namespace tuccl

#endif
