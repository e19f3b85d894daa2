// tuccl-p2p: measures transfers between the GPUs of one host. docs/reference/p2p.md describes the
// figures.
#include "measure.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

const char *const kUsage =
    "Usage: tuccl-p2p [--bytes N] [--repetitions N] [--seconds S] [--only PART[,PART...]]\n"
    "\n"
    "Measures what the GPUs of this host do when they copy to each other; JSON on standard\n"
    "output, progress on standard error.\n"
    "\n"
    "  --bytes N        most bytes that one copy moves, 65536 to 4294967296 (268435456)\n"
    "  --repetitions N  samples of every figure, 1 to 1000 (7)\n"
    "  --seconds S      begin no further step after S seconds (60)\n"
    "  --only PART      latency, ce (copy engine), kernel or host (host to GPU); all by default\n"
    "\n"
    "Exit codes: 0 measured (what failed is named in the JSON), 2 wrong arguments,\n"
    "3 nothing can be measured here ({\"error\": ...} says why).\n";

enum ExitCode { kMeasured = 0, kBadArguments = 2, kNothingToMeasure = 3 };

bool parse_number(const std::string &text, double min, double max, double &number) {
    char *end = nullptr;
    number = std::strtod(text.c_str(), &end);
    return end != text.c_str() && *end == '\0' && number >= min && number <= max;
}

bool parse_parts(const std::string &text, p2p::Options &options) {
    options.latency = options.copy_engine = options.kernel = options.host = false;
    for (size_t start = 0; start <= text.size();) {
        size_t end = text.find(',', start);
        end = end == std::string::npos ? text.size() : end;
        std::string part = text.substr(start, end - start);
        if (part == "latency")
            options.latency = true;
        else if (part == "ce")
            options.copy_engine = true;
        else if (part == "kernel")
            options.kernel = true;
        else if (part == "host")
            options.host = true;
        else
            return false;
        start = end + 1;
    }
    return true;
}

// Returns an empty text, or the error in the arguments.
std::string parse_options(int count, char **arguments, p2p::Options &options) {
    for (int i = 1; i < count; i++) {
        std::string name = arguments[i];
        if (name == "--help" || name == "-h") {
            options.help = true;
            return "";
        }
        if (i + 1 == count)
            return name + ": unknown option, or its value is missing";
        std::string value = arguments[++i];
        double number = 0;
        bool valid = false;
        if (name == "--bytes") {
            valid =
                parse_number(value, 65536, 4294967296.0, number) && number == std::floor(number);
            if (valid)
                options.bytes = static_cast<size_t>(number) / p2p::kAlignment * p2p::kAlignment;
        } else if (name == "--repetitions") {
            valid = parse_number(value, 1, 1000, number) && number == std::floor(number);
            if (valid)
                options.repetitions = static_cast<int>(number);
        } else if (name == "--seconds") {
            valid = parse_number(value, 0.001, 86400, number);
            if (valid)
                options.seconds = number;
        } else if (name == "--only") {
            valid = parse_parts(value, options);
        } else {
            return name + ": unknown option";
        }
        if (!valid)
            return name + ": '" + value + "' is not a value it takes, see --help";
    }
    return "";
}

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
    std::string problem = parse_options(count, arguments, options);
    if (!problem.empty()) {
        std::fprintf(stderr, "tuccl-p2p: %s\n", problem.c_str());
        return kBadArguments;
    }
    if (options.help) {
        std::fputs(kUsage, stdout);
        return kMeasured;
    }
    // Code that is loaded while a gate holds a stream could wait for it; streams that share a
    // hardware queue would wait for each other. Both are read when CUDA starts.
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    return measure(options);
}
