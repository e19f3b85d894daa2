// A process a GPU: what they share, the NCCL that they call, and the memory of one another that
// they open.
#ifndef TUCCL_COPY_ENGINE_RANKS_CUH
#define TUCCL_COPY_ENGINE_RANKS_CUH

#include "copy_engine_ways.cuh"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <dlfcn.h>
#include <pthread.h>

namespace bench {

using ways::check;
using ways::kMostRanks;
using ways::Rank;

constexpr size_t kMiB = size_t{1} << 20;
constexpr int kSizes = 7;
constexpr int kMostWays = 40;
constexpr int kMostRepeats = 15;
constexpr size_t kReceiveFirst = 520 * kMiB + 512; // In a segment as PyTorch's allocator makes.
constexpr size_t kSegmentBytes = 1600 * kMiB;

struct NcclId {
    char internal[128];
};

struct Nccl {
    int (*GetUniqueId)(NcclId *);
    int (*CommInitRank)(void **, int, NcclId, int);
    int (*AllGather)(const void *, void *, size_t, int, void *, cudaStream_t);
    int (*GetVersion)(int *);
};

// What the processes share.
struct Shared {
    pthread_barrier_t barrier;
    NcclId id;
    cudaIpcMemHandle_t segment[kMostRanks];
    cudaIpcMemHandle_t staging[kMostRanks];
    cudaIpcMemHandle_t words[kMostRanks];
    int failed[kMostRanks];
    char why[2][kMostWays][120];
    float us[kMostRanks];
    float host_us[kSizes][kMostWays];
    float result[2][kSizes][kMostWays][kMostRepeats];
};

struct Job {
    Shared *shared;
    int ranks;
    int repeats;
    const char *nccl_path;
};

inline void meet(const Job &job) {
    pthread_barrier_wait(&job.shared->barrier);
}

// Whether all ranks could.
inline bool agree(const Job &job, int rank, bool works) {
    job.shared->failed[rank] = works ? 0 : 1;
    meet(job);
    const bool all = std::count(job.shared->failed, job.shared->failed + job.ranks, 0) == job.ranks;
    meet(job);
    return all;
}

inline double now_us() {
    return std::chrono::duration<double, std::micro>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

static __global__ void idle_kernel(long long cycles) {
    const long long first = clock64();
    while (clock64() - first < cycles) {
    }
}

template <typename Function> void find_in(void *library, Function *function, const char *name) {
    *function = library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
    if (*function == nullptr)
        throw std::runtime_error(name);
}

// This process's rank: its streams, its NCCL, its and the others' memory.
class Connected {
  public:
    Connected(const Job &job, int self) : job_(job), self_(self) {
        check(cudaSetDevice(self));
        make_streams();
        load_nccl();
        export_memory();
        meet(job_);
        open_all();
        meet(job_);
    }

    const Rank &rank() const {
        return rank_;
    }

    void all_gather(size_t part) const {
        if (nccl_.AllGather(rank_.peers.send[self_], rank_.peers.receive[self_], part, 1, comm_,
                            rank_.main) != 0)
            throw std::runtime_error("ncclAllGather");
    }

  private:
    void make_streams() {
        check(cudaStreamCreateWithFlags(&rank_.main, cudaStreamNonBlocking));
        for (auto &stream : rank_.side)
            check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        check(cudaEventCreateWithFlags(&rank_.forked, cudaEventDisableTiming));
        for (auto &event : rank_.joined)
            check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }

    void load_nccl() {
        void *library = dlopen(job_.nccl_path, RTLD_NOW);
        if (library == nullptr)
            throw std::runtime_error(dlerror());
        find_in(library, &nccl_.GetUniqueId, "ncclGetUniqueId");
        find_in(library, &nccl_.CommInitRank, "ncclCommInitRank");
        find_in(library, &nccl_.AllGather, "ncclAllGather");
        find_in(library, &nccl_.GetVersion, "ncclGetVersion");
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        find_in(driver, &rank_.batch, "cuStreamBatchMemOp_v2");
        find_in(driver, &address_range_, "cuMemGetAddressRange_v2");
        find_in(driver, &attribute_, "cuPointerGetAttribute");
        if (self_ == 0 && nccl_.GetUniqueId(&job_.shared->id) != 0)
            throw std::runtime_error("ncclGetUniqueId");
        meet(job_);
        if (nccl_.CommInitRank(&comm_, job_.ranks, job_.shared->id, self_) != 0)
            throw std::runtime_error("ncclCommInitRank");
    }

    template <typename Type> static Type *exported(size_t bytes, cudaIpcMemHandle_t *handle) {
        void *memory = nullptr;
        check(cudaMalloc(&memory, std::max(bytes, 2 * kMiB)));
        check(cudaMemset(memory, 0, bytes));
        check(cudaIpcGetMemHandle(handle, memory));
        return static_cast<Type *>(memory);
    }

    template <typename Type> static Type *opened(const cudaIpcMemHandle_t &handle) {
        void *memory = nullptr;
        check(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
        return static_cast<Type *>(memory);
    }

    void export_memory() {
        Shared &shared = *job_.shared;
        ways::Peers &peers = rank_.peers;
        peers.rank = self_;
        peers.ranks = job_.ranks;
        segment_ = exported<char>(kSegmentBytes, &shared.segment[self_]);
        rank_.staging[self_] = exported<char>(ways::kStagingBytes, &shared.staging[self_]);
        peers.words[self_] =
            exported<uint32_t>(ways::kWords * sizeof(uint32_t), &shared.words[self_]);
        const std::vector<uint32_t> ones(kMostRanks * ways::kSlots, 1);
        check(cudaMemcpy(peers.words[self_] + ways::kFree, ones.data(),
                         ones.size() * sizeof(uint32_t), cudaMemcpyHostToDevice));
        check(cudaDeviceSynchronize());
    }

    // Tells what opening costs, also beside a kernel that runs.
    void open_all() {
        const Shared &shared = *job_.shared;
        double open_us = 0;
        double busy_us = 0;
        for (int peer = 0; peer < job_.ranks; peer++) {
            char *other = segment_;
            if (peer != self_) {
                double first = now_us();
                other = opened<char>(shared.segment[peer]);
                open_us = now_us() - first;
                idle_kernel<<<1, 1, 0, rank_.main>>>(50000000); // 25 to 50 ms.
                first = now_us();
                rank_.staging[peer] = opened<char>(shared.staging[peer]);
                busy_us = now_us() - first;
                rank_.peers.words[peer] = opened<uint32_t>(shared.words[peer]);
                check(cudaStreamSynchronize(rank_.main));
            }
            rank_.peers.send[peer] = other + 512;
            rank_.peers.receive[peer] = other + kReceiveFirst;
        }
        if (self_ == 0)
            tell_costs(open_us, busy_us);
    }

    void tell_costs(double open_us, double busy_us) const {
        constexpr int kTimes = 1000;
        CUdeviceptr base = 0;
        size_t bytes = 0;
        unsigned long long id = 0;
        const auto inside = reinterpret_cast<CUdeviceptr>(segment_ + kReceiveFirst);
        double first = now_us();
        for (int i = 0; i < kTimes; i++)
            (void)address_range_(&base, &bytes, inside);
        const double range_us = (now_us() - first) / kTimes;
        first = now_us();
        for (int i = 0; i < kTimes; i++)
            (void)attribute_(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, inside);
        int version = 0;
        (void)nccl_.GetVersion(&version);
        std::printf("NCCL %d, %d ranks; cudaIpcOpenMemHandle of %zu MB %.0f us, beside a kernel of "
                    "25 ms or more %.0f us; cuMemGetAddressRange %.2f us, buffer id %.2f us\n",
                    version, job_.ranks, kSegmentBytes / kMiB, open_us, busy_us, range_us,
                    (now_us() - first) / kTimes);
    }

    Job job_;
    int self_;
    Nccl nccl_ = {};
    CUresult (*address_range_)(CUdeviceptr *, size_t *, CUdeviceptr) = nullptr;
    CUresult (*attribute_)(void *, CUpointer_attribute, CUdeviceptr) = nullptr;
    void *comm_ = nullptr;
    char *segment_ = nullptr;
    Rank rank_ = {};
};

} // namespace bench

#endif
