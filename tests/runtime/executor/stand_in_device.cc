// The executor's CUDA side without a GPU: calls run on threads, in memory of this process.
// STAND_IN_FAILS=STEP:RANK, where RANK is that on its host, makes a step (create, connect,
// prepare_phases, load_stages, exchange, trials, order, quiesce) fail on a rank, or late
// (late_exchange), or takes its NVLink (nvlink); STAND_IN_DIES=STEP:RANK ends its process there. A
// process may run on STAND_IN_CORES cores from STAND_IN_FIRST_CORE on; 64 from 0 on if not given.
// With STAND_IN_PROCESSES ranks may be in several processes.
#include "executor.h"
#include "stand_in_meeting.h"
#include "stand_in_shared.h"
#include "stand_in_stages.h"
#include "stand_in_streams.h"

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <sched.h>
#include <string>
#include <thread>

using stand_in::Stream;

#ifdef STAND_IN_PROCESSES
using MeetingOf = stand_in::SharedMeeting *;
#else
using MeetingOf = std::shared_ptr<stand_in::Meeting>;
#endif

struct tuccl_device_comm {
    MeetingOf meeting;
    MeetingOf *told; // What the handle points to.
    uint32_t rank;
    uint32_t ranks;
    int device;
    std::atomic<int> running;
    stand_in::Event remembered;
    // As device memory: pages that nobody touches cost nothing.
    std::unique_ptr<void, decltype(&std::free)> scratch{nullptr, std::free};
    std::vector<std::unique_ptr<Stream>> sides;
    std::array<stand_in::Event, TUCCL_DEVICE_MARKS> marks;
    bool nvlink = true;
    stand_in::StageAreas *areas = nullptr; // Of the node; its first rank makes them.
    std::vector<tuccl_stage_step> steps;
    uint32_t abort_word = 0;
};

using Clock = std::chrono::steady_clock;

struct tuccl_exchange {
    int device;
    std::vector<std::chrono::nanoseconds> marks;
    Stream stream;
    std::vector<unsigned char> send;
    std::vector<unsigned char> receive;
    std::atomic<bool> is_held{false};
};

// What streams do with them is seen by the host under the mutex alone.
struct tuccl_trials {
    struct Mark {
        std::chrono::nanoseconds time{};
        uint64_t put = 0;
        uint64_t reached = 0; // Of these.
    };
    tuccl_trials_need need;
    uint32_t on; // Of which device.
    std::mutex mutex;
    std::vector<Mark> marks; // Of each slot, and then one for what it received.
    std::vector<unsigned char> device;
    std::vector<unsigned char> host;

    Mark &mark(uint32_t slot, uint32_t number) {
        return marks.at(slot * (need.marks + 1) + number);
    }
    size_t place(uint32_t slot) const {
        return slot * size_t{need.bytes} * (need.ranks + 1);
    }
    void put_mark(uint32_t slot, uint32_t number, Stream *stream) {
        uint64_t count = 0;
        {
            const std::lock_guard<std::mutex> lock(mutex);
            count = ++mark(slot, number).put;
        }
        stream->put([this, slot, number, count] {
            const std::lock_guard<std::mutex> lock(mutex);
            mark(slot, number).time = stand_in::stream_time();
            mark(slot, number).reached = count;
        });
    }
    bool has_come(uint32_t slot, uint32_t number) {
        const Mark &asked = mark(slot, number);
        return asked.reached == asked.put;
    }
};

namespace {

bool is_wanted(const char *variable, const char *step, uint32_t rank) {
    const char *wanted = std::getenv(variable);
    return wanted != nullptr && wanted == std::string(step) + ":" + std::to_string(rank);
}

bool fails(const char *step, uint32_t rank) {
    if (is_wanted("STAND_IN_DIES", step, rank))
        (void)std::raise(SIGKILL);
    return is_wanted("STAND_IN_FAILS", step, rank);
}

// STAND_IN_SLOW_ENTRIES=OPERATION:MOST_BYTES:US[:NCHANNELS]: the executor's kernels take so long
// for calls of an operation that have at most so many bytes in this rank's first buffer, and so
// many channels if a number is given.
void take_time_of(const struct stand_in::Part &part, int nchannels) {
    const char *wanted = std::getenv("STAND_IN_SLOW_ENTRIES");
    int operation = 0;
    size_t most_bytes = 0;
    int time_us = 0;
    int slow_nchannels = nchannels;
    if (wanted != nullptr &&
        std::sscanf(wanted, "%d:%zu:%d:%d", &operation, &most_bytes, &time_us, &slow_nchannels) >=
            3 &&
        slow_nchannels == nchannels && part.operation == operation &&
        part.count * stand_in::bytes_of(part.type) <= most_bytes)
        stand_in::take(std::chrono::microseconds(time_us));
}

thread_local int current_device = 0;
thread_local bool has_device = false; // Whether this thread has chosen it.
thread_local int is_entered = 0;      // Whether this thread may do what captures forbid.
thread_local int launched = 0;

#ifdef STAND_IN_PROCESSES
MeetingOf *tell_meeting(int ranks) {
    stand_in::Shared &shared = stand_in::Shared::of_host();
    return shared.make<MeetingOf>(shared.make<stand_in::SharedMeeting>(ranks));
}
void forget_meeting(MeetingOf *) {
}
#else
MeetingOf *tell_meeting(int ranks) {
    return new MeetingOf(std::make_shared<stand_in::Meeting>(ranks));
}
void forget_meeting(MeetingOf *told) {
    delete told;
}
#endif

} // namespace

