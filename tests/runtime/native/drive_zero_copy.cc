// Plays calls of zero_copy.cuh on host threads, which stand for warps, and compares every byte.
//
//   drive_zero_copy SCENARIO [seed]
#include "zero_copy.cuh"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace {

using tuccl::Mapping;
using tuccl::Place;
using tuccl::Wanted;
using tuccl::ZeroCopyArea;

constexpr char kGuard = 0x5A;
constexpr size_t kGuardBytes = 32;

[[noreturn]] void fail(const std::string &why) {
    std::printf("%s\n", why.c_str());
    std::fflush(stdout);
    std::_Exit(1); // Without waiting for threads that wait for one another.
}

void expect(bool holds, const std::string &what) {
    if (!holds)
        fail(what);
}

struct Freed {
    void operator()(void *memory) const {
        std::free(memory);
    }
};

template <typename Type> std::unique_ptr<Type, Freed> zeroed() {
    const size_t bytes = (sizeof(Type) + alignof(Type) - 1) / alignof(Type) * alignof(Type);
    void *memory = std::aligned_alloc(alignof(Type), bytes);
    std::memset(memory, 0, sizeof(Type));
    return std::unique_ptr<Type, Freed>(static_cast<Type *>(memory));
}

// A rank's receive buffer in an allocation.
struct Buffer {
    std::vector<char> memory;
    size_t offset;
    uint64_t id;
    char *address() {
        return memory.data() + offset;
    }
};

struct Shape {
    size_t part;
    uint32_t blocks;
    bool exchanges; // alltoall
    bool in_place;
    size_t send_offset;
    size_t receive_offset;
};

class Node {
  public:
    explicit Node(uint32_t ranks) : ranks_(ranks) {
        for (uint32_t rank = 0; rank < ranks; rank++) {
            areas_.push_back(zeroed<ZeroCopyArea>());
            mappings_.emplace_back(ranks * tuccl::kMostMappings);
            wanted_.emplace_back(ranks);
        }
    }

    uint32_t here = 0;              // As in a launch.
    uint64_t unshared = UINT64_MAX; // The rank whose memory cannot be shared.
    bool opens = true;              // Handles that were told.
    bool reuse = false;             // The buffers of the calls before.
    uint32_t abort = 0;

    // The calls on every rank, each rank as fast as it can.
    void run(const std::vector<Shape> &calls, uint32_t first_rank = 0) {
        std::vector<std::vector<Buffer>> buffers(calls.size());
        if (reuse)
            buffers = std::move(last_);
        std::vector<std::vector<std::vector<char>>> sent(calls.size());
        for (size_t call = 0; call < calls.size(); call++)
            for (uint32_t rank = 0; rank < ranks_; rank++)
                prepare(calls[call], rank, &buffers[call], &sent[call]);
        std::vector<std::thread> streams;
        for (uint32_t rank = first_rank; rank < ranks_; rank++)
            streams.emplace_back([&, rank] {
                for (size_t call = 0; call < calls.size(); call++)
                    run_rank(calls[call], rank, &buffers[call][rank], &sent[call][rank]);
            });
        for (std::thread &stream : streams)
            stream.join();
        for (size_t call = 0; call < calls.size() && abort == 0; call++)
            for (uint32_t rank = 0; rank < ranks_; rank++)
                compare(calls[call], rank, &buffers[call][rank]);
        last_ = std::move(buffers); // As long as somebody may open them.
    }

    // What the host does.
    size_t open_wanted() {
        size_t count = 0;
        for (uint32_t rank = 0; rank < ranks_; rank++)
            for (uint32_t peer = 0; peer < ranks_; peer++) {
                Wanted &wanted = wanted_[rank][peer];
                if (wanted.asks == 0)
                    continue;
                uint64_t address = 0;
                std::memcpy(&address, wanted.place.handle, sizeof address);
                Mapping *table = &mappings_[rank][peer * tuccl::kMostMappings];
                size_t used = 0;
                while (table[used].id != 0)
                    used++;
                table[used] = {wanted.place.id, opens ? address : 0};
                wanted.asks = 0;
                count++;
            }
        return count;
    }

    // Pairs of ranks whose data went through slots in the last call.
    size_t slotted() const {
        size_t count = 0;
        for (const auto &area : areas_)
            for (const auto &by_block : area->full)
                count += by_block[0] >> 32 == area->calls ? 1 : 0;
        return count;
    }

    // Of the allocations of later calls.
    void set_ids(uint64_t first) {
        first_id_ = first;
    }

    uint64_t calls_of(uint32_t rank) const {
        return areas_[rank]->calls;
    }

