#include "free_sums.h"

#include "group.h"
#include "metrics.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tuccl {

namespace {

constexpr int kFirstFloat = TUCCL_FLOAT16; // Integers come before, whose sums are exact.

std::atomic<bool> &kept_sums() {
    static std::atomic<bool> kept{false};
    return kept;
}

bool is_strict() {
    const char *said = std::getenv("TUCCL_INVARIANT");
    return said != nullptr && std::strcmp(said, "strict") == 0;
}

// Whether the order of additions shows in the result; a sum of two has one order alone.
bool rounds(const NcclCall &call) {
    if (!tuccl_is_reduction(call.kind) || call.count == 0 || call.type < kFirstFloat ||
        call.reduction == TUCCL_MAX || call.reduction == TUCCL_MIN)
        return false;
    int ranks = 0;
    return !real_nccl().CommCount || real_nccl().CommCount(call.comm, &ranks) != kNcclSuccess ||
           ranks > 2;
}

bool is_first(uint32_t operation) {
    static std::atomic<uint32_t> told{0};
    return (told.fetch_or(1U << operation) >> operation & 1) == 0;
}

} // namespace

void keep_sums(bool kept) {
    kept_sums().store(kept, std::memory_order_relaxed);
}

namespace {

int count_and_pass_on(const NcclCall &call) {
    return count_handed_over(call, group_is_open(), pass_on);
}

} // namespace

int hand_over(const NcclCall &call) {
    if (!kept_sums().load(std::memory_order_relaxed) || !rounds(call))
        return count_and_pass_on(call);
    const bool strict = is_strict();
    if (is_first(call.kind))
        std::fprintf(
            stderr,
            "TuCCL: %s of %zu elements of type %d: this call's sum is NCCL's and may move, "
            "because the table does not serve it; NCCL_DEBUG=INFO shows what is served%s\n",
            tuccl_call_name(call.kind), call.count, call.type,
            strict ? "; TUCCL_INVARIANT=strict refuses it" : "");
    return strict ? int{kNcclInvalidUsage} : count_and_pass_on(call);
}

} // namespace tuccl
