// The grid that ranks find: show_grid HOST:PROCESS:DOES_NOT_BLOCK:TEAM..., a word for each rank. A
// line for each rank is the reason, or nodes, ranks of a node, node, place, the first rank of its
// node, and `hosts` where that spans several.
#include "grid.h"

#include <cstdio>
#include <cstdlib>

int main(int count, char **arguments) {
    std::vector<tuccl::Greeting> greetings;
    for (int i = 1; i < count; i++) {
        unsigned long long host = 0;
        unsigned long long process = 0;
        unsigned does_not_block = 0;
        unsigned team = 0;
        if (std::sscanf(arguments[i], "%llu:%llu:%u:%u", &host, &process, &does_not_block, &team) !=
            4)
            return 2;
        tuccl::Greeting greeting = {};
        greeting.host = host;
        greeting.process = process;
        greeting.does_not_block = does_not_block;
        greeting.team = static_cast<uint16_t>(team);
        greetings.push_back(greeting);
    }
    for (uint32_t rank = 0; rank < greetings.size(); rank++) {
        tuccl::Grid grid = {};
        const std::string reason = tuccl::find_grid(greetings, rank, &grid);
        if (!reason.empty())
            std::printf("%s\n", reason.c_str());
        else
            std::printf("%u %u %u %u %u%s\n", grid.nodes, grid.local_ranks, grid.node, grid.local,
                        grid.first_of_node(), grid.spans_hosts ? " hosts" : "");
    }
    return 0;
}