  private:
    static char byte_of(uint32_t from, uint32_t to, size_t at) {
        return static_cast<char>((at * 2654435761U + from * 97 + to * 31) >> 7);
    }

    void prepare(const Shape &shape, uint32_t rank, std::vector<Buffer> *buffers,
                 std::vector<std::vector<char>> *sent) {
        if (buffers->size() == rank) {
            buffers->push_back({std::vector<char>(2 * kGuardBytes + 32 + shape.part * ranks_), 0,
                                rank == unshared ? 0 : first_id_ + rank});
            buffers->back().offset = aligned(buffers->back().memory.data() + kGuardBytes) +
                                     kGuardBytes + shape.receive_offset;
        }
        Buffer &buffer = (*buffers)[rank];
        std::fill(buffer.memory.begin(), buffer.memory.end(), kGuard);
        const uint32_t parts = shape.exchanges ? ranks_ : 1;
        std::vector<char> send(32 + shape.part * parts);
        char *data = shape.in_place ? buffer.address() + rank * shape.part
                                    : send.data() + aligned(send.data()) + shape.send_offset;
        for (uint32_t to = 0; to < parts; to++)
            for (size_t at = 0; at < shape.part; at++)
                data[to * shape.part + at] = byte_of(rank, shape.exchanges ? to : 0, at);
        sent->push_back(std::move(send));
    }

    static size_t aligned(const char *memory) {
        return -reinterpret_cast<uintptr_t>(memory) % 16;
    }

    void run_rank(const Shape &shape, uint32_t rank, Buffer *buffer, std::vector<char> *sent) {
        tuccl::ZeroCopyLaunch launch = {};
        for (uint32_t peer = 0; peer < ranks_; peer++)
            launch.area[peer] = areas_[peer].get();
        launch.abort = &abort;
        launch.mappings = mappings_[rank].data();
        launch.wanted = wanted_[rank].data();
        launch.receive = buffer->address();
        launch.place.id = buffer->id;
        // Good in another process only with `here`.
        launch.place.address = here != 0 ? reinterpret_cast<uint64_t>(launch.receive) : 1;
        launch.place.offset = buffer->offset;
        const auto base = reinterpret_cast<uint64_t>(buffer->memory.data());
        std::memcpy(launch.place.handle, &base, sizeof base);
        launch.send = shape.in_place ? launch.receive + rank * shape.part
                                     : sent->data() + aligned(sent->data()) + shape.send_offset;
        launch.part = shape.part;
        launch.send_stride = shape.exchanges ? shape.part : 0;
        launch.rank = rank;
        launch.ranks = ranks_;
        launch.here = here;
        run_blocks(launch, shape.blocks);
    }

    void run_blocks(const tuccl::ZeroCopyLaunch &launch, uint32_t blocks) {
        std::vector<tuccl::ZeroCopyBlock> shared(blocks);
        std::vector<std::unique_ptr<Meeting>> meetings;
        std::vector<std::thread> threads;
        for (uint32_t block = 0; block < blocks; block++)
            meetings.push_back(std::make_unique<Meeting>(ranks_));
        for (uint32_t block = 0; block < blocks; block++)
            for (uint32_t thread = 0; thread < ranks_; thread++)
                threads.emplace_back([&, block, thread] {
                    threadIdx.x = thread;
                    blockIdx.x = block;
                    blockDim.x = ranks_;
                    gridDim.x = blocks;
                    block_meeting = meetings[block].get();
                    tuccl::run_zero_copy(launch, shared[block]);
                });
        for (std::thread &thread : threads)
            thread.join();
    }

    void compare(const Shape &shape, uint32_t rank, Buffer *buffer) const {
        const char *found = buffer->memory.data();
        for (size_t at = 0; at < buffer->memory.size(); at++) {
            char wanted = kGuard;
            if (at >= buffer->offset && at < buffer->offset + shape.part * ranks_) {
                const size_t place = at - buffer->offset;
                wanted = byte_of(static_cast<uint32_t>(place / shape.part),
                                 shape.exchanges ? rank : 0, place % shape.part);
            }
            if (found[at] != wanted)
                fail("rank " + std::to_string(rank) + " of " + std::to_string(ranks_) + ": byte " +
                     std::to_string(at) + " of a part of " + std::to_string(shape.part) +
                     " is wrong");
        }
    }

    uint32_t ranks_;
    uint64_t first_id_ = 100;
    std::vector<std::unique_ptr<ZeroCopyArea, Freed>> areas_;
    std::vector<std::vector<Mapping>> mappings_;
    std::vector<std::vector<Wanted>> wanted_;
    std::vector<std::vector<Buffer>> last_;
};

