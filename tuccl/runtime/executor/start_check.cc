#include "start_check.h"

#include "byte_counts.h"
#include "check_rule.h"
#include "real_nccl.h"

extern "C" {
#include "bundle.h"
}

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>

namespace tuccl {

namespace {

using Clock = std::chrono::steady_clock;

// Of each of two buffers, and the share of the device's free memory that it may take.
constexpr uint64_t kMostBytes = uint64_t{64} << 20;
constexpr uint64_t kShareOfFree = 16;
constexpr uint64_t kGrain = 512;
constexpr uint8_t kType = TUCCL_FLOAT32;
constexpr auto kPatience = std::chrono::seconds(60); // Beyond the limit.

// Calls wait on the stream until all of a step are launched, so that they are timed as in a graph.
// CUDA bounds how many may wait, and so this bounds the calls of a sample.
constexpr uint32_t kMostCalls = 2;
constexpr float kSampleUs = 200.0F;
constexpr uint32_t kMarks = 2 * kCheckPairs + 1;

constexpr size_t kTimes = TUCCL_HANDLE_BYTES / sizeof(float); // That a greeting carries.
static_assert(kTimes >= kMarks, "a greeting carries the times between marks");

struct Candidate {
    tuccl_left_out range;
    uint64_t bytes;
    float expected_us; // Of NCCL, as the table says.
    NcclCall call;     // Without buffers.
    const Rule *rule;  // NULL: the entry is the plugin's.
};

// Sets the call of an entry at a size; false if no whole number of elements is within its range.
bool make_call(const CheckWork &work, uint64_t bytes, Candidate *candidate) {
    const uint32_t operation = candidate->range.operation;
    const uint32_t ranks = work.serving->grid.ranks();
    const uint64_t grain = type_bytes(kType) * (tuccl_is_divided(operation) ? ranks : 1);
    const uint64_t count = std::max<uint64_t>(bytes / grain, 1);
    candidate->bytes = count * grain;
    candidate->call = {
        nullptr,
        nullptr,
        static_cast<size_t>(count),
        kType,
        TUCCL_SUM,
        candidate->rule != nullptr && candidate->rule->root != kAnyRoot ? candidate->rule->root : 0,
        work.comm,
        nullptr,
        static_cast<CallKind>(operation)};
    return candidate->bytes >= candidate->range.min_bytes &&
           candidate->bytes <= candidate->range.max_bytes;
}

// What the communicator runs otherwise than NCCL alone, in the order of the check.
std::vector<Candidate> candidates_of(const CheckWork &work, uint64_t most_bytes, CheckEnd *end) {
    const Serving &serving = *work.serving;
    const Grid &grid = serving.grid;
    std::vector<Candidate> found;
    const tuccl_shape_record *shape =
        tuccl_bundle_shape(work.bundle, grid.ranks(), grid.nodes, grid.ranks_per_node());
    for (uint32_t operation = 0; shape != nullptr && operation < kOperations; operation++) {
        if (operation == TUCCL_ALLTOALL && !real_nccl().AlltoAll)
            continue;
        // Sums that must not move are not NCCL's, even where it is faster.
        if (work.bundle->sums != nullptr && tuccl_is_reduction(operation))
            continue;
        const tuccl_range_record range = shape->of_operation[operation];
        for (uint32_t i = range.first; i < range.first + range.count; i++) {
            const tuccl_entry_record &entry = work.bundle->entries[i];
            Candidate candidate = {};
            candidate.range = {entry.min_bytes, entry.max_bytes, operation, TUCCL_REQUEST_NCCL};
            candidate.rule = serving.plan.decision.find(operation, entry.min_bytes);
            const uint64_t most = std::min(entry.max_bytes, most_bytes);
            if (most < entry.min_bytes ||
                !make_call(work, check_size(entry.min_bytes, most), &candidate))
                continue;
            if (candidate.rule != nullptr &&
                !supports(serving, call_by(*candidate.rule, candidate.call)))
                candidate.rule = nullptr;
            if (candidate.rule == nullptr) {
                if (!tuccl_asks_tuner(operation) || entry.algorithm == TUCCL_NO_CODE)
                    continue;
                if (work.request == nullptr) {
                    end->of_plugin++;
                    continue;
                }
            }
            candidate.expected_us = entry.default_time_us > 0.0F ? entry.default_time_us : 1.0F;
            found.push_back(candidate);
        }
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const Candidate &first, const Candidate &second) {
                         return urgency(first.expected_us) > urgency(second.expected_us);
                     });
    return found;
}

class Checker {
  public:
    Checker(const CheckWork &work, Exchange *exchange, CheckEnd *end)
        : work_(work), exchange_(*exchange), end_(*end) {
    }
    const char *run() {
        exchange_.wait_at_most(std::chrono::microseconds(work_.limit_us) + kPatience,
                               "a call of the check at start does not end on a rank");
        uint64_t most_bytes = 0;
        if (const char *fault = agree_on_size(&most_bytes))
            return fault;
        const std::vector<Candidate> candidates = candidates_of(work_, most_bytes, &end_);
        end_.entries = candidates.size();
        if (candidates.empty())
            return nullptr;
        if (const char *fault = allocate(candidates))
            return fault;
        for (const Candidate &candidate : candidates)
            if (end_.obstacle.empty() && end_.time_us < work_.limit_us)
                if (const char *fault = check(candidate))
                    return fault;
        return nullptr;
    }

