#include "guard.h"

#include "free_sums.h"
#include "log.h"

extern "C" {
#include "bundle.h"
#include "tuner_abi.h"
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
    return static_cast<size_t>(std::count_if(
        keys.begin(), keys.end(), [](const auto &each) { return each.second.is_out(); }));
}

// Whether the table's entry or NCCL's own choice runs; nothing for another setting. Without an
// entry both are one.
std::optional<bool> by_entry(const Lineup &lineup, std::optional<uint32_t> arm) {
    if (!arm || *arm == lineup.arms.nccl)
        return lineup.arms.nccl == 0;
    return *arm == 0 ? std::optional<bool>(true) : std::nullopt;
}

// Whether NCCL may have to connect the ranks for a setting: rings are there since they greeted one
// another.
bool may_connect(uint32_t word) {
    const uint32_t algorithm = word & 0xFF;
    return algorithm < NCCL_ALGORITHMS && algorithm != NCCL_ALGO_RING;
}

// What the plugin answers on this communicator.
// `connecting`: those of them for which NCCL may connect the ranks.
std::vector<tuccl_left_out> answered_by_plugin(const GuardWork &work,
                                               std::vector<tuccl_left_out> *connecting) {
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
            if (entry.algorithm == TUCCL_NO_CODE ||
                holds(work.left_out, {operation, entry.min_bytes}))
                continue;
            found.push_back({entry.min_bytes, entry.max_bytes, operation, TUCCL_REQUEST_NCCL});
            if (may_connect(entry.algorithm))
                connecting->push_back(found.back());
        }
    }
    return found;
}

// What the table has to try on this communicator.
std::vector<tuccl_runners_up_record> runners_up_of(const GuardWork &work) {
    const Grid &grid = work.serving->grid;
    std::vector<tuccl_runners_up_record> found;
    for (uint32_t i = 0; work.learns && i < work.bundle->runners_up_count; i++) {
        const tuccl_runners_up_record &own = work.bundle->runners_up[i];
        if (own.ranks == grid.ranks() && own.nodes == grid.nodes &&
            own.ranks_per_node == grid.ranks_per_node())
            found.push_back(own);
    }
    return found;
}

std::string text_of(const tuccl_bundle &bundle, const tuccl_text_record &text) {
    return {bundle.text + text.offset, text.bytes};
}

std::vector<ScheduleName> schedule_names(const tuccl_bundle &bundle) {
    std::vector<ScheduleName> names;
    for (uint32_t i = 0; i < bundle.schedule_count; i++)
        names.push_back({text_of(bundle, bundle.schedules[i].content_hash),
                         text_of(bundle, bundle.schedules[i].name)});
    return names;
}

GuardPace pace_of(bool learns) {
    GuardPace pace;
    pace.learns = learns;
    return pace;
}

// NCCL's settings that change per call, the likelier ones first. The plugin leaves out what NCCL
// does not run.
constexpr uint32_t word_of(uint32_t algorithm, uint32_t protocol, uint32_t nchannels = 0) {
    return algorithm | protocol << 8 | nchannels << 16;
}
constexpr uint32_t kManyChannels = 32;
constexpr std::array<uint32_t, 7> kOfAllReduce = {
    word_of(NCCL_ALGO_RING, NCCL_PROTO_LL128),  word_of(NCCL_ALGO_TREE, NCCL_PROTO_LL128),
    word_of(NCCL_ALGO_NVLS, NCCL_PROTO_SIMPLE), word_of(NCCL_ALGO_RING, NCCL_PROTO_SIMPLE),
    word_of(NCCL_ALGO_RING, NCCL_PROTO_LL),     word_of(NCCL_ALGO_TREE, NCCL_PROTO_LL),
    word_of(NCCL_ALGO_TREE, NCCL_PROTO_SIMPLE)};
constexpr std::array<uint32_t, 7> kOfDivided = {
    word_of(NCCL_ALGO_RING, NCCL_PROTO_LL128),
    word_of(NCCL_ALGO_RING, NCCL_PROTO_SIMPLE),
    word_of(NCCL_ALGO_RING, NCCL_PROTO_LL),
    word_of(NCCL_ALGO_NVLS, NCCL_PROTO_SIMPLE),
    word_of(NCCL_ALGO_PAT, NCCL_PROTO_SIMPLE),
    word_of(NCCL_ALGO_RING, NCCL_PROTO_SIMPLE, kManyChannels),
    word_of(NCCL_ALGO_RING, NCCL_PROTO_LL128, kManyChannels)};
