#include "rules_file.h"

#include <algorithm>
#include <sstream>

namespace tuccl {

namespace {

struct Name {
    const char *text;
    uint8_t code;
};

constexpr Name kOperationNames[] = {
    {"broadcast", TUCCL_BROADCAST},   {"reduce", TUCCL_REDUCE},
    {"all_gather", TUCCL_ALL_GATHER}, {"reduce_scatter", TUCCL_REDUCE_SCATTER},
    {"all_reduce", TUCCL_ALL_REDUCE}, {"alltoall", TUCCL_ALLTOALL},
};
constexpr Name kPatternNames[] = {
    {"one_phase", TUCCL_PATTERN_ONE_PHASE},
    {"two_phase", TUCCL_PATTERN_TWO_PHASE},
    {"direct", TUCCL_PATTERN_DIRECT},
};
constexpr Name kProtocolNames[] = {
    {"ll", TUCCL_LL}, {"ll128", TUCCL_LL128}, {"simple", TUCCL_SIMPLE}};

template <size_t kCount>
bool find_code(const Name (&names)[kCount], const std::string &text, uint8_t *code) {
    const auto *found = std::find_if(std::begin(names), std::end(names),
                                     [&](const Name &name) { return text == name.text; });
    if (found == std::end(names))
        return false;
    *code = found->code;
    return true;
}

// `program:3` is the program with this index in the communicator's bundle, `program:3:direct` one
// that there is a kernel for.
bool find_runner(const std::string &text, Rule *rule) {
    static const std::string kPrefix = "program:";
    if (text.compare(0, kPrefix.size(), kPrefix) != 0)
        return find_code(kPatternNames, text, &rule->pattern);
    std::istringstream words(text.substr(kPrefix.size()));
    std::string index;
    std::string pattern;
    std::getline(words, index, ':');
    std::getline(words, pattern);
    rule->pattern = TUCCL_PATTERN_NONE;
    std::istringstream number(index);
    return number >> rule->program && number.eof() && rule->program != kNoProgram &&
           (pattern.empty() || find_code(kPatternNames, pattern, &rule->pattern));
}

// NULL, or what is wrong with the line.
const char *parse_line(const std::string &line, Decision *decision) {
    std::istringstream words(line);
    std::string operation_name;
    std::string pattern_name;
    std::string protocol_name;
    std::string rest;
    uint8_t operation = 0;
    Rule rule = {};
    rule.program = kNoProgram;
    rule.root = kAnyRoot;
    if (!(words >> operation_name >> rule.min_bytes >> rule.max_bytes >> pattern_name >>
          protocol_name >> rule.nchannels >> rule.nthreads >> rule.buffer_bytes) ||
        words >> rest)
        return "is not: operation min_bytes max_bytes pattern protocol nchannels nthreads "
               "buffer_bytes";
    if (!find_code(kOperationNames, operation_name, &operation))
        return "names no operation";
    if (!find_runner(pattern_name, &rule))
        return "names no pattern (one_phase, two_phase, direct, program:INDEX)";
    if (!find_code(kProtocolNames, protocol_name, &rule.protocol))
        return "names no protocol (ll, ll128, simple)";
    return decision->add(operation, rule)
               ? nullptr
               : "overlaps the range before it, or has its ends reversed";
}

} // namespace

std::string parse_rules(const std::string &text, Decision *decision) {
    std::istringstream lines(text);
    std::string line;
    for (int number = 1; std::getline(lines, line); number++) {
        line.erase(std::min(line.find('#'), line.size()));
        if (line.find_first_not_of(" \t\r") == std::string::npos)
            continue;
        if (const char *fault = parse_line(line, decision))
            return "line " + std::to_string(number) + " " + fault;
    }
    return {};
}

} // namespace tuccl
