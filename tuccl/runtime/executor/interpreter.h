// Runs a program: every threadblock performs its steps in order, once for each tile of the buffers.
// Written once for CUDA's blocks and for host threads; a `Machine` says which thread this is, a
// `Wire` is a protocol, a `Pair` adds two units up. This file determines what each step waits for
// and where its chunks and messages are; interpreter_mover.h moves their bytes.
//
// A thread moves the same bytes of a chunk's tile in every step, so within a threadblock no step
// waits for another; barriers stand only where a thread waits, or tells, for all.
//
// After an abort nothing waits, and the moved data is undefined.
#ifndef TUCCL_EXECUTOR_INTERPRETER_H
#define TUCCL_EXECUTOR_INTERPRETER_H

#include "interpreter_epoch.h"
#include "interpreter_mover.h"
#include "interpreter_wires.h"
#include "program_staging.h"

namespace tuccl {

template <typename Wire, typename Pair, typename Machine> class Interpreter {
  public:
    __device__ __forceinline__ Interpreter(const ProgramLaunch &launch, const Machine &machine)
        : launch_(launch), machine_(machine), epoch_(launch, machine), state_(epoch_.state()),
          number_(machine.block() % launch.own_blocks),
          instance_(machine.block() / launch.own_blocks), base_(epoch_.base()),
          block_(launch.threadblocks[number_]) {
    }

    __device__ __forceinline__ void run() {
        if (block_.send_peer != TUCCL_NO_PEER && !epoch_.is_clear()) {
            if (machine_.thread() == 0)
                epoch_.wait_for(static_cast<uint32_t>(block_.send_peer));
            machine_.barrier();
        }
        for (tile_ = 0; tile_ < launch_.tiles; tile_++) {
            first_ = instance_ * launch_.instance_bytes + uint64_t{tile_} * launch_.tile_bytes;
            const uint64_t share =
                smaller<uint64_t>((instance_ + 1) * launch_.instance_bytes, launch_.chunk_bytes);
            if (first_ >= share) // The same on every rank, and for every tile to come.
                break;
            bytes_ = static_cast<uint32_t>(smaller<uint64_t>(share - first_, launch_.tile_bytes));
            run_tile();
        }
        epoch_.finish(false, false);
    }

  private:
    // Returns the sequence number of this many finished steps of the tile.
    __device__ __forceinline__ uint64_t steps_done(uint32_t tile, uint32_t steps) const {
        return base_ + uint64_t{tile} * launch_.longest + steps;
    }
    __device__ __forceinline__ uint64_t *progress_of(uint32_t number) const {
        return &state_->progress[instance_ * launch_.own_blocks + number].value;
    }
    // A connection's place among all that arrive at a rank.
    __device__ __forceinline__ uint32_t lane_of_connection(uint32_t connection) const {
        return instance_ * launch_.connections + connection;
    }

    __device__ __forceinline__ void run_tile() {
        // Scratch chunks of the tile before the last are written anew: all must be done with it.
        const bool has_scratch = launch_.own_scratch != 0;
        if (has_scratch && tile_ >= kScratchWindows) {
            for (uint32_t i = machine_.thread(); i < launch_.own_blocks; i += machine_.threads())
                epoch_.template await<true>(progress_of(i),
                                            steps_done(tile_ - kScratchWindows + 1, 0));
            machine_.barrier();
        }
        for (uint32_t i = 0; i < block_.steps; i++)
            run_step(launch_.steps[block_.first_step + i], i);
        if (has_scratch) {
            machine_.barrier();
            if (machine_.thread() == 0)
                tell_here(progress_of(number_), steps_done(tile_ + 1, 0));
        }
    }

    __device__ __forceinline__ void run_step(const tuccl_program_step &step, uint32_t index) {
        const Action action(step.type);
        bool waits = step.awaited_threadblock != TUCCL_NO_DEPENDENCE;
        if (waits && machine_.thread() == 0)
            epoch_.template await<true>(
                progress_of(static_cast<uint32_t>(step.awaited_threadblock)),
                steps_done(tile_, step.awaited_step + 1));
        Letter in = {nullptr, 0};
        Letter out = {nullptr, 0};
        if (action.receives)
            waits |= open_incoming(&in);
        if (action.sends)
            waits |= open_outgoing(&out);
        if (waits)
            machine_.barrier();
        if (step.type != TUCCL_STEP_NOP)
            move(step, action, in, out);
        const bool flags = action.sends && !Wire::kFlagsInLines;
        // The sender waits for this credit only if a later message needs the slot.
        const bool credits = action.receives && received_ + kSlots <= launch_.tiles * block_.steps;
        const bool progresses = (step.flags & TUCCL_STEP_HAS_DEPENDENT) != 0;
        if (!flags && !credits && !progresses)
            return;
        machine_.barrier();
        if (machine_.thread() != 0)
            return;
        if (flags)
            tell(flag_word(static_cast<uint32_t>(block_.send_peer), block_.send_connection, sent_),
                 out.number);
        if (credits)
            tell(&state_of(launch_.area[block_.receive_peer])
                      ->credit[launch_.rank][lane_of_connection(block_.receive_connection)],
                 in.number);
        if (progresses)
            tell_here(progress_of(number_), steps_done(tile_, index + 1));
    }

    // These count the messages of a connection, and say whether a barrier must follow.
    __device__ __forceinline__ bool open_incoming(Letter *letter) {
        received_++;
        *letter = {slot(launch_.rank, block_.receive_connection, received_), base_ + received_};
        if (!Wire::kFlagsInLines && machine_.thread() == 0)
            epoch_.await(flag_word(launch_.rank, block_.receive_connection, received_),
                         letter->number);
        return !Wire::kFlagsInLines;
    }
    __device__ __forceinline__ bool open_outgoing(Letter *letter) {
        sent_++;
        const auto peer = static_cast<uint32_t>(block_.send_peer);
        *letter = {slot(peer, block_.send_connection, sent_), base_ + sent_};
        if (sent_ <= kSlots)
            return false;
        if (machine_.thread() == 0)
            epoch_.await(&state_->credit[peer][lane_of_connection(block_.send_connection)],
                         letter->number - kSlots);
        return true;
    }

    __device__ __forceinline__ char *slot(uint32_t rank, uint32_t connection,
                                          uint64_t count) const {
        const uint64_t place = lane_of_connection(connection) * kSlots + (count - 1) % kSlots;
        return launch_.area[rank] + launch_.lines_first + epoch_.half() * launch_.half_bytes +
               place * launch_.slot_bytes;
    }
    __device__ __forceinline__ uint64_t *flag_word(uint32_t rank, uint32_t connection,
                                                   uint64_t count) const {
        return &state_of(launch_.area[rank])
                    ->flag[epoch_.half()][lane_of_connection(connection)][(count - 1) % kSlots];
    }

    __device__ __forceinline__ Span span(uint32_t buffer, uint32_t chunk) const {
        if (buffer == TUCCL_BUFFER_SCRATCH) {
            const uint64_t window = tile_ % kScratchWindows * launch_.instances + instance_;
            const uint64_t place = window * launch_.scratch_chunks + chunk;
            return {launch_.area[launch_.rank] + launch_.scratch_first + place * launch_.tile_bytes,
                    bytes_};
        }
        char *user =
            buffer == TUCCL_BUFFER_INPUT ? const_cast<char *>(launch_.send) : launch_.receive;
        const uint32_t part = chunk / launch_.part_chunks;
        const uint64_t offset = (chunk - part * launch_.part_chunks) * launch_.chunk_bytes + first_;
        if (offset >= launch_.part_bytes)
            return {user, 0};
        return {user + part * launch_.part_bytes + offset,
                smaller<uint64_t>(launch_.part_bytes - offset, bytes_)};
    }

    __device__ __forceinline__ void move(const tuccl_program_step &step, const Action &action,
                                         Letter in, Letter out) {
        const bool completes = (step.flags & TUCCL_STEP_COMPLETES) != 0;
        const uint32_t reduction =
            launch_.reduction == TUCCL_AVG && !completes ? uint32_t{TUCCL_SUM} : launch_.reduction;
        ChunkMover<Wire, Pair, Machine> mover(launch_, machine_, epoch_.stopped(), launch_.ranks);
        for (uint32_t chunk = 0; chunk < step.count; chunk++) {
            Span source = {nullptr, 0};
            Span target = {nullptr, 0};
            if (action.reads)
                source = span(step.source_buffer, step.source + chunk);
            if (action.writes)
                target = span(step.destination_buffer, step.destination + chunk);
            // In place a chunk may be copied onto itself, which others may be reading.
            if (step.type != TUCCL_STEP_CPY || source.first != target.first)
                mover.move(action, reduction, bytes_, source, target, in, out);
            in.lines += Wire::line_bytes(bytes_);
            out.lines += Wire::line_bytes(bytes_);
        }
    }

    const ProgramLaunch &launch_;
    const Machine machine_;
    Epoch<Machine> epoch_;
    ProgramState *const state_;
    const uint32_t number_;   // Of the threadblock in its rank's program.
    const uint64_t instance_; // 64 bits wide, as it multiplies sizes.
    const uint64_t base_;
    const tuccl_program_threadblock block_;
    uint64_t sent_ = 0;
    uint64_t received_ = 0;
    uint64_t first_ = 0; // Of the tile, in each chunk.
    uint32_t bytes_ = 0;
    uint32_t tile_ = 0;
};

} // namespace tuccl

#endif
