// The guard's protocol, explored: every interleaving of three ranks, each of a host, which makes
// the calls of a program, and a device, which does them in order, as soon as all ranks' devices
// are so far. guard_model SCENARIO [BREAK] prints how many states there are, and what is wrong in
// the first that is: ranks that run a call differently (apart), or wait for ever (stuck).
//
// The protocol is the executor's own (guard_protocol.cc), with short phases. What the model adds is
// what the executor does around it. BREAK makes that wrong, to show that it would be found.
#include "guard_protocol.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace {

using tuccl::Concluded;
using tuccl::Conclusion;
using tuccl::GuardArms;
using tuccl::GuardKey;
using tuccl::GuardPace;
using tuccl::GuardProtocol;

constexpr size_t kRanks = 3;

// What a device does in a call: an arm of the call's, or NCCL's gathering of reports.
enum class Kind : char { kCall = 'c', kReport = 'r' };
constexpr char kStock = 's'; // What runs where the guard has ended, whatever its arm.
struct Operation {
    Kind kind;
    char arm;   // Of a call: its number, from '0' on.
    int number; // Of the call, or of the report, on its communicator.

    bool operator==(const Operation &other) const {
        return kind == other.kind && arm == other.arm && number == other.number;
    }
};

// What a report says, known to a rank whose device has done one: the arm of the trial that is
// fastest, by its place there, from 0 on.
using Said = int;
constexpr Said kUnknown = -1; // No device has done it.
constexpr Said kNothing = -2; // A rank's times were not there.

enum class Act : uint8_t { kStart, kCall, kGrouped, kCapture, kLaunch, kAbort };
struct Step {
    Act act;
    size_t comm = 0;
    uint32_t key = 0;
};
using Program = std::vector<Step>;

struct Comm {
    std::vector<bool> members = std::vector<bool>(kRanks, true);
    std::vector<size_t> streams = std::vector<size_t>(kRanks, 0); // Of each rank.
};
constexpr size_t kStreams = 2; // Of a rank.

struct Scenario {
    std::vector<Comm> comms = {Comm{}};
    std::vector<Program> programs = std::vector<Program>(kRanks);
    std::vector<bool> wants = std::vector<bool>(kRanks, true); // TUCCL_GUARD.
    bool is_guarded = true;                                    // Else no rank is, to compare.
    bool may_abort = false; // Any rank, at any time, communicator 0; then each other one does.
    bool may_die = false;   // The last rank, at any time; the others abort then.
    GuardArms arms = {2, 1};
    uint64_t job_us = 0; // That a report says to have passed for each call before it.
};

std::string breaks;
Scenario scenario;
GuardPace pace;

// A rank's part in a communicator.
struct Part {
    bool has_entered = false; // Has begun to start it.
    bool has_started = false;
    bool is_guarded = false;
    bool is_gone = false; // Aborted here.
    GuardProtocol protocol = GuardProtocol(pace);
    int calls = 0; // That the host has made; those of graphs count when they are captured.
    int reports = 0;
    std::map<uint32_t, int> asked;              // The last report of a key.
    std::vector<size_t> arms;                   // By report: those of its trial.
    std::map<uint32_t, std::vector<int>> ended; // Of a trial: what the device must have done.
    std::vector<char> ready;                    // By report: whether this rank's times were there.
    std::vector<Operation> put;                 // All operations of the host, in order.
    size_t done = 0;                            // Of these, by the device.
    std::vector<char> captured;
};

struct Rank {
    size_t at = 0; // In its program.
    bool is_dead = false;
    std::vector<Part> parts;
    // Of each stream: communicators whose operations are on it, in order.
    std::vector<std::vector<size_t>> streams = std::vector<std::vector<size_t>>(kStreams);
};

struct State {
    std::vector<Rank> ranks;
    // Of each communicator: what the reports say, known to a rank whose device has done one.
    std::vector<std::vector<Said>> reports;
    std::vector<std::vector<char>> captured; // What the first rank captured.
    bool has_failed = false;                 // A rank has aborted or died.
};

std::string wrong;

void fail(const std::string &what) {
    if (wrong.empty())
        wrong = what;
}

