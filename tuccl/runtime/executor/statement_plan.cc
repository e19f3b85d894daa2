#include "statement_plan.h"

#include "byte_counts.h"

#include <algorithm>

namespace tuccl {

namespace {

constexpr uint64_t kGrain = 16;
// Of a launch: fits 32 bits.
constexpr uint64_t kMostSliceBytes = uint64_t{1} << 30;

bool is_round(const tuccl_phase &phase) {
    return phase.kind == TUCCL_PHASE_ROUND;
}

bool crosses_nodes(const tuccl_program &program, const tuccl_statement &statement) {
    return program.ranks[statement.source_rank].node != program.ranks[statement.target_rank].node;
}

template <typename Visit>
void for_each_statement(const tuccl_program &program, const tuccl_phase &phase, Visit visit) {
    for (uint32_t i = 0; i < phase.statements; i++)
        visit(program.statements[phase.first_statement + i]);
}

// Chunks that have arrived so far at each rank of a node in a stage.
using Lines = std::vector<uint32_t>;

// Chunks of this rank's memory.
struct Reached {
    bool in_scratch;
    uint32_t first;
    uint32_t chunks;

    bool overlaps(const Reached &other) const {
        return in_scratch == other.in_scratch && first < other.first + other.chunks &&
               other.first < first + chunks;
    }
};

bool receives(const tuccl_stage_step &step) {
    return step.type == TUCCL_STEP_R || step.type == TUCCL_STEP_RRC;
}

bool writes(const tuccl_stage_step &step) {
    return step.type != TUCCL_STEP_S;
}

// Whether a step reads its source; a sum also reads its target, which it writes.
bool reads(const tuccl_stage_step &step) {
    return step.type != TUCCL_STEP_R;
}

// Puts a rank's steps of a stage in the order in which a thread takes them. A message waits in its
// lines until its receiver looks for it, so a receive comes only before the first step that needs
// it, and no send waits for a message that it does not depend on. As a send stays before its
// receive in the order of statements, no ranks wait for each other in a circle.
class StepOrder {
  public:
    StepOrder(const tuccl_program &program, const Grid &grid, std::vector<tuccl_stage_step> *steps)
        : first_input_(first(program, grid, TUCCL_BUFFER_INPUT)),
          first_output_(first(program, grid, TUCCL_BUFFER_OUTPUT)), steps_(*steps) {
    }

    void add(const tuccl_stage_step &step) {
        if (receives(step)) {
            waiting_.push_back(step);
            return;
        }
        size_t needed = waiting_.size();
        while (needed > 0 && !conflict(waiting_[needed - 1], step))
            needed--;
        take(needed);
        steps_.push_back(step);
    }

    void end() {
        take(waiting_.size());
    }

  private:
    // In place input and output are one memory (docs/reference/programs.md); so they are here, as
    // a call may be either.
    static uint32_t first(const tuccl_program &program, const Grid &grid, uint32_t buffer) {
        const uint32_t operation = program.header->operation;
        const bool is_part = buffer == TUCCL_BUFFER_INPUT ? tuccl_input_is_part(operation)
                                                          : tuccl_output_is_part(operation);
        return is_part ? grid.rank() * program.header->chunks : 0;
    }

    Reached reached(uint32_t buffer, uint32_t chunk, uint32_t chunks) const {
        if (buffer == TUCCL_BUFFER_SCRATCH)
            return {true, chunk, chunks};
        return {false, chunk + (buffer == TUCCL_BUFFER_INPUT ? first_input_ : first_output_),
                chunks};
    }
    Reached source(const tuccl_stage_step &step) const {
        return reached(step.source_buffer, step.source, step.chunks);
    }
    Reached target(const tuccl_stage_step &step) const {
        return reached(step.target_buffer, step.target, step.chunks);
    }

    bool conflict(const tuccl_stage_step &receive, const tuccl_stage_step &step) const {
        if (reads(step) && source(step).overlaps(target(receive)))
            return true;
        return writes(step) && (target(step).overlaps(target(receive)) ||
                                (reads(receive) && target(step).overlaps(source(receive))));
    }

    void take(size_t count) {
        const auto last = waiting_.begin() + static_cast<std::ptrdiff_t>(count);
        steps_.insert(steps_.end(), waiting_.begin(), last);
        waiting_.erase(waiting_.begin(), last);
    }

    const uint32_t first_input_;
    const uint32_t first_output_;
    std::vector<tuccl_stage_step> &steps_;
    std::vector<tuccl_stage_step> waiting_;
};

class Planner {
  public:
    Planner(const tuccl_program &program, const Grid &grid, std::vector<tuccl_stage_step> *steps)
        : program_(program), grid_(grid), steps_(*steps) {
    }

    StatementPhase plan(const tuccl_phase &phase) {
        StatementPhase item = {};
        item.is_round = is_round(phase);
        item.first_step = static_cast<uint32_t>(steps_.size());
        Lines lines(grid_.local_ranks);
        StepOrder order(program_, grid_, &steps_);
        for_each_statement(program_, phase, [&](const tuccl_statement &statement) {
            if (crosses_nodes(program_, statement))
                add_message(statement, &item);
            else if (program_.ranks[statement.target_rank].node == grid_.node)
                add_steps(statement, &lines, &item, &order);
        });
        order.end();
        item.steps = static_cast<uint32_t>(steps_.size()) - item.first_step;
        return item;
    }

  private:
    void add_message(const tuccl_statement &statement, StatementPhase *item) const {
        const bool is_sent = statement.source_rank == grid_.rank();
        if (is_sent || statement.target_rank == grid_.rank())
            item->messages.push_back(
                {is_sent, is_sent ? statement.target_rank : uint32_t{statement.source_rank},
                 statement.source_buffer, statement.target_buffer, statement.source,
                 statement.target, statement.chunks});
    }