constexpr std::array<uint32_t, 4> kOfRooted = {
    word_of(NCCL_ALGO_RING, NCCL_PROTO_LL128), word_of(NCCL_ALGO_RING, NCCL_PROTO_SIMPLE),
    word_of(NCCL_ALGO_RING, NCCL_PROTO_LL),
    word_of(NCCL_ALGO_RING, NCCL_PROTO_SIMPLE, kManyChannels)};

void add_arm(Lineup *lineup, const Rule *rule, uint32_t word) {
    const uint32_t arm = lineup->arms.count;
    if (arm == kMostArms)
        return;
    lineup->rules[arm] = rule;
    lineup->words[arm] = word;
    if (may_connect(word))
        lineup->arms.connects |= 1U << arm;
    lineup->arms.count++;
}

// As many as there is room for, the likeliest; among these, those that cost a connection come last.
void add_settings(Lineup *lineup, const uint32_t *words, size_t count) {
    const size_t room = std::min<size_t>(count, kMostArms - lineup->arms.count);
    for (const bool connects : {false, true})
        for (size_t i = 0; i < room; i++)
            if (may_connect(words[i]) == connects)
                add_arm(lineup, nullptr, words[i]);
}

bool run_alike(const Rule &a, const Rule &b) {
    return a.program == b.program && a.protocol == b.protocol && a.nchannels == b.nchannels &&
           a.nthreads == b.nthreads && a.buffer_bytes == b.buffer_bytes;
}

// A bound on channels may make schedules equal that the table has apart.
bool has_arm_of(const Lineup &lineup, const Rule &rule) {
    const auto end = lineup.rules.begin() + lineup.arms.count;
    return std::any_of(lineup.rules.begin(), end, [&rule](const Rule *known) {
        return known != nullptr && run_alike(*known, rule);
    });
}

} // namespace

Guard::Guard(GuardTerms terms, Trials trials)
    : terms_(std::move(terms)), trials_(std::move(trials)), protocol_(pace_of(terms_.learns)),
      watch_(terms_.watch), is_untimed_(GuardPace().slots), refused_(GuardPace().slots),
      first_(GuardPace().slots) {
    if (terms_.learns && terms_.rank == 0)
        begin_learning(this, [this] { return learned(); });
}

Guard::~Guard() {
    if (terms_.rank != 0)
        return;
    log_info("guard: %zu sizes in %llu calls, %llu reports, %zu sizes left to NCCL, %llu waits",
             protocol_.keys().size(), static_cast<unsigned long long>(protocol_.calls()),
             static_cast<unsigned long long>(reports_), count_left_out(protocol_),
             static_cast<unsigned long long>(waits_));
    if (terms_.learns)
        end_learning(this, learned_locked());
}

std::optional<LearnedCommunicator> Guard::learned() const {
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    return lock ? std::optional<LearnedCommunicator>(learned_locked()) : std::nullopt;
}

LearnedCommunicator Guard::learned_locked() const {
    const WatchTerms &of = terms_.watch;
    LearnedCommunicator found = {{of.ranks, of.nodes, of.ranks_per_node},
                                 protocol_.calls(),
                                 reports_,
                                 protocol_.slower_us(),
                                 protocol_.elapsed_us(),
                                 {}};
    for (const auto &[key, state] : protocol_.keys()) {
        const Lineup lineup = lineup_of(key);
        LearnedKey learned = {key.operation, key.bytes, state.calls, state.races, state.choice, {}};
        for (uint32_t arm = 0; arm < lineup.arms.count; arm++)
            learned.arms.push_back(arm_of(lineup, state, arm));
        found.keys.push_back(std::move(learned));
    }
    return found;
}

// The same on every rank, as a decision.
std::optional<GuardKey> Guard::key_of(const NcclCall &call) const {
    if (call.kind >= kOperations || call.type < 0 ||
        (terms_.keeps_sums && tuccl_is_reduction(call.kind)) ||
        (call.kind == kAlltoAll && !real_nccl().AlltoAll))
        return std::nullopt;
    const auto bytes =
        table_bytes(call.kind, static_cast<uint32_t>(call.type), call.count, terms_.ranks);
    return bytes ? std::optional<GuardKey>({call.kind, *bytes}) : std::nullopt;
}

