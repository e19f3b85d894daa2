// What the interposer's native tests share: ranks as threads, and NCCL as a job calls it.
#ifndef TUCCL_TEST_SESSION_H
#define TUCCL_TEST_SESSION_H

#include "choose.h"
#include "executor.h"
#include "nccl_abi.h"
#include "stand_in_config.h"
#include "stand_in_streams.h"

extern "C" {
#include "bundle_layout.h"
}

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                   \
            std::_Exit(1);                                                                         \
        }                                                                                          \
    } while (0)

extern "C" {
int ncclGetUniqueId(ncclUniqueId *id);
int ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank);
int ncclCommInitRankConfig(ncclComm_t *, int, ncclUniqueId, int, ncclConfig *);
int ncclCommInitRankScalable(ncclComm_t *, int, int, int, ncclUniqueId *, ncclConfig *);
int ncclCommInitAll(ncclComm_t *comms, int count, const int *devices);
int ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig *config);
int ncclCommShrink(ncclComm_t, int *, int, ncclComm_t *, ncclConfig *, int);
int ncclCommGrow(ncclComm_t, int, const ncclUniqueId *, int, ncclComm_t *, ncclConfig *);
int ncclCommFinalize(ncclComm_t comm);
int ncclCommDestroy(ncclComm_t comm);
int ncclCommAbort(ncclComm_t comm);
int ncclCommRevoke(ncclComm_t comm, int flags);
int ncclCommGetAsyncError(ncclComm_t comm, int *error);
int ncclAllReduce(const void *, void *, size_t, int, int, ncclComm_t, ncclStream);
int ncclAllGather(const void *, void *, size_t, int, ncclComm_t, ncclStream);
int ncclReduceScatter(const void *, void *, size_t, int, int, ncclComm_t, ncclStream);
int ncclBroadcast(const void *, void *, size_t, int, int, ncclComm_t, ncclStream);
int ncclBcast(void *, size_t, int, int, ncclComm_t, ncclStream);
int ncclReduce(const void *, void *, size_t, int, int, int, ncclComm_t, ncclStream);
int ncclAlltoAll(const void *, void *, size_t, int, ncclComm_t, ncclStream);
int ncclSend(const void *, size_t, int, int, ncclComm_t, ncclStream);
int ncclRecv(void *, size_t, int, int, ncclComm_t, ncclStream);
int ncclCommWindowRegister(ncclComm_t, void *, size_t, ncclWindow_t *, int);
int ncclCommWindowDeregister(ncclComm_t, ncclWindow_t);
int ncclGroupStart();
int ncclGroupEnd();
int ncclGroupSimulateEnd(ncclSimInfo *info);
void stand_in_break(ncclComm_t comm);
void stand_in_late(ncclComm_t comm, int ms);
const ncclConfig *stand_in_config(ncclComm_t comm);
int stand_in_live_communicators();
}

constexpr int kInt32 = 2;
constexpr int kSum = 0;

struct Rank {
    int rank = 0;
    int ranks = 0;
    ncclComm_t comm = nullptr;
    stand_in::Stream stream;
};

// Runs body in a thread for every rank, without a communicator.
void in_threads(int ranks, const std::function<void(Rank &)> &body);
// With one, made before and destroyed after; notes hold only what body did.
void with_communicator(int ranks, const std::function<void(Rank &)> &body);

// How many notes begin with this, and all of them are taken.
struct Notes {
    Notes() : lines(stand_in::take_notes()) {
    }
    int count(const std::string &start) const {
        return static_cast<int>(
            std::count_if(lines.begin(), lines.end(), [&](const std::string &line) {
                return line.compare(0, start.size(), start) == 0;
            }));
    }
    std::vector<std::string> lines;
};

// Whether all ranks of this process kept what they took for a start until its last round: CUDA
// frees when no kernel runs on the device, and there may be a round of another communicator.
inline bool frees_last(const Notes &notes) {
    bool has_freed = false;
    for (const std::string &line : notes.lines) {
        has_freed = has_freed || line.rfind("frees", 0) == 0 || line.rfind("nccl Destroy", 0) == 0;
        if (has_freed && line.rfind("nccl AllGather", 0) == 0)
            return false;
    }
    return true;
}

// An all_reduce of int32 with a result that is checked; 1 + rank is what each contributes.
struct AllReduce {
    explicit AllReduce(const Rank &rank, size_t count = 64)
        : send(count, 1 + rank.rank), receive(count, -1),
          expected(rank.ranks * (rank.ranks + 1) / 2) {
    }
    int start(ncclComm_t comm, stand_in::Stream *stream) {
        return ncclAllReduce(send.data(), receive.data(), send.size(), kInt32, kSum, comm, stream);
    }
    // Alone on the stream.
    void run(ncclComm_t comm, stand_in::Stream *stream) {
        CHECK(start(comm, stream) == 0);
        stream->wait();
        CHECK(is_right());
    }
    bool is_right() const {
        return receive == std::vector<int>(receive.size(), expected);
    }
    std::vector<int> send;
    std::vector<int> receive;
    int expected;
};

// Sets the table that all further communicators start with: its name in executor_tables.py.
void set_table(const std::string &name);
// Where it lies.
std::string table_path(const std::string &name);

// An entry by a schedule, with LL, and its choice.
inline tuccl_entry_record entry_of(uint32_t schedule, uint64_t min_bytes, uint64_t max_bytes,
                                   uint64_t buffer_bytes = 0) {
    tuccl_entry_record entry = {};
    entry.min_bytes = min_bytes;
    entry.max_bytes = max_bytes;
    entry.algorithm = TUCCL_NO_CODE;
    entry.protocol = TUCCL_NO_CODE;
    entry.schedule = schedule;
    entry.schedule_protocol = TUCCL_LL;
    entry.schedule_nchannels = 1;
    entry.schedule_nthreads = 32;
    entry.schedule_buffer_bytes = buffer_bytes;
    return entry;
}
inline const char *choose(const tuccl_entry_record &entry) {
    return tuccl_executor_choose(&entry, sizeof entry);
}

// Waits for all ranks' threads of in_threads.
void meet_threads();
// Rank 0 alone, while the others wait.
template <typename Body> void on_rank_0(const Rank &rank, const Body &body) {
    meet_threads();
    if (rank.rank == 0)
        body();
    meet_threads();
}

inline ncclUniqueId new_id() {
    ncclUniqueId id = {};
    CHECK(ncclGetUniqueId(&id) == 0);
    return id;
}
// The error of a communicator that does not block, once its start has ended.
inline int settled(ncclComm_t comm) {
    int error = tuccl::kNcclInProgress;
    while (error == tuccl::kNcclInProgress)
        CHECK(ncclCommGetAsyncError(comm, &error) == 0);
    return error;
}

#endif
