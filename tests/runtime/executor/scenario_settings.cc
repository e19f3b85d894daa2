// Settings of a table on communicators of the shapes that were measured: of four ranks and of two,
// NCCL_MIN_CTAS=32, measured with NCCL_MAX_CTAS=48.
#include "real_nccl.h"
#include "scenarios.h"
#include "session.h"

#include <cstring>

namespace {

constexpr int kUndefined = INT_MIN;

int least(ncclComm_t comm) {
    return stand_in_config(comm)->minCTAs;
}

ncclComm_t split(const Rank &rank, int color, ncclConfig *config = nullptr) {
    ncclComm_t made = nullptr;
    CHECK(ncclCommSplit(rank.comm, color, rank.rank, &made, config) == 0);
    return made;
}

void end(ncclComm_t comm) {
    if (comm != nullptr)
        CHECK(ncclCommDestroy(comm) == 0);
}

// What all ranks get, if each gives this.
int least_with(ncclConfig config) {
    const ncclUniqueId id = new_id();
    int found = 0;
    in_threads(4, [&](Rank &rank) {
        CHECK(ncclCommInitRankConfig(&rank.comm, 4, id, rank.rank, &config) == 0);
        on_rank_0(rank, [&] { found = least(rank.comm); });
        CHECK(least(rank.comm) == found && ncclCommDestroy(rank.comm) == 0);
    });
    return found;
}

SCENARIO(settings_by_shape) {
    for (const char *table : {"settings", "settings_alone"}) {
        set_table(table);
        with_communicator(4, [](Rank &rank) {
            CHECK(least(rank.comm) == 32);
            AllReduce(rank).run(rank.comm, &rank.stream);
            const ncclComm_t pair = split(rank, rank.rank / 2);
            const ncclComm_t three = split(rank, rank.rank < 3 ? 0 : -1);
            CHECK(least(pair) == 32);
            CHECK(three == nullptr || least(three) == kUndefined);
            // One of a pair has a parent with settings, too.
            meet_threads();
            CHECK(stand_in_live_communicators() == 4 + 4 + 3);
            meet_threads();
            end(pair);
            end(three);
        });
        with_communicator(3, [](Rank &rank) { CHECK(least(rank.comm) == kUndefined); });
        CHECK(stand_in_live_communicators() == 0);
    }
}

SCENARIO(settings_serve) {
    set_table("settings");
    with_communicator(4, [](Rank &rank) {
        AllReduce(rank).run(rank.comm, &rank.stream);
        on_rank_0(rank, [] { CHECK(Notes().count("executor 4") == 4); });
    });
}

SCENARIO(settings_in_one_thread) {
    set_table("settings");
    ncclComm_t comms[4] = {};
    CHECK(ncclCommInitAll(comms, 4, nullptr) == 0);
    for (ncclComm_t comm : comms)
        CHECK(least(comm) == 32 && ncclCommDestroy(comm) == 0);
    const ncclUniqueId id = new_id();
    CHECK(ncclGroupStart() == 0);
    for (int rank = 0; rank < 4; rank++)
        CHECK(ncclCommInitRank(&comms[rank], 4, id, rank) == 0);
    CHECK(ncclGroupEnd() == 0);
    for (ncclComm_t comm : comms)
        CHECK(least(comm) == 32);
    for (ncclComm_t comm : comms)
        CHECK(ncclCommDestroy(comm) == 0);
    CHECK(stand_in_live_communicators() == 0);
}

// What is made from a communicator without a configuration has the job's, not the table's.
SCENARIO(settings_are_not_inherited) {
    set_table("settings");
    const ncclUniqueId id = new_id();
    in_threads(4, [&](Rank &rank) {
        std::string name = "job";
        ncclConfig config;
        config.trafficClass = 7;
        config.commName = name.c_str();
        CHECK(ncclCommInitRankConfig(&rank.comm, 4, id, rank.rank, &config) == 0);
        name = "gone";
        CHECK(std::strcmp(stand_in_config(rank.comm)->commName, "job") == 0);
        CHECK(least(rank.comm) == 32 && stand_in_config(rank.comm)->trafficClass == 7);
        ncclComm_t three = split(rank, rank.rank < 3 ? 0 : -1);
        if (three != nullptr) {
            CHECK(least(three) == kUndefined && stand_in_config(three)->trafficClass == 7);
            CHECK(std::strcmp(stand_in_config(three)->commName, "job") == 0);
            int excluded = 3;
            ncclComm_t shrunk = nullptr;
            CHECK(ncclCommShrink(rank.comm, &excluded, 1, &shrunk, nullptr, 0) == 0);
            CHECK(least(shrunk) == kUndefined && stand_in_config(shrunk)->trafficClass == 7);
            end(shrunk);
        }
        ncclComm_t grown = nullptr;
        CHECK(ncclCommGrow(rank.comm, 5, nullptr, -1, &grown, nullptr) == 0);
        CHECK(least(grown) == kUndefined && stand_in_config(grown)->trafficClass == 7);
        ncclConfig own;
        own.minCTAs = own.maxCTAs = 3;
        ncclComm_t pair = split(rank, rank.rank / 2, &own);
        CHECK(least(pair) == 3 && stand_in_config(pair)->trafficClass == kUndefined);
        for (ncclComm_t made : {three, grown, pair, rank.comm})
            end(made);
    });
}

SCENARIO(settings_give_way) {
    set_table("settings");
    ncclConfig config;
    CHECK(least_with(config) == 32);
    config.minCTAs = config.maxCTAs = 8;
    CHECK(least_with(config) == 8);
    config = {};
    config.maxCTAs = 16;
    CHECK(least_with(config) == kUndefined);
    config = {};
    config.splitShare = 1;
    CHECK(least_with(config) == kUndefined);
    for (const char *name : {"NCCL_MAX_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"}) {
        setenv(name, "16", 1);
        CHECK(least_with({}) == kUndefined);
        unsetenv(name);
    }
    // It was measured with this one; an empty variable is none.
    setenv("NCCL_MAX_CTAS", "48", 1);
    setenv("NCCL_MIN_NCHANNELS", "", 1);
    CHECK(least_with({}) == 32);
    setenv("NCCL_MIN_CTAS", "12", 1);
    CHECK(least_with({}) == 12);
}

// Where the process has the table's value already, nothing is started twice.
SCENARIO(settings_of_the_process) {
    set_table("settings");
    setenv("NCCL_MIN_CTAS", "32", 1);
    const ncclUniqueId id = new_id();
    in_threads(4, [&](Rank &rank) {
        CHECK(ncclCommInitRank(&rank.comm, 4, id, rank.rank) == 0 && least(rank.comm) == 32);
    });
    CHECK(Notes().count("nccl Destroy") == 0);
}

// The plugin of the second start obeys the check, as that of the first would have.
SCENARIO(settings_with_check) {
    set_table("settings");
    setenv("TUCCL_CHECK", "20s", 1);
    setenv("STAND_IN_NCCL_US", "2000", 1);
    setenv("STAND_IN_SLOW_ENTRIES", "4:65536:10000", 1);
    setenv("STAND_IN_PLUGIN", "1", 1);
    with_communicator(4, [](Rank &rank) {
        CHECK(least(rank.comm) == 32);
        AllReduce(rank).run(rank.comm, &rank.stream);
        on_rank_0(rank, [] {
            const Notes notes;
            CHECK(notes.count("executor 4") == 0 && notes.count("nccl AllReduce") == 4);
        });
    });
}

SCENARIO(settings_free_last) {
    set_table("settings");
    setenv("TUCCL_CHECK", "20s", 1);
    const ncclUniqueId id = new_id();
    in_threads(4, [&](Rank &rank) {
        CHECK(ncclCommInitRank(&rank.comm, 4, id, rank.rank) == 0 && least(rank.comm) == 32);
        meet_threads();
        on_rank_0(rank, [] {
            const Notes notes;
            CHECK(frees_last(notes) && notes.count("frees") > 0 && notes.count("nccl Destroy") > 0);
        });
        CHECK(ncclCommDestroy(rank.comm) == 0);
    });
}

// One rank's job says something: all of them keep NCCL's.
SCENARIO(settings_of_all_or_none) {
    set_table("settings");
    const ncclUniqueId id = new_id();
    in_threads(4, [&](Rank &rank) {
        ncclConfig config;
        if (rank.rank == 2)
            config.minCTAs = config.maxCTAs = 6;
        CHECK(ncclCommInitRankConfig(&rank.comm, 4, id, rank.rank, &config) == 0);
        CHECK(least(rank.comm) == (rank.rank == 2 ? 6 : kUndefined));
        CHECK(ncclCommDestroy(rank.comm) == 0);
    });
}

// Structures of NCCL 2.14 to 2.30, and a larger one. NCCL takes what each has, and the setting.
SCENARIO(settings_in_every_structure) {
    set_table("settings_of_nvls");
    struct Release {
        unsigned version;
        size_t bytes;
    } const releases[] = {
        {21400, offsetof(ncclConfig, minCTAs)}, // Its last four bytes are padding.
        {21800, 48},
        {22603, 48},
        {22706, offsetof(ncclConfig, nChannelsPerNetPeer)},
        {22809, offsetof(ncclConfig, graphUsageMode)},
        {22907, offsetof(ncclConfig, maxP2pPeers)},
        {23000, sizeof(ncclConfig)}};
    for (const Release &release : releases) {
        const ncclUniqueId id = new_id();
        in_threads(2, [&](Rank &rank) {
            ncclConfig config;
            config.size = release.bytes;
            config.version = release.version;
            config.cgaClusterSize = 2;
            config.trafficClass = 7; // In 2.18 padding.
            config.nvlinkCentricSched = 1;
            config.maxP2pPeers = 5;
            CHECK(ncclCommInitRankConfig(&rank.comm, 2, id, rank.rank, &config) == 0);
            const ncclConfig &got = *stand_in_config(rank.comm);
            CHECK(got.minCTAs == 32 && got.nvlsCTAs == 24 && got.collnetEnable == 1);
            CHECK(got.cgaClusterSize == (release.version >= 21700 ? 2 : kUndefined));
            CHECK(got.trafficClass == (release.version >= 22500 ? 7 : kUndefined));
            CHECK(got.nvlinkCentricSched == (release.version >= 22800 ? 1 : kUndefined));
            CHECK(got.maxP2pPeers == (release.version >= 23000 ? 5 : kUndefined));
            CHECK(ncclCommDestroy(rank.comm) == 0);
        });
    }
    struct {
        ncclConfig known;
        int further[8] = {9};
    } later;
    later.known.size = sizeof later;
    later.known.version = 23200;
    const ncclUniqueId id = new_id();
    in_threads(2, [&](Rank &rank) {
        CHECK(ncclCommInitRankConfig(&rank.comm, 2, id, rank.rank, &later.known) == 0);
        CHECK(least(rank.comm) == 32 && stand_in_config(rank.comm)->size == sizeof later);
        CHECK(ncclCommDestroy(rank.comm) == 0);
    });
}

// NCCL 2.26 has no channels of NVLS in its structure.
SCENARIO(settings_that_nccl_lacks) {
    set_table("settings_of_nvls");
    setenv("STAND_IN_VERSION", "22603", 1);
    with_communicator(2, [](Rank &rank) { CHECK(least(rank.comm) == kUndefined); });
}

// NCCL takes these values of variables, but not of fields.
SCENARIO(settings_that_nccl_refuses) {
    for (const char *table : {"settings_none", "settings_crossed", "settings_of_no_cluster",
                              "settings_of_many_peers", "settings_of_no_flag"}) {
        set_table(table);
        const ncclUniqueId id = new_id();
        in_threads(2, [&](Rank &rank) {
            CHECK(ncclCommInitRank(&rank.comm, 2, id, rank.rank) == 0);
            CHECK(least(rank.comm) == kUndefined);
            CHECK(stand_in_config(rank.comm)->cgaClusterSize == kUndefined);
            CHECK(ncclCommAbort(rank.comm) == 0);
        });
    }
}

// The job has the handle before its ranks can agree.
SCENARIO(settings_without_blocking) {
    set_table("settings");
    const ncclUniqueId id = new_id();
    in_threads(2, [&](Rank &rank) {
        ncclConfig config = does_not_block();
        CHECK(ncclCommInitRankConfig(&rank.comm, 2, id, rank.rank, &config) ==
              tuccl::kNcclInProgress);
        CHECK(settled(rank.comm) == tuccl::kNcclSuccess && least(rank.comm) == kUndefined);
        CHECK(ncclCommDestroy(rank.comm) == 0);
    });
}

// NCCL makes it before it returns, but would split it in the background.
SCENARIO(settings_of_a_child_without_blocking) {
    set_table("settings");
    with_communicator(4, [](Rank &rank) {
        ncclConfig config = does_not_block();
        const ncclComm_t pair = split(rank, rank.rank / 2, &config);
        CHECK(settled(pair) == tuccl::kNcclSuccess && least(pair) == kUndefined);
        end(pair);
    });
}

// A rank that cannot start again lets the others go, which wait inside NCCL.
SCENARIO(settings_fail) {
    set_table("settings");
    setenv("STAND_IN_SPLIT_FAILS", "1:1", 1);
    const ncclUniqueId id = new_id();
    in_threads(2, [&](Rank &rank) {
        CHECK(ncclCommInitRank(&rank.comm, 2, id, rank.rank) == tuccl::kNcclUnhandledCudaError);
        CHECK(rank.comm == nullptr);
    });
    CHECK(stand_in_live_communicators() == 0);
}

} // namespace