// It depends on the table and the bounds that all ranks agreed on, so that arms of a key are the
// same in all its calls.
Lineup Guard::lineup_of(const GuardKey &key) const {
    Lineup lineup;
    lineup.arms = {0, 0};
    const Rule *rule = terms_.rules.find(key.operation, key.bytes);
    const bool has_setting = holds(terms_.settings, key);
    if (rule != nullptr || has_setting)
        add_arm(&lineup, rule, TUCCL_REQUEST_ENTRY);
    lineup.arms.nccl = lineup.arms.count;
    add_arm(&lineup, nullptr, TUCCL_REQUEST_NCCL);
    if (!terms_.learns)
        return lineup;
    terms_.rules.for_each_runner_up(key.operation, key.bytes, [&](const Rule &other) {
        if (!has_arm_of(lineup, other))
            add_arm(&lineup, &other, TUCCL_REQUEST_ENTRY);
    });
    if (rule != nullptr && has_setting) {
        const uint32_t arm = lineup.arms.count;
        add_arm(&lineup, nullptr, TUCCL_REQUEST_ENTRY);
        if (arm < lineup.arms.count && holds(terms_.connecting, key))
            lineup.arms.connects |= 1U << arm;
    }
    if (terms_.request == nullptr || !tuccl_asks_tuner(key.operation))
        return lineup;
    const auto &known = terms_.runners_up;
    const auto found =
        std::find_if(known.begin(), known.end(), [&key](const tuccl_runners_up_record &own) {
            return own.operation == key.operation && key.bytes >= own.min_bytes &&
                   key.bytes <= own.max_bytes;
        });
    if (found != known.end())
        add_settings(&lineup, found->words, found->count);
    else if (key.operation == TUCCL_ALL_REDUCE)
        add_settings(&lineup, kOfAllReduce.data(), kOfAllReduce.size());
    else if (tuccl_is_divided(key.operation))
        add_settings(&lineup, kOfDivided.data(), kOfDivided.size());
    else
        add_settings(&lineup, kOfRooted.data(), kOfRooted.size());
    return lineup;
}

LearnedArm Guard::arm_of(const Lineup &lineup, const GuardProtocol::Key &state,
                         uint32_t arm) const {
    LearnedArm made = {{}, lineup.words[arm], state.us[arm], (state.refused >> arm & 1) != 0};
    const Rule *rule = lineup.rules[arm];
    if (rule != nullptr && rule->program < terms_.schedules.size()) {
        const ScheduleName &own = terms_.schedules[rule->program];
        made.schedule = {own.content_hash, own.name,       rule->protocol,
                         rule->nchannels,  rule->nthreads, rule->buffer_bytes};
    }
    return made;
}

// `before`: the choice so far.
Trial Guard::trial_of(const GuardKey &key, const GuardProtocol::Key &state, Conclusion conclusion,
                      uint32_t before, uint64_t call) const {
    const Lineup lineup = lineup_of(key);
    const bool has_entry = lineup.arms.nccl != 0;
    const auto place_of = [has_entry](uint32_t arm) { return size_t{arm} + (has_entry ? 0 : 1); };
    Trial trial = {key, TrialVerdict::kStays, {}, place_of(before), place_of(state.choice), call};
    trial.choices = {{"table", has_entry ? state.us[0] : 0.0F},
                     {"nccl", state.us[lineup.arms.nccl]}};
    for (uint32_t arm = has_entry ? 2 : 1; arm < lineup.arms.count; arm++)
        trial.choices.push_back({describe(arm_of(lineup, state, arm)), state.us[arm]});
    if (conclusion == Conclusion::kApart) {
        trial.verdict = TrialVerdict::kApart;
        trial.runs = 1;
    } else if (conclusion == Conclusion::kNone) {
        trial.verdict = TrialVerdict::kNoTimes;
    } else if (state.choice != before) {
        trial.verdict = state.is_out()      ? TrialVerdict::kLeftOut
                        : state.choice == 0 ? TrialVerdict::kTakenBack
                                            : TrialVerdict::kLearned;
    }
    return trial;
}

