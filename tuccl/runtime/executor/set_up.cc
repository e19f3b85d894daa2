#include "new_communicators.h"

#include "communicator_settings.h"
#include "exchange.h"
#include "guard.h"
#include "host_identity.h"
#include "log.h"
#include "metrics.h"
#include "plan.h"
#include "rails.h"
#include "real_nccl.h"
#include "register.h"
#include "secrets.h"
#include "singleton.h"
#include "staging_need.h"
#include "start_check.h"

extern "C" {
#include "bundle.h"
#include "crc32.h"
}

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>

namespace tuccl {

namespace {

// Where ncclCommSplit fails on this rank alone, the others wait inside it, and no greeting of
// theirs comes. NCCL lets them go when this rank gives its communicator up.
constexpr auto kLongestWithoutRail = std::chrono::seconds(3);

struct Place {
    int ranks;
    int rank;
    int device;
};

bool find_place(ncclComm_t comm, Place *place) {
    const RealNccl &real = real_nccl();
    return real.AllGather && real.CommCount && real.CommUserRank && real.CommCuDevice &&
           real.CommCount(comm, &place->ranks) == kNcclSuccess &&
           real.CommUserRank(comm, &place->rank) == kNcclSuccess &&
           real.CommCuDevice(comm, &place->device) == kNcclSuccess;
}

uint32_t sum_of(const void *data, size_t bytes) {
    return tuccl_crc32(0, static_cast<const unsigned char *>(data), bytes);
}

// The ranks that NCCL says share memory over NVLink, this one among them; 0: it does not say.
uint16_t team_of(ncclComm_t comm) {
    if (real_nccl().TeamLsa == nullptr)
        return 0;
    const NcclTeam team = real_nccl().TeamLsa(comm);
    return team.stride == 1 && team.ranks > 0 && team.ranks <= UINT16_MAX
               ? static_cast<uint16_t>(team.ranks)
               : uint16_t{0};
}

// Whether an abort of what is split from it would abort the job's communicator.
bool shares_with_children(const Origin &origin) {
    const char *set = std::getenv("NCCL_COMM_SPLIT_SHARE_RESOURCES"); // For NCCL it goes before.
    return set != nullptr && set[0] != '\0' ? std::strtol(set, nullptr, 0) != 0 : origin.shares;
}

std::string said_by_job(const Origin &origin) {
    return origin.config != nullptr ? said_by_job(*origin.table, *origin.config) : std::string();
}

// Why the job's communicator cannot have the table's settings; empty if nothing is against them.
std::string obstacle_to_settings(const Origin &origin, bool blocks) {
    if (origin.has_settings)
        return "it has them";
    if (!blocks)
        return "it does not block (config.blocking = 0)";
    if (origin.config == nullptr || shares_with_children(origin))
        return "splitShare or NCCL_COMM_SPLIT_SHARE_RESOURCES shares its channels";
    return said_by_job(origin);
}

Greeting greet(const Plan &plan, const Origin &origin, bool blocks) {
    Greeting greeting = {};
    greeting.magic = kGreetingMagic;
    greeting.version = kExecutorVersion;
    greeting.sum = plan.table->sum;
    greeting.wanted = plan.table->wanted ? 1 : 0;
    greeting.most_blocks = bounded_by_variables(origin.most_blocks);
    greeting.check_ms = plan.table->check_ms;
    greeting.guards = plan.table->guards ? 1 : 0;
    greeting.learns = plan.table->learns ? 1 : 0;
    if (const tuccl_request *request = origin.offer->request())
        greeting.obeys_checker = is_obeyed(*request, 1) ? 1 : 0;
    const Cores cores = cores_here();
    greeting.cores = cores.count;
    greeting.core_set = cores.set;
    greeting.staging = plan.chooses ? 1 : 0;
    greeting.host = host_identity();
    static const uint64_t process = random_number();
    greeting.process = process;
    greeting.number = random_number();
    greeting.takes_settings = obstacle_to_settings(origin, blocks).empty() ? 1 : 0;
    set_fault(&greeting, plan.fault);
    return greeting;
}

// Returns NULL, or the reason of a failure.
const char *connect(const Serving &parts, const std::vector<Greeting> &greetings) {
    const Plan &plan = parts.plan;
    const Grid &grid = parts.grid;
    tuccl_device_comm *device = parts.device.get();
    unsigned char handles[TUCCL_MAX_RANKS][TUCCL_HANDLE_BYTES] = {};
    for (uint32_t local = 0; local < grid.local_ranks; local++)
        std::memcpy(handles[local], greetings[grid.first_of_node() + local].handle,
                    TUCCL_HANDLE_BYTES);
    if (const char *fault = tuccl_device_comm_connect(device, handles))
        return fault;
    if (parts.runner == nullptr)
        return tuccl_device_comm_load_programs(device, plan.programs,
                                               plan.table->bundle->program_bytes);
    const uint32_t lanes = plan.stream_lanes();
    const char *fault = tuccl_device_prepare_phases(device, plan.scratch_bytes, 2 * lanes);
    return fault != nullptr ? fault
                            : parts.runner->load(device, plan.staging, plan.scratch_bytes, lanes);
}

void warn_off(const Place &place, const std::string &reason) {
    log_warning("executor is off for this communicator (rank %d of %d), NCCL serves it: %s",
                place.rank, place.ranks, reason.c_str());
}

// Returns the reason not to contact the other ranks, which exists on all ranks or on none.
std::string obstacle_of(const Place &place, const Origin &origin, Roll *roll) {
    if (!origin.is_known)
        return "its parent was made by a function that the executor does not know, or another "
               "child of it could not be made";
    if (origin.roll == nullptr)
        return place.ranks > TUCCL_MAX_RANKS
                   ? "it serves 2 to " + std::to_string(TUCCL_MAX_RANKS) + " ranks of a host"
                   : "NCCL does not say which rank this is";
    const auto ranks = static_cast<uint32_t>(place.ranks);
    *roll = origin.roll->read(ranks);
    if (!roll->fault.empty())
        return roll->fault;
    if (roll->present != ranks)
        return std::to_string(roll->present) +
               " of its ranks are seen to run the executor: the others are on another node that "
               "its "
               "table knows nothing of, do not preload it, share no /dev/shm with this one, or say "
               "themselves why they cannot";
    return {};
}

std::string describe(const Grid &grid) {
    std::string sizes;
    for (uint32_t node = 0; node < grid.nodes && !grid.has_equal_nodes(); node++)
        sizes += (node > 0 ? " + " : "") + std::to_string(grid.size_of(node));
    if (!sizes.empty())
        return "nodes of " + sizes + " ranks";
    const std::string ranks = std::to_string(grid.local_ranks) + " ranks";
    return grid.nodes == 1 ? ranks + " on one node" + (grid.spans_hosts ? " of several hosts" : "")
                           : std::to_string(grid.nodes) + " nodes of " + ranks;
}

// Lanes and the memory that NCCL took for them.
std::string describe(const Rails &rails) {
    char text[120];
    std::snprintf(text, sizeof text,
                  ", about %.1f MiB of NCCL's (lanes of its rail: %zu, of all ranks: %zu)",
                  static_cast<double>(rails.nccl_bytes()) / (1 << 20), rails.count(),
                  rails.round_lanes().size());
    return text;
}

std::string describe_bounds(const Plan &plan) {
    std::string text;
    if (plan.bounds.blocks != kAnyBlocks)
        text += ", kernels of up to " + std::to_string(plan.bounds.blocks) + " threadblocks";
    if (plan.rules_of_many_lanes > 0)
        text += ", " + std::to_string(plan.rules_of_many_lanes) +
                " ranges left to NCCL: a rank's share of the cores drives " +
                std::to_string(plan.bounds.lanes) +
                (plan.bounds.lanes == 1 ? " lane of a rail" : " lanes of a rail");
    return text;
}

void count(Outcome outcome) {
    if (Metrics *here = metrics())
        here->started(outcome);
}

Outcome outcome_of(const Serving &parts, const Verdict &verdict) {
    if (!verdict.serve)
        return verdict.unwanted ? Outcome::kNoTable : Outcome::kRefused;
    return parts.plan.programs == nullptr && parts.guard == nullptr ? Outcome::kNothingInTable
                                                                    : Outcome::kServed;
}

void tell(const Serving &parts, const Place &place, const Verdict &verdict) {
    const Plan &plan = parts.plan;
    const Grid &grid = parts.grid;
    const char *source = plan.table->source.c_str();
    const std::string bounds = describe_bounds(plan);
    const double bytes =
        static_cast<double>(staging_bytes(plan.staging, grid.local_ranks) + plan.scratch_bytes);
    if (verdict.serve && plan.programs == nullptr)
        log_info("%s (CRC %08x) has nothing for the executor with %s%s", source, plan.table->sum,
                 describe(grid).c_str(), bounds.c_str());
    else if (verdict.serve)
        log_info("executor serves rank %d of %d%s: %s (CRC %08x), %zu ranges%s, %.1f MiB of "
                 "device memory%s%s",
                 place.rank, place.ranks,
                 grid.nodes > 1 ? (" (" + describe(grid) + ")").c_str() : "", source,
                 plan.table->sum, plan.decision.rule_count(),
                 plan.chooses ? " and what the process chooses" : "", bytes / (1 << 20),
                 parts.rails != nullptr ? describe(*parts.rails).c_str() : "", bounds.c_str());
    else if (verdict.unwanted)
        log_info("executor serves nothing: TUCCL_BUNDLE names no file");
    else
        warn_off(place, verdict.reason);
}

// This communicator's ranks in this process, which wait for one another after the steps that may
// disturb kernels on other devices of the process.
struct Company {
    uint64_t number = 0;
    size_t threads = 1;

