// What watching costs: a call that TUCCL_METRICS counts, alone and beside another thread's, a file,
// a line of TUCCL_GUARD_LOG, and a call that the guard watches, of 256 sizes. In the executor's
// folder:
//
//   g++ -O2 -std=c++17 -I. -I.. ../../../scripts/bench/bench_counting.cc guard_watch.cc
//       verdict_log.cc metrics.cc metrics_file.cc whole_file.cc log.cc secrets.cc -o /tmp/bench -lpthread
//   /tmp/bench FOLDER
#include "guard_watch.h"
#include "metrics.h"

#include <chrono>
#include <cstdio>
#include <thread>

namespace {

constexpr int kCalls = 20'000'000;
constexpr int kFiles = 2000;
constexpr uint64_t kSizes = 256;

double ns_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start)
        .count();
}

double ns_of_a_call(tuccl::Metrics *metrics) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; i++)
        metrics->ran(TUCCL_ALL_REDUCE, tuccl::Path::kNccl, 1, 64);
    return ns_since(start) / kCalls;
}

} // namespace

int main(int, char **arguments) {
    tuccl::Metrics metrics(arguments[1], "1-00000001", "0");
    std::printf("%.1f ns a call\n", ns_of_a_call(&metrics));
    std::thread beside([&] { (void)ns_of_a_call(&metrics); });
    std::printf("%.1f ns a call beside another thread's\n", ns_of_a_call(&metrics));
    beside.join();
    metrics.guards();
    for (uint32_t kind = 0; kind < TUCCL_CALL_KINDS; kind++)
        for (const auto path : {tuccl::Path::kSchedule, tuccl::Path::kSetting, tuccl::Path::kNccl})
            metrics.ran(kind, path, 1, 64);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kFiles; i++)
        metrics.write_last();
    std::printf("%.1f us a file\n", ns_since(start) / kFiles / 1000);
    tuccl::VerdictLog log(arguments[1], 1 << 20);
    const tuccl::WatchTerms terms = {0, 1, 8, 1, 8, 0, &metrics, &log};
    tuccl::GuardWatch watch(terms);
    const auto conclude = [&watch](uint64_t size) {
        watch.concluded({{TUCCL_ALL_REDUCE, size},
                         tuccl::TrialVerdict::kStays,
                         {{"table", 10.0F}, {"nccl", 20.0F}},
                         0,
                         0,
                         1},
                        0);
    };
    const auto begin = std::chrono::steady_clock::now();
    for (uint64_t size = 0; size < kSizes; size++)
        conclude(size);
    std::printf("%.1f us a verdict, with its line\n", ns_since(begin) / kSizes / 1000);
    const auto before = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; i++)
        watch.ran({TUCCL_ALL_REDUCE, static_cast<uint64_t>(i) * 37 % kSizes}, true, std::nullopt);
    std::printf("%.1f ns a guarded call of 256 sizes\n", ns_since(before) / kCalls);
    return 0;
}