bool Guard::decide(const Communicator &communicator, const NcclCall &call, tuccl_call *decided) {
    const auto key = key_of(call);
    if (!key)
        return communicator.decide_by_table(call, decided);
    const Lineup lineup = lineup_of(*key);
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto arm = protocol_.choice_of(*key);
    return arm && decide_by_arm(communicator, call, lineup, *arm, decided) != nullptr;
}

// Returns the rule by which the executor runs a call of this arm: the arm's or, for a call that
// this does not serve, the entry's. NULL if NCCL runs it.
const Rule *Guard::decide_by_arm(const Communicator &communicator, const NcclCall &call,
                                 const Lineup &lineup, uint32_t arm, tuccl_call *decided) {
    if (lineup.rules[arm] == nullptr)
        return nullptr;
    for (const Rule *rule : {lineup.rules[arm], lineup.rules[0]})
        if (rule != nullptr && communicator.decide_by(*rule, call, decided))
            return rule;
    return nullptr;
}

// NCCL runs a call by the table, too: the plugin answers then, by the word of a request.
int Guard::put(Communicator *communicator, const NcclCall &call, const Lineup &lineup,
               std::optional<uint32_t> arm, bool *is_refused) const {
    tuccl_call decided;
    const Rule *rule = arm ? decide_by_arm(*communicator, call, lineup, *arm, &decided) : nullptr;
    *is_refused = arm && *arm != 0 && rule != lineup.rules[*arm];
    if (rule != nullptr)
        return communicator->launch(decided, call.stream);
    const uint32_t before = refused_calls(terms_.request);
    const ChoiceRequested requested(terms_.request,
                                    arm ? lineup.words[*arm] : uint32_t{TUCCL_REQUEST_NCCL});
    const int result = communicator->hand_over_in_order(call);
    *is_refused = *is_refused || refused_calls(terms_.request) != before;
    return result;
}

int Guard::run(Communicator *communicator, const NcclCall &call) {
    const auto key = key_of(call);
    const Lineup lineup = key ? lineup_of(*key) : Lineup{};
    tuccl_call decided;
    // An entry that does not serve this call of its size is no arm of it.
    const bool is_followed = key && lineup.arms.count > 1 &&
                             (lineup.rules[0] == nullptr || holds(terms_.settings, *key) ||
                              communicator->decide_by(*lineup.rules[0], call, &decided));
    // NCCL demands that a call is captured on all ranks or on none.
    if (!is_followed || tuccl_device_stream(call.stream).capture != 0)
        return decide(*communicator, call, &decided) ? communicator->launch(decided, call.stream)
                                                     : communicator->hand_over_in_order(call);
    GuardProtocol::Run run = {};
    uint32_t slot = 0;
    if (const int failed = follow(communicator, call, *key, lineup, &run, &slot))
        return failed;
    bool is_refused = false;
    if (run.is_first)
        return put_first(communicator, call, lineup, *run.arm, slot);
    if (!run.place)
        return put(communicator, call, lineup, run.arm, &is_refused);
    const uint32_t mark = 2 * *run.place;
    const auto set_mark = [&](uint32_t number) {
        const InDevice scope(terms_.device);
        return scope && tuccl_trials_mark(trials_.get(), slot, number, call.stream) == 0;
    };
    if (const int failed = communicator->order_next(call.stream))
        return failed;
    bool is_timed = set_mark(mark);
    if (const int failed = put(communicator, call, lineup, run.arm, &is_refused))
        return failed;
    is_timed = set_mark(mark + 1) && is_timed;
    const std::lock_guard<std::mutex> lock(mutex_);
    is_untimed_[slot] = is_untimed_[slot] || !is_timed;
    if (is_refused)
        refused_[slot] |= 1U << *run.arm;
    return kNcclSuccess;
}

