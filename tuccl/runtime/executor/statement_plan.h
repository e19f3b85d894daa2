// A rank's part of a program of stages and rounds, and the division of a call into its chunks. Host
// code that looks at nothing that differs between ranks but this rank's number.
#ifndef TUCCL_EXECUTOR_STATEMENT_PLAN_H
#define TUCCL_EXECUTOR_STATEMENT_PLAN_H

#include "executor.h"
#include "grid.h"

extern "C" {
#include "program.h"
}

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tuccl {

// A part of the buffer, one for each rank or all of it, is cut into chunks of whole 16 bytes; the
// last may be shorter, or empty.
struct ChunkCut {
    uint64_t part_bytes;
    uint64_t chunk_bytes;
    uint32_t part_chunks;

    struct Reach {
        uint64_t offset; // In its buffer.
        uint64_t bytes;
    };
    Reach find(uint8_t buffer, uint32_t chunk) const;
};
ChunkCut cut_chunks(const tuccl_program_header &header, const tuccl_call &call);
// Of a call of so many bytes, as tables count them; all types are cut alike.
ChunkCut largest_cut(const tuccl_program_header &header, uint64_t largest);

// The scratch memory of a call; the same on every rank.
uint64_t statement_scratch_bytes(const tuccl_program_header &header, const ChunkCut &cut);

// Chunks of messages between ranks of a node that arrive at one rank in one stage, or beside one
// round, at most.
uint32_t most_arrivals(const tuccl_program &program);

// Chunks that this rank sends to or receives from a rank of another node in a round.
struct RoundMessage {
    bool is_sent; // Else received.
    uint32_t peer;
    uint8_t source_buffer;
    uint8_t target_buffer;
    uint32_t source;
    uint32_t target;
    uint32_t chunks;
};

// A call is divided into slices of as many bytes of each chunk, the last may have fewer.
struct ChunkSlices {
    uint64_t slices;
    uint64_t bytes;
};
constexpr uint64_t kMostChunkSlices = 64;
// Slices of at most so many bytes of the call if they are no more than 64; 0: one.
ChunkSlices slice_chunks(const tuccl_program_header &header, const ChunkCut &cut,
                         uint64_t buffer_bytes);

// Some bytes of each chunk.
struct ChunkRange {
    uint64_t first;
    uint64_t bytes;

    ChunkCut::Reach of(const ChunkCut::Reach &chunk) const {
        if (chunk.bytes <= first)
            return {chunk.offset, 0};
        const uint64_t left = chunk.bytes - first;
        return {chunk.offset + first, left < bytes ? left : bytes};
    }
};
inline ChunkRange range_of(const ChunkCut &cut, const ChunkSlices &slices, uint64_t slice) {
    const uint64_t first = slice * slices.bytes;
    const uint64_t left = cut.chunk_bytes - first;
    return {first, left < slices.bytes ? left : slices.bytes};
}

// Calls visit(source offset, target offset, bytes) for each run of a message's bytes in a range
// that lie one after the other at both ends: the same runs on sender and receiver. What does not
// exist at one end is not sent.
template <typename Visit>
void for_each_run(const ChunkCut &cut, const ChunkRange &range, const RoundMessage &message,
                  Visit visit) {
    ChunkCut::Reach source = {0, 0};
    uint64_t target = 0;
    for (uint32_t i = 0; i < message.chunks; i++) {
        const ChunkCut::Reach from = range.of(cut.find(message.source_buffer, message.source + i));
        const ChunkCut::Reach to = range.of(cut.find(message.target_buffer, message.target + i));
        const uint64_t bytes = from.bytes < to.bytes ? from.bytes : to.bytes;
        if (bytes == 0)
            continue;
        if (source.bytes > 0 && source.offset + source.bytes == from.offset &&
            target + source.bytes == to.offset) {
            source.bytes += bytes;
            continue;
        }
        if (source.bytes > 0)
            visit(source.offset, target, source.bytes);
        source = {from.offset, bytes};
        target = to.offset;
    }
    if (source.bytes > 0)
        visit(source.offset, target, source.bytes);
}

// A stage or a round on this rank. A round has steps of a kernel beside its messages.
struct StatementPhase {
    bool is_round;
    bool runs; // A rank of this node has steps, so all of them take part.
    uint32_t first_step;
    uint32_t steps;
    uint32_t receivers; // As in tuccl_stage_call.
    std::vector<RoundMessage> messages;
};

struct StatementPlan {
    std::vector<StatementPhase> phases;
    uint32_t arrivals; // most_arrivals.
    bool has_beside;   // Whether anything runs beside a round; the same on every rank.
};

// Plans a sound program for this grid; appends this rank's steps to `steps`.
StatementPlan plan_statements(const tuccl_program &program, const Grid &grid,
                              std::vector<tuccl_stage_step> *steps);

// Ranks of different nodes between which a program's rounds send, each pair once, in order.
using RankPairs = std::vector<std::pair<uint32_t, uint32_t>>;
RankPairs pairs_of(const tuccl_program &program);

// The bytes of each chunk, multiples of 16, for whose messages one half of the protocol's lines
// suffices if so many chunks arrive.
uint64_t stage_slice_bytes(const tuccl_staging &staging, uint32_t protocol, uint32_t arrivals,
                           uint64_t chunk_bytes);

} // namespace tuccl

#endif
