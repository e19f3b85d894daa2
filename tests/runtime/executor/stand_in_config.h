// The configuration of a communicator, as NCCL's of 2.30, which earlier structures are the start
// of.
#ifndef TUCCL_TEST_STAND_IN_CONFIG_H
#define TUCCL_TEST_STAND_IN_CONFIG_H

#include <climits>
#include <cstddef>

struct ncclConfig {
    size_t size = sizeof(ncclConfig);
    unsigned magic = 0xcafebeef;
    unsigned version = 23000;
    int blocking = 1;
    int cgaClusterSize = INT_MIN;
    int minCTAs = INT_MIN;
    int maxCTAs = INT_MIN;
    const char *netName = nullptr;
    int splitShare = INT_MIN;
    int trafficClass = INT_MIN;
    const char *commName = nullptr;
    int collnetEnable = INT_MIN;
    int CTAPolicy = INT_MIN;
    int shrinkShare = INT_MIN;
    int nvlsCTAs = INT_MIN;
    int nChannelsPerNetPeer = INT_MIN;
    int nvlinkCentricSched = INT_MIN;
    int graphUsageMode = INT_MIN;
    int numRmaCtx = INT_MIN;
    int maxP2pPeers = INT_MIN;
    int graphStreamOrdering = INT_MIN;
};

inline ncclConfig does_not_block() {
    ncclConfig config;
    config.blocking = 0;
    return config;
}

#endif