// The first call of an arm in a trial, in which NCCL may connect the ranks: the host waits for
// that.
int Guard::put_first(Communicator *communicator, const NcclCall &call, const Lineup &lineup,
                     uint32_t arm, uint32_t slot) {
    bool is_refused = false;
    const auto begin = std::chrono::steady_clock::now();
    const int result = put(communicator, call, lineup, arm, &is_refused);
    const auto took = std::chrono::steady_clock::now() - begin;
    const std::lock_guard<std::mutex> lock(mutex_);
    First &first = first_[slot];
    if (first.choice == First().choice)
        first.choice = took;
    else if ((lineup.arms.connects >> arm & 1) != 0)
        first.beyond += std::max(took - first.choice, First().beyond);
    return result;
}

// Does what the protocol asks for before a call, and sets how the call runs.
int Guard::follow(Communicator *communicator, const NcclCall &call, const GuardKey &key,
                  const Lineup &lineup, GuardProtocol::Run *run, uint32_t *slot) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const GuardProtocol::Turn turn = protocol_.next(key, lineup.arms);
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
    watch_.ran(key, by_entry(lineup, run->arm), run->place);
    if (turn.begins) {
        is_untimed_[turn.slot] = false;
        refused_[turn.slot] = 0;
        first_[turn.slot] = {};
    }
    return kNcclSuccess;
}

int Guard::report(Communicator *communicator, const NcclCall &call, const GuardKey &key,
                  const GuardProtocol::Turn &turn) {
    tuccl_trials *trials = trials_.get();
    const GuardTrial &trial = turn.key->trial;
    GuardReport mine = report_of(key, trial, turn.call);
    mine.elapsed_us = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                                std::chrono::steady_clock::now() - begin_)
                                                .count());
    mine.refused = refused_[turn.slot];
    mine.first_us = std::chrono::duration<float, std::micro>(first_[turn.slot].beyond).count();
    mine.is_ready = is_untimed_[turn.slot] ? 0 : 1;
    for (uint32_t place = 0; place < protocol_.timed_calls(trial); place++) {
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
    const uint8_t before = turn.key->choice;
    const GuardTrial &trial = turn.key->trial;
    const Concluded concluded =
        conclude(mine, all, static_cast<uint32_t>(trial.size()), protocol_.timed_calls(trial));
    protocol_.settle(turn, concluded);
    watch_.concluded(trial_of(key, *turn.key, concluded.conclusion, before, turn.call),
                     count_left_out(protocol_));
    if (!protocol_.has_ended() && turn.key->choice == before)
        return kNcclSuccess;
    publish();
    return kNcclSuccess;
}

// For the plugin, which is asked at the end of a group, too.
void Guard::publish() const {
    std::vector<tuccl_left_out> ranges; // The first one that holds a call counts.
    for (const auto &[key, state] : protocol_.keys()) {
        if (state.choice == 0)
            continue;
        const Lineup lineup = lineup_of(key);
        // What the plugin has of the table it answers anyhow.
        if (lineup.words[state.choice] != TUCCL_REQUEST_ENTRY)
            ranges.push_back({key.bytes, key.bytes, key.operation, lineup.words[state.choice]});
    }
    if (protocol_.has_ended())
        ranges = terms_.settings;
    ranges.insert(ranges.end(), terms_.left_out.begin(), terms_.left_out.end());
    leave_out(terms_.request, std::move(ranges));
}

const char *make_guard(const GuardWork &work, Exchange *exchange, std::shared_ptr<Guard> *guard,
                       std::string *obstacle) {
    std::vector<tuccl_left_out> connecting;
    std::vector<tuccl_left_out> settings = answered_by_plugin(work, &connecting);
    const Serving &serving = *work.serving;
    const bool can_learn = work.learns && work.request != nullptr;
    const Decision &rules = serving.plan.decision;
    if (settings.empty() && rules.rule_count() == 0 && !rules.has_runners_up() && !can_learn)
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
    const WatchTerms watch = {work.rank,
                              serving.number,
                              ranks,
                              grid.nodes,
                              grid.has_equal_nodes() ? grid.local_ranks : 0,
                              serving.plan.table->sum,
                              metrics(),
                              verdict_log()};
    *guard = std::make_shared<Guard>(GuardTerms{watch, work.rank, ranks, serving.device_number,
                                                work.learns, work.bundle->sums != nullptr,
                                                work.request, rules, std::move(settings),
                                                std::move(connecting), runners_up_of(work),
                                                work.left_out, schedule_names(*work.bundle)},
                                     std::move(trials));
    return nullptr;
}

} // namespace tuccl
