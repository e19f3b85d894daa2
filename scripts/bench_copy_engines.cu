// Times large all_gathers by copy engines and by kernels against NCCL's, one process a GPU, in turn
// in one run, one by one and in CUDA graphs; checks every byte first. us per call: the slowest
// rank's, median of the repeats; in brackets NCCL's time over it.
//
//   bench_copy_engines libnccl.so.2 [ranks] [repeats]
#include "copy_engine_ranks.cuh"

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using bench::Job;
using bench::kMiB;
using bench::kMostRanks;
using bench::kMostRepeats;
using bench::kSizes;
using bench::now_us;
using bench::Shared;
using ways::check;
using ways::Rank;
using ways::Way;

constexpr size_t kTotals[kSizes] = {16 * kMiB,  32 * kMiB,  64 * kMiB,  128 * kMiB,
                                    256 * kMiB, 512 * kMiB, 1024 * kMiB};
constexpr unsigned kSeconds = 85;

__global__ void fill_kernel(uint32_t *data, size_t words, uint32_t seed) {
    for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < words;
         i += size_t{gridDim.x} * blockDim.x)
        data[i] = static_cast<uint32_t>(i) * 2654435761U + seed;
}

__global__ void compare_kernel(const uint32_t *data, size_t words, uint32_t seed, uint32_t *wrong) {
    for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < words;
         i += size_t{gridDim.x} * blockDim.x)
        if (data[i] != static_cast<uint32_t>(i) * 2654435761U + seed)
            *wrong = 1;
}

class Bench {
  public:
    Bench(const Job &job, int rank)
        : job_(job), self_(rank), connected_(job, rank), rank_(connected_.rank()) {
        check(cudaEventCreate(&before_));
        check(cudaEventCreate(&after_));
        check(cudaMalloc(&wrong_, sizeof *wrong_));
    }

    // Staging last: a wait for memory that never ends ends all that comes after it.
    void run() {
        run_group(ways::zero_copy_ways());
        run_group(ways::staged_ways());
    }

  private:
    void run_group(std::vector<Way> group) {
        const auto nccl = [this](const Rank &, size_t part) { connected_.all_gather(part); };
        group.insert(group.begin(), {"NCCL", nccl});
        group.push_back({"NCCL again", nccl});
        for (int size = 0; size < kSizes; size++)
            run_size(group, size);
        if (self_ == 0)
            print(group);
    }

    void run_size(const std::vector<Way> &group, int size) {
        const size_t part = kTotals[size] / job_.ranks / 512 * 512;
        const int calls = static_cast<int>(std::clamp<size_t>(1024 * kMiB / kTotals[size], 2, 20));
        std::vector<cudaGraphExec_t> graphs(group.size(), nullptr);
        std::vector<char> works(group.size(), 0);
        for (size_t way = 0; way < group.size(); way++) {
            works[way] = verify(group[way], way, part);
            if (works[way] &&
                !attempt(1, way, [&] { graphs[way] = capture(group[way], part, calls); }))
                graphs[way] = nullptr;
        }
        for (int repeat = 0; repeat < job_.repeats; repeat++)
            for (size_t way = 0; way < group.size(); way++) {
                if (works[way])
                    time_plain(group[way], part, calls, size, static_cast<int>(way), repeat);
                if (graphs[way] != nullptr)
                    time_graph(graphs[way], calls, size, static_cast<int>(way), repeat);
            }
        for (cudaGraphExec_t graph : graphs)
            if (graph != nullptr)
                check(cudaGraphExecDestroy(graph));
    }

    // Whether all ranks could; else the reason is kept.
    bool attempt(int mode, size_t way, const std::function<void()> &what) {
        bool works = true;
        try {
            what();
        } catch (const std::runtime_error &error) {
            works = false;
            (void)cudaGetLastError();
            std::snprintf(job_.shared->why[mode][way], sizeof job_.shared->why[mode][way], "%s",
                          error.what());
        }
        return agree(job_, self_, works);
    }

