#include "report.h"

#include <cmath>
#include <cstdio>
#include <functional>

namespace p2p {
namespace {

// Quotes a text; characters other than printable ASCII become '?', so that the JSON stays valid.
std::string quoted(const std::string &text) {
    std::string out = "\"";
    for (char character : text) {
        if (character == '"' || character == '\\')
            out += '\\';
        out += character >= ' ' && character <= '~' ? character : '?';
    }
    return out + '"';
}

std::string number(double value) {
    if (!std::isfinite(value))
        return "null";
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", value);
    return text;
}

template <typename T>
std::string list(const std::vector<T> &items, const std::function<std::string(const T &)> &json,
                 const char *separator = ", ") {
    std::string out = "[";
    for (const T &item : items)
        out += (&item == items.data() ? "" : separator) + json(item);
    return out + "]";
}

std::string gpu_json(const GpuFacts &gpu) {
    return "{\"bus_id\": " + quoted(gpu.bus_id) + ", \"name\": " + quoted(gpu.name) +
           ", \"sm_count\": " + std::to_string(gpu.sm_count) +
           ", \"compute_capability\": " + std::to_string(gpu.compute_capability) +
           ", \"memory_bytes\": " + std::to_string(gpu.memory_bytes) +
           ", \"buffer_bytes\": " + std::to_string(gpu.buffer_bytes) +
           ", \"host_buffer_bytes\": " + std::to_string(gpu.host_buffer_bytes) +
           ", \"error\": " + quoted(gpu.error) + "}";
}

std::string pair_json(const PairFacts &pair) {
    return "{\"gpus\": [" + std::to_string(pair.a) + ", " + std::to_string(pair.b) +
           "], \"peer_access\": " + (pair.peer_access ? "true" : "false") +
           ", \"detail\": " + quoted(pair.detail) + "}";
}

std::string measurement_json(const Measurement &measured) {
    const char *status = measured.status == Status::kOk        ? "ok"
                         : measured.status == Status::kCorrupt ? "corrupt"
                                                               : "failed";
    return "{\"what\": " + quoted(measured.what) + ", \"gpus\": " +
           list<int>(measured.gpus, [](const int &gpu) { return std::to_string(gpu); }) +
           ", \"unit\": " + quoted(measured.unit) + ", \"status\": \"" + status +
           "\", \"detail\": " + quoted(measured.detail) + ", \"samples\": " +
           list<double>(measured.samples, [](const double &value) { return number(value); }) + "}";
}

} // namespace

std::string to_json(const Report &report, const Options &options) {
    return "{\"schema_version\": " + std::to_string(kSchemaVersion) +
           ", \"driver_version\": " + std::to_string(report.driver_version) +
           ", \"runtime_version\": " + std::to_string(report.runtime_version) +
           ", \"seconds\": " + number(report.seconds) +
           ", \"bytes\": " + std::to_string(options.bytes) +
           ", \"repetitions\": " + std::to_string(options.repetitions) +
           ",\n\"gpus\": " + list<GpuFacts>(report.gpus, gpu_json, ",\n ") +
           ",\n\"pairs\": " + list<PairFacts>(report.pairs, pair_json, ",\n ") +
           ",\n\"measurements\": " +
           list<Measurement>(report.measurements, measurement_json, ",\n ") +
           ",\n\"notes\": " + list<std::string>(report.notes, quoted, ",\n ") + "}\n";
}

std::string error_json(const std::string &error) {
    return "{\"error\": " + quoted(error) + "}\n";
}

} // namespace p2p
