// The rule of the check at start:
//
//     show_check_rule size MIN MAX     the size at which a range is timed
//     show_check_rule order US...      these times of NCCL in the order of the check
//     show_check_rule pairs            of each line of times in turn: stays, loses, or neither
//     show_check_rule first            the same of first pairs
#include "check_rule.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

int main(int count, char **arguments) {
    const std::string what = count > 1 ? arguments[1] : "";
    if (what == "size" && count == 4)
        std::printf("%llu\n", static_cast<unsigned long long>(
                                  tuccl::check_size(std::strtoull(arguments[2], nullptr, 10),
                                                    std::strtoull(arguments[3], nullptr, 10))));
    if (what == "order") {
        tuccl::Times times;
        for (int i = 2; i < count; i++)
            times.push_back(std::strtof(arguments[i], nullptr));
        std::stable_sort(times.begin(), times.end(), [](float first, float second) {
            return tuccl::urgency(first) > tuccl::urgency(second);
        });
        for (const float time : times)
            std::printf("%g\n", static_cast<double>(time));
    }
    std::string line;
    while ((what == "pairs" || what == "first") && std::getline(std::cin, line)) {
        std::istringstream words(line);
        tuccl::Times times;
        for (float time = 0.0F; words >> time;)
            times.push_back(time);
        const tuccl::CheckPairs pairs(times);
        const bool loses = what == "first" ? pairs.entry_loses_clearly() : pairs.entry_loses();
        std::puts(pairs.entry_stays() ? "stays" : loses ? "loses" : "neither");
    }
    return 0;
}
