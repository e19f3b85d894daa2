// tuccl-p2p: measures transfers between the GPUs of one host. docs/reference/p2p.md describes the
// figures.
#include "cuda_error.h"
#include "gpu.h"
#include "options.h"
#include "plan.h"
#include "report.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

enum ExitCode { kMeasured = 0, kBadArguments = 2, kNothingToMeasure = 3 };

std::string version(int number) {
    return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

// Explains an error that prevents all measurements, with a remedy.
std::string explain(const p2p::CudaError &error, const p2p::Report &report) {
    if (report.driver_version == 0)
        return "no NVIDIA driver on this host: libcuda.so.1 was not found or does not load";
    switch (error.code) {
    case cudaErrorInsufficientDriver:
        return "the NVIDIA driver supports CUDA " + version(report.driver_version) +
               ", tuccl-p2p was built with " + version(report.runtime_version) +
               ": update the driver, or install TuCCL where nvcc is older";
    case cudaErrorNoDevice:
        return "no GPU is visible: none is there, or CUDA_VISIBLE_DEVICES hides it";
    case cudaErrorSystemNotReady:
        return "the GPUs are not ready: on a machine with NVSwitch nvidia-fabricmanager must run";
    default:
        return error.what();
    }
}

int measure(const p2p::Options &options) {
    auto begin = p2p::Clock::now();
    p2p::Report report;
    (void)cudaDriverGetVersion(&report.driver_version);
    (void)cudaRuntimeGetVersion(&report.runtime_version);
    bool hung = false;
    try {
        p2p::Machine machine = p2p::open_machine(options, report);
        try {
            p2p::measure_all(machine, options, begin, report);
        } catch (const p2p::HungError &error) {
            hung = true;
            report.notes.push_back(std::string(error.what()) + ": nothing was measured after that");
        }
    } catch (const p2p::CudaError &error) {
        std::fputs(p2p::error_json(explain(error, report)).c_str(), stdout);
        return kNothingToMeasure;
    } catch (const std::exception &error) {
        std::fputs(p2p::error_json(error.what()).c_str(), stdout);
        return kNothingToMeasure;
    }
    report.seconds = std::chrono::duration<double>(p2p::Clock::now() - begin).count();
    std::fputs(p2p::to_json(report, options).c_str(), stdout);
    std::fflush(stdout);
    if (hung)
        std::_Exit(kMeasured); // an orderly end would wait for the GPU
    return kMeasured;
}

} // namespace

int main(int count, char **arguments) {
    p2p::Options options;
    std::string problem = p2p::parse_options(count, arguments, options);
    if (!problem.empty()) {
        std::fprintf(stderr, "tuccl-p2p: %s\n", problem.c_str());
        return kBadArguments;
    }
    if (options.help) {
        std::fputs(p2p::kUsage, stdout);
        return kMeasured;
    }
    // Code that is loaded while a gate holds a stream could wait for it; streams that share a
    // hardware queue would wait for each other. Both are read when CUDA starts.
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    return measure(options);
}
