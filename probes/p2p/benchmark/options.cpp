#include "options.h"

#include <cmath>
#include <cstdlib>

namespace p2p {

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

namespace {

bool parse_number(const std::string &text, double min, double max, double &number) {
    char *end = nullptr;
    number = std::strtod(text.c_str(), &end);
    return end != text.c_str() && *end == '\0' && number >= min && number <= max;
}

bool parse_parts(const std::string &text, Options &options) {
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

} // namespace

std::string parse_options(int count, char **arguments, Options &options) {
    constexpr size_t kAlignment = 4096;
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
                options.bytes = static_cast<size_t>(number) / kAlignment * kAlignment;
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

} // namespace p2p
