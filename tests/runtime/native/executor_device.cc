// The executor's CUDA side without a GPU, over the stand-in of libcuda.so.1 whose streams run what
// they get at once: for communicators that have no schedules. Nothing else of it is called.
#include "executor.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <vector>

using Clock = std::chrono::steady_clock;

struct tuccl_exchange {
    void *stream;
    size_t bytes;
    std::vector<unsigned char> memory;
    std::vector<Clock::time_point> marks;
};

namespace {

template <typename Function> Function cuda(const char *name) {
    static void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<Function>(dlsym(library, name));
}

} // namespace

int tuccl_device_enter(int, struct tuccl_device_scope *) {
    return 0;
}
void tuccl_device_leave(const struct tuccl_device_scope *) {
}
uint64_t tuccl_device_free_bytes(void) {
    return uint64_t{1} << 34;
}

const char *tuccl_exchange_create(struct tuccl_exchange **exchange, size_t bytes, uint32_t ranks) {
    auto *made = new tuccl_exchange{};
    if (cuda<int (*)(void **, unsigned)>("cuStreamCreate")(&made->stream, 0) != 0)
        return "there is no stream";
    made->bytes = bytes;
    made->memory.resize(bytes * (ranks + 1));
    *exchange = made;
    return nullptr;
}
struct tuccl_exchange_view tuccl_exchange_view(const struct tuccl_exchange *exchange) {
    auto *memory = const_cast<unsigned char *>(exchange->memory.data());
    return {exchange->stream, memory, memory + exchange->bytes};
}
const char *tuccl_exchange_prepare_marks(struct tuccl_exchange *exchange, uint32_t marks) {
    exchange->marks.resize(marks);
    return nullptr;
}
int tuccl_exchange_mark(struct tuccl_exchange *exchange, uint32_t mark) {
    exchange->marks.at(mark) = Clock::now();
    return 0;
}
// Calls run as they are made.
int tuccl_exchange_hold(struct tuccl_exchange *) {
    return 0;
}
void tuccl_exchange_release(struct tuccl_exchange *) {
}
float tuccl_exchange_us_after(const struct tuccl_exchange *exchange, uint32_t mark) {
    const auto time = exchange->marks.at(mark + 1) - exchange->marks.at(mark);
    return std::chrono::duration<float, std::micro>(time).count();
}
int tuccl_exchange_write(struct tuccl_exchange *exchange, const void *mine) {
    std::memcpy(exchange->memory.data(), mine, exchange->bytes);
    return 0;
}
int tuccl_exchange_ended(const struct tuccl_exchange *) {
    return 1;
}
int tuccl_exchange_read(struct tuccl_exchange *exchange, void *all) {
    std::memcpy(all, exchange->memory.data() + exchange->bytes,
                exchange->memory.size() - exchange->bytes);
    return 0;
}
void tuccl_exchange_destroy(struct tuccl_exchange *exchange) {
    if (exchange != nullptr)
        (void)cuda<int (*)(void *)>("cuStreamDestroy_v2")(exchange->stream);
    delete exchange;
}

// Without a schedule there is no communicator on a device.
#define NEVER(declaration)                                                                         \
    declaration {                                                                                  \
        std::abort();                                                                              \
    }
NEVER(const char *tuccl_device_comm_create(struct tuccl_device_comm **, struct tuccl_device_place,
                                           const struct tuccl_staging *, unsigned char *))
NEVER(const char *tuccl_device_comm_connect(struct tuccl_device_comm *,
                                            const unsigned char (*)[TUCCL_HANDLE_BYTES]))