std::string text_of(const State &state) {
    std::string text;
    const auto add = [&text](uint64_t value) {
        text += static_cast<char>(value);
        text += static_cast<char>(value >> 8);
    };
    for (const Rank &rank : state.ranks) {
        add(rank.at * 2 + (rank.is_dead ? 1 : 0));
        for (const Part &part : rank.parts) {
            add(uint64_t{part.has_entered} | uint64_t{part.has_started} << 1 |
                uint64_t{part.is_guarded} << 2 | uint64_t{part.is_gone} << 3);
            add(part.done);
            for (const Operation &each : part.put) {
                text += static_cast<char>(each.kind);
                text += each.arm;
                add(static_cast<uint64_t>(each.number));
            }
            text += '|';
            text.append(part.ready.begin(), part.ready.end());
            text += '|';
            add(part.protocol.calls() * 2 + (part.protocol.has_ended() ? 1 : 0));
            add(part.protocol.doubled());
            add(static_cast<uint64_t>(part.protocol.slower_us()));
            add(part.protocol.elapsed_us());
            add(part.protocol.elapsed_call());
            for (const auto &[named, key] : part.protocol.keys()) {
                add(named.operation);
                add(static_cast<uint64_t>(key.phase) * 16 + key.choice);
                text.append(key.trial.begin(), key.trial.end());
                text += '/';
                text.append(key.field.begin(), key.field.end());
                add(key.next);
                add(key.races);
                add(static_cast<uint64_t>(key.reserved_us));
                add(static_cast<uint64_t>(key.settled_us));
                for (const float time_us : key.us)
                    text += static_cast<char>(time_us);
                add(key.slot);
                add(key.made);
                add(key.tries);
                add(key.least);
                add(key.until);
                add(key.next_rest);
                add(key.last);
            }
        }
        for (const auto &stream : rank.streams) {
            text.append(stream.begin(), stream.end());
            text += '|';
        }
    }
    for (const auto &reports : state.reports) {
        for (const Said said : reports)
            add(static_cast<uint64_t>(said));
        text += '|';
    }
    for (const auto &captured : state.captured)
        text.append(captured.begin(), captured.end());
    return text;
}

// ---- The host.

bool takes_part(size_t rank, size_t comm) {
    return scenario.comms[comm].members[rank];
}

bool has_device_done_call(const Part &part, int number) {
    for (size_t i = 0; i < part.done; i++)
        if (part.put[i].kind == Kind::kCall && part.put[i].number == number)
            return true;
    return false;
}

bool has_device_done(const Part &part, const Operation &operation) {
    for (size_t i = 0; i < part.done; i++)
        if (part.put[i] == operation)
            return true;
    return false;
}

// A host puts an operation on the stream: the same as the other ranks that are so far.
void put(State *state, size_t rank, size_t comm, const Operation &operation) {
    Part &part = state->ranks[rank].parts[comm];
    const size_t place = part.put.size();
    for (size_t other = 0; other < kRanks; other++) {
        const Part &theirs = state->ranks[other].parts[comm];
        if (takes_part(other, comm) && place < theirs.put.size() &&
            !(theirs.put[place] == operation))
            fail("apart");
    }
    part.put.push_back(operation);
    state->ranks[rank].streams[scenario.comms[comm].streams[rank]].push_back(comm);
}

// Aborts a communicator: nothing of it runs any more.
void abort(State *state, size_t rank, size_t comm) {
    state->ranks[rank].parts[comm].is_gone = true;
    state->has_failed = true;
    for (auto &stream : state->ranks[rank].streams)
        stream.erase(std::remove(stream.begin(), stream.end(), comm), stream.end());
}

// Whether all ranks of a communicator have entered its start; the guard is agreed on then.
bool start(State *state, size_t rank, size_t comm) {
    Part &part = state->ranks[rank].parts[comm];
    part.has_entered = true;
    bool all_want = true;
    for (size_t other = 0; other < kRanks; other++) {
        if (!takes_part(other, comm))
            continue;
        if (!state->ranks[other].parts[comm].has_entered) {
            if (!state->ranks[other].is_dead)
                return false;
            abort(state, rank, comm); // The start fails.
            return true;
        }
        all_want = all_want && scenario.wants[other];
    }
    part.has_started = true;
    part.is_guarded = scenario.is_guarded && (breaks == "alone" ? scenario.wants[rank] : all_want);
    return true;
}