    static Company of(const std::vector<Greeting> &greetings, const Greeting &mine) {
        const auto threads =
            std::count_if(greetings.begin(), greetings.end(), [&](const Greeting &greeting) {
                return greeting.process == mine.process;
            });
        return {greetings.front().number, static_cast<size_t>(threads)};
    }
    void meet(uint64_t step, const std::function<bool()> &gives_up) const {
        if (threads > 1)
            meet_in_process(number + step, threads, gives_up);
    }
};
constexpr uint64_t kStepsOfAgreement = 2;
constexpr uint64_t kStepOfStartingAgain = ~uint64_t{0};

// What ranks agreed on for the check at start and for the guard.
struct TrialTerms {
    uint64_t limit_us = 0; // 0: nothing is checked.
    std::string obstacle;  // Why not, although a rank asks for it.
    bool guards = false;
    bool learns = false;        // Guards, too, then.
    std::string guard_obstacle; // Likewise.
    tuccl_request *request = nullptr;
};

std::string describe_limit(const Greeting &greeting) {
    return greeting.check_ms == 0 ? "none" : std::to_string(greeting.check_ms) + " ms";
}

std::string obstacle_of_guard(const std::vector<Greeting> &greetings) {
    const auto differs = [](size_t rank, bool first_has, const char *name) {
        return "rank " + std::to_string(first_has ? 0 : rank) + " has " + name + ", rank " +
               std::to_string(first_has ? rank : 0) + " has not";
    };
    const Greeting &first = greetings.front();
    for (size_t rank = 0; rank < greetings.size(); rank++) {
        if (greetings[rank].learns != first.learns)
            return differs(rank, first.learns != 0, "TUCCL_LEARN");
        if (greetings[rank].guards != first.guards)
            return differs(rank, first.guards != 0, "TUCCL_GUARD");
        if (greetings[rank].does_not_block != 0)
            return "the communicator does not block (config.blocking = 0)";
    }
    return {};
}

TrialTerms trial_terms(const std::vector<Greeting> &greetings, const Origin &origin) {
    const Greeting &first = greetings.front();
    TrialTerms terms;
    for (size_t rank = 1; rank < greetings.size() && terms.obstacle.empty(); rank++)
        if (greetings[rank].check_ms != first.check_ms)
            terms.obstacle = "rank 0 has " + describe_limit(first) + " of TUCCL_CHECK, rank " +
                             std::to_string(rank) + " " + describe_limit(greetings[rank]);
    if (terms.obstacle.empty())
        terms.limit_us = uint64_t{first.check_ms} * 1000;
    if (std::any_of(greetings.begin(), greetings.end(),
                    [](const Greeting &greeting) { return greeting.guards != 0; }))
        terms.guard_obstacle = obstacle_of_guard(greetings);
    terms.guards = first.guards != 0 && terms.guard_obstacle.empty();
    terms.learns = first.learns != 0 && terms.guards;
    if (std::all_of(greetings.begin(), greetings.end(),
                    [](const Greeting &greeting) { return greeting.obeys_checker != 0; }))
        terms.request = origin.offer->request();
    return terms;
}

// What set-up makes; taken back unless the executor serves.
struct Parts : Serving {
    ~Parts() {
        if (rails != nullptr && rails->is_stuck())
            (void)device.release(); // Freeing would wait for a kernel that may never end.
        rails = nullptr;            // Aborts them unless the executor serves.
        device = nullptr;
        // Memory left by other ranks, if they serve and this one failed, is freed at the next
        // communicator's end.
        if (local != nullptr && local->leave(nullptr))
            free_later(device_number, std::move(local));
    }
};

// Releases the ranks that wait for this one, however set-up ends.
struct Arriving {
    RollCall *roll;
    ~Arriving() {
        if (roll != nullptr)
            roll->arrive();
    }
};

struct Waiting {
    const Start &start;
    Arrival *ready;
    RollCall *roll;

