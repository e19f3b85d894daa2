// The report and its JSON form.
#pragma once

#include "options.h"

#include <string>
#include <vector>

namespace p2p {

constexpr int kSchemaVersion = 1;

enum class Status { kOk, kCorrupt, kFailed };

// A figure: its quantity, its GPUs, and all samples.
struct Measurement {
    std::string what;
    std::vector<int> gpus; // indices in Report::gpus: source and destination, or a single GPU
    std::string unit;      // GB/s or us
    std::vector<double> samples;
    Status status = Status::kOk;
    std::string detail; // message of a failure, one line
};

struct GpuFacts {
    std::string bus_id;
    std::string name;
    int sm_count = 0;
    int compute_capability = 0; // times ten
    size_t memory_bytes = 0;
    size_t buffer_bytes = 0;
    size_t host_buffer_bytes = 0;
    std::string error; // reason for its exclusion; empty when it is measured
};

struct PairFacts {
    int a = 0;
    int b = 0;
    bool peer_access = false;
    std::string detail; // error of a failed call
};

struct Report {
    int driver_version = 0;
    int runtime_version = 0;
    double seconds = 0;
    std::vector<GpuFacts> gpus;
    std::vector<PairFacts> pairs;
    std::vector<Measurement> measurements;
    std::vector<std::string> notes;
};

std::string to_json(const Report &report, const Options &options);
std::string error_json(const std::string &error);

} // namespace p2p
