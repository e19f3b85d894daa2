// Division of a call of a uniform program into slices, and the operands of each phase: host code
// that looks at nothing that differs between ranks but the buffers' addresses.
//
// A call has chunks (synthesizer/programs/phases.py). A slice holds an equal part of each chunk of
// all_gather, reduce_scatter and alltoall, or a contiguous part of all_reduce's buffer with chunks
// of its own. Slices go through the phases one behind the other, so that the network carries one
// while kernels work on another. Between phases a slice's chunks lie in a window of the scratch
// memory.
//
// What is left of an all_reduce when its elements do not divide into chunks, fewer elements than
// chunks, is reduced by one small call inside the node and one along the rail, beside the last
// slice's first rail phase.
#ifndef TUCCL_EXECUTOR_UNIFORM_PLAN_H
#define TUCCL_EXECUTOR_UNIFORM_PLAN_H

#include "executor.h"

extern "C" {
#include "program.h"
}

#include <cstddef>
#include <cstdint>

namespace tuccl {

constexpr uint32_t kMostWindows = 16;
// More slices gain nothing: the first and the last are a small part of the call by then.
constexpr uint32_t kMostSlices = 64;
constexpr uint64_t kWindowGrain = 512;

struct Slicing {
    uint64_t slices;
    uint64_t slice_elements; // Of a chunk; of all chunks together for all_reduce.
    uint64_t left_over;      // Elements at the end of all_reduce's buffer.
    uint64_t window_bytes;
    uint32_t windows;
    uint64_t left_over_bytes; // Scratch memory behind the windows for the left-over elements.

    uint64_t scratch_bytes() const {
        return windows * window_bytes + left_over_bytes;
    }
};

inline bool is_on_network(const tuccl_phase &phase) {
    return phase.kind == TUCCL_PHASE_RAIL || phase.kind == TUCCL_PHASE_ROUND;
}

// Steps that a slice is behind its predecessor's, in the order in which phases are enqueued, before
// a phase: one for each phase, and behind a rail phase one more for each further communicator of
// the rail, so that all of them have a slice at the same time. Of `phase_count`: steps of all
// phases.
uint64_t steps_before(const tuccl_program &program, uint32_t phase);

// Returns how a call is divided; the same on every rank.
Slicing slice_call(const tuccl_program &program, const tuccl_call &call);

uint32_t windows_of(const tuccl_program &program, uint64_t slices);

// Calls visit(slicing, slices) for the largest call up to `largest` bytes of each number of slices.
// More slices may be smaller and need less, so the largest call of all does not stand for the
// others. Of all types bytes need most. Rounding may leave a slicing fewer slices than wanted.
template <typename Visit>
void for_largest_calls(const tuccl_program &program, uint64_t largest, uint64_t buffer_bytes,
                       Visit visit) {
    tuccl_call call = {};
    call.operation = program.header->operation;
    call.type = TUCCL_UINT8;
    call.buffer_bytes = buffer_bytes;
    const uint64_t blocks = tuccl_program_parts(program.header);
    for (uint64_t slices = 1; slices <= kMostSlices; slices++) {
        const bool is_last =
            slices == kMostSlices || buffer_bytes == 0 || (largest - 1) / slices < buffer_bytes;
        call.count = (is_last ? largest : slices * buffer_bytes) / blocks;
        if (call.count > 0)
            visit(slice_call(program, call), slices);
        if (is_last)
            return;
    }
}

// Elements of a chunk of the call's largest slice; of bytes where the call is one of bytes.
uint64_t largest_chunk(const tuccl_program &program, const Slicing &slicing);

// Returns the scratch memory for any call up to `largest` bytes.
uint64_t most_scratch(const tuccl_program &program, uint64_t largest, uint64_t buffer_bytes);

// One collective call or sum of a phase.
struct PhaseCall {
    const char *source;
    char *target;
    uint64_t count;        // Elements, as NCCL counts.
    uint64_t stride_bytes; // Of blocks in the buffer that has several; 0: adjacent.
};

// The addresses of one call on one rank.
class PhaseOperands {
  public:
    PhaseOperands(const tuccl_program &program, const tuccl_call &call, const Slicing &slicing,
                  char *scratch);

    // The `repeat`-th call of a phase on a slice.
    PhaseCall of(const tuccl_phase &phase, uint64_t slice, uint32_t repeat) const;
    // The left-over elements: from the input to the scratch memory, and from there to the output.
    PhaseCall left_over_local() const;
    PhaseCall left_over_rail() const;

  private:
    struct Operand {
        char *address;
        uint64_t pitch_bytes; // From one chunk to the next.
    };
    Operand find(uint8_t buffer, uint64_t chunk, uint64_t slice) const;
    uint64_t elements_of(uint64_t slice) const;
    char *left_over_scratch() const;

    const tuccl_program &program_;
    const tuccl_call &call_;
    const Slicing &slicing_;
    char *scratch_;
    uint64_t element_bytes_;
    bool is_divided_; // Of an operation whose larger buffer has a block for each rank.
};

} // namespace tuccl

#endif
