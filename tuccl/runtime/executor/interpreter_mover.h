// How an interpreter's threads move a chunk: unit by unit, out of memory or a message, added up
// where the step says so, into memory and a message.
#ifndef TUCCL_EXECUTOR_INTERPRETER_MOVER_H
#define TUCCL_EXECUTOR_INTERPRETER_MOVER_H

#include "interpreter_memory.h"
#include "interpreter_pairs.h"
#include "interpreter_wires.h"
#include "program_staging.h"

namespace tuccl {

// A step, taken apart.
struct Action {
    bool sends;
    bool receives;
    bool reads;
    bool writes;
    bool reduces;

    __device__ __forceinline__ explicit Action(uint32_t type)
        : sends(type == TUCCL_STEP_S || type == TUCCL_STEP_RCS || type == TUCCL_STEP_RRS ||
                type == TUCCL_STEP_RRCS),
          receives(type >= TUCCL_STEP_R && type <= TUCCL_STEP_RRCS),
          reads(type == TUCCL_STEP_S || (type >= TUCCL_STEP_RRC && type <= TUCCL_STEP_CPY)),
          writes(type != TUCCL_STEP_S && type != TUCCL_STEP_RRS && type != TUCCL_STEP_NOP),
          reduces(type >= TUCCL_STEP_RRC && type <= TUCCL_STEP_RE) {
    }
};

// A chunk's bytes in the tile at hand.
struct Span {
    char *first;
    uint64_t valid; // The rest does not exist: it is read as zeros, and not written.
};

// The lines of a step's message, and their sequence number.
struct Letter {
    char *lines;
    uint64_t number;
};

template <typename Wire, typename Pair, typename Machine> class ChunkMover {
  public:
    // Sets `stopped` when it finds that the communicator is aborted, and waits no more once it is.
    // `divisor`: of an average.
    __device__ __forceinline__ ChunkMover(const ProgramLaunch &launch, const Machine &machine,
                                          bool *stopped, uint32_t divisor)
        : launch_(launch), machine_(machine), stopped_(stopped), divisor_(divisor) {
    }

    // Several units of a thread are under way together.
    __device__ __forceinline__ void move(const Action &action, uint32_t reduction, uint32_t bytes,
                                         Span source, Span target, Letter in, Letter out) {
        const uint32_t units = Wire::units(bytes);
        const uint32_t step = machine_.threads();
        for (uint32_t first = machine_.thread(); first < units; first += step * Wire::kBatch) {
            Part value[Wire::kBatch] = {};
            Part addend[Wire::kBatch] = {};
#pragma unroll
            for (uint32_t i = 0; i < Wire::kBatch; i++) {
                const uint32_t unit = first + i * step;
                if (unit < units && action.reads)
                    value[i] = load(source, Wire::place(unit));
                if (unit < units && action.reduces && !action.receives)
                    addend[i] = load(target, Wire::place(unit));
            }
            if (action.receives)
                take(first, units, in, addend);
#pragma unroll
            for (uint32_t i = 0; i < Wire::kBatch; i++) {
                const uint32_t unit = first + i * step;
                if (unit >= units)
                    continue;
                if (action.reduces)
                    value[i] = Pair::reduce(value[i], addend[i], launch_.type, reduction, divisor_);
                else if (action.receives)
                    value[i] = addend[i];
                const UnitPlace place = Wire::place(unit);
                if (action.writes && target.valid > place.offset)
                    store_unit(target.first + place.offset, value[i], place.bytes,
                               left_of(target, place));
                if (action.sends)
                    Wire::put(out.lines, unit, value[i], out.number);
            }
        }
    }

  private:
    __device__ __forceinline__ static Part load(Span span, UnitPlace place) {
        return load_unit(span.first + place.offset, place.bytes, left_of(span, place));
    }
    __device__ __forceinline__ static uint64_t left_of(Span span, UnitPlace place) {
        return span.valid > place.offset ? span.valid - place.offset : 0;
    }

    // Reads all units of a batch before it waits for any.
    __device__ __forceinline__ void take(uint32_t first, uint32_t units, const Letter &in,
                                         Part (&units_of)[Wire::kBatch]) {
        for (uint32_t polls = 1;; polls++) {
            bool has_arrived = true;
#pragma unroll
            for (uint32_t i = 0; i < Wire::kBatch; i++) {
                const uint32_t unit = first + i * machine_.threads();
                if (unit < units)
                    has_arrived &= Wire::peek(in.lines, unit, in.number, &units_of[i]);
            }
            if (Wire::all(has_arrived || *stopped_))
                return;
            if (polls % kPollsPerLook == 0 && !Wire::all(!aborted(launch_.abort))) {
                *stopped_ = true;
                return;
            }
            pause();
        }
    }

    const ProgramLaunch &launch_;
    const Machine &machine_;
    bool *const stopped_;
    const uint32_t divisor_;
};

} // namespace tuccl

#endif
