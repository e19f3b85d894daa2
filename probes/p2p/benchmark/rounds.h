// Rounds of pairs that share no GPU.
#pragma once

#include <utility>
#include <vector>

namespace p2p {

using Pairs = std::vector<std::pair<int, int>>;

// Returns every pair of the members once, in the least number of rounds, by the circle method: one
// member stays, the others move by one seat per round; with an odd number, one member pauses.
inline std::vector<Pairs> round_robin(std::vector<int> members) {
    constexpr int kPause = -1;
    if (members.size() % 2)
        members.push_back(kPause);
    int seats = static_cast<int>(members.size());
    std::vector<Pairs> rounds;
    for (int round = 0; round + 1 < seats; round++) {
        Pairs pairs;
        for (int k = 0; k < seats / 2; k++) {
            int a = k == 0 ? members[0] : members[1 + (round + k - 1) % (seats - 1)];
            int b = members[1 + (round + seats - k - 2) % (seats - 1)];
            if (a != kPause && b != kPause)
                pairs.emplace_back(a < b ? a : b, a < b ? b : a);
        }
        rounds.push_back(pairs);
    }
    return rounds;
}

} // namespace p2p