size_t pairs(uint32_t ranks) {
    return ranks * (ranks - 1);
}

// Data goes through slots until the host has opened what was asked for, and then straight. Nothing
// is asked for twice.
void opens_what_is_asked_for() {
    for (uint32_t ranks = 2; ranks <= 4; ranks++) {
        Node node(ranks);
        const Shape shape = {40000, 2, false, false, 0, 0};
        node.run({shape});
        expect(node.slotted() == pairs(ranks), "the first call goes through slots");
        expect(node.open_wanted() == pairs(ranks), "every rank asks for all others");
        node.reuse = true;
        node.run({shape});
        expect(node.slotted() == 0, "what was opened goes straight");
        expect(node.open_wanted() == 0, "and is not asked for again");
        node.reuse = false;
        node.set_ids(200);
        node.run({shape});
        expect(node.slotted() == pairs(ranks), "other allocations go through slots");
        expect(node.open_wanted() == pairs(ranks), "other allocations are asked for");
        node.reuse = true;
        node.run({shape});
        expect(node.slotted() == 0, "which are found among several");
    }
}

void ranks_of_one_process() {
    for (const bool exchanges : {false, true}) {
        Node node(3);
        node.here = 7;
        node.run({{40000, 2, exchanges, false, 0, 0}});
        expect(node.slotted() == 0, "addresses are good as they are");
        expect(node.open_wanted() == 0, "without handles");
    }
}

void memory_that_cannot_be_shared() {
    Node node(3);
    node.here = 7;
    node.unshared = 1;
    node.run({{40000, 2, false, false, 0, 0}, {40000, 2, true, false, 0, 0}});
    expect(node.slotted() == 2, "only what goes to this rank goes through slots");
    expect(node.open_wanted() == 0, "what cannot be shared is not asked for");
}

void memory_that_cannot_be_opened() {
    Node node(2);
    node.opens = false;
    node.run({{5000, 1, false, false, 0, 0}});
    expect(node.open_wanted() == 2, "asked for once");
    node.reuse = true;
    node.run({{5000, 1, false, false, 0, 0}});
    expect(node.slotted() == 2, "goes through slots for ever");
    expect(node.open_wanted() == 0, "asked for only once");
}

// Sizes about a slot's, all alignments, ways mixed, several calls without a pause.
void random_calls(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto pick = [&](size_t below) { return random() % below; };
    const size_t slot = tuccl::kZeroCopySlotBytes;
    const size_t sizes[] = {1, 15, 16, 17, 1000, slot - 1, slot, slot + 1, 5 * slot + 7, 70001};
    for (int i = 0; i < 12; i++) {
        const auto ranks = static_cast<uint32_t>(2 + pick(3));
        Node node(ranks);
        node.here = pick(2) != 0 ? (1U << ranks) - 1 : 0;
        node.unshared = pick(2) != 0 ? pick(ranks) : UINT64_MAX;
        std::vector<Shape> calls;
        for (int call = 0; call < 4; call++) {
            const bool exchanges = pick(2) != 0;
            const bool in_place = !exchanges && pick(3) == 0;
            calls.push_back({sizes[pick(10)], static_cast<uint32_t>(1 + pick(3)), exchanges,
                             in_place, pick(2) * pick(16), pick(2) * pick(16)});
        }
        node.run(calls);
        for (uint32_t rank = 0; rank < ranks; rank++)
            expect(node.calls_of(rank) == calls.size(), "calls are counted");
    }
}

void ends_after_an_abort() {
    Node node(3);
    std::thread aborter([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        __atomic_store_n(&node.abort, 1U, __ATOMIC_SEQ_CST);
    });
    node.run({{40000, 2, false, false, 0, 0}}, 1); // Rank 0 does not come.
    aborter.join();
}

} // namespace

int main(int count, char **arguments) {
    const std::string name = count > 1 ? arguments[1] : "";
    const uint64_t seed = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1;
    if (name == "opens_what_is_asked_for")
        opens_what_is_asked_for();
    else if (name == "ranks_of_one_process")
        ranks_of_one_process();
    else if (name == "memory_that_cannot_be_shared")
        memory_that_cannot_be_shared();
    else if (name == "memory_that_cannot_be_opened")
        memory_that_cannot_be_opened();
    else if (name == "random_calls")
        random_calls(seed);
    else if (name == "ends_after_an_abort")
        ends_after_an_abort();
    else
        fail("no such scenario: " + name);
    return 0;
}