char text_of_arm(std::optional<uint32_t> arm) {
    return arm ? static_cast<char>('0' + *arm) : kStock;
}

// An arm takes 2 us, the fastest 1 us.
Concluded concluded_of(Said said, size_t arms, uint64_t elapsed_us, uint64_t call) {
    Concluded concluded;
    concluded.elapsed_us = elapsed_us;
    concluded.call = call;
    if (said == kNothing)
        return concluded;
    concluded.conclusion = Conclusion::kTimed;
    for (size_t i = 0; i < arms; i++)
        concluded.us[i] = static_cast<int>(i) == said ? 1.0F : 2.0F;
    concluded.first_loses = said != 0;
    concluded.first_stays = said == 0;
    concluded.slower_us = arms > 1 ? 1.0F : 0.0F;
    return concluded;
}

// A call outside groups and captures. Returns whether the host has made it; else it waits.
bool call(State *state, size_t rank, const Step &step) {
    Part &part = state->ranks[rank].parts[step.comm];
    if (!part.is_guarded) {
        put(state, rank, step.comm, {Kind::kCall, '0', part.calls++});
        return true;
    }
    GuardProtocol protocol = part.protocol; // Kept if the call is made.
    const GuardKey key = {step.key, 1};
    GuardProtocol::Turn turn = protocol.next(key, scenario.arms);
    const auto &reports = state->reports[step.comm];
    const auto said = [&](int report) {
        const bool has_come = has_device_done(part, {Kind::kReport, ' ', report});
        return has_come ? reports[static_cast<size_t>(report)] : kUnknown;
    };
    if (breaks == "early" && turn.key != nullptr && part.asked.count(step.key) > 0 &&
        turn.key->phase == GuardProtocol::Phase::kAsked && said(part.asked[step.key]) != kUnknown)
        turn.takes = true; // As soon as it is there.
    if (turn.takes) {
        const int report = part.asked[step.key];
        const Said found = said(report);
        if (found == kUnknown && breaks != "impatient")
            return false;
        const bool by_clock = breaks == "own_clock" && rank == 0; // Of this rank alone.
        protocol.settle(turn, concluded_of(found == kUnknown ? kNothing : found,
                                           part.arms[static_cast<size_t>(report)],
                                           by_clock ? 0 : scenario.job_us * turn.call, turn.call));
    }
    if (turn.reports) {
        bool is_ready = true;
        for (const int each : part.ended[step.key])
            is_ready = is_ready && has_device_done_call(part, each);
        part.asked[step.key] = part.reports;
        part.arms.push_back(turn.key->trial.size());
        part.ready.push_back(is_ready ? 'y' : 'n');
        put(state, rank, step.comm, {Kind::kReport, ' ', part.reports++});
    }
    const GuardProtocol::Run run = protocol.run_of(turn);
    if (run.place == 0U)
        part.ended[step.key].clear();
    if (run.place)
        part.ended[step.key].push_back(part.calls);
    put(state, rank, step.comm, {Kind::kCall, text_of_arm(run.arm), part.calls++});
    part.protocol = protocol;
    return true;
}

// Whether the host has made the step.
bool make(State *state, size_t rank, const Step &step) {
    Part &part = state->ranks[rank].parts[step.comm];
    const GuardKey key = {step.key, 1};
    const char arm = part.is_guarded ? text_of_arm(part.protocol.choice_of(key)) : '0';
    if (step.act == Act::kStart)
        return part.is_gone || start(state, rank, step.comm);
    if (part.is_gone)
        return true; // NCCL's error.
    switch (step.act) {
    case Act::kCall:
        return call(state, rank, step);
    case Act::kGrouped:
        put(state, rank, step.comm, {Kind::kCall, arm, part.calls++});
        if (breaks == "group_counts" && rank == 0)
            (void)part.protocol.next(key, scenario.arms);
        return true;
    case Act::kCapture: {
        auto &first = state->captured[step.comm];
        if (part.captured.size() == first.size())
            first.push_back(arm);
        if (first[part.captured.size()] != arm)
            fail("apart");
        part.captured.push_back(arm);
        return true;
    }
    case Act::kLaunch:
        put(state, rank, step.comm, {Kind::kCall, part.captured.back(), part.calls++});
        return true;
    case Act::kAbort:
        abort(state, rank, step.comm);
        return true;
    default:
        return true;
    }
}

