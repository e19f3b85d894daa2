// Runs moves (program_moves.h): one threadblock of each instance does all work of a rank. A thread
// moves the same bytes of a chunk's tile in every move, so none waits for another of its rank:
// under LL and LL128 nothing waits but a thread, or a warp, for its own lines. Barriers stand where
// a whole message is waited for or told, and where a connection's slots come round again.
//
// Written once for CUDA's blocks and for host threads, as interpreter.h is.
#ifndef TUCCL_EXECUTOR_INTERPRETER_MOVES_H
#define TUCCL_EXECUTOR_INTERPRETER_MOVES_H

#include "interpreter_epoch.h"
#include "interpreter_pairs.h"
#include "interpreter_wires.h"
#include "moves_launch.h"

namespace tuccl {

template <typename Wire, typename Pair, typename Machine, typename Launch> class MoveRunner {
  public:
    __device__ __forceinline__ MoveRunner(const Launch &launch, const Machine &machine)
        : launch_(launch), plan_(launch.plan), machine_(machine), epoch_(launch.plan, machine),
          instance_(machine.block()),
          first_slot_(epoch_.half() * launch.plan.half_bytes +
                      uint64_t{machine.block() * launch.plan.connections} *
                          launch.plan.lane_bytes) {
    }

    __device__ __forceinline__ void run() {
        for (tile_ = 0; tile_ < tiles(); tile_++) {
            first_ = instance_ * plan_.instance_bytes + uint64_t{tile_} * plan_.tile_bytes;
            const uint64_t share =
                smaller<uint64_t>((instance_ + 1) * plan_.instance_bytes, plan_.chunk_bytes);
            if (first_ >= share) // The same on every rank, and for every tile to come.
                break;
            bytes_ = static_cast<uint32_t>(smaller<uint64_t>(share - first_, plan_.tile_bytes));
            run_tile();
        }
        // Messages are awaited, the last credits are not.
        epoch_.finish(launch_.all_receive_from_all != 0, tiles() == 1);
    }

  private:
    static constexpr bool kIsPlain = Launch::kIsPlain;

    __device__ __forceinline__ uint32_t tiles() const {
        return kIsPlain ? 1 : plan_.tiles;
    }

    __device__ __forceinline__ void run_tile() {
        if (!kIsPlain && tile_ > 0)
            await_credits();
#pragma unroll 1
        for (uint32_t i = 0; i < launch_.moves; i++) {
            const MoveRecord move = launch_.move[i];
            if (!Wire::kFlagsInLines && move.messages() != 0)
                await_messages(move);
            run_move(move);
            if (!Wire::kFlagsInLines && move.has(kMoveEnds))
                tell_messages(move);
        }
        if (tile_ + 1 < tiles())
            tell_credits();
    }

    __device__ __forceinline__ uint32_t lane_of(uint32_t connection) const {
        return static_cast<uint32_t>(instance_) * plan_.connections + connection;
    }

    // Slots that this tile writes to must have been read in a tile before.
    __device__ __forceinline__ void await_credits() {
        for (uint32_t i = machine_.thread(); i < launch_.outgoing; i += machine_.threads()) {
            const Link link = launch_.link[i];
            const uint64_t wanted = uint64_t{tile_ + 1} * link.per_tile;
            if (wanted > kSlots)
                epoch_.await(&epoch_.state()->credit[link.rank][lane_of(link.connection)],
                             epoch_.base() + wanted - kSlots);
        }
        machine_.barrier();
    }
    // Follows reads only.
    __device__ __forceinline__ void tell_credits() {
        machine_.barrier();
        for (uint32_t i = machine_.thread(); i < launch_.incoming; i += machine_.threads()) {
            const Link link = launch_.link[launch_.outgoing + i];
            tell_read(
                &state_of(plan_.area[link.rank])->credit[plan_.rank][lane_of(link.connection)],
                epoch_.base() + uint64_t{tile_ + 1} * link.per_tile);
        }
    }

    // A message's count in its connection.
    __device__ __forceinline__ uint32_t count_of(const Operand &operand) const {
        return (kIsPlain ? 0 : tile_ * operand.per_tile()) + operand.ordinal();
    }
    __device__ __forceinline__ uint64_t number_of(const Operand &operand) const {
        return epoch_.base() + count_of(operand);
    }
    __device__ __forceinline__ char *lines_of(const Operand &operand) const {
        const uint32_t slot = kIsPlain || plan_.tiles == 1 ? 0 : (count_of(operand) - 1) % kSlots;
        return operand.address + first_slot_ + uint64_t{slot} * plan_.slot_bytes +
               operand.chunk() * Wire::line_bytes(bytes_);
    }
    __device__ __forceinline__ uint64_t *flag_of(const Operand &operand) const {
        return &state_of(plan_.area[operand.rank()])
                    ->flag[epoch_.half()][lane_of(operand.connection())]
                          [(count_of(operand) - 1) % kSlots];
    }
    __device__ __forceinline__ void await_messages(const MoveRecord &move) {
        for (uint32_t i = machine_.thread(); i < move.inputs(); i += machine_.threads())
            if ((move.messages() >> i & 1) != 0) {
                const Operand operand = launch_.operand[move.first() + i];
                epoch_.await(flag_of(operand), number_of(operand));
            }
        machine_.barrier();
    }
    __device__ __forceinline__ void tell_messages(const MoveRecord &move) {
        machine_.barrier();
        for (uint32_t i = machine_.thread(); i < move.outputs(); i += machine_.threads()) {
            const Operand operand = launch_.operand[move.first() + move.inputs() + i];
            if (operand.has(kOperandEnds))
                tell(flag_of(operand), number_of(operand));
        }
    }

    // A chunk's tile: its place, and how much of it exists.
    struct Span {
        char *first;
        uint32_t valid;
        __device__ __forceinline__ uint32_t left(UnitPlace place) const {
            return valid > place.offset ? valid - place.offset : 0;
        }
    };
    __device__ __forceinline__ Span span_of(const Operand &operand) const {
        if (!kIsPlain && operand.has(kOperandIsScratch))
            return {operand.address + instance_ * plan_.tile_bytes, bytes_};
        const uint64_t exist = operand.existing();
        return {operand.address + first_,
                exist > first_ ? static_cast<uint32_t>(smaller<uint64_t>(exist - first_, bytes_))
                               : 0};
    }

    // The units that a thread is at: some of each input, one after another `step` apart.
    struct Batch {
        uint32_t first;
        uint32_t step;
        uint32_t units; // Of the tile.

        __device__ __forceinline__ uint32_t unit(uint32_t depth) const {
            return first + depth * step;
        }
        __device__ __forceinline__ bool has(uint32_t depth) const {
            return unit(depth) < units;
        }
    };
    template <uint32_t kInputs>
    __device__ __forceinline__ static bool is_input(const MoveRecord &move, uint32_t i) {
        return kInputs <= 2 || i < move.inputs();
    }

    // Waits, once, until peers' halves may be written to. The first loads are under way by then.
    __device__ __forceinline__ void begin() {
        if (has_begun_)
            return;
        has_begun_ = true;
        if (epoch_.is_clear())
            return;
#pragma unroll 1
        for (uint32_t i = 0; i < launch_.outgoing; i++)
            epoch_.wait_for(launch_.link[i].rank);
    }

    // Keeps about equally many loads per thread in flight, whatever a move's inputs.
    __device__ __forceinline__ void run_move(const MoveRecord &move) {
        if (move.inputs() == 1 && kIsPlain && Wire::units(bytes_) <= machine_.threads())
            run_units<1, 1>(move); // Short code, for a unit a thread.
        else if (move.inputs() == 1)
            run_units<1, 4>(move);
        else if (move.inputs() == 2 && move.has(kMoveAdds))
            run_units<2, 2>(move);
        else if (move.inputs() <= 4)
            run_units<4, 1>(move);
        else
            run_units<kMostInputs, 1>(move);
    }

    template <uint32_t kInputs, uint32_t kDepth>
    __device__ __forceinline__ void run_units(const MoveRecord &move) {
        Batch batch = {machine_.thread(), machine_.threads(), Wire::units(bytes_)};
#pragma unroll 1
        for (; batch.first < batch.units; batch.first += batch.step * kDepth) {
            Part value[kInputs][kDepth];
#pragma unroll
            for (uint32_t i = 0; i < kInputs; i++)
#pragma unroll
                for (uint32_t d = 0; d < kDepth; d++)
                    value[i][d] = {0, 0};
            load(move, batch, value);
            begin();
            if (move.messages() != 0)
                take(move, batch, value);
            if (kInputs > 1 && (kInputs == 2 || move.has(kMoveAdds)))
                add(move, value);
            put(move, batch, value);
        }
    }

    template <uint32_t kInputs, uint32_t kDepth>
    __device__ __forceinline__ void load(const MoveRecord &move, const Batch &batch,
                                         Part (&value)[kInputs][kDepth]) const {
#pragma unroll
        for (uint32_t i = 0; i < kInputs; i++) {
            if (!is_input<kInputs>(move, i) || (move.messages() >> i & 1) != 0)
                continue;
            const Span span = span_of(launch_.operand[move.first() + i]);
#pragma unroll
            for (uint32_t d = 0; d < kDepth; d++)
                if (batch.has(d)) {
                    const UnitPlace place = Wire::place(batch.unit(d));
                    if (!kIsPlain)
                        value[i][d] =
                            load_unit(span.first + place.offset, place.bytes, span.left(place));
                    else if (span.valid > place.offset)
                        value[i][d] = load_whole(span.first + place.offset, place.bytes);
                }
        }
    }

    // Reads all before it waits for any.
    template <uint32_t kInputs, uint32_t kDepth>
    __device__ __forceinline__ void take(const MoveRecord &move, const Batch &batch,
                                         Part (&value)[kInputs][kDepth]) {
        const char *lines[kInputs];
        uint64_t number[kInputs];
#pragma unroll
        for (uint32_t i = 0; i < kInputs; i++) {
            lines[i] = nullptr;
            number[i] = 0;
            if (is_input<kInputs>(move, i) && (move.messages() >> i & 1) != 0) {
                const Operand operand = launch_.operand[move.first() + i];
                lines[i] = lines_of(operand);
                number[i] = number_of(operand);
            }
        }
        for (uint32_t polls = 1;; polls++) {
            bool has_arrived = true;
#pragma unroll
            for (uint32_t i = 0; i < kInputs; i++)
#pragma unroll
                for (uint32_t d = 0; d < kDepth; d++)
                    if (lines[i] != nullptr && batch.has(d))
                        has_arrived &= Wire::peek(lines[i], batch.unit(d), number[i], &value[i][d]);
            if (Wire::all(has_arrived || *epoch_.stopped()))
                return;
            if (polls % kPollsPerLook == 0 && !Wire::all(!aborted(plan_.abort))) {
                *epoch_.stopped() = true;
                return;
            }
            pause();
        }
    }

    // The sum takes the first input's place.
    template <uint32_t kInputs, uint32_t kDepth>
    __device__ __forceinline__ void add(const MoveRecord &move,
                                        Part (&value)[kInputs][kDepth]) const {
        typename Pair::template Sum<Wire::kWords> sum(plan_.type, plan_.reduction, plan_.ranks,
                                                      move.has(kMoveCompletes));
#pragma unroll
        for (uint32_t d = 0; d < kDepth; d++) {
            sum.start(value[0][d]);
#pragma unroll
            for (uint32_t i = 1; i < kInputs; i++)
                if (is_input<kInputs>(move, i))
                    sum.add(value[i][d], i + 1 == move.inputs());
            value[0][d] = sum.unit();
        }
    }

    // By value: an index that is known only at run time would put all units into local memory.
    __device__ __forceinline__ static Part either(bool first, uint64_t low, uint64_t high,
                                                  uint64_t other_low, uint64_t other_high) {
        return {first ? low : other_low, first ? high : other_high};
    }

    template <uint32_t kInputs, uint32_t kDepth>
    __device__ __forceinline__ void put(const MoveRecord &move, const Batch &batch,
                                        const Part (&value)[kInputs][kDepth]) const {
        uint32_t next = move.first() + move.inputs();
        const uint32_t end = next + move.outputs();
        Operand coming = launch_.operand[next];
        // Not unrolled: fetching code for the first time takes longer than going round.
#pragma unroll 1
        while (next < end) {
            const Operand operand = coming;
            if (++next < end)
                coming = launch_.operand[next];
            Part chosen[kDepth];
#pragma unroll
            for (uint32_t d = 0; d < kDepth; d++) {
                chosen[d] = value[0][d];
#pragma unroll
                for (uint32_t i = 1; i < kInputs; i++)
                    if (kInputs > 2) // Else they were added up.
                        chosen[d] = either(operand.from() == i, value[i][d].low, value[i][d].high,
                                           chosen[d].low, chosen[d].high);
            }
            if (operand.has(kOperandIsMessage))
                send(operand, batch, chosen);
            else
                keep(operand, batch, chosen);
        }
    }
    template <uint32_t kDepth>
    __device__ __forceinline__ void send(const Operand &operand, const Batch &batch,
                                         const Part (&value)[kDepth]) const {
        char *const lines = lines_of(operand);
        const uint64_t number = number_of(operand);
#pragma unroll
        for (uint32_t d = 0; d < kDepth; d++)
            if (batch.has(d))
                Wire::put(lines, batch.unit(d), value[d], number);
    }
    template <uint32_t kDepth>
    __device__ __forceinline__ void keep(const Operand &operand, const Batch &batch,
                                         const Part (&value)[kDepth]) const {
        const Span span = span_of(operand);
#pragma unroll
        for (uint32_t d = 0; d < kDepth; d++) {
            if (!batch.has(d))
                continue;
            const UnitPlace place = Wire::place(batch.unit(d));
            if (span.valid <= place.offset)
                continue;
            if (kIsPlain)
                store_whole(span.first + place.offset, value[d], place.bytes);
            else
                store_unit(span.first + place.offset, value[d], place.bytes, span.left(place));
        }
    }

    const Launch &launch_;
    const ProgramLaunch &plan_;
    const Machine machine_;
    Epoch<Machine> epoch_;
    const uint64_t instance_;
    const uint64_t first_slot_; // Of this instance and half, behind a connection's first.
    uint64_t first_ = 0;        // Of the tile, in each chunk.
    uint32_t bytes_ = 0;
    uint32_t tile_ = 0;
    bool has_begun_ = false;
};

} // namespace tuccl

#endif
