// A libnccl.so.2 whose ranks are threads of one process, with groups, splits, communicators that do
// not block, and aborts. Every call leaves a note. STAND_IN_OLD_NCCL compiles one without what came
// after 2.13, STAND_IN_PROCESSES one whose ranks may be in several processes (stand_in_shared.h).
// STAND_IN_NCCL_FAILS=RANK:TIMES makes that rank's first starts by an id fail, STAND_IN_SPLIT_FAILS
// its first splits. STAND_IN_SLOW_CALLS=MS makes calls slow. Communicators that were split off are
// connected in their first call of each route, which depends on its size (as NCCL's own choice of
// an algorithm does) or, with STAND_IN_PLUGIN, on the executor's request; STAND_IN_CONNECT=FAULT
// says how this process fails then (enum Fault). With STAND_IN_UNHEARD_ABORT a rank's abort does
// not reach the others, as between GPUs of a host. With STAND_IN_ABORT_FREES an abort returns when
// no kernel runs on its device, and a revocation ends its kernels. STAND_IN_ADDRESS is the address
// in its ids. STAND_IN_NCCL_US is how long its kernels take for floats by its own choice,
// but along rails; STAND_IN_SETTING=OPERATION:US what those of an operation take as the plugin's
// table says; others take no time then. STAND_IN_VERSION is that of NCCL. The table is in force on
// all communicators that have a request of the executor's (STAND_IN_PLUGIN).
#include "nccl_abi.h"
#include "request.h"
#include "stand_in_config.h"
#include "stand_in_meeting.h"
#include "stand_in_shared.h"
#include "stand_in_streams.h"

#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <netinet/in.h>
#include <set>
#include <string>
#include <sys/random.h>
#include <tuple>

using stand_in::note;
using stand_in::Stream;

// The ranks of a communicator, whose last one frees the memory of all.
struct Members {
    std::atomic<int> joined{0};
    std::atomic<int> gone{0};
    std::array<std::atomic<int>, 64> devices = {};
};

#ifdef STAND_IN_PROCESSES
using MeetingOf = stand_in::SharedMeeting *;
using MembersOf = Members *;
#else
using MeetingOf = std::shared_ptr<stand_in::Meeting>;
using MembersOf = std::shared_ptr<Members>;
#endif

struct ncclComm {
    MeetingOf meeting;
    MeetingOf splitting; // Apart, because a rank whose split fails may go on.
    int ranks;
    int rank;
    int device;
    int splits;
    bool blocking;
    std::atomic<int> error;
    MembersOf members;
    MeetingOf connecting;
    bool is_child = false;
    std::set<std::string> routes = {}; // That are connected.
    std::atomic<int64_t> bytes{0};     // Of its device.
    tuccl_request *request = nullptr;
    std::string name = {};
    bool shares = false;             // With what is split from it.
    ncclComm *shared_with = nullptr; // Its parent.
    ncclConfig config = {};
    bool has_freed_flag = false; // Of a child whose configuration was refused.
    std::atomic<bool> is_asked{false};
    std::atomic<bool> is_joined{false}; // NCCL's thread that starts it in the background.
    std::atomic<int> late_ms{0};        // Its groups end so much later, in the background.
    std::atomic<bool> has_group{false}; // That nobody has seen to be done.
    std::atomic<bool> is_group_done{false};
};