bool has_ended(const State &state, size_t rank) {
    return state.ranks[rank].at == scenario.programs[rank].size();
}

// ---- The device.

bool is_next_on_stream(const State &state, size_t rank, size_t comm) {
    const auto &stream = state.ranks[rank].streams[scenario.comms[comm].streams[rank]];
    return !stream.empty() && stream.front() == comm;
}

// A collective ends on a device when all ranks' devices have begun it.
bool may_end(const State &state, size_t rank, size_t comm) {
    const Part &part = state.ranks[rank].parts[comm];
    if (part.is_gone || part.done == part.put.size() || !is_next_on_stream(state, rank, comm))
        return false;
    for (size_t other = 0; other < kRanks; other++) {
        if (!takes_part(other, comm))
            continue;
        const Part &theirs = state.ranks[other].parts[comm];
        const bool began =
            theirs.done > part.done || (theirs.done == part.done && theirs.put.size() > part.done &&
                                        is_next_on_stream(state, other, comm) &&
                                        !state.ranks[other].is_dead && !theirs.is_gone);
        if (!began)
            return false;
    }
    return true;
}

// ---- All of them.

std::vector<State> next_states(const State &state) {
    std::vector<State> next;
    for (size_t rank = 0; rank < kRanks; rank++) {
        if (state.ranks[rank].is_dead)
            continue;
        if (!has_ended(state, rank)) {
            State after = state;
            if (make(&after, rank, scenario.programs[rank][state.ranks[rank].at])) {
                after.ranks[rank].at++;
                next.push_back(after);
            } else if (text_of(after) != text_of(state)) {
                next.push_back(after); // It has entered a start.
            }
        }
        for (size_t comm = 0; comm < scenario.comms.size(); comm++) {
            if (!may_end(state, rank, comm))
                continue;
            State after = state;
            Part &part = after.ranks[rank].parts[comm];
            const Operation operation = part.put[part.done++];
            auto &stream = after.ranks[rank].streams[scenario.comms[comm].streams[rank]];
            stream.erase(stream.begin());
            if (operation.kind != Kind::kReport) {
                next.push_back(after);
                continue;
            }
            auto &reports = after.reports[comm];
            const auto number = static_cast<size_t>(operation.number);
            reports.resize(std::max(reports.size(), number + 1), kUnknown);
            if (reports[number] != kUnknown) {
                next.push_back(after);
                continue;
            }
            bool all_ready = true;
            for (size_t other = 0; other < kRanks; other++)
                if (takes_part(other, comm))
                    all_ready = all_ready && after.ranks[other].parts[comm].ready[number] == 'y';
            // The times may say any arm.
            const auto arms = static_cast<Said>(part.arms[number]);
            for (Said said = all_ready ? 0 : kNothing; said < (all_ready ? arms : kNothing + 1);
                 said++) {
                reports[number] = said;
                next.push_back(after);
            }
        }
        const bool may_abort = scenario.may_abort || (scenario.may_die && state.has_failed);
        if (may_abort && state.ranks[rank].parts[0].has_started &&
            !state.ranks[rank].parts[0].is_gone) {
            State after = state;
            abort(&after, rank, 0);
            next.push_back(after);
        }
        if (scenario.may_die && !state.has_failed && rank == kRanks - 1) {
            State after = state;
            after.ranks[rank].is_dead = true;
            after.has_failed = true;
            next.push_back(after);
        }
    }
    return next;
}

