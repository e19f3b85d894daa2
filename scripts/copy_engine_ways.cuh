// Ways to all_gather large messages between GPUs of one host, out of place: by copy engines or by
// stores of kernels, into the receive buffers of the others or through staging memory.
//
// Buffers of other processes are mapped through CUDA's IPC. Whoever writes into another rank's
// buffer must know that it may: calls begin and end with a barrier. Staging memory has flags and
// credits instead.
#ifndef TUCCL_COPY_ENGINE_WAYS_CUH
#define TUCCL_COPY_ENGINE_WAYS_CUH

#include "copy_engine_kernels.cuh"

#include <cuda.h>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace ways {

inline void check(cudaError_t error) {
    if (error != cudaSuccess)
        throw std::runtime_error(cudaGetErrorString(error));
}

struct Rank {
    Peers peers;
    char *staging[kMostRanks];
    cudaStream_t main;
    cudaStream_t side[2 * kMostRanks];
    cudaEvent_t forked;
    cudaEvent_t joined[2 * kMostRanks];
    CUresult (*batch)(CUstream, unsigned, CUstreamBatchMemOpParams *, unsigned);
};

inline CUstreamBatchMemOpParams write_word(uint32_t *word, uint32_t value) {
    CUstreamBatchMemOpParams operation = {};
    operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operation.writeValue.address = reinterpret_cast<CUdeviceptr>(word);
    operation.writeValue.value = value;
    return operation;
}

inline CUstreamBatchMemOpParams wait_word(uint32_t *word) {
    CUstreamBatchMemOpParams operation = {};
    operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    operation.waitValue.address = reinterpret_cast<CUdeviceptr>(word);
    operation.waitValue.value = 1;
    operation.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    return operation;
}

inline void enqueue(const Rank &rank, cudaStream_t stream,
                    std::vector<CUstreamBatchMemOpParams> operations) {
    const CUresult result =
        rank.batch(stream, static_cast<unsigned>(operations.size()), operations.data(), 0);
    if (result != CUDA_SUCCESS)
        throw std::runtime_error("cuStreamBatchMemOp: error " + std::to_string(result));
}

enum class Sync { kNone, kKernel, kMemoryOperations };

// A word that was waited for is cleared before anybody can write it again: between two barriers of
// one kind lies one of the other.
inline void barrier(const Rank &rank, Sync sync, Word words) {
    const Peers &peers = rank.peers;
    if (sync == Sync::kKernel)
        barrier_kernel<<<1, 32, 0, rank.main>>>(peers);
    if (sync != Sync::kMemoryOperations)
        return;
    std::vector<CUstreamBatchMemOpParams> told;
    std::vector<CUstreamBatchMemOpParams> heard;
    for (int peer = 0; peer < peers.ranks; peer++) {
        if (peer == peers.rank)
            continue;
        uint32_t *mine = &peers.words[peers.rank][words + peer];
        told.push_back(write_word(&peers.words[peer][words + peers.rank], 1));
        heard.push_back(wait_word(mine));
        heard.push_back(write_word(mine, 0));
    }
    told.insert(told.end(), heard.begin(), heard.end());
    enqueue(rank, rank.main, told);
}

inline void fork(const Rank &rank, int streams) {
    check(cudaEventRecord(rank.forked, rank.main));
    for (int i = 0; i < streams; i++)
        check(cudaStreamWaitEvent(rank.side[i], rank.forked, 0));
}

inline void join(const Rank &rank, int streams) {
    for (int i = 0; i < streams; i++) {
        check(cudaEventRecord(rank.joined[i], rank.side[i]));
        check(cudaStreamWaitEvent(rank.main, rank.joined[i], 0));
    }
}

inline void copy(char *to, const char *from, size_t bytes, cudaStream_t stream) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
}

// By copy engines into the receive buffers of the others, or from their send buffers; all at once
// on a stream each, or one after the other, beginning with the next rank. The own part is copied
// beside them.
inline void by_engines(const Rank &rank, size_t part, bool pulls, bool at_once, Sync sync) {
    const Peers &peers = rank.peers;
    const int self = peers.rank;
    barrier(rank, sync, kStarts);
    const int streams = at_once ? peers.ranks : 1;
    fork(rank, streams);
    copy(peers.receive[self] + self * part, peers.send[self], part, rank.side[0]);
    for (int k = 1; k < peers.ranks; k++) {
        const int peer = (self + k) % peers.ranks;
        const cudaStream_t stream = at_once ? rank.side[k] : rank.main;
        if (pulls)
            copy(peers.receive[self] + peer * part, peers.send[peer], part, stream);
        else
            copy(peers.receive[peer] + self * part, peers.send[self], part, stream);
    }
    join(rank, streams);
    barrier(rank, sync, kEnds);
}