namespace {

constexpr int kInvalidArgument = 4;
constexpr int kRemoteError = 6;
constexpr int kAborted = 8;
constexpr int64_t kCommunicatorBytes = 4 << 20;
constexpr int64_t kRouteBytes = 3 << 20;

struct Meetings {
    std::mutex mutex;
    std::map<std::string, std::tuple<MeetingOf, MeetingOf, MeetingOf, MembersOf>> by_name;
    std::vector<std::unique_ptr<ncclComm>> aborted;
    std::set<ncclComm *> live;
};
Meetings meetings;

thread_local int depth = 0;
thread_local std::vector<stand_in::Work> in_group;
thread_local std::vector<stand_in::Work> receives_in_group; // All sends go before them.
thread_local std::vector<std::function<int()>> connecting_in_group;
thread_local std::vector<ncclWindow_t *> windows_in_group;
thread_local ncclComm *late_in_group = nullptr; // Of which a group has a call.

void take_bytes(ncclComm *comm, int64_t bytes) {
    comm->bytes += bytes;
    stand_in::Device::of(comm->device).take_bytes(bytes);
}

void give_bytes(ncclComm *comm) {
    stand_in::Device::of(comm->device).take_bytes(-comm->bytes.exchange(0));
}

ncclComm *join(const std::string &name, int ranks, int rank, int device, bool blocking) {
    const std::lock_guard<std::mutex> lock(meetings.mutex);
    auto &[meeting, splitting, connecting, members] = meetings.by_name[name];
    if (meeting == nullptr) {
#ifdef STAND_IN_PROCESSES
        meeting = stand_in::Shared::of_host().named<stand_in::SharedMeeting>(name, ranks);
        splitting =
            stand_in::Shared::of_host().named<stand_in::SharedMeeting>(name + " splits", ranks);
        connecting =
            stand_in::Shared::of_host().named<stand_in::SharedMeeting>(name + " connects", ranks);
        members = stand_in::Shared::of_host().named<Members>(name + " members");
#else
        meeting = std::make_shared<stand_in::Meeting>(ranks);
        splitting = std::make_shared<stand_in::Meeting>(ranks);
        connecting = std::make_shared<stand_in::Meeting>(ranks);
        members = std::make_shared<Members>();
#endif
    }
    members->devices.at(static_cast<size_t>(rank)) = device;
    members->joined++;
    auto *made =
        new ncclComm{meeting, splitting, ranks, rank, device, 0, blocking, 0, members, connecting};
    made->name = name;
    take_bytes(made, kCommunicatorBytes);
    meetings.live.insert(made);
    return made;
}

bool fails(const char *variable, int rank) {
    static std::atomic<int> failed{0};
    const char *wanted = std::getenv(variable);
    int failing = -1;
    int times = 0;
    return wanted != nullptr && std::sscanf(wanted, "%d:%d", &failing, &times) == 2 &&
           rank == failing && failed.fetch_add(1) < times;
}

std::string name_of(const ncclUniqueId &id) {
    char name[32];
    uint64_t magic = 0;
    std::memcpy(&magic, id.internal, sizeof magic);
    std::snprintf(name, sizeof name, "id %016llx", static_cast<unsigned long long>(magic));
    return name;
}

// As the tuner plugin takes it.
tuccl_request *request_of_executor(int ranks) {
    if (std::getenv("STAND_IN_PLUGIN") == nullptr)
        return nullptr;
    void *found = dlsym(RTLD_DEFAULT, TUCCL_REQUEST_FUNCTION);
    const auto ask = reinterpret_cast<tuccl_request_function *>(found);
    tuccl_request *request = ask != nullptr ? ask() : nullptr;
    if (request == nullptr ||
        (request->nodes != 0 && request->nodes != static_cast<uint32_t>(ranks)))
        return nullptr;
    __atomic_fetch_add(&request->takers, 1, __ATOMIC_SEQ_CST);
    return request;
}

unsigned version_here() {
    const char *wanted = std::getenv("STAND_IN_VERSION");
    return wanted != nullptr ? static_cast<unsigned>(std::atoi(wanted)) : 23000;
}

bool is_flag(int value) {
    return value == INT_MIN || value == 0 || value == 1;
}

bool is_count(int value, int most = INT_MAX) {
    return value == INT_MIN || (value > 0 && value <= most);
}

// As NCCL's parseCommConfig; undefined is less than all.
bool is_accepted(const ncclConfig &config) {
    constexpr int kMostChannels = 64;
    return is_flag(config.blocking) && is_flag(config.splitShare) &&
           is_flag(config.collnetEnable) && is_flag(config.shrinkShare) &&
           is_flag(config.nvlinkCentricSched) &&
           (config.cgaClusterSize == INT_MIN || config.cgaClusterSize >= 0) &&
           is_count(config.minCTAs) && is_count(config.maxCTAs) &&
           config.minCTAs <= config.maxCTAs && is_count(config.nvlsCTAs) &&
           is_count(config.nChannelsPerNetPeer, kMostChannels);
}

// The configuration by which NCCL of this version starts a communicator: the job's, or its
// parent's. Returns false if it refuses the job's. A structure of an older release lacks fields, or
// has padding in their place.
bool configure(ncclComm *made, const ncclConfig *given, const ncclComm *parent) {
    ncclConfig config;
    if (given == nullptr && parent != nullptr)
        config = parent->config;
    if (given != nullptr) {
        std::memcpy(static_cast<void *>(&config), given, std::min(given->size, sizeof config));
        if (given->magic != 0xcafebeef)
            return false;
        if (config.version < 21700)
            config.cgaClusterSize = config.minCTAs = config.maxCTAs = INT_MIN;
        if (config.version < 22500)
            config.trafficClass = INT_MIN;
        if (config.version < 22700)
            config.collnetEnable = config.nvlsCTAs = INT_MIN;
        if (config.version < 22800)
            config.nChannelsPerNetPeer = INT_MIN;
    }
    if (version_here() < 22700)
        config.collnetEnable = config.nvlsCTAs = INT_MIN;
    if (!is_accepted(config))
        return false;
    const char *least = std::getenv("NCCL_MIN_CTAS"); // It goes before.
    if (least != nullptr && least[0] != '\0')
        config.minCTAs = std::atoi(least);
    made->config = config; // NCCL copies no commName.
    made->shares = given != nullptr && config.splitShare == 1;
    return true;
}

int make(ncclComm_t *comm, int ranks, const ncclUniqueId &id, int rank, const ncclConfig *config) {
    const bool blocking = config == nullptr || config->blocking != 0;
    if (fails("STAND_IN_NCCL_FAILS", rank))
        return tuccl::kNcclSystemError;
    *comm = join(name_of(id), ranks, rank, rank, blocking);
    if (!configure(*comm, config, nullptr))
        return kInvalidArgument;
    (*comm)->request = request_of_executor(ranks);
    if (!blocking)
        return tuccl::kNcclInProgress;
    if (depth == 0)
        (*comm)->meeting->meet();
    return tuccl::kNcclSuccess;
}

// How this process fails to connect.
enum class Fault { kNone, kFails, kHangs, kLeaves, kBreaks, kSpoils };

Fault fault_to_play() {
    const char *wanted = std::getenv("STAND_IN_CONNECT");
    const std::string name = wanted != nullptr ? wanted : "";
    static const std::map<std::string, Fault> names = {
        {"fails", Fault::kFails},   {"hangs", Fault::kHangs},   {"leaves", Fault::kLeaves},
        {"breaks", Fault::kBreaks}, {"spoils", Fault::kSpoils},
    };
    const auto found = names.find(name);
    return found != names.end() ? found->second : Fault::kNone;
}

std::string route_of(const ncclComm &comm, const char *name, int operation, size_t bytes) {
    constexpr size_t kSmall = 512;
    if (operation == 5)
        return name;
    const bool is_rail = comm.request != nullptr && comm.request->nodes != 0;
    const uint64_t word = is_rail ? __atomic_load_n(&comm.request->word, __ATOMIC_SEQ_CST)
                                  : uint64_t{TUCCL_REQUEST_NCCL};
    if ((word & 0xFF) != TUCCL_REQUEST_NCCL)
        return std::string(name) + " by algorithm " + std::to_string(word & 0xFF);
    return std::string(name) + (bytes <= kSmall ? " of few bytes" : " of many bytes");
}

// All ranks call it, from within their calls; of a route between two ranks these two alone.
int connect(ncclComm *comm, const std::string &route, bool is_of_pair) {
    if (!comm->is_child || !comm->routes.insert(route).second)
        return tuccl::kNcclSuccess;
    note("nccl connects " + route);
    switch (fault_to_play()) {
    case Fault::kFails:
        return tuccl::kNcclSystemError;
    case Fault::kHangs:
        while (comm->error.load() != kAborted)
            stand_in::doze();
        return kRemoteError;
    case Fault::kLeaves:
        std::_Exit(0);
    case Fault::kBreaks:
        comm->error.store(kRemoteError);
        std::this_thread::sleep_for(std::chrono::milliseconds(250)); // Until somebody looks.
        break;
    default:
        break;
    }
    if (!is_of_pair && !comm->connecting->meet())
        return kRemoteError;
    take_bytes(comm, kRouteBytes);
    return tuccl::kNcclSuccess;
}

#ifdef STAND_IN_PROCESSES
// Of what the executor splits off; a job's own sends and receives move nothing here.
void send_or_receive(const ncclComm &comm, const stand_in::Part &part) {
    const bool sends = part.operation == 8;
    const int from = sends ? comm.rank : part.root;
    const int to = sends ? part.root : comm.rank;
    auto *mailbox = stand_in::Shared::of_host().named<stand_in::Mailbox>(
        comm.name + " " + std::to_string(from) + ">" + std::to_string(to));
    const size_t bytes = part.count * stand_in::bytes_of(part.type);
    const auto stops = [&comm] { return comm.meeting->is_aborted(); };
    if (sends)
        (void)mailbox->put(part.send, bytes, stops);
    else
        (void)mailbox->take(part.receive, bytes, stops);
}
#else
void send_or_receive(const ncclComm &, const stand_in::Part &) {
}
#endif

bool is_left_out(const tuccl_request &request, uint32_t operation, uint64_t bytes) {
    return (tuccl_word_of_call(&request, operation, bytes) & 0xFF) == TUCCL_REQUEST_NCCL;
}

// As the tuner plugin tells the executor.
void note_answer(int operation) {
    if (void *found = dlsym(RTLD_DEFAULT, TUCCL_ANSWERED_FUNCTION))
        reinterpret_cast<tuccl_answered_function *>(found)(static_cast<uint32_t>(operation));
}

// Of a setting that a job tries: STAND_IN_TRIED has OPERATION:ALGORITHM:PROTOCOL:TIME_US of some,
// -1 of those that NCCL does not run. Others take as long as NCCL's own choice.
int time_of_tried(ncclComm *comm, const char *name, int operation, uint32_t word) {
    note("nccl tries " + std::to_string(word & 0xFF) + "/" + std::to_string(word >> 8 & 0xFF) +
         " " + name);
    const char *own_us = std::getenv("STAND_IN_NCCL_US");
    const int usual = own_us != nullptr ? std::atoi(own_us) : 0;
    const char *left = std::getenv("STAND_IN_TRIED");
    for (int used = 0; left != nullptr && *left != '\0'; left += used) {
        int of_operation = 0, algorithm = 0, protocol = 0, time_us = 0;
        if (std::sscanf(left, "%d:%d:%d:%d%n", &of_operation, &algorithm, &protocol, &time_us,
                        &used) != 4)
            break;
        used += left[used] == ',' ? 1 : 0;
        if (of_operation != operation || static_cast<uint32_t>(algorithm) != (word & 0xFF) ||
            static_cast<uint32_t>(protocol) != (word >> 8 & 0xFF))
            continue;
        if (time_us >= 0) {
            note_answer(operation | TUCCL_ANSWERED_LEARNED);
            return time_us;
        }
        __atomic_fetch_add(&comm->request->refused, 1, __ATOMIC_RELAXED);
        return usual;
    }
    note_answer(operation | TUCCL_ANSWERED_LEARNED);
    return usual;
}

// Of a kernel for so many bytes.
int time_of(ncclComm &comm, const char *name, int operation, size_t bytes) {
    if (comm.request != nullptr && comm.request->nodes != 0)
        return 0;
    if (comm.request != nullptr) {
        const uint32_t word =
            tuccl_word_of_call(comm.request, static_cast<uint32_t>(operation), bytes);
        if ((word & 0xFF) < 7)
            return time_of_tried(&comm, name, operation, word);
    }
    if (comm.request == nullptr ||
        is_left_out(*comm.request, static_cast<uint32_t>(operation), bytes)) {
        const char *own_us = std::getenv("STAND_IN_NCCL_US");
        return own_us != nullptr ? std::atoi(own_us) : 0;
    }
    note(std::string("nccl setting ") + name);
    note_answer(operation);
    const char *wanted = std::getenv("STAND_IN_SETTING");
    int slow = -1;
    int time_us = 0;
    return wanted != nullptr && std::sscanf(wanted, "%d:%d", &slow, &time_us) == 2 &&
                   slow == operation
               ? time_us
               : 0;
}

int call(const char *name, int operation, const void *send, void *receive, size_t count, int type,
         int reduction, int root, ncclComm *comm, ncclStream stream) {
    note(std::string("nccl ") + name + " rank " + std::to_string(comm->rank));
    if (const char *call_ms = std::getenv("STAND_IN_SLOW_CALLS"))
        std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(call_ms)));
    if (comm->is_child && comm->error.load() == kAborted) {
        std::fprintf(stderr, "a call is made on a communicator that was aborted\n");
        std::abort();
    }
    if (comm->error.load() != 0)
        return comm->error.load();
    const stand_in::Part part = {send, receive, count, operation, type, reduction, root};
    const bool spoils = comm->is_child && fault_to_play() == Fault::kSpoils;
    const bool is_of_pair = operation > 7;
    const bool has_blocks = operation == 2 || operation == 3 || operation == 5;
    const size_t bytes =
        count * stand_in::bytes_of(type) * (has_blocks ? static_cast<size_t>(comm->ranks) : 1);
    constexpr int kFloat = 7;
    const std::chrono::microseconds time(type == kFloat ? time_of(*comm, name, operation, bytes)
                                                        : 0);
    const auto put = [=] {
        stand_in::put_kernel(
            static_cast<Stream *>(stream), comm->device,
            [comm, meeting = comm->meeting, rank = comm->rank, part, spoils, time] {
                if (time.count() > 0)
                    stand_in::take(time);
                if (part.operation <= 5)
                    stand_in::run(&*meeting, rank, part);
                else if (part.operation > 7 && comm->is_child)
                    send_or_receive(*comm, part);
                if (spoils && part.receive != nullptr)
                    static_cast<unsigned char *>(part.receive)[0] ^= 1;
            });
    };
    const std::string route = is_of_pair ? name + std::string(" with ") + std::to_string(root)
                                         : route_of(*comm, name, operation, bytes);
    if (depth > 0) {
        connecting_in_group.emplace_back(
            [comm, route, is_of_pair] { return connect(comm, route, is_of_pair); });
        (operation == 9 ? receives_in_group : in_group).emplace_back(put);
        if (comm->late_ms.load() > 0)
            late_in_group = comm;
        return tuccl::kNcclSuccess;
    }
    if (const int failed = connect(comm, route, is_of_pair))
        return failed;
    put();
    return tuccl::kNcclSuccess;
}

} // namespace