  private:
    uint64_t spent_us() const {
        return static_cast<uint64_t>(
            std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin_).count());
    }

    bool has_time_for(float calls_us) const {
        return static_cast<float>(end_.time_us) + calls_us <= static_cast<float>(work_.limit_us);
    }

    // Tells the times of this rank, and sets them to those of the slowest.
    const char *gather(Times *times) {
        Greeting mine = {};
        mine.number = spent_us();
        std::memcpy(mine.handle, times->data(), times->size() * sizeof(float));
        std::vector<Greeting> all;
        if (const char *fault = exchange_.round(mine, &all))
            return fault;
        for (const Greeting &greeting : all) {
            end_.time_us = std::max(end_.time_us, greeting.number);
            for (size_t i = 0; i < times->size(); i++) {
                float time_us;
                std::memcpy(&time_us, greeting.handle + i * sizeof time_us, sizeof time_us);
                (*times)[i] = std::max((*times)[i], time_us);
            }
        }
        return nullptr;
    }

    const char *agree_on_size(uint64_t *most_bytes) {
        Greeting mine = {};
        mine.number = std::min(kMostBytes, tuccl_device_free_bytes() / kShareOfFree);
        std::vector<Greeting> all;
        if (const char *fault = exchange_.round(mine, &all))
            return fault;
        *most_bytes = mine.number;
        for (const Greeting &greeting : all)
            *most_bytes = std::min(*most_bytes, greeting.number);
        return nullptr;
    }

    const char *allocate(const std::vector<Candidate> &candidates) {
        uint64_t bytes = 0;
        for (const Candidate &candidate : candidates)
            bytes = std::max(bytes, candidate.bytes);
        // The second buffer follows the first, and is to be aligned as the job's are.
        const char *lack = tuccl_exchange_create(&buffers_, round_up(bytes, kGrain), 1);
        exchange_.keep(buffers_);
        if (lack == nullptr)
            lack = tuccl_exchange_prepare_marks(buffers_, kMarks);
        work_.meet();
        Greeting mine = {};
        set_fault(&mine, lack != nullptr ? lack : "");
        std::vector<Greeting> all;
        if (const char *fault = exchange_.round(mine, &all))
            return fault;
        end_.obstacle = first_fault(all);
        return nullptr;
    }