    static uint32_t seed(int rank) {
        return static_cast<uint32_t>(rank + 1) * 40503U;
    }

    bool verify(const Way &way, size_t index, size_t part) {
        const size_t words = part / sizeof(uint32_t);
        return attempt(0, index,
                       [&] {
                           auto *send = reinterpret_cast<uint32_t *>(rank_.peers.send[self_]);
                           fill_kernel<<<256, 256, 0, rank_.main>>>(send, words, seed(self_));
                           check(cudaMemsetAsync(rank_.peers.receive[self_], 0, part * job_.ranks,
                                                 rank_.main));
                           check(cudaMemsetAsync(wrong_, 0, sizeof *wrong_, rank_.main));
                           check(cudaStreamSynchronize(rank_.main));
                       }) &&
               attempt(0, index,
                       [&] {
                           way.enqueue(rank_, part);
                           check(cudaGetLastError());
                           check(cudaStreamSynchronize(rank_.main));
                       }) &&
               attempt(0, index, [&] { compare(part, words); });
    }

    void compare(size_t part, size_t words) {
        for (int from = 0; from < job_.ranks; from++)
            compare_kernel<<<256, 256, 0, rank_.main>>>(
                reinterpret_cast<uint32_t *>(rank_.peers.receive[self_] + from * part), words,
                seed(from), wrong_);
        uint32_t wrong = 0;
        uint32_t broken = 0;
        check(cudaMemcpyAsync(&wrong, wrong_, sizeof wrong, cudaMemcpyDefault, rank_.main));
        check(cudaMemcpyAsync(&broken, rank_.peers.words[self_] + ways::kBroken, sizeof broken,
                              cudaMemcpyDefault, rank_.main));
        check(cudaStreamSynchronize(rank_.main));
        if (broken != 0)
            throw std::runtime_error("a wait did not end");
        if (wrong != 0)
            throw std::runtime_error("wrong data");
    }

    cudaGraphExec_t capture(const Way &way, size_t part, int calls) {
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t made = nullptr;
        check(cudaStreamBeginCapture(rank_.main, cudaStreamCaptureModeRelaxed));
        std::string why;
        try {
            for (int call = 0; call < calls; call++)
                way.enqueue(rank_, part);
        } catch (const std::runtime_error &error) {
            why = error.what();
        }
        const cudaError_t ended = cudaStreamEndCapture(rank_.main, &graph);
        if (!why.empty())
            throw std::runtime_error(why);
        check(ended);
        check(cudaGraphInstantiate(&made, graph, 0));
        check(cudaGraphDestroy(graph));
        check(cudaGraphUpload(made, rank_.main));
        check(cudaStreamSynchronize(rank_.main));
        return made;
    }

    void time_plain(const Way &way, size_t part, int calls, int size, int index, int repeat) {
        way.enqueue(rank_, part);
        check(cudaStreamSynchronize(rank_.main));
        meet(job_);
        check(cudaEventRecord(before_, rank_.main));
        const double first = now_us();
        for (int call = 0; call < calls; call++)
            way.enqueue(rank_, part);
        job_.shared->host_us[size][index] = static_cast<float>((now_us() - first) / calls);
        check(cudaEventRecord(after_, rank_.main));
        record(0, calls, size, index, repeat);
    }

    void time_graph(cudaGraphExec_t graph, int calls, int size, int index, int repeat) {
        check(cudaGraphLaunch(graph, rank_.main));
        check(cudaStreamSynchronize(rank_.main));
        meet(job_);
        check(cudaEventRecord(before_, rank_.main));
        check(cudaGraphLaunch(graph, rank_.main));
        check(cudaEventRecord(after_, rank_.main));
        record(1, calls, size, index, repeat);
    }

