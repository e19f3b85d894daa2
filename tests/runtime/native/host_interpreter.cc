// The interpreter on host threads: a node's ranks in one process, a thread for each thread of each
// block. What test_interpreter.py calls.
#include "interpreter.h"
#include "interpreter_moves.h"
#include "program_plan.h"

#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace {

using tuccl::ProgramLaunch;
using tuccl::ProgramState;

class HostMachine {
  public:
    HostMachine(uint32_t thread, uint32_t threads, uint32_t block, uint32_t blocks,
                pthread_barrier_t *barrier)
        : thread_(thread), threads_(threads), block_(block), blocks_(blocks), barrier_(barrier) {
    }
    uint32_t thread() const {
        return thread_;
    }
    uint32_t threads() const {
        return threads_;
    }
    uint32_t block() const {
        return block_;
    }
    uint32_t blocks() const {
        return blocks_;
    }
    void barrier() const {
        if (threads_ > 1)
            pthread_barrier_wait(barrier_);
    }

  private:
    uint32_t thread_;
    uint32_t threads_;
    uint32_t block_;
    uint32_t blocks_;
    pthread_barrier_t *barrier_;
};

using tuccl::FewMoves;
using tuccl::ManyMoves;

// A launch of a rank: its program's moves, or its steps where there are none.
struct HostLaunch {
    enum { kSteps, kPlain, kAny } kind;
    uint32_t blocks;
    ProgramLaunch plan;
    FewMoves few;
    ManyMoves many;
};

template <typename Wire> void interpret(const HostLaunch &launch, const HostMachine &machine) {
    using tuccl::AnyPair;
    if (launch.kind == HostLaunch::kPlain)
        tuccl::MoveRunner<Wire, AnyPair, HostMachine, FewMoves>(launch.few, machine).run();
    else if (launch.kind == HostLaunch::kAny)
        tuccl::MoveRunner<Wire, AnyPair, HostMachine, ManyMoves>(launch.many, machine).run();
    else
        tuccl::Interpreter<Wire, AnyPair, HostMachine>(launch.plan, machine).run();
}

void run_thread(const HostLaunch &launch, const HostMachine &machine, uint32_t protocol) {
    if (protocol == TUCCL_LL)
        interpret<tuccl::LlWire>(launch, machine);
    else
        interpret<tuccl::SimpleWire>(launch, machine);
}

tuccl::Moves moves_of(const tuccl_program &program) {
    uint64_t comparisons = tuccl::kMostComparisons;
    return tuccl::moves_of(program, &comparisons);
}

} // namespace

// As much as anything may ask for.
constexpr tuccl_staging kStaging = {
    {},
    {},
    {tuccl::kMostHalfBytes[TUCCL_LL], 0, tuccl::kMostHalfBytes[TUCCL_SIMPLE]},
    tuccl::kMostProgramScratchBytes};

// A node.
struct host_node {
    uint32_t ranks;
    uint32_t abort;
    bool rearranges; // Else steps are taken one by one.
    char *area[TUCCL_MAX_RANKS];
};

