// What ranks conclude of their times: lines of `OPERATION IS_OUT RANKS`, and of each rank `CALL
// IS_READY HAS_WAITED` and its times, in the order of a trial. Prints a word and the two medians
// for each.
#include "guard_protocol.h"

#include <cstdio>
#include <iostream>

int main() {
    uint32_t operation = 0;
    int is_out = 0;
    size_t ranks = 0;
    while (std::cin >> operation >> is_out >> ranks) {
        std::vector<tuccl::GuardReport> all;
        for (size_t rank = 0; rank < ranks; rank++) {
            uint64_t call = 0;
            std::cin >> call;
            all.push_back(tuccl::report_of({operation, 4096}, {0, 1}, call));
            std::cin >> all.back().is_ready >> all.back().has_waited;
            for (float &time_us : all.back().times_us)
                std::cin >> time_us;
        }
        const tuccl::Concluded found = tuccl::conclude(all.front(), all, 2, 2 * tuccl::kCheckPairs);
        const bool loses = is_out != 0 ? !found.first_stays : found.first_loses;
        const char *word = found.conclusion == tuccl::Conclusion::kNone    ? "none"
                           : found.conclusion == tuccl::Conclusion::kApart ? "apart"
                           : loses                                         ? "out"
                                                                           : "in";
        std::printf("%s %g %g\n", word, static_cast<double>(found.us[0]),
                    static_cast<double>(found.us[1]));
    }
    return 0;
}
