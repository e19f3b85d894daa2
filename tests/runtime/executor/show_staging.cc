// What staging memory a table needs: show_staging RANKS [BUNDLE]; the figures of tuccl_staging and
// the bytes of all of it. Without a bundle: for whatever may be chosen.
#include "plan.h"
#include "staging_need.h"

extern "C" {
#include "bundle.h"
}

#include <cinttypes>
#include <cstdio>
#include <cstdlib>

namespace {

tuccl_staging need_of(const char *path, uint32_t ranks) {
    auto bundle = std::make_shared<tuccl_bundle>();
    char why[200];
    if (tuccl_bundle_load(path, bundle.get(), why, sizeof why) != TUCCL_BUNDLE_GOOD)
        std::exit(2);
    tuccl::Table table;
    table.bundle = bundle;
    const tuccl::Plan plan =
        tuccl::make_plan(std::make_shared<const tuccl::Table>(table), {1, ranks, 0, 0}, {});
    if (!plan.fault.empty())
        std::exit(2);
    return plan.staging;
}

} // namespace

int main(int count, char **arguments) {
    if (count < 2)
        return 2;
    const auto ranks = static_cast<uint32_t>(std::strtoul(arguments[1], nullptr, 10));
    const tuccl_staging need =
        count == 2 ? tuccl::most_staging(ranks) : need_of(arguments[2], ranks);
    std::printf("%u %u %u %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
                need.part_bytes[0], need.phases[0], need.part_bytes[1], need.phases[1],
                need.half_bytes[0], need.half_bytes[1], need.half_bytes[2], need.scratch_bytes,
                tuccl::staging_bytes(need, ranks));
    return 0;
}