// By copy engines into staging memory of the others, in slots, and from there by copy engine (0
// blocks) or kernel to the receive buffer. No barrier: a slot is told to be full and to be free.
inline void through_staging(const Rank &rank, size_t part, size_t slot_bytes, int blocks) {
    const Peers &peers = rank.peers;
    const int self = peers.rank;
    uint32_t *mine = peers.words[self];
    const int streams = 2 * peers.ranks;
    fork(rank, streams);
    copy(peers.receive[self] + self * part, peers.send[self], part, rank.side[0]);
    int slot = 0;
    for (size_t first = 0; first < part; first += slot_bytes, slot = (slot + 1) % kSlots) {
        const size_t bytes = part - first < slot_bytes ? part - first : slot_bytes;
        for (int k = 1; k < peers.ranks; k++) {
            const int to = (self + k) % peers.ranks;
            const cudaStream_t stream = rank.side[k];
            uint32_t *free = &mine[kFree + to * kSlots + slot];
            enqueue(rank, stream, {wait_word(free), write_word(free, 0)});
            copy(rank.staging[to] + (self * kSlots + slot) * kMostSlotBytes,
                 peers.send[self] + first, bytes, stream);
            enqueue(rank, stream, {write_word(&peers.words[to][kFull + self * kSlots + slot], 1)});
        }
        for (int k = 1; k < peers.ranks; k++) {
            const int from = (self + peers.ranks - k) % peers.ranks;
            const cudaStream_t stream = rank.side[peers.ranks + k];
            uint32_t *full = &mine[kFull + from * kSlots + slot];
            enqueue(rank, stream, {wait_word(full), write_word(full, 0)});
            char *to = peers.receive[self] + from * part + first;
            const char *staged = rank.staging[self] + (from * kSlots + slot) * kMostSlotBytes;
            if (blocks == 0)
                copy(to, staged, bytes, stream);
            else
                copy_kernel<<<blocks, 512, 0, stream>>>(to, staged, bytes);
            enqueue(rank, stream,
                    {write_word(&peers.words[from][kFree + self * kSlots + slot], 1)});
        }
    }
    join(rank, streams);
}

inline void by_stores(const Rank &rank, size_t part, bool pulls, int blocks) {
    if (pulls)
        move_kernel<true, 4><<<blocks, 512, 0, rank.main>>>(rank.peers, part);
    else
        move_kernel<false, 4><<<blocks, 512, 0, rank.main>>>(rank.peers, part);
}

inline void by_stores_in_turn(const Rank &rank, size_t part, int blocks, int threads) {
    push_in_turn_kernel<4><<<blocks, threads, 0, rank.main>>>(rank.peers, part);
}

inline void by_bulk_copies(const Rank &rank, size_t part, bool in_turn, int blocks) {
    constexpr int kBytes = kStages * kStageBytes;
    const auto kernel = in_turn ? bulk_kernel<true> : bulk_kernel<false>;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
    kernel<<<blocks, 32, kBytes, rank.main>>>(rank.peers, part);
}

struct Way {
    const char *name;
    std::function<void(const Rank &, size_t)> enqueue;
};

inline std::vector<Way> zero_copy_ways() {
    std::vector<Way> made;
    const auto engines = [&](const char *name, bool pulls, bool at_once, Sync sync) {
        made.push_back({name, [=](const Rank &rank, size_t part) {
                            by_engines(rank, part, pulls, at_once, sync);
                        }});
    };
    engines("CE push, kernel barrier", false, true, Sync::kKernel);
    engines("CE one by one, memory ops", false, false, Sync::kMemoryOperations);
    engines("CE push one by one, kernel", false, false, Sync::kKernel);
    engines("CE pull one by one, kernel", true, false, Sync::kKernel);
    const auto stores = [&](const char *name, bool pulls, int blocks) {
        made.push_back(
            {name, [=](const Rank &rank, size_t part) { by_stores(rank, part, pulls, blocks); }});
    };
    stores("SM push, 32 blocks", false, 32);
    stores("SM push, 64 blocks", false, 64);
    stores("SM pull, 32 blocks", true, 32);
    stores("SM push, 96 blocks", false, 96);
    stores("SM push, 128 blocks", false, 128);
    const auto in_turn = [&](const char *name, int blocks, int threads) {
        made.push_back({name, [=](const Rank &rank, size_t part) {
                            by_stores_in_turn(rank, part, blocks, threads);
                        }});
    };
    in_turn("SM push in turn, 16 x 512", 16, 512);
    in_turn("SM push in turn, 32 x 512", 32, 512);
    in_turn("SM push in turn, 64 x 512", 64, 512);
    in_turn("SM push in turn, 64 x 1024", 64, 1024);
    in_turn("SM push in turn, 128 x 512", 128, 512);
    const auto bulk = [&](const char *name, bool turns, int blocks) {
        made.push_back({name, [=](const Rank &rank, size_t part) {
                            by_bulk_copies(rank, part, turns, blocks);
                        }});
    };
    bulk("TMA push, 16 blocks", false, 16);
    bulk("TMA push, 32 blocks", false, 32);
    bulk("TMA push, 64 blocks", false, 64);
    bulk("TMA push in turn, 8 blocks", true, 8);
    bulk("TMA push in turn, 16 blocks", true, 16);
    bulk("TMA push in turn, 32 blocks", true, 32);
    bulk("TMA push in turn, 64 blocks", true, 64);
    return made;
}

inline std::vector<Way> staged_ways() {
    std::vector<Way> made;
    const auto staged = [&](const char *name, size_t slot_bytes, int blocks) {
        made.push_back({name, [=](const Rank &rank, size_t part) {
                            through_staging(rank, part, slot_bytes, blocks);
                        }});
    };
    staged("CE staged 4 MB, CE copy", size_t{4} << 20, 0);
    staged("CE staged 16 MB, CE copy", size_t{16} << 20, 0);
    staged("CE staged 4 MB, SM copy", size_t{4} << 20, 8);
    return made;
}

} // namespace ways

#endif
