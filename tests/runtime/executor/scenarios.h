// The scenarios by name; scenario_*.cc.
#ifndef TUCCL_TEST_SCENARIOS_H
#define TUCCL_TEST_SCENARIOS_H

#include <vector>

struct Scenario {
    const char *name;
    void (*run)();
};

std::vector<Scenario> call_scenarios();
std::vector<Scenario> communicator_scenarios();
std::vector<Scenario> network_scenarios();
std::vector<Scenario> network_peer_scenarios();
std::vector<Scenario> roll_scenarios();
std::vector<Scenario> start_scenarios();
std::vector<Scenario> stream_scenarios();

inline std::vector<Scenario> scenarios() {
    std::vector<Scenario> all = call_scenarios();
    for (const auto &more :
         {communicator_scenarios(), network_scenarios(), network_peer_scenarios(), roll_scenarios(),
          start_scenarios(), stream_scenarios()})
        all.insert(all.end(), more.begin(), more.end());
    return all;
}

#endif