int stand_in::launched_by_this_thread() {
    return launched;
}

int sched_getaffinity(pid_t, size_t size, cpu_set_t *set) noexcept {
    const char *count = std::getenv("STAND_IN_CORES");
    const char *first = std::getenv("STAND_IN_FIRST_CORE");
    const int from = first != nullptr ? std::atoi(first) : 0;
    CPU_ZERO_S(size, set);
    for (int i = 0; i < (count != nullptr ? std::atoi(count) : 64); i++)
        CPU_SET_S(static_cast<size_t>(from + i), size, set);
    return 0;
}

const char *tuccl_device_comm_create(struct tuccl_device_comm **comm,
                                     struct tuccl_device_place place,
                                     const struct tuccl_staging *staging,
                                     unsigned char handle[TUCCL_HANDLE_BYTES]) {
    const auto [rank, ranks, spans_hosts] = place;
    if (spans_hosts)
        stand_in::note("fabric memory");
    stand_in::note("staging " + std::to_string(staging->part_bytes[TUCCL_LL]) + " " +
                   std::to_string(staging->scratch_bytes));
    if (fails("create", rank))
        return "there is no device memory for its staging area";
    auto *made = new tuccl_device_comm{};
    made->told = tell_meeting(static_cast<int>(ranks));
    made->rank = rank;
    made->ranks = ranks;
    made->device = current_device;
    std::memcpy(handle, &made->told, sizeof made->told);
#ifdef STAND_IN_PROCESSES
    if (rank == 0 && staging->half_bytes[TUCCL_LL] + staging->half_bytes[TUCCL_LL128] > 0)
        made->areas = stand_in::Shared::of_host().make<stand_in::StageAreas>();
    std::memcpy(handle + sizeof made->told, &made->areas, sizeof made->areas);
#endif
    *comm = made;
    return nullptr;
}

const char *tuccl_device_comm_connect(struct tuccl_device_comm *comm,
                                      const unsigned char (*handles)[TUCCL_HANDLE_BYTES]) {
    if (fails("connect", comm->rank))
        return "memory of another process's device cannot be reached (no P2P, or no IPC)";
    MeetingOf *first;
    std::memcpy(&first, handles[0], sizeof first);
    comm->meeting = *first;
    std::memcpy(&comm->areas, handles[0] + sizeof first, sizeof comm->areas);
    comm->nvlink = !fails("nvlink", comm->rank);
    return nullptr;
}

int tuccl_device_has_nvlink(const struct tuccl_device_comm *comm) {
    return comm->nvlink ? 1 : 0;
}

void tuccl_device_forgo_nvlink(struct tuccl_device_comm *comm) {
    comm->nvlink = false;
}

const char *tuccl_device_comm_load_programs(struct tuccl_device_comm *, const void *, size_t) {
    stand_in::note("load_programs");
    return nullptr;
}

int tuccl_device_comm_quiesce(struct tuccl_device_comm *comm) {
    stand_in::note("quiesce " + std::to_string(comm->rank));
    stand_in::Device::of(comm->device).free();
    return fails("quiesce", comm->rank) ? 0 : 1;
}

void tuccl_device_comm_destroy(struct tuccl_device_comm *comm) {
    if (comm == nullptr)
        return;
    stand_in::note("destroy " + std::to_string(comm->rank));
    stand_in::Device::of(comm->device).free();
    if (comm->running.load() != 0) {
        std::fprintf(stderr, "memory is freed that a kernel uses\n");
        std::abort();
    }
    forget_meeting(comm->told);
    delete comm;
}

