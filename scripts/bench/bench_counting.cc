// What TUCCL_METRICS costs: a call that is counted, in one thread and beside another, and a file.
//
//   cd tuccl/runtime/executor && g++ -O2 -std=c++17 -I. -I..
//   ../../../scripts/bench/bench_counting.cc
//       metrics.cc metrics_file.cc log.cc secrets.cc -o /tmp/bench_counting -lpthread
//   /tmp/bench_counting FOLDER
#include "metrics.h"

#include <chrono>
#include <cstdio>
#include <thread>

namespace {

constexpr int kCalls = 20'000'000;
constexpr int kFiles = 2000;

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
    return 0;
}
