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
    tuccl::Plan plan;
    const tuccl::Grid grid = {1, ranks, 0, 0};
    if (tuccl_bundle_load(path, bundle.get(), why, sizeof why) != TUCCL_BUNDLE_GOOD ||
        !tuccl::take_bundle_rules(bundle, grid, false, &plan).empty())
        std::exit(2);
    return tuccl::staging_need(plan.decision, bundle->programs, grid);
}

} // namespace

int main(int count, char **arguments) {
    if (count < 2)
        return 2;
    const auto ranks = static_cast<uint32_t>(std::strtoul(arguments[1], nullptr, 10));
    const tuccl_staging need =
        count == 2 ? tuccl::most_staging(ranks) : need_of(arguments[2], ranks);
    std::printf("%u %u %u %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
                need.ll_part, need.ll_phases, need.ll128_part, need.ll128_phases,
                need.program_ll_bytes, need.program_ll128_bytes, need.program_simple_bytes,
                need.program_scratch_bytes, tuccl::staging_bytes(need, ranks));
    return 0;
}
