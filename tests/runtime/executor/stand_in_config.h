// The configuration of a communicator, as NCCL's to its field splitShare.
#ifndef TUCCL_TEST_STAND_IN_CONFIG_H
#define TUCCL_TEST_STAND_IN_CONFIG_H

#include <climits>
#include <cstddef>

struct ncclConfig {
    size_t size = sizeof(ncclConfig);
    unsigned magic = 0xcafebeef;
    unsigned version = 21800;
    int blocking = 1;
    int cgaClusterSize = INT_MIN;
    int minCTAs = INT_MIN;
    int maxCTAs = INT_MIN;
    const char *netName = nullptr;
    int splitShare = INT_MIN;
};

inline ncclConfig does_not_block() {
    ncclConfig config;
    config.blocking = 0;
    return config;
}

#endif