    void record(int mode, int calls, int size, int way, int repeat) {
        check(cudaStreamSynchronize(rank_.main));
        float ms = 0;
        check(cudaEventElapsedTime(&ms, before_, after_));
        job_.shared->us[self_] = ms * 1000 / static_cast<float>(calls);
        meet(job_);
        if (self_ == 0)
            job_.shared->result[mode][size][way][repeat] =
                *std::max_element(job_.shared->us, job_.shared->us + job_.ranks);
        meet(job_);
    }

    float median(int mode, int size, size_t way) const {
        std::vector<float> all(job_.shared->result[mode][size][way],
                               job_.shared->result[mode][size][way] + job_.repeats);
        std::sort(all.begin(), all.end());
        return all[all.size() / 2];
    }

    void print(const std::vector<Way> &all) {
        for (int mode = 0; mode < 2; mode++) {
            std::printf("\n%-28s", mode == 0 ? "one by one" : "in graphs");
            for (const size_t total : kTotals)
                std::printf(" %8zu MB   ", total / kMiB);
            std::printf("%s\n", mode == 0 ? "   host us at 64 MB" : "");
            for (size_t way = 0; way < all.size(); way++)
                print_row(mode, way, all[way].name);
        }
        std::fflush(stdout);
        std::memset(job_.shared->result, 0, sizeof job_.shared->result);
        std::memset(job_.shared->why, 0, sizeof job_.shared->why);
    }

    void print_row(int mode, size_t way, const char *name) const {
        std::printf("%-28s", name);
        for (int size = 0; size < kSizes; size++) {
            const float us = median(mode, size, way);
            if (us > 0)
                std::printf(" %7.1f (%4.2f)", us, median(mode, size, 0) / us);
            else
                std::printf(" %14s", "-");
        }
        if (mode == 0)
            std::printf("  %5.0f", job_.shared->host_us[2][way]);
        std::printf(" %s\n", job_.shared->why[mode][way]);
    }

    Job job_;
    int self_;
    bench::Connected connected_;
    const Rank &rank_;
    cudaEvent_t before_ = nullptr;
    cudaEvent_t after_ = nullptr;
    uint32_t *wrong_ = nullptr;
};

int run_rank(const Job &job, int rank) {
    try {
        Bench(job, rank).run();
    } catch (const std::runtime_error &error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        return 1;
    }
    std::fflush(stdout);
    return 0;
}

// No rank goes on without the others.
int wait_for_ranks(const std::vector<pid_t> &ranks) {
    int failed = 0;
    for (size_t ended = 0; ended < ranks.size(); ended++) {
        int status = 0;
        (void)wait(&status);
        if (status == 0 || failed != 0)
            continue;
        failed = 1;
        std::fprintf(stderr, "a rank ended with status %d\n", status);
        for (const pid_t rank : ranks)
            (void)kill(rank, SIGKILL);
    }
    return failed;
}

} // namespace

int main(int count, char **arguments) {
    Job job = {};
    job.nccl_path = count > 1 ? arguments[1] : "libnccl.so.2";
    job.ranks = count > 2 ? std::atoi(arguments[2]) : 4;
    job.repeats = count > 3 ? std::atoi(arguments[3]) : 5;
    if (job.ranks < 2 || job.ranks > kMostRanks || job.repeats < 1 || job.repeats > kMostRepeats) {
        std::fprintf(stderr, "usage: %s libnccl.so.2 [2 to 8 ranks] [1 to 15 repeats]\n",
                     arguments[0]);
        return 2;
    }
    void *memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    job.shared = static_cast<Shared *>(memory);
    pthread_barrierattr_t attribute;
    pthread_barrierattr_init(&attribute);
    pthread_barrierattr_setpshared(&attribute, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&job.shared->barrier, &attribute, static_cast<unsigned>(job.ranks));
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < job.ranks; rank++) {
        const pid_t child = fork();
        if (child == 0) {
            (void)alarm(kSeconds);
            const int failed = run_rank(job, rank);
            std::_Exit(failed);
        }
        ranks.push_back(child);
    }
    return wait_for_ranks(ranks);
}
