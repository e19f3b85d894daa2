#include "uniform_plan.h"

#include "byte_counts.h"

#include <algorithm>

namespace tuccl {

namespace {

constexpr uint64_t kMostElement = 8;

// Only the executor's kernels take chunks that are not adjacent, one of each rank: a slice of any
// other operand in the job's buffers would not be in one piece.
bool can_be_sliced(const tuccl_program &program) {
    if (!tuccl_is_divided(program.header->operation))
        return true;
    for (uint32_t i = 0; i < program.header->phase_count; i++) {
        const tuccl_phase &phase = program.phases[i];
        const bool gathers = phase.operation == TUCCL_ALL_GATHER;
        const bool scatters = phase.operation == TUCCL_REDUCE_SCATTER;
        const bool strides = phase.kind == TUCCL_PHASE_LOCAL && phase.chunks == 1;
        const bool one_in = gathers && phase.chunks == 1;
        const bool one_out = (scatters || phase.kind == TUCCL_PHASE_SUM) && phase.chunks == 1;
        if (phase.source_buffer != TUCCL_BUFFER_SCRATCH && !one_in && !(scatters && strides))
            return false;
        if (phase.target_buffer != TUCCL_BUFFER_SCRATCH && !one_out && !(gathers && strides))
            return false;
    }
    return true;
}

} // namespace

uint64_t steps_before(const tuccl_program &program, uint32_t phase) {
    uint64_t steps = phase;
    for (uint32_t i = 0; i < phase; i++)
        if (is_on_network(program.phases[i]))
            steps += program.header->lanes - 1;
    return steps;
}

Slicing slice_call(const tuccl_program &program, const tuccl_call &call) {
    const tuccl_program_header &header = *program.header;
    const uint64_t element = type_bytes(call.type);
    const bool blocks = tuccl_is_divided(header.operation);
    const uint64_t bytes = call.count * element * tuccl_program_parts(&header);
    const uint64_t chunks = blocks ? 1 : header.chunks;
    Slicing slicing = {};
    slicing.left_over = blocks ? 0 : call.count % chunks;
    const uint64_t elements = call.count - slicing.left_over;
    uint64_t wanted = 1;
    if (can_be_sliced(program) && call.buffer_bytes > 0)
        wanted = std::min<uint64_t>(divided_up(bytes, call.buffer_bytes), kMostSlices);
    const uint64_t grain = wanted > 1 ? chunks * (16 / std::min<uint64_t>(element, 16)) : chunks;
    slicing.slice_elements = std::max(grain, round_up(divided_up(elements, wanted), grain));
    slicing.slices = divided_up(elements, slicing.slice_elements);
    slicing.window_bytes = round_up(
        slicing.slice_elements / chunks * element * header.most_scratch_chunks, kWindowGrain);
    slicing.windows = windows_of(program, slicing.slices);
    slicing.left_over_bytes = round_up(slicing.left_over * element, kWindowGrain);
    return slicing;
}

uint32_t windows_of(const tuccl_program &program, uint64_t slices) {
    // A slice takes the window of one that has enqueued all of its phases by then.
    const uint64_t most =
        std::min<uint64_t>(steps_before(program, program.header->phase_count), kMostWindows);
    return static_cast<uint32_t>(std::min(most, slices));
}

uint64_t largest_chunk(const tuccl_program &program, const Slicing &slicing) {
    return tuccl_is_divided(program.header->operation)
               ? slicing.slice_elements
               : divided_up(slicing.slice_elements, program.header->chunks);
}

uint64_t most_scratch(const tuccl_program &program, uint64_t largest, uint64_t buffer_bytes) {
    uint64_t need = 0;
    for_largest_calls(program, largest, buffer_bytes, [&](const Slicing &slicing, uint64_t wanted) {
        const uint64_t slices = slicing.slices > 1 ? wanted : slicing.slices;
        need = std::max(need, windows_of(program, slices) * slicing.window_bytes);
    });
    const uint64_t most_left_over = tuccl_is_divided(program.header->operation)
                                        ? 0
                                        : (program.header->chunks - 1) * kMostElement;
    return need + round_up(most_left_over, kWindowGrain);
}

PhaseOperands::PhaseOperands(const tuccl_program &program, const tuccl_call &call,
                             const Slicing &slicing, char *scratch)
    : program_(program), call_(call), slicing_(slicing), scratch_(scratch),
      element_bytes_(type_bytes(call.type)),
      is_divided_(tuccl_is_divided(program.header->operation)) {
}

// Of a chunk of the slice.
uint64_t PhaseOperands::elements_of(uint64_t slice) const {
    const uint64_t all = call_.count - slicing_.left_over;
    const uint64_t now = std::min(slicing_.slice_elements, all - slice * slicing_.slice_elements);
    return is_divided_ ? now : now / program_.header->chunks;
}

PhaseOperands::Operand PhaseOperands::find(uint8_t buffer, uint64_t chunk, uint64_t slice) const {
    const uint64_t own = elements_of(slice) * element_bytes_;
    if (buffer == TUCCL_BUFFER_SCRATCH)
        return {scratch_ + slice % slicing_.windows * slicing_.window_bytes + chunk * own, own};
    char *user = buffer == TUCCL_BUFFER_INPUT
                     ? const_cast<char *>(static_cast<const char *>(call_.send))
                     : static_cast<char *>(call_.receive);
    const uint64_t pitch = is_divided_ ? call_.count * element_bytes_ : own;
    return {user + slice * slicing_.slice_elements * element_bytes_ + chunk * pitch, pitch};
}

PhaseCall PhaseOperands::of(const tuccl_phase &phase, uint64_t slice, uint32_t repeat) const {
    const bool sums = phase.kind == TUCCL_PHASE_SUM;
    const uint64_t source = phase.source + (sums ? 0 : uint64_t{repeat} * phase.source_stride);
    const uint64_t target = phase.target + (sums ? 0 : uint64_t{repeat} * phase.target_stride);
    const Operand from = find(phase.source_buffer, source, slice);
    const Operand to = find(phase.target_buffer, target, slice);
    const uint64_t elements = elements_of(slice);
    PhaseCall call = {from.address, to.address, phase.chunks * elements, 0};
    const uint64_t dense = elements * element_bytes_;
    if (phase.operation == TUCCL_ALL_GATHER && to.pitch_bytes != dense)
        call.stride_bytes = to.pitch_bytes;
    if (phase.operation == TUCCL_REDUCE_SCATTER && from.pitch_bytes != dense)
        call.stride_bytes = from.pitch_bytes;
    return call;
}

char *PhaseOperands::left_over_scratch() const {
    return scratch_ + slicing_.windows * slicing_.window_bytes;
}

PhaseCall PhaseOperands::left_over_local() const {
    const uint64_t first = (call_.count - slicing_.left_over) * element_bytes_;
    return {static_cast<const char *>(call_.send) + first, left_over_scratch(), slicing_.left_over,
            0};
}

PhaseCall PhaseOperands::left_over_rail() const {
    const uint64_t first = (call_.count - slicing_.left_over) * element_bytes_;
    return {left_over_scratch(), static_cast<char *>(call_.receive) + first, slicing_.left_over, 0};
}

} // namespace tuccl