    const char *check(const Candidate &candidate) {
        if (!has_time_for(kCallsOfCheck * candidate.expected_us))
            return nullptr;
        Times warm;
        if (const char *fault = make_first_calls(candidate, &warm))
            return fault;
        const float nccl_us = warm[0];
        if (!has_time_for(2.0F * static_cast<float>(kFirstCheckPairs) * nccl_us))
            return nullptr;
        Times times;
        if (const char *fault = time_pairs(candidate, kFirstCheckPairs, 1, &times))
            return fault;
        const CheckPairs first(times);
        if (!end_.obstacle.empty())
            return nullptr;
        if (first.entry_stays()) {
            end_.timed++;
            return nullptr;
        }
        if (first.entry_loses_clearly()) {
            note_lost(candidate, first, 1);
            return nullptr;
        }
        const float both_us = median_of(first.entry_us) + median_of(first.nccl_us);
        const float wanted = 2.0F * kSampleUs / std::max(both_us, 1.0F);
        const auto calls = std::clamp(static_cast<uint32_t>(wanted), 1U, kMostCalls);
        if (!has_time_for(static_cast<float>(kCheckPairs * calls) * both_us))
            return nullptr;
        if (const char *fault = time_pairs(candidate, kCheckPairs, calls, &times))
            return fault;
        const CheckPairs pairs(times);
        if (!end_.obstacle.empty())
            return nullptr;
        if (pairs.entry_loses())
            note_lost(candidate, pairs, calls);
        else
            end_.timed++;
        return nullptr;
    }

    // With `calls` in a sample.
    void note_lost(const Candidate &candidate, const CheckPairs &pairs, uint32_t calls) {
        end_.timed++;
        const auto of_sample = static_cast<float>(calls);
        end_.lost.push_back({candidate.range, candidate.bytes,
                             median_of(pairs.entry_us) / of_sample,
                             median_of(pairs.nccl_us) / of_sample});
    }

    // NCCL connects an algorithm's ranks in the first call by it, and waits for them on the host.
    // So the first calls by NCCL come alone, and all ranks have made them before a kernel of the
    // executor runs, which might wait for such a rank. Sets NCCL's time of a second call.
    const char *make_first_calls(const Candidate &candidate, Times *times) {
        int failed = call_nccl(candidate);
        if (failed == 0 && candidate.rule == nullptr)
            failed = call_entry(candidate);
        if (failed == 0)
            failed = mark(0);
        if (failed == 0)
            failed = call_nccl(candidate);
        if (failed == 0)
            failed = mark(1);
        return end_of_step(failed, 1, times);
    }

    // `calls` of each behind one another are a sample.
    const char *time_pairs(const Candidate &candidate, uint32_t pairs, uint32_t calls,
                           Times *times) {
        int failed = call_entry(candidate); // What it allocates comes before the stream is held.
        if (failed == 0)
            failed = hold();
        if (failed == 0)
            failed = call_entry(candidate);
        if (failed == 0)
            failed = mark(0);
        for (uint32_t place = 0; place < 2 * pairs && failed == 0; place++) {
            for (uint32_t i = 0; i < calls && failed == 0; i++)
                failed = CheckPairs::is_entry(place) ? call_entry(candidate) : call_nccl(candidate);
            if (failed == 0)
                failed = mark(place + 1);
        }
        tuccl_exchange_release(buffers_);
        return end_of_step(failed, 2 * pairs, times);
    }

    int hold() {
        return tuccl_exchange_hold(buffers_) == 0 ? int{kNcclSuccess}
                                                  : int{kNcclUnhandledCudaError};
    }

    int mark(uint32_t number) {
        return tuccl_exchange_mark(buffers_, number) == 0 ? int{kNcclSuccess}
                                                          : int{kNcclUnhandledCudaError};
    }

    const char *end_of_step(int failed, size_t count, Times *times) {
        if (failed != kNcclSuccess)
            return exchange_.break_off("a call of the check at start failed");
        const auto has_ended = [this] { return tuccl_exchange_ended(buffers_) != 0; };
        if (const char *fault = exchange_.wait_until(has_ended))
            return fault;
        if (tuccl_exchange_ended(buffers_) < 0)
            return exchange_.break_off("a call of the check at start failed on the device");
        times->assign(count, 0.0F);
        for (uint32_t i = 0; i < count; i++)
            (*times)[i] = tuccl_exchange_us_after(buffers_, i);
        if (const char *fault = gather(times))
            return fault;
        if (std::any_of(times->begin(), times->end(), [](float time) { return !(time > 0.0F); }))
            end_.obstacle = "the device does not time its calls";
        return nullptr;
    }

