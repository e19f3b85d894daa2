/* Staging areas of programs, behind those of the patterns on every rank, and the interpreter's
 * kernel parameters.
 *
 * A launch takes a range of one growing sequence of numbers, the same on every rank. Flags of
 * messages, credits and completed steps are numbers of that range, so nothing that an earlier
 * launch left behind, however it was laid out, looks like part of this one; nothing is reset, and a
 * CUDA graph replays correctly.
 *
 * Launches alternate between two halves. A rank notifies all peers when it ends a launch; a sender
 * waits at the start until its peer has ended the launch before the last, which used the same half:
 * nearly always it has. A rank that received from all ranks in the last launch need not check: they
 * had begun it, and so ended the one before. A launch in which all ranks receive from all need not
 * notify either: a later check finds the number of a later launch. */
#ifndef TUCCL_EXECUTOR_PROGRAM_STAGING_H
#define TUCCL_EXECUTOR_PROGRAM_STAGING_H

#include "executor.h"
#include "program_layout.h"

#include <cstddef>
#include <cstdint>

namespace tuccl {

// Threadblocks of a launch: instances, times the rank's threadblocks if the program has no moves.
constexpr uint32_t kMostProgramBlocks = TUCCL_PROGRAM_MOST_THREADBLOCKS;
// Connections that arrive at a rank, times instances.
constexpr uint32_t kMostProgramLanes = 512;
constexpr uint32_t kMostProgramThreads = 512;
constexpr uint32_t kSlots = TUCCL_PROGRAM_SLOTS;
// Loops that may use a rank's scratch chunks at once.
constexpr uint32_t kScratchWindows = 2;

// Largest half of each; protocols share no memory, since user data would look like flags.
constexpr size_t kMostHalfBytes[TUCCL_PROTOCOLS] = {size_t{8} << 20, size_t{16} << 20,
                                                    size_t{32} << 20};
constexpr size_t kMostProgramScratchBytes = size_t{32} << 20;

// Distance between words that one thread polls while others write elsewhere.
constexpr size_t kWordStride = 64;

// How far launches are, the beginning of ProgramState.
struct ProgramEnds {
    struct alignas(kWordStride) Word {
        uint64_t value;
    };
    alignas(kWordStride) uint64_t epoch; // Launches finished.
    uint64_t base;                       // The last sequence number of all launches so far.
    uint64_t renewed[2];                 // By half: the number at which LL's lines were renewed.
    uint64_t received_from_all;          // Whether this rank received from all in the last launch,
    uint64_t is_silent;                  // and ended it without notifying its peers.
    alignas(kWordStride) uint32_t blocks_done;
    Word finished[TUCCL_MAX_RANKS]; // By rank: its epoch, written by that rank.
};

// A rank's state in its own area, partly written by its peers.
struct ProgramState : ProgramEnds {
    Word progress[kMostProgramBlocks];                   // By threadblock.
    uint64_t credit[TUCCL_MAX_RANKS][kMostProgramLanes]; // By receiver and connection there.
    uint64_t flag[2][kMostProgramLanes][kSlots];         // Simple: by half, connection, slot.
};

constexpr size_t kProgramStateBytes = (sizeof(ProgramState) + 4095) / 4096 * 4096;
// The state is followed by both halves of LL's lines, LL128's lines and Simple's slots, then by
// scratch.
constexpr size_t kProgramLlFirst = kProgramStateBytes;

// One launch on one rank; the same on every rank but for pointers and marked fields. Fields that
// small launches need come first: parameters are fetched line by line.
struct ProgramLaunch {
    char *own_area;
    const volatile uint32_t *abort;
    uint64_t chunk_bytes;    // Distance of a part's chunks; the last may be shorter or empty.
    uint64_t instance_bytes; // One instance's share of each chunk.
    uint64_t half_bytes;     // One half of the protocol's lines.
    uint64_t advance;        // Sequence numbers that the launch takes.
    uint64_t ll_half_bytes;  // One half of LL's lines, whatever the protocol.
    uint32_t lane_bytes;     // All slots of a connection in one instance.
    uint32_t slot_bytes;
    uint32_t connections; // The most on any rank.
    uint32_t tiles;       // Iterations over an instance's bytes.
    uint32_t tile_bytes;
    uint32_t rank; // This rank.
    uint32_t ranks;
    uint8_t type;
    uint8_t reduction;

    const tuccl_program_threadblock *threadblocks; // This rank's.
    const tuccl_program_step *steps;               // All ranks'.
    const char *send;
    char *receive;
    uint64_t part_bytes;    // A rank's part of the larger buffer, or all of it.
    uint64_t lines_first;   // Offsets in an area: the protocol's lines,
    uint64_t scratch_first; // and scratch chunks.
    uint32_t own_blocks;    // Threadblocks of this rank's program.
    uint32_t own_scratch;   // Whether this rank has scratch chunks.
    uint32_t part_chunks;
    uint32_t instances;
    uint32_t scratch_chunks;
    uint32_t longest; // Steps of the longest threadblock.

    char *area[TUCCL_MAX_RANKS]; // By rank, mapped on this device; its own included.
};

} // namespace tuccl

#endif
