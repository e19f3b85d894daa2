#include "set_up.h"

#include "exchange.h"
#include "host_identity.h"
#include "log.h"
#include "random_number.h"
#include "real_nccl.h"
#include "register.h"
#include "rendezvous.h"
#include "staging_need.h"
#include "watchdog.h"

extern "C" {
#include "bundle.h"
#include "crc32.h"
}

#include <algorithm>
#include <cstring>

namespace tuccl {

namespace {

struct Place {
    int ranks;
    int rank;
    int device;
};

bool find_place(ncclComm_t comm, Place *place) {
    const RealNccl &real = real_nccl();
    return real.AllGather != nullptr && real.CommCount != nullptr && real.CommUserRank != nullptr &&
           real.CommCuDevice != nullptr && real.CommCount(comm, &place->ranks) == kNcclSuccess &&
           real.CommUserRank(comm, &place->rank) == kNcclSuccess &&
           real.CommCuDevice(comm, &place->device) == kNcclSuccess;
}

void set_fault(Greeting *greeting, const std::string &fault) {
    greeting->fault[fault.copy(greeting->fault, sizeof greeting->fault - 1)] = '\0';
}

Greeting greet(const Plan &plan) {
    Greeting greeting = {};
    greeting.magic = kGreetingMagic;
    greeting.version = kExecutorVersion;
    greeting.sum = plan.sum;
    greeting.wanted = plan.wanted ? 1 : 0;
    greeting.staging =
        tuccl_crc32(0, reinterpret_cast<const unsigned char *>(&plan.staging), sizeof plan.staging);
    greeting.host = host_identity();
    static const uint64_t process = random_number();
    greeting.process = process;
    greeting.number = random_number();
    set_fault(&greeting, plan.fault);
    return greeting;
}

// Returns NULL, or the reason of a failure.
const char *connect(tuccl_device_comm *device, const Plan &plan,
                    const std::vector<Greeting> &greetings) {
    unsigned char handles[TUCCL_MAX_RANKS][TUCCL_HANDLE_BYTES] = {};
    for (size_t rank = 0; rank < greetings.size(); rank++)
        std::memcpy(handles[rank], greetings[rank].handle, TUCCL_HANDLE_BYTES);
    const char *fault = tuccl_device_comm_connect(device, handles);
    if (fault == nullptr)
        fault = tuccl_device_comm_load_programs(device, plan.bundle->programs,
                                                plan.bundle->program_bytes);
    return fault;
}

void warn_off(const Place &place, const std::string &reason) {
    log_warning("executor is off for this communicator (rank %d of %d), NCCL serves it: %s",
                place.rank, place.ranks, reason.c_str());
}

// Returns the reason not to contact the other ranks, which exists on all ranks or on none.
std::string obstacle_of(const Place &place, const Origin &origin, Roll *roll) {
    if (place.ranks > TUCCL_MAX_RANKS)
        return "it serves 2 to " + std::to_string(TUCCL_MAX_RANKS) + " ranks";
    if (!origin.is_known)
        return "its parent was made by a function that the executor does not know, or another "
               "child "
               "of it could not be made";
    if (origin.roll == nullptr)
        return "NCCL does not say which rank this is";
    const auto ranks = static_cast<uint32_t>(place.ranks);
    *roll = origin.roll->read(ranks);
    if (!roll->fault.empty())
        return roll->fault;
    if (roll->present != ranks)
        return std::to_string(roll->present) +
               " of its ranks are seen to run the executor: the others are on another node, do not "
               "preload it, share no /dev/shm with this one, or say themselves why they cannot";
    return {};
}

void tell(const Plan &plan, const Place &place, const Verdict &verdict) {
    const auto ranks = static_cast<uint32_t>(place.ranks);
    if (verdict.serve && !plan.has_something())
        log_info("%s (CRC %08x) has nothing for the executor with %d ranks on one node",
                 plan.source.c_str(), plan.sum, place.ranks);
    else if (verdict.serve)
        log_info(
            "executor serves rank %d of %d: %s (CRC %08x), %zu ranges%s, %.1f MiB of device memory",
            place.rank, place.ranks, plan.source.c_str(), plan.sum, plan.decision.rule_count(),
            plan.chooses ? " and what the process chooses" : "",
            static_cast<double>(staging_bytes(plan.staging, ranks)) / (1 << 20));
    else if (verdict.unwanted)
        log_info("executor serves nothing: TUCCL_BUNDLE names no file");
    else
        warn_off(place, verdict.reason);
}

// Called after the steps that may disturb kernels on other devices of this process.
void wait_for_this_process(const std::vector<Greeting> &greetings, const Greeting &mine,
                           const std::function<bool()> &gives_up) {
    const auto threads =
        std::count_if(greetings.begin(), greetings.end(),
                      [&](const Greeting &greeting) { return greeting.process == mine.process; });
    if (threads > 1)
        meet_in_process(greetings.front().number, static_cast<size_t>(threads), gives_up);
}

// The device's part of set-up; taken back unless the executor serves.
struct DeviceComm {
    explicit DeviceComm(int number) : device_number(number) {
    }
    const int device_number;
    tuccl_device_comm *device = nullptr;
    std::shared_ptr<LocalRanks> local;
    ~DeviceComm() {
        tuccl_device_comm_destroy(device);
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
    const std::atomic<bool> *cancelled;
    Arrival *ready;
    RollCall *roll;

    bool is_over() const {
        return (cancelled != nullptr && cancelled->load()) || roll->somebody_left();
    }
};

// Exchanges two rounds: handles and prerequisites, then whether the handles could be opened.
// Returns NULL with the verdict, or why this rank could not take part.
const char *agree(Exchange *exchange, const Place &place, const Plan &plan, const Waiting &waiting,
                  DeviceComm *made, Verdict *verdict) {
    const auto ranks = static_cast<uint32_t>(place.ranks);
    Greeting mine = greet(plan);
    if (plan.fault.empty() && plan.has_something())
        if (const char *fault =
                tuccl_device_comm_create(&made->device, static_cast<uint32_t>(place.rank), ranks,
                                         &plan.staging, mine.handle))
            set_fault(&mine, fault);
    waiting.ready->wait_for_others();
    const auto gives_up = [&waiting] { return waiting.is_over(); };
    waiting.roll->wait_for_those_here(gives_up);
    std::vector<Greeting> greetings;
    if (const char *fault = exchange->round(mine, &greetings))
        return fault;
    *verdict = judge(greetings);
    // Equal sums are equal tables, and equal staging says that all choose or none, so that all
    // ranks stop here alike.
    if (!verdict->serve || !plan.has_something())
        return nullptr;
    made->local = LocalRanks::join(greetings.front().number); // The same on all ranks.
    if (const char *fault = connect(made->device, plan, greetings))
        set_fault(&mine, fault);
    wait_for_this_process(greetings, mine, gives_up);
    if (const char *fault = exchange->round(mine, &greetings))
        return fault;
    *verdict = judge(greetings);
    return nullptr;
}

const char *serve(ncclComm_t comm, const Place &place, Plan plan, const Waiting &waiting) {
    Verdict verdict = {};
    DeviceComm made(place.device);
    Exchange exchange(comm, static_cast<uint32_t>(place.ranks), waiting.cancelled, *waiting.roll);
    if (const char *fault = exchange.open())
        return fault;
    if (const char *fault = agree(&exchange, place, plan, waiting, &made, &verdict)) {
        if (exchange.is_broken())
            made.device = nullptr; // Freeing would wait for a kernel that may never end.
        return fault;
    }
    tell(plan, place, verdict);
    if (!verdict.serve || !plan.has_something())
        return nullptr;
    Serving serving;
    serving.device = made.device;
    serving.device_number = place.device;
    serving.ranks = static_cast<uint32_t>(place.ranks);
    serving.local = std::move(made.local);
    serving.decision = std::move(plan.decision);
    if (plan.chooses)
        serving.bundle = std::move(plan.bundle);
    made.device = nullptr;
    Register::of_process().add(comm, std::move(serving));
    start_watchdog();
    return nullptr;
}

} // namespace

int set_up(ncclComm_t comm, const Origin &origin, const std::atomic<bool> *cancelled,
           Latch *made_ready) {
    Arrival ready(made_ready);
    const Arriving arriving{origin.roll.get()};
    Place place = {};
    if (!find_place(comm, &place) || place.ranks < 2)
        return kNcclSuccess;
    Roll roll;
    const std::string obstacle = obstacle_of(place, origin, &roll);
    if (!obstacle.empty()) {
        if (origin.table->wanted)
            warn_off(place, obstacle);
        return kNcclSuccess;
    }
    Plan plan = make_plan(*origin.table, static_cast<uint32_t>(place.ranks));
    // All ranks know then that none requests the executor. For a greeting NCCL would connect rings,
    // whose memory and time a communicator of sends and receives never needs.
    if (plan.fault.empty() && !plan.has_something() && roll.marks_agree) {
        tell(plan, place, {plan.wanted, !plan.wanted, {}});
        return kNcclSuccess;
    }
    tuccl_device_scope before;
    const char *fault = "its device cannot be made the current one";
    if (tuccl_device_enter(place.device, &before) == 0) {
        fault = serve(comm, place, std::move(plan), {cancelled, &ready, origin.roll.get()});
        tuccl_device_leave(&before);
    }
    free_left();
    if (fault == nullptr)
        return kNcclSuccess;
    // The others may wait for this rank's greeting: going on alone would hang them later.
    origin.roll->fail();
    log_warning("rank %d of %d cannot start: %s", place.rank, place.ranks, fault);
    return kNcclUnhandledCudaError;
}

} // namespace tuccl
