// Which devices NVLink joins, as the executor sees it: show_nvlink BUS_ID...; a line for each, 1
// for each other one that it is joined with.
#include "nvlink.h"

#include <cstdio>
#include <vector>

int main(int count, char **arguments) {
    std::vector<tuccl::NvlinkEnds> ends;
    for (int i = 1; i < count; i++)
        ends.push_back(tuccl::nvlink_ends(arguments[i]));
    for (const auto &one : ends) {
        for (const auto &other : ends)
            std::putchar(tuccl::nvlink_joins(one, other) ? '1' : '0');
        std::putchar('\n');
    }
    return 0;
}
