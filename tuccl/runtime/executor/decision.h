// The tuned ranges of one communicator shape, the lookup of a call's rule, and the rules that a job
// that learns may try instead.
#ifndef TUCCL_EXECUTOR_DECISION_H
#define TUCCL_EXECUTOR_DECISION_H

#include "executor.h"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace tuccl {

constexpr uint32_t kOperations = TUCCL_OPERATIONS;
constexpr uint8_t kAnyRoot = 0xFF;

// The configuration of calls of one operation from min_bytes to max_bytes, both inclusive, counted
// as in the bundle (docs/reference/bundle-format.md).
struct Rule {
    uint64_t min_bytes;
    uint64_t max_bytes;
    uint64_t buffer_bytes;
    uint32_t program;
    uint16_t nchannels;
    uint16_t nthreads;
    uint8_t pattern;
    uint8_t protocol;
    uint8_t root;    // The root that it serves; kAnyRoot for all.
    bool in_windows; // Whether it serves calls on registered windows, too.
};

class Decision {
  public:
    // Adds a rule, by ascending size within an operation; false without a change if its range is
    // empty or overlaps the previous one.
    bool add(uint32_t operation, const Rule &rule);

    // Removes the rule of a call of this size, if there is one.
    void remove(uint32_t operation, uint64_t bytes);

    // Returns the rule of a call, NULL where NCCL runs it.
    const Rule *find(uint32_t operation, uint64_t bytes) const;

    // Without runners-up.
    size_t rule_count() const;

    // Adds a rule to be tried; of those of a size the fastest first.
    void add_runner_up(uint32_t operation, const Rule &rule);

    bool has_runners_up() const;

    // Calls visit(rule) for each runner-up of a call of this size.
    template <typename Visit>
    void for_each_runner_up(uint32_t operation, uint64_t bytes, Visit visit) const {
        for (const Rule &rule : of_operation_[operation].runners_up)
            if (rule.min_bytes <= bytes && bytes <= rule.max_bytes)
                visit(rule);
    }

    // Calls visit(operation, rule) for each rule and each runner-up.
    template <typename Visit> void for_each(Visit visit) const {
        for (uint32_t operation = 0; operation < kOperations; operation++)
            for (const auto *rules :
                 {&of_operation_[operation].rules, &of_operation_[operation].runners_up})
                for (const Rule &rule : *rules)
                    visit(operation, rule);
    }

  private:
    struct Ranges {
        std::vector<uint64_t> min_bytes; // Separate, so that a search touches fewer cache lines.
        std::vector<Rule> rules;
        std::vector<Rule> runners_up;
    };
    std::array<Ranges, kOperations> of_operation_;
};

// Returns a call's size as tables count it; nothing on overflow or for an unknown type or
// operation.
std::optional<uint64_t> table_bytes(uint32_t operation, uint32_t type, size_t count,
                                    uint32_t ranks);

} // namespace tuccl

#endif