int tuccl_device_supports(const struct tuccl_device_comm *comm, const struct tuccl_call *call) {
    return comm->ranks >= 2 && call->protocol != TUCCL_SIMPLE &&
           (call->protocol != TUCCL_LL128 || comm->nvlink);
}

int tuccl_device_launch(struct tuccl_device_comm *comm, const struct tuccl_call *call,
                        void *stream) {
    stand_in::note("executor " + std::to_string(call->operation) + " rank " +
                   std::to_string(comm->rank) + ", blocks " + std::to_string(call->nchannels));
    launched++;
    const stand_in::Part part = {call->send, call->receive,   call->count, call->operation,
                                 call->type, call->reduction, call->root,  call->stride_bytes};
    const bool captured = static_cast<Stream *>(stream)->capture() != nullptr;
    comm->running += captured ? 0 : 1;
    const int nchannels = call->nchannels;
    stand_in::put_kernel(static_cast<Stream *>(stream), comm->device, [=] {
        take_time_of(part, nchannels);
        stand_in::run(&*comm->meeting, static_cast<int>(comm->rank), part);
        comm->running -= captured ? 0 : 1;
    });
    return 0;
}

void tuccl_device_abort(struct tuccl_device_comm *comm) {
    stand_in::note("abort " + std::to_string(comm->rank));
    comm->meeting->abort();
    __atomic_store_n(&comm->abort_word, 1U, __ATOMIC_RELAXED);
}

int tuccl_device_order(struct tuccl_device_comm *, void *before, void *after) {
    const int error = stand_in::order(static_cast<Stream *>(before), static_cast<Stream *>(after));
    if (error != 0) {
        std::fprintf(stderr, error == 400 ? "a stream was used that is gone\n"
                                          : "captured and eager work were mixed\n");
        std::abort();
    }
    return error;
}

const char *tuccl_device_prepare_phases(struct tuccl_device_comm *comm, size_t scratch_bytes,
                                        uint32_t streams) {
    if (fails("prepare_phases", comm->rank))
        return "there is no device memory for what lies between phases";
    comm->scratch.reset(std::calloc(scratch_bytes, 1));
    for (uint32_t i = 0; i < streams; i++)
        comm->sides.push_back(std::make_unique<Stream>());
    return nullptr;
}

void *tuccl_device_scratch(const struct tuccl_device_comm *comm) {
    return comm->scratch.get();
}

void *tuccl_device_side_stream(const struct tuccl_device_comm *comm, uint32_t number) {
    return comm->sides.at(number).get();
}

int tuccl_device_mark(struct tuccl_device_comm *comm, uint32_t mark, void *stream) {
    stand_in::record(static_cast<Stream *>(stream), &comm->marks.at(mark));
    return 0;
}

int tuccl_device_await(struct tuccl_device_comm *comm, uint32_t mark, void *stream) {
    return stand_in::wait(static_cast<Stream *>(stream), comm->marks.at(mark));
}

int tuccl_device_sum(struct tuccl_device_comm *comm, const void *source, void *target, size_t count,
                     uint32_t summands, uint8_t type, uint8_t reduction, void *stream) {
    stand_in::note("sum rank " + std::to_string(comm->rank));
    std::vector<stand_in::Part> parts;
    for (uint32_t i = 0; i < summands; i++)
        parts.push_back(
            {static_cast<const unsigned char *>(source) + i * count * stand_in::bytes_of(type),
             nullptr, count, TUCCL_REDUCE, type, reduction, 0});
    stand_in::put_kernel(static_cast<Stream *>(stream), comm->device,
                         [parts, count, target] { stand_in::reduce(parts, 0, count, target); });
    return 0;
}

const char *tuccl_device_load_stages(struct tuccl_device_comm *comm,
                                     const struct tuccl_stage_step *steps, size_t count) {
    if (fails("load_stages", comm->rank))
        return "there is no device memory for its stages";
    comm->steps.assign(steps, steps + count);
    return nullptr;
}

int tuccl_device_run_stage(struct tuccl_device_comm *comm, const struct tuccl_stage_call *call,
                           void *stream) {
    stand_in::note("stage rank " + std::to_string(comm->rank));
    if (comm->areas == nullptr) // Nodes of one rank have no messages.
        comm->areas = stand_in::Shared::of_host().make<stand_in::StageAreas>();
    const bool captured = static_cast<Stream *>(stream)->capture() != nullptr;
    comm->running += captured ? 0 : 1;
    stand_in::put_kernel(static_cast<Stream *>(stream), comm->device,
                         [comm, captured, call = *call] {
                             stand_in::run_stage(comm->steps, comm->areas, comm->rank, comm->ranks,
                                                 call, &comm->abort_word);
                             comm->running -= captured ? 0 : 1;
                         });
    return 0;
}

