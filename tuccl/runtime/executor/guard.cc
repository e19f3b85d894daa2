#include "guard.h"

#include "free_sums.h"
#include "log.h"

extern "C" {
#include "bundle.h"
}

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

namespace tuccl {

namespace {

constexpr int kNcclUint8 = 1;
constexpr auto kPause = std::chrono::microseconds(10);

bool holds(const std::vector<tuccl_left_out> &ranges, const GuardKey &key) {
    return std::any_of(ranges.begin(), ranges.end(), [&key](const tuccl_left_out &range) {
        return range.operation == key.operation && key.bytes >= range.min_bytes &&
               key.bytes <= range.max_bytes;
    });
}

size_t count_left_out(const GuardProtocol &protocol) {
    const auto &keys = protocol.keys();
    return static_cast<size_t>(std::count_if(keys.begin(), keys.end(),
                                             [](const auto &each) { return each.second.is_out; }));
}

Trial trial_of(const GuardKey &key, const Concluded &concluded, uint64_t call, bool was_out,
               bool is_out) {
    TrialVerdict verdict = TrialVerdict::kStays;
    if (concluded.conclusion == Conclusion::kApart)
        verdict = TrialVerdict::kApart;
    else if (concluded.conclusion == Conclusion::kNone)
        verdict = TrialVerdict::kNoTimes;
    else if (is_out != was_out)
        verdict = is_out ? TrialVerdict::kLeftOut : TrialVerdict::kTakenBack;
    return {key,
            verdict,
            {{"table", concluded.entry_us}, {"nccl", concluded.nccl_us}},
            was_out ? 1U : 0U,
            is_out || verdict == TrialVerdict::kApart ? 1U : 0U,
            call};
}

// What the plugin answers on this communicator.
std::vector<tuccl_left_out> answered_by_plugin(const GuardWork &work) {
    const Grid &grid = work.serving->grid;
    std::vector<tuccl_left_out> found;
    const tuccl_shape_record *shape =
        tuccl_bundle_shape(work.bundle, grid.ranks(), grid.nodes, grid.ranks_per_node());
    for (uint32_t operation = 0; shape != nullptr && work.request != nullptr &&
                                 operation < kOperations && tuccl_asks_tuner(operation);
         operation++) {
        const tuccl_range_record range = shape->of_operation[operation];
        for (uint32_t i = range.first; i < range.first + range.count; i++) {
            const tuccl_entry_record &entry = work.bundle->entries[i];
            if (entry.algorithm != TUCCL_NO_CODE &&
                !holds(work.left_out, {operation, entry.min_bytes}))
                found.push_back({entry.min_bytes, entry.max_bytes, operation});
        }
    }
    return found;
}

} // namespace

Guard::Guard(GuardTerms terms, Trials trials)
    : terms_(std::move(terms)), trials_(std::move(trials)), watch_(terms_.watch),
      is_untimed_(GuardPace().slots) {
}

Guard::~Guard() {
    if (terms_.rank != 0)
        return;
    log_info("guard: %zu sizes in %llu calls, %llu reports, %zu sizes left to NCCL, %llu waits",
             protocol_.keys().size(), static_cast<unsigned long long>(protocol_.calls()),
             static_cast<unsigned long long>(reports_), count_left_out(protocol_),
             static_cast<unsigned long long>(waits_));
}

// The same on every rank, as a decision.
std::optional<GuardKey> Guard::key_of(const NcclCall &call, bool is_executors) const {
    if (call.kind >= kOperations || call.type < 0 ||
        (terms_.keeps_sums && tuccl_is_reduction(call.kind)) ||
        (call.kind == kAlltoAll && !real_nccl().AlltoAll))
        return std::nullopt;
    const auto bytes =
        table_bytes(call.kind, static_cast<uint32_t>(call.type), call.count, terms_.ranks);
    if (!bytes)
        return std::nullopt;
    const GuardKey key = {call.kind, *bytes};
    return is_executors || holds(terms_.settings, key) ? std::optional<GuardKey>(key)
                                                       : std::nullopt;
}

bool Guard::leaves_out(const NcclCall &call) {
    const auto key = key_of(call, true);
    const std::lock_guard<std::mutex> lock(mutex_);
    return key && protocol_.is_out(*key);
}

// `entry`: the executor's call, NULL if it has none. NCCL runs a call by the table, too: the plugin
// answers then, by the word of a request.
int Guard::put(Communicator *communicator, const NcclCall &call, const tuccl_call *entry,
               uint64_t word) const {
    if (word != TUCCL_REQUEST_NCCL && entry != nullptr)
        return communicator->launch(*entry, call.stream);
    const ChoiceRequested requested(terms_.request, word);
    return communicator->hand_over_in_order(call);
}

int Guard::run(Communicator *communicator, const NcclCall &call) {
    tuccl_call decided;
    const bool is_executors = communicator->decide_by_table(call, &decided);
    const tuccl_call *entry = is_executors ? &decided : nullptr;
    const auto key = key_of(call, is_executors);
    if (!key)
        return put(communicator, call, entry, TUCCL_REQUEST_TABLE);
    // NCCL demands that a call is captured on all ranks or on none.
    if (tuccl_device_stream(call.stream).capture != 0)
        return put(communicator, call, entry,
                   leaves_out(call) ? TUCCL_REQUEST_NCCL : TUCCL_REQUEST_TABLE);
    GuardProtocol::Run run = {};
    uint32_t slot = 0;
    if (const int failed = follow(communicator, call, *key, &run, &slot))
        return failed;
    // An entry that is left out in groups and captures may be in a trial again.
    const uint64_t word = run.by_entry ? TUCCL_REQUEST_ENTRY : TUCCL_REQUEST_NCCL;
    if (!run.place)
        return put(communicator, call, entry, word);
    const uint32_t mark = 2 * *run.place;
    const auto set_mark = [&](uint32_t number) {
        const InDevice scope(terms_.device);
        return scope && tuccl_trials_mark(trials_.get(), slot, number, call.stream) == 0;
    };
    if (const int failed = communicator->order_next(call.stream))
        return failed;
    bool is_timed = set_mark(mark);
    if (const int failed = put(communicator, call, entry, word))
        return failed;
    is_timed = set_mark(mark + 1) && is_timed;
    const std::lock_guard<std::mutex> lock(mutex_);
    is_untimed_[slot] = is_untimed_[slot] || !is_timed;
    return kNcclSuccess;
}

// Does what the protocol asks for before a call, and sets how the call runs.
int Guard::follow(Communicator *communicator, const NcclCall &call, const GuardKey &key,
                  GuardProtocol::Run *run, uint32_t *slot) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const GuardProtocol::Turn turn = protocol_.next(key);
    if (turn.takes || turn.reports) {
        const InDevice scope(terms_.device);
        if (!scope)
            return kNcclUnhandledCudaError;
        const int failed =
            turn.takes ? take(*communicator, key, turn) : report(communicator, call, key, turn);
        if (failed != kNcclSuccess)
            return failed;
    }
    *run = protocol_.run_of(turn);
    *slot = turn.slot;
    watch_.ran(key, run->by_entry, run->place == 0U);
    if (run->place == 0U)
        is_untimed_[turn.slot] = false;
    return kNcclSuccess;
}