extern "C" {

int ncclGetUniqueId(ncclUniqueId *id) {
    if (id == nullptr)
        return tuccl::kNcclInvalidUsage;
    // As NCCL writes its struct ncclBootstrapHandle: the rest of the id stays what it was.
    struct {
        uint64_t magic;
        sockaddr_in6 address;
        int ranks;
    } handle = {};
    static_assert(sizeof handle == 40, "NCCL's");
    if (getrandom(&handle.magic, sizeof handle.magic, 0) != sizeof handle.magic)
        return tuccl::kNcclSystemError;
    const char *host = std::getenv("STAND_IN_ADDRESS");
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(1);
    if (inet_pton(AF_INET, host != nullptr ? host : "127.0.0.1", &address.sin_addr) != 1)
        return tuccl::kNcclInvalidUsage;
    std::memcpy(&handle.address, &address, sizeof address);
    std::memcpy(id->internal, &handle, sizeof handle);
    return 0;
}

int ncclGetVersion(int *version) {
    *version = static_cast<int>(version_here());
    return 0;
}
int ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank) {
    return make(comm, ranks, id, rank, nullptr);
}

int ncclCommCount(ncclComm_t comm, int *ranks) {
    *ranks = comm->ranks;
    return 0;
}
int ncclCommUserRank(ncclComm_t comm, int *rank) {
    *rank = comm->rank;
    return 0;
}
// STAND_IN_TEAM: the ranks of a team.
tuccl::NcclTeam ncclTeamLsa(ncclComm_t comm) {
    const char *wanted = std::getenv("STAND_IN_TEAM");
    const int team = wanted != nullptr ? std::atoi(wanted) : 0;
    if (team == 0 || comm->ranks % team != 0)
        return {};
    return {team, comm->rank % team, 1};
}
int ncclCommCuDevice(ncclComm_t comm, int *device) {
    *device = comm->device;
    return 0;
}
int ncclCommGetAsyncError(ncclComm_t comm, int *error) {
    if (comm->is_child && comm->error.load() == kAborted) {
        std::fprintf(stderr, "somebody asks about a communicator that was aborted\n");
        std::abort();
    }
    const bool started = comm->blocking || comm->members->joined.load() == comm->ranks;
    if (!comm->blocking && !comm->is_joined.load()) {
        if (comm->is_asked.exchange(true)) {
            std::fprintf(stderr, "two threads join the one that starts a communicator\n");
            std::abort();
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1)); // As long as a join may take.
        comm->is_joined.store(started);
        comm->is_asked.store(false);
    }
    *error = started && !comm->has_group.load() ? comm->error.load() : tuccl::kNcclInProgress;
    if (!comm->is_group_done.load())
        return 0;
    // As NCCL, which deletes the group's job in the call that finds it done.
    if (comm->is_asked.exchange(true)) {
        std::fprintf(stderr, "two threads end one group\n");
        std::abort();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    comm->is_group_done.store(false);
    comm->has_group.store(false);
    comm->is_asked.store(false);
    *error = comm->error.load();
    return 0;
}
// A test's way to have a communicator's groups end later, as where it does not block.
void stand_in_late(ncclComm_t comm, int ms) {
    comm->late_ms.store(ms);
}
// A test's way to see how NCCL started a communicator.
const ncclConfig *stand_in_config(ncclComm_t comm) {
    return &comm->config;
}
// A test's way to let NCCL find that a rank is gone.
void stand_in_break(ncclComm_t comm) {
    comm->error.store(kRemoteError);
}
// The same for what this process has split off.
void stand_in_break_children() {
    const std::lock_guard<std::mutex> lock(meetings.mutex);
    for (ncclComm *comm : meetings.live)
        if (comm->is_child)
            comm->error.store(kRemoteError);
}
// Communicators of this process that were neither destroyed nor aborted.
int stand_in_live_communicators() {
    const std::lock_guard<std::mutex> lock(meetings.mutex);
    return static_cast<int>(meetings.live.size());
}