namespace stand_in {
void set_device(int device) {
    current_device = device;
    has_device = true;
}
} // namespace stand_in

int tuccl_device_enter(int device, struct tuccl_device_scope *before) {
    if (before != nullptr)
        *before = {current_device, is_entered};
    else
        has_device = true;
    current_device = device;
    is_entered = 1;
    return 0;
}

void tuccl_device_leave(const struct tuccl_device_scope *before) {
    if (!has_device && current_device != before->device)
        stand_in::note("makes a context on a device that the thread did not choose");
    current_device = before->device;
    is_entered = before->capture_mode;
}

uint64_t tuccl_device_free_bytes(void) {
    return static_cast<uint64_t>(stand_in::Device::of(current_device).free_bytes());
}

int tuccl_device_remember(struct tuccl_device_comm *comm, void *before) {
    stand_in::record(static_cast<Stream *>(before), &comm->remembered);
    return 0;
}

int tuccl_device_order_remembered(struct tuccl_device_comm *comm, void *after) {
    stand_in::note("order");
    return fails("order", comm->rank)
               ? 1
               : stand_in::wait(static_cast<Stream *>(after), comm->remembered);
}

struct tuccl_stream_state tuccl_device_stream(void *stream) {
    return {static_cast<Stream *>(stream)->number,
            stand_in::capture_of(static_cast<Stream *>(stream))};
}

const char *tuccl_exchange_create(struct tuccl_exchange **exchange, size_t bytes, uint32_t ranks) {
    if (fails("exchange", static_cast<uint32_t>(current_device)))
        return "there is no device memory for a few bytes, or no stream";
    if (fails("late_exchange", static_cast<uint32_t>(current_device)))
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
    *exchange = new tuccl_exchange;
    (*exchange)->device = current_device;
    (*exchange)->send.resize(bytes);
    (*exchange)->receive.resize(bytes * ranks);
    return nullptr;
}

struct tuccl_exchange_view tuccl_exchange_view(const struct tuccl_exchange *exchange) {
    auto *mine = const_cast<struct tuccl_exchange *>(exchange);
    return {&mine->stream, mine->send.data(), mine->receive.data()};
}

const char *tuccl_exchange_prepare_marks(struct tuccl_exchange *exchange, uint32_t marks) {
    if (fails("marks", static_cast<uint32_t>(exchange->device)))
        return "no event could be made";
    exchange->marks.resize(marks);
    return nullptr;
}

int tuccl_exchange_mark(struct tuccl_exchange *exchange, uint32_t mark) {
    if (fails("mark", static_cast<uint32_t>(exchange->device)))
        return 1;
    exchange->stream.put([exchange, mark] { exchange->marks.at(mark) = stand_in::stream_time(); });
    return 0;
}

int tuccl_exchange_hold(struct tuccl_exchange *exchange) {
    exchange->is_held = true;
    exchange->stream.put([exchange] {
        const auto end = Clock::now() + std::chrono::milliseconds(100);
        while (exchange->is_held.load() && Clock::now() < end)
            std::this_thread::sleep_for(std::chrono::microseconds(10));
    });
    return 0;
}

void tuccl_exchange_release(struct tuccl_exchange *exchange) {
    exchange->is_held = false;
}

float tuccl_exchange_us_after(const struct tuccl_exchange *exchange, uint32_t mark) {
    const auto time = exchange->marks.at(mark + 1) - exchange->marks.at(mark);
    return std::chrono::duration<float, std::micro>(time).count();
}

int tuccl_exchange_write(struct tuccl_exchange *exchange, const void *mine) {
    const auto *first = static_cast<const unsigned char *>(mine);
    exchange->stream.put(
        [exchange, bytes = std::vector<unsigned char>(first, first + exchange->send.size())] {
            exchange->send = bytes;
        });
    return 0;
}

int tuccl_exchange_ended(const struct tuccl_exchange *exchange) {
    return const_cast<struct tuccl_exchange *>(exchange)->stream.is_idle() ? 1 : 0;
}

int tuccl_exchange_read(struct tuccl_exchange *exchange, void *all) {
    std::memcpy(all, exchange->receive.data(), exchange->receive.size());
    return 0;
}

void tuccl_exchange_destroy(struct tuccl_exchange *exchange) {
    if (exchange != nullptr) {
        exchange->stream.wait();
        stand_in::note("frees buffers of greetings or of calls at start");
        stand_in::Device::of(exchange->device).free();
    }
    delete exchange;
}