    bool is_over() const {
        return start.cancelled->load() || roll->somebody_left();
    }
};

// Makes what this rank needs for its plan. Returns NULL, or the reason of a failure.
const char *make_parts(ncclComm_t comm, Parts *parts, unsigned char *handle) {
    const Grid &grid = parts->grid;
    const char *fault = nullptr;
    if (grid.nodes > 1) {
        parts->rails = std::make_shared<Rails>(grid);
        parts->runner = std::make_unique<ProgramRunner>(
            grid, parts->plan.programs, parts->plan.chooses ? nullptr : &parts->plan.decision);
        // First, because the others wait inside NCCL for this rank.
        fault = parts->rails->make(comm, parts->plan.network);
    }
    tuccl_device_comm *device = nullptr;
    if (fault == nullptr)
        fault = tuccl_device_comm_create(&device, {grid.local, grid.local_ranks, grid.spans_hosts},
                                         &parts->plan.staging, handle);
    parts->device.reset(device);
    return fault;
}

// Connects the rail for all calls of the plan. All ranks call it.
const char *connect_rails(Exchange *exchange, const Serving &parts) {
    return parts.rails->connect(
        rail_calls(parts.plan.decision, parts.plan.programs, parts.rails->request() != nullptr),
        parts.runner->memory(parts.device_number), exchange);
}

struct Agreement {
    Verdict verdict = {};
    Company company;
    TrialTerms terms;
    std::vector<Setting> settings; // With which NCCL starts the communicator again; mostly none.
};

// Returns the table's settings for the communicator if all ranks take them now.
std::vector<Setting> agreed_settings(const std::vector<Greeting> &greetings, const Place &place,
                                     const Origin &origin, const Grid &grid, bool blocks) {
    const std::vector<Setting> settings = settings_of(*origin.table, grid);
    if (settings.empty() || origin.has_settings || are_in_environment(settings))
        return {};
    std::string obstacle = obstacle_to_settings(origin, blocks);
    const bool is_asked_for = !obstacle.empty() && obstacle == said_by_job(origin);
    for (size_t rank = 0; rank < greetings.size() && obstacle.empty(); rank++)
        if (greetings[rank].takes_settings == 0)
            obstacle = "not all ranks can take them, rank " + std::to_string(rank) + " cannot";
    if (obstacle.empty() && !nccl_takes(settings))
        obstacle = "this NCCL takes no such settings in a configuration";
    if (obstacle.empty())
        return settings;
    (is_asked_for ? log_info : log_warning)("rank %d of %d starts without the table's %s: %s",
                                            place.rank, place.ranks, describe(settings).c_str(),
                                            obstacle.c_str());
    return {};
}

// Exchanges three rounds: prerequisites and hosts, from which all ranks make the same plan; then
// handles; then whether the handles could be opened; and across nodes a fourth: whether the rail
// could be connected. After the first round NCCL may have to start the communicator again instead.
// Returns NULL with the verdict, or why this rank could not take part.
const char *agree(ncclComm_t comm, Exchange *exchange, const Place &place, const Origin &origin,
                  const Waiting &waiting, Parts *parts, Agreement *agreement) {
    Verdict *const verdict = &agreement->verdict;
    const auto gives_up = [&waiting] { return waiting.is_over(); };
    Greeting mine = greet(parts->plan, origin, waiting.start.blocks);
    mine.does_not_block = waiting.start.blocks ? 0 : 1;
    mine.team = team_of(comm);
    std::vector<Greeting> greetings;
    if (const char *fault = exchange->round(mine, &greetings))
        return fault;
    *verdict = judge(greetings);
    if (!verdict->serve)
        return nullptr;
    const uint64_t number = parts->number = greetings.front().number;
    const Company company = agreement->company = Company::of(greetings, mine);
    agreement->terms = trial_terms(greetings, origin);
    const std::string obstacle =
        find_grid(greetings, static_cast<uint32_t>(place.rank), &parts->grid);
    if (!obstacle.empty()) {
        *verdict = {false, false, obstacle};
        return nullptr;
    }
    agreement->settings =
        agreed_settings(greetings, place, origin, parts->grid, waiting.start.blocks);
    if (!agreement->settings.empty())
        return nullptr;
    parts->plan = make_plan(origin.table, parts->grid, schedule_bounds(greetings));
    if (parts->plan.fault.empty() && parts->plan.programs == nullptr)
        return nullptr; // On all ranks alike: they have the same table.
    if (parts->plan.fault.empty() && parts->grid.nodes > 1 && shares_with_children(origin))
        parts->plan.fault = "splitShare or NCCL_COMM_SPLIT_SHARE_RESOURCES shares its abort flag";
    const uint64_t sums[] = {sum_of(&parts->plan.staging, sizeof parts->plan.staging),
                             parts->plan.scratch_bytes, parts->plan.network.lanes,
                             parts->plan.network.round_lanes};
    mine.staging = sum_of(sums, sizeof sums);
    set_fault(&mine, parts->plan.fault);
    if (parts->plan.fault.empty())
        if (const char *fault = make_parts(comm, parts, mine.handle)) {
            set_fault(&mine, fault);
            if (parts->rails != nullptr && !parts->rails->has(parts->plan.network))
                exchange->wait_at_most(
                    kLongestWithoutRail,
                    "ncclCommSplit failed on this rank, and other ranks still wait inside it");
        }
    company.meet(0, gives_up);
    if (const char *fault = exchange->round(mine, &greetings))
        return fault;
    *verdict = judge(greetings);
    if (!verdict->serve)
        return nullptr;
    parts->local = LocalRanks::join(number + parts->grid.node); // The same on all ranks of a node.
    mine.obeys_requests = parts->rails != nullptr && parts->rails->obey_requests() ? 1 : 0;
    if (const char *fault = connect(*parts, greetings))
        set_fault(&mine, fault);
    mine.lacks_nvlink = tuccl_device_has_nvlink(parts->device.get()) != 0 ? 0 : 1;
    company.meet(1, gives_up);
    if (const char *fault = exchange->round(mine, &greetings))
        return fault;
    *verdict = judge(greetings);
    if (parts->rails != nullptr && !obeys_requests(greetings))
        parts->rails->forgo_requests();
    // Nodes may differ, and calls are decided alike on all of them.
    if (std::any_of(greetings.begin(), greetings.end(),
                    [](const Greeting &greeting) { return greeting.lacks_nvlink != 0; }))
        tuccl_device_forgo_nvlink(parts->device.get());
    if (parts->rails == nullptr || !verdict->serve)
        return nullptr;
    if (const char *fault = connect_rails(exchange, *parts))
        set_fault(&mine, fault);
    if (const char *fault = exchange->round(mine, &greetings))
        return fault;
    *verdict = judge(greetings);
    return nullptr;
}

struct Trying {
    ncclComm_t comm;
    const Place &place;
    const Waiting &waiting;
    const Agreement &agreement;
    Exchange *exchange;
};
constexpr uint64_t kStepsOfCheck = 1;

// Times the entries on a communicator that all ranks serve, if they agreed on it, and leaves those
// that lose to NCCL: sets their ranges. Returns NULL, or why this rank cannot go on.
const char *check_at_start(const Trying &checking, Parts *parts, CheckEnd *end,
                           std::vector<tuccl_left_out> *left_out) {
    const TrialTerms &terms = checking.agreement.terms;
    if (terms.limit_us == 0)
        return nullptr;
    const std::atomic<bool> *cancelled = checking.waiting.start.cancelled;
    const auto meet = [&] {
        checking.agreement.company.meet(kStepsOfAgreement,
                                        [&] { return checking.waiting.is_over(); });
    };
    const CheckWork work = {checking.comm,
                            static_cast<uint32_t>(checking.place.rank),
                            terms.limit_us,
                            parts,
                            parts->plan.table->bundle.get(),
                            terms.request,
                            cancelled,
                            meet};
    const char *fault = check_entries(work, checking.exchange, end);
    if (fault == nullptr)
        *left_out = leave_out(*end, terms.request, &parts->plan.decision);
    else if (parts->device != nullptr)
        tuccl_device_abort(parts->device.get()); // Its kernels may wait for other ranks.
    return fault;
}

// Likewise.
const char *guard(const Trying &guarding, const std::vector<tuccl_left_out> &left_out, Parts *parts,
                  std::string *obstacle) {
    const TrialTerms &terms = guarding.agreement.terms;
    *obstacle = terms.guard_obstacle;
    if (!terms.guards)
        return nullptr;
    const auto meet = [&] {
        guarding.agreement.company.meet(kStepsOfAgreement + kStepsOfCheck,
                                        [&] { return guarding.waiting.is_over(); });
    };
    return make_guard({static_cast<uint32_t>(guarding.place.rank), parts,
                       parts->plan.table->bundle.get(), terms.request, terms.learns, left_out,
                       meet},
                      guarding.exchange, &parts->guard, obstacle);
}

// Rank 0 speaks for all.
void tell(const TrialTerms &terms, const CheckEnd &end, const std::string &guard_obstacle) {
    if (!guard_obstacle.empty())
        log_warning("nothing is guarded: %s", guard_obstacle.c_str());
    if (!terms.obstacle.empty())
        log_warning("nothing is checked at start: %s", terms.obstacle.c_str());
    else if (terms.limit_us > 0 && (!end.lost.empty() || !end.obstacle.empty()))
        log_warning("%s", describe(end, terms.limit_us).c_str());
    else if (terms.limit_us > 0)
        log_info("%s", describe(end, terms.limit_us).c_str());
    for (const LostEntry &entry : end.lost)
        log_info("left to NCCL: %s", describe(entry).c_str());
}

// `before`: the ranks' company in the first start, if this is NCCL's second; NULL otherwise. Leaves
// settings in `agreement` if NCCL has to start the communicator again.
const char *serve(ncclComm_t comm, const Place &place, const Origin &origin, const Waiting &waiting,
                  const Company *before, Exchange *opened, Agreement *agreed) {
    Agreement &agreement = *agreed;
    Exchange &exchange = *opened;
    const Verdict &verdict = agreement.verdict;
    Parts parts;
    parts.device_number = place.device;
    parts.plan = Plan::of(origin.table);
    if (const char *fault = exchange.open())
        return fault;
    waiting.ready->wait_for_others();
    const auto gives_up = [&waiting] { return waiting.is_over(); };
    waiting.roll->wait_for_those_here(gives_up);
    if (before != nullptr)
        before->meet(kStepOfStartingAgain, gives_up);
    const char *fault = agree(comm, &exchange, place, origin, waiting, &parts, &agreement);
    if (fault == nullptr && !agreement.settings.empty())
        return nullptr;
    if (fault == nullptr && parts.runner != nullptr && verdict.serve)
        parts.runner->use(*parts.rails);
    CheckEnd checked;
    std::vector<tuccl_left_out> left_out;
    std::string guard_obstacle;
    const Trying trying = {comm, place, waiting, agreement, &exchange};
    if (fault == nullptr && verdict.serve)
        fault = check_at_start(trying, &parts, &checked, &left_out);
    if (fault == nullptr && verdict.serve)
        fault = guard(trying, left_out, &parts, &guard_obstacle);
    if (fault != nullptr) {
        if (exchange.is_broken())
            (void)parts.device.release(); // Freeing would wait for a kernel that may never end.
        return fault;
    }
    tell(parts, place, verdict);
    count(outcome_of(parts, verdict));
    if (verdict.serve && place.rank == 0)
        tell(agreement.terms, checked, guard_obstacle);
    if (!verdict.serve || (parts.plan.programs == nullptr && parts.guard == nullptr))
        return nullptr;
    if (parts.runner == nullptr && !parts.plan.chooses)
        parts.plan.table = nullptr;
    parts.blocks = waiting.start.blocks;
    singleton<Register>().add(comm, std::move(parts));
    start_watchdog();
    return nullptr;
}

// Has NCCL start a communicator again, with the table's settings. Returns NULL, or the reason of a
// failure.
const char *start_again(std::atomic<ncclComm_t> *comm, const Place &place,
                        const std::vector<Setting> &settings, Origin *origin, const Start &start) {
    const ncclComm_t first = comm->load();
    ncclComm_t second = nullptr;
    offer(origin);
    const int result = start_again(first, place.rank, settings, *origin->config, &second);
    withdraw_offer(*origin);
    if (result != kNcclSuccess || second == nullptr)
        return "ncclCommSplit failed, which was to give it the table's settings";
    if (start.cancelled->load()) {
        (void)real_nccl().CommAbort(second);
        return "it was ended meanwhile";
    }
    comm->store(second);
    origin->has_settings = true;
    log_info("rank %d of %d has the table's %s", place.rank, place.ranks,
             describe(settings).c_str());
    return nullptr;
}

// Sets a communicator up, and once more if NCCL has to start it again. Returns NULL, or the reason
// of a failure.
const char *serve(std::atomic<ncclComm_t> *comm, const Place &place, Origin *origin,
                  const Waiting &waiting) {
    const ncclComm_t made = comm->load();
    const auto exchange_on = [&](ncclComm_t its) {
        return Exchange(its, static_cast<uint32_t>(place.ranks), waiting.start.cancelled,
                        waiting.roll);
    };
    // What the first start took is freed after the last round, too.
    Exchange exchange = exchange_on(made);
    Agreement first;
    if (const char *fault = serve(made, place, *origin, waiting, nullptr, &exchange, &first))
        return fault;
    if (first.settings.empty())
        return nullptr;
    if (const char *fault = start_again(comm, place, first.settings, origin, waiting.start))
        return fault;
    Exchange again = exchange_on(comm->load());
    Agreement second;
    const char *fault =
        serve(comm->load(), place, *origin, waiting, &first.company, &again, &second);
    const auto destroy = [made] { (void)real_nccl().CommDestroy(made); };
    if (again.is_broken())
        (void)run_detached(place.device, destroy); // The second one's abort ends its kernels.
    else
        destroy();
    return fault;
}

// Whether all ranks know without a greeting that the executor has nothing to do. For a greeting
// NCCL would connect rings, whose memory and time a communicator of sends and receives never needs.
bool needs_no_greeting(const Table &table, const Roll &roll, uint32_t ranks) {
    return table.fault.empty() && roll.marks_agree && !table.may_serve(ranks);
}

// Communicators have the same to say.
void say_once(const std::string &fault) {
    struct Said {
        std::mutex mutex;
        std::set<std::string> faults;
    };
    Said &said = singleton<Said>();
    const std::lock_guard<std::mutex> lock(said.mutex);
    if (!fault.empty() && said.faults.insert(fault).second)
        log_warning("%s", fault.c_str());
}

} // namespace

int set_up(std::atomic<ncclComm_t> *comm, Origin *made, const Start &start) {
    const Origin &origin = *made;
    say_once(origin.table->check_fault);
    say_once(origin.table->guard_fault);
    say_once(origin.table->learn_fault);
    Arrival ready(start.made_ready);
    const Arriving arriving{origin.roll.get()};
    Place place = {};
    if (!find_place(comm->load(), &place) || place.ranks < 2) {
        count(Outcome::kOneRank);
        return kNcclSuccess;
    }
    Roll roll;
    const std::string obstacle = obstacle_of(place, origin, &roll);
    if (!obstacle.empty()) {
        if (origin.table->wanted)
            warn_off(place, obstacle);
        const bool is_missing = roll.present > 0 && roll.fault.empty();
        count(!origin.table->wanted ? Outcome::kNoTable
              : is_missing          ? Outcome::kRankMissing
                                    : Outcome::kRefused);
        return kNcclSuccess;
    }
    if (needs_no_greeting(*origin.table, roll, static_cast<uint32_t>(place.ranks))) {
        Serving nothing;
        nothing.plan = Plan::of(origin.table);
        nothing.grid = {1, static_cast<uint32_t>(place.ranks), 0, 0};
        const bool is_wanted = origin.table->wanted;
        tell(nothing, place, {is_wanted, !is_wanted, {}});
        count(is_wanted ? Outcome::kNothingInTable : Outcome::kNoTable);
        return kNcclSuccess;
    }
    const char *fault = "its device cannot be made the current one";
    if (const InDevice scope(place.device); scope)
        fault = serve(comm, place, made, {start, &ready, origin.roll.get()});
    free_left();
    if (fault == nullptr)
        return kNcclSuccess;
    // The others may wait for this rank's greeting: going on alone would hang them later.
    origin.roll->fail();
    count(Outcome::kFailed);
    log_warning("rank %d of %d cannot start: %s", place.rank, place.ranks, fault);
    return kNcclUnhandledCudaError;
}

} // namespace tuccl