int ncclCommDestroy(ncclComm_t comm) {
    note("nccl Destroy rank " + std::to_string(comm->rank));
    if (++comm->members->gone % comm->ranks == 0)
        for (int rank = 0; rank < comm->ranks; rank++)
            stand_in::Device::of(comm->members->devices.at(static_cast<size_t>(rank))).free();
    {
        const std::lock_guard<std::mutex> lock(meetings.mutex);
        if (meetings.live.erase(comm) == 0) {
            std::fprintf(stderr, "a communicator is destroyed that is gone\n");
            std::abort();
        }
    }
    give_bytes(comm);
    delete comm;
    return 0;
}
int ncclCommAbort(ncclComm_t comm) {
    note("nccl Abort rank " + std::to_string(comm->rank));
    if (comm->has_freed_flag) {
        std::fprintf(stderr, "an abort writes to the flag of a child that is freed\n");
        std::abort();
    }
    comm->error.store(kAborted);
    if (comm->shared_with != nullptr)
        comm->shared_with->error.store(kAborted);
    if (std::getenv("STAND_IN_UNHEARD_ABORT") == nullptr || --comm->members->joined == 0)
        comm->meeting->abort();
    comm->splitting->abort();
    comm->connecting->abort();
    if (std::getenv("STAND_IN_ABORT_FREES") != nullptr)
        stand_in::Device::of(comm->device).free();
    give_bytes(comm);
    // Other threads may still look at it.
    const std::lock_guard<std::mutex> lock(meetings.mutex);
    if (meetings.live.erase(comm) > 0)
        meetings.aborted.emplace_back(comm);
    return 0;
}