// CUDA would end other threads' captures, or refuse events and streams of another device. `stream`:
// NULL if nothing is put on one.
static void check_place(const tuccl_trials &trials, void *stream) {
    if (is_entered == 0 || static_cast<uint32_t>(current_device) != trials.on) {
        std::fprintf(stderr, "a trial outside its device's scope\n");
        std::abort();
    }
    if (stream != nullptr && static_cast<Stream *>(stream)->capture() != nullptr) {
        std::fprintf(stderr, "a trial is captured\n");
        std::abort();
    }
}

// They are never freed: what is on a stream may still use them.
const char *tuccl_trials_create(struct tuccl_trials **trials,
                                const struct tuccl_trials_need *need) {
    *trials = nullptr;
    if (fails("trials", static_cast<uint32_t>(current_device)))
        return "its trials have no memory, or no events";
    auto *made = new tuccl_trials;
    made->need = *need;
    made->on = static_cast<uint32_t>(current_device);
    check_place(*made, nullptr);
    made->marks.resize(need->slots * size_t{need->marks + 1});
    made->device.resize(made->place(need->slots));
    made->host.resize(made->place(need->slots));
    *trials = made;
    return nullptr;
}

int tuccl_trials_mark(struct tuccl_trials *trials, uint32_t slot, uint32_t mark, void *stream) {
    check_place(*trials, stream);
    if (fails("trial_mark", static_cast<uint32_t>(current_device)))
        return 1;
    trials->put_mark(slot, mark, static_cast<Stream *>(stream));
    return 0;
}

float tuccl_trials_us_after(const struct tuccl_trials *trials, uint32_t slot, uint32_t mark) {
    check_place(*trials, nullptr);
    auto *mine = const_cast<struct tuccl_trials *>(trials);
    const std::lock_guard<std::mutex> lock(mine->mutex);
    if (!mine->has_come(slot, mark) || !mine->has_come(slot, mark + 1))
        return -1.0F;
    const auto time = mine->mark(slot, mark + 1).time - mine->mark(slot, mark).time;
    return std::chrono::duration<float, std::micro>(time).count();
}

unsigned char *tuccl_trials_bytes(const struct tuccl_trials *trials, uint32_t slot) {
    return const_cast<struct tuccl_trials *>(trials)->host.data() + trials->place(slot);
}

int tuccl_trials_write(struct tuccl_trials *trials, uint32_t slot, void *stream) {
    check_place(*trials, stream);
    const size_t at = trials->place(slot);
    static_cast<Stream *>(stream)->put([trials, at] {
        std::memcpy(trials->device.data() + at, trials->host.data() + at, trials->need.bytes);
    });
    return 0;
}

struct tuccl_trials_view tuccl_trials_view(const struct tuccl_trials *trials, uint32_t slot) {
    unsigned char *own =
        const_cast<struct tuccl_trials *>(trials)->device.data() + trials->place(slot);
    return {own, own + trials->need.bytes};
}

// STAND_IN_LATE_REPORTS=MS: they take so long to come. STAND_IN_SPOILS_REPORTS=1: on each rank that
// of the next one is another than it was.
int tuccl_trials_read(struct tuccl_trials *trials, uint32_t slot, void *stream) {
    const size_t at = trials->place(slot) + trials->need.bytes;
    check_place(*trials, stream);
    const char *late_ms = std::getenv("STAND_IN_LATE_REPORTS");
    const bool spoils = std::getenv("STAND_IN_SPOILS_REPORTS") != nullptr;
    static_cast<Stream *>(stream)->put([trials, at, late_ms, spoils] {
        if (late_ms != nullptr)
            std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(late_ms)));
        std::memcpy(trials->host.data() + at, trials->device.data() + at,
                    size_t{trials->need.bytes} * trials->need.ranks);
        if (spoils)
            trials->host[at + (trials->on + 1) % trials->need.ranks * trials->need.bytes] ^= 1;
    });
    trials->put_mark(slot, trials->need.marks, static_cast<Stream *>(stream));
    return 0;
}

int tuccl_trials_came(const struct tuccl_trials *trials, uint32_t slot) {
    check_place(*trials, nullptr);
    auto *mine = const_cast<struct tuccl_trials *>(trials);
    const std::lock_guard<std::mutex> lock(mine->mutex);
    return mine->has_come(slot, trials->need.marks) ? 1 : 0;
}

void tuccl_trials_retire(struct tuccl_trials *trials) {
    static std::mutex mutex;
    static auto *const retired = new std::vector<tuccl_trials *>;
    const std::lock_guard<std::mutex> lock(mutex);
    retired->push_back(trials);
}
