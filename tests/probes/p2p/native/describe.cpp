// Prints, for the Python tests, rounds of n GPUs (`rounds N`), the sizes of two buffers in a memory
// of n bytes (`memory N`), or a report with unusual texts.
#include "buffers.h"
#include "report.h"
#include "rounds.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

namespace {

// Allocates two buffers of 64 bytes, at least 4; prints the size of each and the remaining memory.
int share_memory(size_t left) {
    char *a = nullptr, *b = nullptr;
    size_t bytes = 64;
    bool got = p2p::allocate_two(
        a, b, bytes, 4, true, false,
        [&](char **to, size_t size) {
            if (size > left)
                return false;
            left -= size;
            *to = new char[size];
            return true;
        },
        [&](char *from) {
            left += bytes;
            delete[] from;
        });
    if (got) {
        delete[] a;
        delete[] b;
    }
    std::printf("%zu %zu\n", got ? bytes : 0, left);
    return 0;
}

} // namespace

int main(int count, char **arguments) {
    if (count == 3 && std::strcmp(arguments[1], "memory") == 0)
        return share_memory(static_cast<size_t>(std::atoi(arguments[2])));
    if (count == 3) {
        std::vector<int> members(static_cast<size_t>(std::atoi(arguments[2])));
        std::iota(members.begin(), members.end(), 0);
        for (const p2p::Pairs &round : p2p::round_robin(members)) {
            for (auto [a, b] : round)
                std::printf("%d-%d ", a, b);
            std::printf("\n");
        }
        return 0;
    }
    p2p::Report report;
    report.driver_version = 13000;
    report.seconds = 1.5;
    for (const char *bus_id : {"0000:06:00.0", "0000:07:00.0"}) {
        p2p::GpuFacts gpu;
        gpu.bus_id = bus_id;
        gpu.name = "A \"quoted\" \\ name\n\xc3\xa9";
        report.gpus.push_back(gpu);
    }
    report.pairs.push_back({0, 1, true, ""});
    report.measurements = {
        {"copy_engine", {0, 1}, "GB/s", {386.5, 1.0 / 3.0}, p2p::Status::kOk, ""},
        {"copy_engine", {1, 0}, "GB/s", {}, p2p::Status::kCorrupt, "other data"},
        {"write_latency", {0, 1}, "us", {}, p2p::Status::kFailed, "a\tb"},
        {"fan_out", {0}, "GB/s", {1e-3}, p2p::Status::kOk, ""},
    };
    report.notes = {"one", "two"};
    if (count == 2)
        report.measurements[0].samples[0] = NAN;
    std::fputs(p2p::to_json(report, p2p::Options{}).c_str(), stdout);
    return 0;
}