int ncclGroupStart() {
    depth++;
    return 0;
}
int ncclGroupEnd() {
    if (--depth > 0)
        return 0;
    std::vector<stand_in::Work> all;
    all.swap(in_group);
    all.insert(all.end(), receives_in_group.begin(), receives_in_group.end());
    receives_in_group.clear();
    std::vector<std::function<int()>> connections;
    connections.swap(connecting_in_group);
    for (const auto &connect_one : connections)
        if (const int failed = connect_one())
            return failed;
    if (ncclComm *late = std::exchange(late_in_group, nullptr); late != nullptr) {
        late->has_group.store(true);
        std::thread([late, all] {
            std::this_thread::sleep_for(std::chrono::milliseconds(late->late_ms.load()));
            for (const stand_in::Work &work : all)
                work();
            late->is_group_done.store(true);
        }).detach();
        return tuccl::kNcclInProgress;
    }
    for (const stand_in::Work &work : all)
        work();
    for (ncclWindow_t *window : windows_in_group)
        *window = reinterpret_cast<ncclWindow_t>(window);
    windows_in_group.clear();
    return 0;
}

int ncclAllReduce(const void *send, void *receive, size_t count, int type, int reduction,
                  ncclComm_t comm, ncclStream stream) {
    return call("AllReduce", 4, send, receive, count, type, reduction, 0, comm, stream);
}
int ncclReduceScatter(const void *send, void *receive, size_t count, int type, int reduction,
                      ncclComm_t comm, ncclStream stream) {
    return call("ReduceScatter", 3, send, receive, count, type, reduction, 0, comm, stream);
}
int ncclAllGather(const void *send, void *receive, size_t count, int type, ncclComm_t comm,
                  ncclStream stream) {
    return call("AllGather", 2, send, receive, count, type, 0, 0, comm, stream);
}
int ncclBroadcast(const void *send, void *receive, size_t count, int type, int root,
                  ncclComm_t comm, ncclStream stream) {
    return call("Broadcast", 0, send, receive, count, type, 0, root, comm, stream);
}
int ncclReduce(const void *send, void *receive, size_t count, int type, int reduction, int root,
               ncclComm_t comm, ncclStream stream) {
    return call("Reduce", 1, send, receive, count, type, reduction, root, comm, stream);
}
// Only noted, but for the executor's own among processes.
int ncclSend(const void *send, size_t count, int type, int peer, ncclComm_t comm,
             ncclStream stream) {
    return call("Send", 8, send, nullptr, count, type, 0, peer, comm, stream);
}
int ncclRecv(void *receive, size_t count, int type, int peer, ncclComm_t comm, ncclStream stream) {
    return call("Recv", 9, nullptr, receive, count, type, 0, peer, comm, stream);
}

