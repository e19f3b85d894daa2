#include "nccl_config.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace tuccl {

namespace {

constexpr int kUndefined = INT_MIN;

// Returns a field of the configuration; undefined where it is of a version without the field.
int field(const ncclConfig *config, int NcclConfigStart::*member, size_t offset) {
    NcclConfigStart start = {};
    std::memcpy(&start.size, config, sizeof start.size);
    if (start.size < offset + sizeof(int))
        return kUndefined;
    std::memcpy(&start, config, std::min(start.size, sizeof start));
    return start.magic == kNcclConfigMagic ? start.*member : kUndefined;
}

// As NCCL reads its variables; 0 where it has no positive number.
uint16_t positive(const char *name) {
    const char *text = std::getenv(name);
    if (text == nullptr || text[0] == '\0')
        return 0;
    char *end = nullptr;
    errno = 0;
    const long long value = std::strtoll(text, &end, 0);
    if (errno != 0 || end == text || value <= 0)
        return 0;
    return static_cast<uint16_t>(std::min<long long>(value, kAnyBlocks));
}

} // namespace

bool shares_resources(const ncclConfig *config) {
    const int share =
        field(config, &NcclConfigStart::split_share, offsetof(NcclConfigStart, split_share));
    return share != 0 && share != kUndefined;
}

uint16_t most_blocks(const ncclConfig *config) {
    const int most =
        field(config, &NcclConfigStart::max_blocks, offsetof(NcclConfigStart, max_blocks));
    return most > 0 ? static_cast<uint16_t>(std::min<int>(most, kAnyBlocks)) : kAnyBlocks;
}

uint16_t bounded_by_variables(uint16_t of_config) {
    const uint16_t of_process = positive("NCCL_MAX_CTAS");
    const uint16_t channels = positive("NCCL_MAX_NCHANNELS");
    const uint16_t most = of_process != 0 ? of_process : of_config;
    return channels != 0 ? std::min(most, channels) : most;
}

} // namespace tuccl