extern "C" {

void host_node_destroy(host_node *node) {
    for (char *area : node->area)
        if (area != nullptr)
            munmap(area, tuccl::program_area_bytes(kStaging));
    delete node;
}

// `base` is the number that the first launch begins behind.
host_node *host_node_create(uint32_t ranks, uint64_t base) {
    auto *node = new host_node{ranks, 0, true, {}};
    for (uint32_t rank = 0; rank < ranks; rank++) {
        // Pages that nobody touches take no memory.
        void *area = mmap(nullptr, tuccl::program_area_bytes(kStaging), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (area == MAP_FAILED)
            std::abort();
        node->area[rank] = static_cast<char *>(area);
        tuccl::state_of(node->area[rank])->base = base;
    }
    return node;
}

void host_node_abort(host_node *node) {
    __atomic_store_n(&node->abort, 1U, __ATOMIC_RELAXED);
}

// Whether programs are rearranged into moves where they can be.
void host_node_rearrange(host_node *node, bool rearranges) {
    node->rearranges = rearranges;
}

// The number that a rank's next launch begins behind.
uint64_t host_node_base(const host_node *node, uint32_t rank) {
    return tuccl::state_of(node->area[rank])->base;
}

// As if that many numbers had been taken, with all the launches that took them.
void host_node_set_base(host_node *node, uint64_t base) {
    for (uint32_t rank = 0; rank < node->ranks; rank++)
        tuccl::state_of(node->area[rank])->base = base;
}

size_t host_node_call_bytes() {
    return sizeof(tuccl_call);
}

// How a call is cut: tiles, bytes of a tile, bytes of a slot; false when it cannot run.
bool host_node_plan(const void *data, size_t bytes, const tuccl_call *call, uint64_t *figures) {
    tuccl_program program;
    ProgramLaunch launch;
    char why[128];
    if (!tuccl_program_check(data, bytes, &program, why, sizeof why) ||
        !tuccl::plan_program(program, *call, need_of(moves_of(program)), &launch))
        return false;
    figures[0] = launch.tiles;
    figures[1] = launch.tile_bytes;
    figures[2] = launch.slot_bytes;
    return true;
}

// Runs a call on ranks `first` to `end` - 1, `times` after one another; ranks do not wait for each
// other in between. Half a sentence when it cannot, else NULL.
const char *host_node_run(host_node *node, const void *data, size_t bytes, const tuccl_call *call,
                          const void *const *send, void *const *receive, uint32_t first,
                          uint32_t end, uint32_t times) {
    static char why[128];
    tuccl_program program;
    ProgramLaunch plan;
    if (!tuccl_program_check(data, bytes, &program, why, sizeof why))
        return why;
    const tuccl::Moves moves = node->rearranges ? moves_of(program) : tuccl::Moves{};
    const bool has_moves = tuccl::has_room<ManyMoves>(need_of(moves));
    const tuccl::MovesNeed need = has_moves ? need_of(moves) : tuccl::MovesNeed{};
    if (program.header->ranks != node->ranks || !tuccl::plan_program(program, *call, need, &plan) ||
        !tuccl::place_launch(kStaging, call->protocol, &plan))
        return "cannot be run so";
    if (!has_moves && !tuccl::has_room_for_threadblocks(program, *call))
        return "has too many threadblocks";
    std::vector<std::thread> devices;
    for (uint32_t rank = first; rank < end; rank++)
        devices.emplace_back([=, &moves] {
            HostLaunch launch = {};
            launch.blocks = plan.instances;
            ProgramLaunch &own = launch.plan;
            own = plan;
            tuccl::set_rank(program, rank, 0, &own);
            std::memcpy(own.area, node->area, sizeof own.area);
            own.own_area = own.area[rank];
            own.abort = &node->abort;
            own.send = static_cast<const char *>(send[rank]);
            own.receive = static_cast<char *>(receive[rank]);
            launch.few.plan = launch.many.plan = own;
            if (tuccl::is_plain(need, own)) {
                launch.kind = HostLaunch::kPlain;
                tuccl::set_moves(moves, &launch.few);
            } else if (has_moves) {
                launch.kind = HostLaunch::kAny;
                tuccl::set_moves(moves, &launch.many);
            } else {
                launch.blocks *= own.own_blocks;
            }
            const uint32_t blocks = launch.blocks;
            for (uint32_t i = 0; i < times && call->count > 0; i++) {
                std::vector<std::thread> threads;
                std::vector<pthread_barrier_t> barriers(blocks);
                for (uint32_t block = 0; block < blocks; block++) {
                    pthread_barrier_init(&barriers[block], nullptr, call->nthreads / 32);
                    for (uint32_t thread = 0; thread < call->nthreads / 32U; thread++)
                        threads.emplace_back([=, &launch, &barriers] {
                            const HostMachine machine(thread, call->nthreads / 32U, block, blocks,
                                                      &barriers[block]);
                            run_thread(launch, machine, call->protocol);
                        });
                }
                for (std::thread &thread : threads)
                    thread.join();
                for (pthread_barrier_t &barrier : barriers)
                    pthread_barrier_destroy(&barrier);
            }
        });
    for (std::thread &device : devices)
        device.join();
    return nullptr;
}

} // extern "C"