int ncclCommInitAll(ncclComm_t *comms, int count, const int *devices) {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    for (int rank = 0; rank < count; rank++) {
        comms[rank] =
            join(name_of(id), count, rank, devices != nullptr ? devices[rank] : rank, true);
        configure(comms[rank], nullptr, nullptr);
    }
    return 0;
}

#ifndef STAND_IN_OLD_NCCL
int ncclAlltoAll(const void *send, void *receive, size_t count, int type, ncclComm_t comm,
                 ncclStream stream) {
    return call("AlltoAll", 5, send, receive, count, type, 0, 0, comm, stream);
}
int ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                           ncclConfig *config) {
    return make(comm, ranks, id, rank, config);
}
// A handle is where it was written to.
int ncclCommWindowRegister(ncclComm_t, void *, size_t, ncclWindow_t *window, int) {
    *window = nullptr;
    if (std::getenv("STAND_IN_HAS_NO_WINDOWS") != nullptr)
        return 0;
    if (depth > 0)
        windows_in_group.push_back(window);
    else
        *window = reinterpret_cast<ncclWindow_t>(window);
    return 0;
}
int ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) {
    return 0;
}
int ncclGroupSimulateEnd(ncclSimInfo *) {
    note("nccl GroupSimulateEnd");
    depth--;
    in_group.clear();
    receives_in_group.clear();
    connecting_in_group.clear();
    late_in_group = nullptr;
    return 0;
}
int ncclCommRevoke(ncclComm_t comm, int) {
    note("nccl Revoke rank " + std::to_string(comm->rank));
    if (std::getenv("STAND_IN_ABORT_FREES") != nullptr)
        comm->meeting->abort();
    return 0;
}
int ncclCommShrink(ncclComm_t comm, int *excluded, int excluded_count, ncclComm_t *made,
                   ncclConfig *config, int) {
    note("nccl Shrink rank " + std::to_string(comm->rank));
    int rank = comm->rank;
    for (int i = 0; i < excluded_count; i++)
        rank -= excluded[i] < comm->rank ? 1 : 0;
    char name[64];
    std::snprintf(name, sizeof name, "shrink %p", static_cast<const void *>(&*comm->meeting));
    *made = join(name, comm->ranks - excluded_count, rank, comm->device, true);
    if (!configure(*made, config, comm))
        return kInvalidArgument;
    (*made)->meeting->meet();
    return 0;
}
// By no rank: what it shows is the configuration.
int ncclCommGrow(ncclComm_t comm, int ranks, const ncclUniqueId *, int, ncclComm_t *made,
                 ncclConfig *config) {
    *made = join("grown " + comm->name, ranks, comm->rank, comm->device, true);
    return configure(*made, config, comm) ? 0 : kInvalidArgument;
}
int ncclCommFinalize(ncclComm_t comm) {
    note("nccl Finalize rank " + std::to_string(comm->rank));
    return 0;
}
// A rank that fails leaves the others waiting for it, until it aborts the parent. A configuration
// is looked at before ranks meet. NCCL splits in the background if the parent does not block;
// whether the child does is in its own configuration.
int ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig *config) {
    *made = nullptr;
    ncclComm tried = {};
    comm->has_freed_flag = color >= 0 && !configure(&tried, config, comm);
    if (comm->has_freed_flag)
        return kInvalidArgument;
    if (fails("STAND_IN_SPLIT_FAILS", comm->rank))
        return tuccl::kNcclInvalidUsage;
    stand_in::Part &mine = comm->splitting->parts[static_cast<size_t>(comm->rank)];
    mine.root = color;
    mine.type = key;
    if (!comm->splitting->meet())
        return kRemoteError;
    int ranks = 0;
    int rank = 0;
    for (int other = 0; other < comm->ranks; other++) {
        const stand_in::Part &part = comm->splitting->parts[static_cast<size_t>(other)];
        const bool together = part.root == color;
        const bool before = part.type < key || (part.type == key && other < comm->rank);
        ranks += together ? 1 : 0;
        rank += together && before ? 1 : 0;
    }
    if (!comm->splitting->meet())
        return kRemoteError;
    const auto *parent = static_cast<const void *>(&*comm->meeting);
    char name[64];
    std::snprintf(name, sizeof name, "split %p %d %d", parent, comm->splits++, color);
    *made = color < 0 ? nullptr : join(name, ranks, rank, comm->device, tried.config.blocking != 0);
    if (*made != nullptr) {
        (void)configure(*made, config, comm);
        (*made)->is_child = true;
        (*made)->request = request_of_executor(ranks);
        (*made)->shared_with = comm->shares ? comm : nullptr;
    }
    return comm->blocking ? tuccl::kNcclSuccess : tuccl::kNcclInProgress;
}
#endif

} // extern "C"
