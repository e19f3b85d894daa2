/* Where programs put their messages: an area of every rank's staging memory behind that of the
 * patterns, and what an interpreting kernel is given.
 *
 * A launch takes a stretch of one sequence of numbers that only grows, the same on every rank. A
 * message's flag, a credit, a step's completion are numbers of that stretch, so nothing that an
 * earlier launch left behind, however it was laid out, looks like something of this one; nothing
 * is reset, and a CUDA graph replays correctly.
 *
 * Launches alternate between two halves. At its end a rank tells all others; who sends to it waits
 * at the start until it has finished the launch before the last, the one that used the same half:
 * nearly always that is so already. Who heard from all ranks in the last launch need not look: they
 * had begun it, and so ended the one before. A launch in which all hear from all need not tell
 * either: who looks for it later finds the number of a later one. */
#ifndef TUCCL_EXECUTOR_PROGRAM_STAGING_H
#define TUCCL_EXECUTOR_PROGRAM_STAGING_H

#include "executor.h"
#include "program_layout.h"

#include <cstddef>
#include <cstdint>

namespace tuccl {

// Threadblocks of a launch: instances, times those of a rank's program where it has no moves.
constexpr uint32_t kMostProgramBlocks = TUCCL_PROGRAM_MOST_THREADBLOCKS;
// Connections that arrive at a rank, times instances.
constexpr uint32_t kMostProgramLanes = 512;
constexpr uint32_t kMostProgramThreads = 512;
constexpr uint32_t kSlots = TUCCL_PROGRAM_SLOTS;
// Loops that may be at work at once on a rank's scratch chunks.
constexpr uint32_t kScratchWindows = 2;

// The most of one half of each; protocols do not share, since user data would look like flags.
constexpr size_t kMostProgramLlBytes = size_t{8} << 20;
constexpr size_t kMostProgramLl128Bytes = size_t{16} << 20;
constexpr size_t kMostProgramSimpleBytes = size_t{32} << 20;
constexpr size_t kMostProgramScratchBytes = size_t{32} << 20;

// Words that one thread polls while others write elsewhere lie this far apart.
constexpr size_t kWordStride = 64;

// What a rank keeps in its own area, and what others tell it there.
struct ProgramState {
    alignas(kWordStride) uint64_t epoch; // Launches finished.
    uint64_t base;                       // The number that the next launch begins behind.
    uint64_t renewed[2];                 // By half: the number at which LL's lines were renewed.
    uint64_t everyone_heard;             // Whether the last launch heard from all ranks,
    uint64_t is_silent;                  // and told nobody that it has ended.
    alignas(kWordStride) uint32_t blocks_done;
    struct alignas(kWordStride) Word {
        uint64_t value;
    };
    Word finished[TUCCL_MAX_RANKS];                      // Written by others: their epochs.
    Word progress[kMostProgramBlocks];                   // Of each threadblock.
    uint64_t credit[TUCCL_MAX_RANKS][kMostProgramLanes]; // By receiver and connection there.
    uint64_t flag[2][kMostProgramLanes][kSlots];         // Simple: by half, connection, slot.
};

constexpr size_t kProgramStateBytes = (sizeof(ProgramState) + 4095) / 4096 * 4096;
// Behind the state both halves of LL's lines, then of LL128's, then of Simple's slots, then
// scratch.
constexpr size_t kProgramLlFirst = kProgramStateBytes;

// One launch on one rank. All but the pointers and what is marked is the same on every rank.
// What small launches need lies in front: parameters are fetched line by line.
struct ProgramLaunch {
    char *own_area;
    const volatile uint32_t *abort;
    uint64_t chunk_bytes;    // From chunk to chunk of a part; the last may be shorter, or empty.
    uint64_t instance_bytes; // Of each chunk, for one instance.
    uint64_t half_bytes;     // A half of the protocol's lines.
    uint64_t advance;        // Numbers of the sequence that the launch takes.
    uint64_t ll_half_bytes;  // A half of LL's lines, whatever the protocol.
    uint32_t lane_bytes;     // Of a connection in one instance: all its slots.
    uint32_t slot_bytes;
    uint32_t connections; // Most of any rank.
    uint32_t tiles;       // Loops over an instance's bytes.
    uint32_t tile_bytes;
    uint32_t rank; // This one.
    uint32_t ranks;
    uint8_t type;
    uint8_t reduction;

    char *area[TUCCL_MAX_RANKS]; // By rank, as this device sees it; its own included.
    const tuccl_program_threadblock *threadblocks; // This rank's.
    const tuccl_program_step *steps;               // All.
    const char *send;
    char *receive;
    uint64_t part_bytes;    // Of a rank's part of the larger buffer, or of all of it.
    uint64_t lines_first;   // In an area: the protocol's lines,
    uint64_t scratch_first; // and scratch chunks.
    uint32_t own_blocks;    // Threadblocks of this rank's program.
    uint32_t own_scratch;   // Whether this rank has scratch chunks.
    uint32_t part_chunks;
    uint32_t instances;
    uint32_t scratch_chunks;
    uint32_t longest; // Steps of the longest threadblock.
};

} // namespace tuccl

#endif