// In a state without a next one all ranks that live have come to the end of their programs, and
// their guards are in the same state.
void look_at_end(const State &state) {
    for (size_t rank = 0; rank < kRanks; rank++)
        if (!state.ranks[rank].is_dead && !has_ended(state, rank))
            return fail("stuck");
    if (state.has_failed)
        return;
    for (size_t comm = 0; comm < scenario.comms.size(); comm++) {
        const Part *first = nullptr;
        for (size_t rank = 0; rank < kRanks; rank++) {
            if (!takes_part(rank, comm))
                continue;
            const Part &part = state.ranks[rank].parts[comm];
            if (part.done != part.put.size())
                fail("stuck");
            if (first == nullptr)
                first = &part;
            for (const auto &known : part.protocol.keys())
                if (first->protocol.choice_of(known.first) != part.protocol.choice_of(known.first))
                    fail("apart");
        }
    }
}

// ---- Programs.

Program calls(size_t comm, int count, uint32_t key = 4) {
    return Program(static_cast<size_t>(count), {Act::kCall, comm, key});
}

Program operator+(Program first, const Program &second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

Program two_communicators() {
    return Program{{Act::kStart, 0}, {Act::kStart, 1}} + calls(0, 5) + calls(1, 2) + calls(0, 3);
}

void all_run(const Program &program) {
    scenario.programs = std::vector<Program>(kRanks, program);
}

const std::map<std::string, void (*)()> kScenarios = {
    // Trials of a key one after the other, reports of times that are not there and come again.
    // Ranks are
    // late by any number of calls.
    {"late", [] { all_run(Program{{Act::kStart}} + calls(0, 17)); }},
    // Of two keys, with one slot for trials.
    {"keys",
     [] {
         pace.slots = 1;
         Program program = {{Act::kStart}};
         for (int i = 0; i < 8; i++)
             program = program + calls(0, 1, 4) + calls(0, 1, 2);
         all_run(program);
     }},
    // A size that is called once and a few times more later, and two that are called often, with
    // one slot, and places for two sizes.
    {"rare",
     [] {
         pace.slots = 1;
         pace.idle = 2;
         pace.keys = 2;
         all_run(Program{{Act::kStart}} + calls(0, 1, 2) + calls(0, 9, 4) + calls(0, 3, 2) +
                 calls(0, 3, 3));
     }},
    // Two communicators of a process, on streams of their own or on one.
    {"streams",
     [] {
         scenario.comms = {Comm{}, Comm{{true, true, true}, {1, 1, 1}}};
         all_run(two_communicators());
     }},
    {"one_stream",
     [] {
         scenario.comms = {Comm{}, Comm{}};
         all_run(two_communicators());
     }},
    // Calls in groups and in captures follow the conclusions, and do not count.
    {"groups",
     [] {
         Program program = {{Act::kStart}};
         program = program + calls(0, 3) + Program{{Act::kGrouped, 0, 4}} + calls(0, 3) +
                   Program{{Act::kGrouped, 0, 4}, {Act::kCapture, 0, 4}, {Act::kLaunch, 0, 4}} +
                   calls(0, 2) +
                   Program{{Act::kGrouped, 0, 4}, {Act::kCapture, 0, 4}, {Act::kLaunch, 0, 4}};
         all_run(program);
     }},
    // Learning: three arms race, are halved, and the winner is held against NCCL's own choice.
    {"race",
     [] {
         pace.learns = true;
         scenario.arms = {3, 1};
         scenario.job_us = 1000;
         all_run(Program{{Act::kStart}} + calls(0, 24));
     }},
    // Four arms, of which NCCL's own choice is the first: the table is empty. The job's time
    // suffices for a race after some calls.
    {"share",
     [] {
         pace.learns = true;
         scenario.arms = {4, 0};
         scenario.job_us = 40;
         all_run(Program{{Act::kStart}} + calls(0, 22));
     }},
    // Three arms in two heats.
    {"heats",
     [] {
         pace.learns = true;
         pace.heat = 1;
         scenario.arms = {3, 0};
         scenario.job_us = 1000;
         all_run(Program{{Act::kStart}} + calls(0, 22));
     }},
    // What was learned runs in groups and captures, too.
    {"race_in_groups",
     [] {
         pace.learns = true;
         scenario.arms = {3, 0};
         scenario.job_us = 1000;
         all_run(Program{{Act::kStart}} + calls(0, 17) +
                 Program{{Act::kGrouped, 0, 4}, {Act::kCapture, 0, 4}, {Act::kLaunch, 0, 4}} +
                 calls(0, 1) + Program{{Act::kGrouped, 0, 4}});
     }},
    // Any rank aborts at any time, and then the others when they like.
    {"abort",
     [] {
         scenario.may_abort = true;
         all_run(Program{{Act::kStart}} + calls(0, 7));
     }},
    // A rank dies; those that are left abort when they like, and go on on a new communicator.
    {"dies",
     [] {
         scenario.may_die = true;
         scenario.comms = {Comm{}, Comm{{true, true, false}}};
         all_run(Program{{Act::kStart}} + calls(0, 7) + Program{{Act::kAbort}, {Act::kStart, 1}} +
                 calls(1, 3));
         scenario.programs[2] = Program{{Act::kStart}} + calls(0, 7);
     }},
    // A child of two ranks, which has a guard of its own, beside its parent.
    {"shrink",
     [] {
         scenario.comms = {Comm{}, Comm{{true, true, false}, {1, 1, 1}}};
         const Program parent = calls(0, 2);
         const Program child = Program{{Act::kStart, 1}} + calls(1, 7);
         all_run(Program{{Act::kStart}} + calls(0, 5) + child + parent);
         scenario.programs[2] = Program{{Act::kStart}} + calls(0, 5) + parent;
     }},
    // A rank without TUCCL_GUARD: no rank guards.
    {"one_without",
     [] {
         scenario.wants[2] = false;
         all_run(Program{{Act::kStart}} + calls(0, 8));
     }},
    // What the guard excludes: a rank calls two communicators in another order than the others, by
    // more calls than a conclusion is apart from its report. Its wait never ends.
    {"crossed",
     [] {
         scenario.comms = {Comm{}, Comm{{true, true, true}, {1, 0, 0}}};
         const Program begin = {{Act::kStart, 0}, {Act::kStart, 1}};
         const Program other = {{Act::kGrouped, 1, 4}};
         all_run(begin + calls(0, 5) + other + calls(0, 4));
         scenario.programs[0] = begin + calls(0, 9) + other;
     }},
    {"crossed_unguarded",
     [] {
         kScenarios.at("crossed")();
         scenario.is_guarded = false;
     }},
};

} // namespace

