// 64 random bits, from the kernel. Never fails and never throws: where the kernel has none, they
// differ from those of other calls and processes but can be guessed.
#ifndef TUCCL_EXECUTOR_RANDOM_NUMBER_H
#define TUCCL_EXECUTOR_RANDOM_NUMBER_H

#include <cstdint>

namespace tuccl {

uint64_t random_number();

} // namespace tuccl

#endif