NEVER(int tuccl_device_has_nvlink(const struct tuccl_device_comm *))
NEVER(void tuccl_device_forgo_nvlink(struct tuccl_device_comm *))
NEVER(const char *tuccl_device_comm_load_programs(struct tuccl_device_comm *, const void *, size_t))
NEVER(int tuccl_device_comm_quiesce(struct tuccl_device_comm *))
void tuccl_device_comm_destroy(struct tuccl_device_comm *comm) {
    if (comm != nullptr)
        std::abort();
}
NEVER(int tuccl_device_supports(const struct tuccl_device_comm *, const struct tuccl_call *))
NEVER(int tuccl_device_launch(struct tuccl_device_comm *, const struct tuccl_call *, void *))
NEVER(const char *tuccl_device_prepare_phases(struct tuccl_device_comm *, size_t, uint32_t))
NEVER(void *tuccl_device_scratch(const struct tuccl_device_comm *))
NEVER(void *tuccl_device_side_stream(const struct tuccl_device_comm *, uint32_t))
NEVER(int tuccl_device_mark(struct tuccl_device_comm *, uint32_t, void *))
NEVER(int tuccl_device_await(struct tuccl_device_comm *, uint32_t, void *))
NEVER(int tuccl_device_sum(struct tuccl_device_comm *, const void *, void *, size_t, uint32_t,
                           uint8_t, uint8_t, void *))
NEVER(const char *tuccl_device_load_stages(struct tuccl_device_comm *,
                                           const struct tuccl_stage_step *, size_t))
NEVER(int tuccl_device_run_stage(struct tuccl_device_comm *, const struct tuccl_stage_call *,
                                 void *))
NEVER(void tuccl_device_abort(struct tuccl_device_comm *))
NEVER(int tuccl_device_order(struct tuccl_device_comm *, void *, void *))
NEVER(int tuccl_device_remember(struct tuccl_device_comm *, void *))
NEVER(int tuccl_device_order_remembered(struct tuccl_device_comm *, void *))

// Trials, on streams that do at once what they get.
struct tuccl_trials {
    tuccl_trials_need need;
    std::vector<Clock::time_point> marks;
    std::vector<unsigned char> memory; // Of each slot: this rank's bytes, then those of all.

    unsigned char *slot(uint32_t number) {
        return memory.data() + number * size_t{need.bytes} * (need.ranks + 1);
    }
};

struct tuccl_stream_state tuccl_device_stream(void *stream) {
    int captured = 0;
    if (cuda<int (*)(void *, int *)>("cuStreamIsCapturing")(stream, &captured) != 0)
        std::abort();
    return {1, captured != 0 ? uint64_t{1} : uint64_t{0}};
}
const char *tuccl_trials_create(struct tuccl_trials **trials,
                                const struct tuccl_trials_need *need) {
    *trials = new tuccl_trials{*need, {}, {}};
    (*trials)->marks.resize(need->slots * size_t{need->marks});
    (*trials)->memory.resize(need->slots * size_t{need->bytes} * (need->ranks + 1));
    return nullptr;
}
int tuccl_trials_mark(struct tuccl_trials *trials, uint32_t slot, uint32_t mark, void *) {
    trials->marks.at(slot * trials->need.marks + mark) = Clock::now();
    return 0;
}
float tuccl_trials_us_after(const struct tuccl_trials *trials, uint32_t slot, uint32_t mark) {
    const auto *first = &trials->marks.at(slot * trials->need.marks + mark);
    return std::chrono::duration<float, std::micro>(first[1] - first[0]).count();
}
unsigned char *tuccl_trials_bytes(const struct tuccl_trials *trials, uint32_t slot) {
    return const_cast<struct tuccl_trials *>(trials)->slot(slot);
}
int tuccl_trials_write(struct tuccl_trials *, uint32_t, void *) {
    return 0;
}
struct tuccl_trials_view tuccl_trials_view(const struct tuccl_trials *trials, uint32_t slot) {
    unsigned char *own = const_cast<struct tuccl_trials *>(trials)->slot(slot);
    return {own, own + trials->need.bytes};
}
int tuccl_trials_read(struct tuccl_trials *, uint32_t, void *) {
    return 0;
}
int tuccl_trials_came(const struct tuccl_trials *, uint32_t) {
    return 1;
}
void tuccl_trials_retire(struct tuccl_trials *trials) {
    delete trials;
}