int main(int count, char **arguments) {
    if (count < 2 || kScenarios.count(arguments[1]) == 0) {
        std::fprintf(stderr, "usage: guard_model SCENARIO [BREAK]\n");
        return 2;
    }
    breaks = count > 2 ? arguments[2] : "";
    pace.familiar = 0;
    pace.pairs = 1;
    pace.apart = 1;
    pace.apart_of_all = 1;
    pace.most_doubled = 1;
    pace.tries = 2;
    pace.first_rest = 1;
    pace.concluded_rest = 1;
    pace.most_rest = 2;
    if (breaks == "early")
        pace.apart = 2; // So that there is a call at which it is too early.
    kScenarios.at(arguments[1])();
    State first;
    first.ranks.resize(kRanks);
    for (Rank &rank : first.ranks)
        rank.parts.resize(scenario.comms.size());
    first.reports.resize(scenario.comms.size());
    first.captured.resize(scenario.comms.size());
    std::unordered_set<std::string> seen = {text_of(first)};
    std::vector<State> left = {first};
    size_t ends = 0;
    while (!left.empty() && wrong.empty()) {
        const State state = std::move(left.back());
        left.pop_back();
        std::vector<State> next = next_states(state);
        if (next.empty()) {
            look_at_end(state);
            ends++;
        }
        for (State &after : next)
            if (seen.insert(text_of(after)).second)
                left.push_back(std::move(after));
    }
    std::printf("%s: %zu states, %zu ends, %s\n", arguments[1], seen.size(), ends,
                wrong.empty() ? "right" : wrong.c_str());
    return 0;
}