int Guard::report(Communicator *communicator, const NcclCall &call, const GuardKey &key,
                  const GuardProtocol::Turn &turn) {
    tuccl_trials *trials = trials_.get();
    GuardReport mine = report_of(key, turn.call);
    mine.is_ready = is_untimed_[turn.slot] ? 0 : 1;
    for (uint32_t place = 0; place < 2 * kCheckPairs; place++) {
        mine.times_us[place] = tuccl_trials_us_after(trials, turn.slot, 2 * place);
        if (!(mine.times_us[place] > 0.0F))
            mine.is_ready = 0;
    }
    reports_++;
    mine.has_waited = has_waited_ ? 1 : 0;
    has_waited_ = false;
    std::memcpy(tuccl_trials_bytes(trials, turn.slot), &mine, sizeof mine);
    if (const int failed = communicator->order_next(call.stream))
        return failed;
    if (tuccl_trials_write(trials, turn.slot, call.stream) != 0)
        return kNcclUnhandledCudaError;
    const struct tuccl_trials_view view = tuccl_trials_view(trials, turn.slot);
    if (const int failed = real_nccl().AllGather(view.send, view.receive, sizeof mine, kNcclUint8,
                                                 call.comm, call.stream))
        return failed;
    return tuccl_trials_read(trials, turn.slot, call.stream) == 0 ? int{kNcclSuccess}
                                                                  : int{kNcclUnhandledCudaError};
}