    NcclCall with_buffers(const Candidate &candidate) const {
        const struct tuccl_exchange_view view = tuccl_exchange_view(buffers_);
        NcclCall call = candidate.call;
        call.send = view.send;
        call.receive = view.receive;
        call.stream = view.stream;
        return call;
    }

    // A communicator that does not block puts a call on the stream later.
    int pass_on_now(const NcclCall &call) {
        const int result = pass_on(call);
        if (result != kNcclInProgress)
            return result;
        const auto is_on_stream = [this] { return state_of(work_.comm) != kNcclInProgress; };
        return exchange_.wait_until(is_on_stream) == nullptr ? int{kNcclSuccess}
                                                             : int{kNcclSystemError};
    }

    int call_nccl(const Candidate &candidate) {
        const ChoiceRequested requested(work_.request, TUCCL_REQUEST_NCCL);
        return pass_on_now(with_buffers(candidate));
    }

    int call_entry(const Candidate &candidate) {
        const NcclCall call = with_buffers(candidate);
        return candidate.rule == nullptr ? pass_on_now(call)
                                         : put(*work_.serving, call_by(*candidate.rule, call),
                                               call.stream, *work_.cancelled);
    }

    const CheckWork &work_;
    Exchange &exchange_;
    CheckEnd &end_;
    const Clock::time_point begin_ = Clock::now();
    tuccl_exchange *buffers_ = nullptr; // The exchange keeps them.
};

} // namespace

const char *check_entries(const CheckWork &work, Exchange *exchange, CheckEnd *end) {
    return Checker(work, exchange, end).run();
}

std::vector<tuccl_left_out> leave_out(const CheckEnd &end, tuccl_request *request,
                                      Decision *decision) {
    std::vector<tuccl_left_out> ranges;
    for (const LostEntry &entry : end.lost) {
        decision->remove(entry.range.operation, entry.range.min_bytes);
        ranges.push_back(entry.range);
    }
    if (!ranges.empty())
        leave_out(request, ranges);
    return ranges;
}

std::string describe(const LostEntry &entry) {
    char text[120];
    std::snprintf(text, sizeof text, "%s of %llu to %llu bytes (%.4g us, NCCL %.4g us)",
                  tuccl_call_name(entry.range.operation),
                  static_cast<unsigned long long>(entry.range.min_bytes),
                  static_cast<unsigned long long>(entry.range.max_bytes),
                  static_cast<double>(entry.entry_us), static_cast<double>(entry.nccl_us));
    return text;
}

std::string describe(const CheckEnd &end, uint64_t limit_us) {
    if (!end.obstacle.empty())
        return "nothing is checked at start: " + end.obstacle;
    char text[200];
    std::snprintf(text, sizeof text, "check at start: %zu of %zu entries timed in %.0f of %.0f ms",
                  end.timed, end.entries, static_cast<double>(end.time_us) / 1e3,
                  static_cast<double>(limit_us) / 1e3);
    std::string line = text;
    if (end.of_plugin > 0)
        line +=
            " (" + std::to_string(end.of_plugin) + " more are the plugin's, which is not asked)";
    if (end.lost.empty())
        return line + ", none is slower than NCCL's own choice";
    line += ", " + std::to_string(end.lost.size()) + " left to NCCL, which is faster:";
    constexpr size_t kMostNamed = 4;
    for (size_t i = 0; i < end.lost.size() && i < kMostNamed; i++)
        line += (i == 0 ? " " : ", ") + describe(end.lost[i]);
    if (end.lost.size() > kMostNamed)
        line += ", ...";
    return line;
}

} // namespace tuccl