    void add_steps(const tuccl_statement &statement, Lines *lines, StatementPhase *item,
                   StepOrder *order) {
        const uint32_t first = grid_.first_of_node();
        const bool adds = (statement.flags & TUCCL_STATEMENT_ADDS) != 0;
        item->runs = true;
        tuccl_stage_step step = {};
        step.flags = (statement.flags & TUCCL_STATEMENT_COMPLETES) != 0 ? TUCCL_STEP_COMPLETES : 0;
        step.source_buffer = statement.source_buffer;
        step.target_buffer = statement.target_buffer;
        step.source = statement.source;
        step.target = statement.target;
        step.chunks = statement.chunks;
        if (statement.source_rank == statement.target_rank) {
            step.type = adds ? TUCCL_STEP_RE : TUCCL_STEP_CPY;
            if (statement.target_rank == grid_.rank())
                order->add(step);
            return;
        }
        uint32_t &line = lines->at(statement.target_rank - first);
        step.line = line;
        line += statement.chunks;
        if (statement.source_rank == grid_.rank()) {
            step.type = TUCCL_STEP_S;
            step.flags = 0;
            step.receiver = statement.target_rank - first;
            item->receivers |= 1U << step.receiver;
            order->add(step);
        } else if (statement.target_rank == grid_.rank()) {
            step.type = adds ? TUCCL_STEP_RRC : TUCCL_STEP_R;
            step.source_buffer = statement.operand_buffer;
            step.source = statement.operand;
            order->add(step);
        }
    }

    const tuccl_program &program_;
    const Grid &grid_;
    std::vector<tuccl_stage_step> &steps_;
};

} // namespace

ChunkCut::Reach ChunkCut::find(uint8_t buffer, uint32_t chunk) const {
    if (buffer == TUCCL_BUFFER_SCRATCH)
        return {chunk * chunk_bytes, chunk_bytes};
    const uint64_t offset = std::min(chunk % part_chunks * chunk_bytes, part_bytes);
    return {chunk / part_chunks * part_bytes + offset, std::min(chunk_bytes, part_bytes - offset)};
}

ChunkCut cut_chunks(const tuccl_program_header &header, const tuccl_call &call) {
    ChunkCut cut = {};
    cut.part_bytes = call.count * type_bytes(call.type);
    cut.part_chunks = header.chunks;
    cut.chunk_bytes = round_up(divided_up(cut.part_bytes, header.chunks), kGrain);
    return cut;
}

ChunkCut largest_cut(const tuccl_program_header &header, uint64_t largest) {
    tuccl_call call = {};
    call.type = TUCCL_UINT8;
    call.count = largest / tuccl_program_parts(&header);
    return cut_chunks(header, call);
}

ChunkSlices slice_chunks(const tuccl_program_header &header, const ChunkCut &cut,
                         uint64_t buffer_bytes) {
    const uint64_t bytes = cut.part_bytes * tuccl_program_parts(&header);
    uint64_t wanted = 1;
    if (buffer_bytes > 0 && bytes > 0)
        wanted = std::min(divided_up(bytes, buffer_bytes), kMostChunkSlices);
    ChunkSlices slices = {1, cut.chunk_bytes};
    if (wanted > 1) { // Of whole pieces of LL128, which are whole lines of LL, too.
        slices.bytes =
            round_up(divided_up(cut.chunk_bytes, wanted), kWireUnits[TUCCL_LL128].data_bytes);
        slices.slices = divided_up(cut.chunk_bytes, slices.bytes);
    }
    return slices;
}

uint64_t statement_scratch_bytes(const tuccl_program_header &header, const ChunkCut &cut) {
    return header.most_scratch_chunks * cut.chunk_bytes;
}

uint32_t most_arrivals(const tuccl_program &program) {
    uint32_t most = 0;
    for (uint32_t number = 0; number < program.header->phase_count; number++) {
        const tuccl_phase &phase = program.phases[number];
        std::vector<uint32_t> arrived(program.header->ranks);
        for_each_statement(program, phase, [&](const tuccl_statement &statement) {
            if (statement.source_rank != statement.target_rank &&
                !crosses_nodes(program, statement))
                most = std::max(most, arrived[statement.target_rank] += statement.chunks);
        });
    }
    return most;
}

StatementPlan plan_statements(const tuccl_program &program, const Grid &grid,
                              std::vector<tuccl_stage_step> *steps) {
    StatementPlan plan = {{}, most_arrivals(program), false};
    Planner planner(program, grid, steps);
    for (uint32_t number = 0; number < program.header->phase_count; number++) {
        const tuccl_phase &phase = program.phases[number];
        plan.phases.push_back(planner.plan(phase));
        for_each_statement(program, phase, [&](const tuccl_statement &statement) {
            plan.has_beside |= is_round(phase) && !crosses_nodes(program, statement);
        });
    }
    return plan;
}

RankPairs pairs_of(const tuccl_program &program) {
    RankPairs pairs;
    for (uint32_t number = 0; number < program.header->phase_count; number++)
        for_each_statement(program, program.phases[number], [&](const tuccl_statement &statement) {
            if (crosses_nodes(program, statement))
                pairs.emplace_back(statement.source_rank, statement.target_rank);
        });
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    return pairs;
}

uint64_t stage_slice_bytes(const tuccl_staging &staging, uint32_t protocol, uint32_t arrivals,
                           uint64_t chunk_bytes) {
    const WireUnit &unit = kWireUnits[protocol];
    const uint64_t most =
        arrivals > 0 ? staging.half_bytes[protocol] / arrivals / unit.line_bytes * unit.data_bytes
                     : kMostSliceBytes;
    return std::min(most, chunk_bytes);
}

} // namespace tuccl