// The device has done the report long since, as a rule. If the host is further ahead of it, it
// waits here: the other ranks follow the conclusion from this call on, and nothing could tell them
// in time that this one does not know it yet.
int Guard::take(const Communicator &communicator, const GuardKey &key,
                const GuardProtocol::Turn &turn) {
    int came = tuccl_trials_came(trials_.get(), turn.slot);
    if (came == 0) {
        waits_++;
        has_waited_ = true;
        watch_.waited();
    }
    for (; came == 0; came = tuccl_trials_came(trials_.get(), turn.slot)) {
        // NCCL's communicator may be gone then.
        if (communicator.has_given_up())
            return kNcclSystemError;
        std::this_thread::sleep_for(kPause);
    }
    if (came < 0)
        return kNcclUnhandledCudaError;
    const unsigned char *bytes = tuccl_trials_bytes(trials_.get(), turn.slot);
    GuardReport mine;
    std::memcpy(&mine, bytes, sizeof mine);
    std::vector<GuardReport> all(terms_.ranks);
    std::memcpy(all.data(), bytes + sizeof mine, all.size() * sizeof mine);
    // NCCL may end a call of an aborted communicator without an error and without data.
    if (std::memcmp(&all[terms_.rank], &mine, sizeof mine) != 0)
        return kNcclSystemError;
    const bool was_out = turn.key->is_out;
    const Concluded concluded = conclude(mine, all, was_out);
    protocol_.settle(turn, concluded.conclusion, concluded.has_waited);
    watch_.concluded(trial_of(key, concluded, turn.call, was_out, turn.key->is_out),
                     count_left_out(protocol_));
    if (protocol_.has_ended() || turn.key->is_out != was_out)
        publish();
    return kNcclSuccess;
}

// For the plugin, which is asked at the end of a group, too.
void Guard::publish() const {
    std::vector<tuccl_left_out> ranges = terms_.left_out;
    for (const auto &[key, state] : protocol_.keys())
        if (state.is_out)
            ranges.push_back({key.bytes, key.bytes, key.operation});
    if (protocol_.has_ended())
        ranges.insert(ranges.end(), terms_.settings.begin(), terms_.settings.end());
    leave_out(terms_.request, std::move(ranges));
}

const char *make_guard(const GuardWork &work, Exchange *exchange, std::shared_ptr<Guard> *guard,
                       std::string *obstacle) {
    std::vector<tuccl_left_out> settings = answered_by_plugin(work);
    const Serving &serving = *work.serving;
    if (settings.empty() && serving.plan.decision.rule_count() == 0)
        return nullptr; // On all ranks alike: they have the same table.
    const GuardPace pace;
    const uint32_t ranks = serving.grid.ranks();
    const tuccl_trials_need need = {pace.slots, 4 * kCheckPairs, sizeof(GuardReport), ranks};
    tuccl_trials *made = nullptr;
    const char *lack = tuccl_trials_create(&made, &need);
    Guard::Trials trials(made);
    work.meet();
    Greeting mine = {};
    set_fault(&mine, lack != nullptr ? lack : "");
    std::vector<Greeting> all;
    if (const char *fault = exchange->round(mine, &all))
        return fault;
    *obstacle = first_fault(all);
    if (!obstacle->empty())
        return nullptr;
    const Grid &grid = serving.grid;
    const WatchTerms watch = {
        work.rank, serving.number, ranks, grid.nodes, grid.has_equal_nodes() ? grid.local_ranks : 0,
        metrics(), verdict_log()};
    *guard = std::make_shared<Guard>(GuardTerms{watch, work.rank, ranks, serving.device_number,
                                                work.bundle->sums != nullptr, work.request,
                                                std::move(settings), work.left_out},
                                     std::move(trials));
    return nullptr;
}

} // namespace tuccl
