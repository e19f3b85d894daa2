#include "staged_plan.h"

#include "byte_counts.h"

#include <algorithm>

namespace tuccl {

namespace {

constexpr uint64_t kGrain = 16;
constexpr uint64_t kLl128DataBytes = 480;
constexpr uint64_t kLl128PieceBytes = 512;
// Of a launch: fits 32 bits.
constexpr uint64_t kMostSliceBytes = uint64_t{1} << 30;

bool is_divided(uint32_t operation) {
    return operation == TUCCL_ALL_GATHER || operation == TUCCL_REDUCE_SCATTER ||
           operation == TUCCL_ALLTOALL;
}

bool is_round(uint32_t item) {
    return item % 2 == 1;
}

template <typename Visit>
void for_each_statement(const tuccl_staged &staged, uint32_t item, Visit visit) {
    const tuccl_staged_item &range = staged.items[item];
    for (uint32_t i = 0; i < range.statements; i++)
        visit(staged.statements[range.first_statement + i]);
}

// Chunks that have arrived so far at each rank of a node in a stage.
using Lines = std::vector<uint32_t>;

class Planner {
  public:
    Planner(const tuccl_staged &staged, const Grid &grid, std::vector<tuccl_stage_step> *steps)
        : staged_(staged), grid_(grid), steps_(*steps) {
    }

    StagedItem stage(uint32_t number) {
        StagedItem item = {};
        item.first_step = static_cast<uint32_t>(steps_.size());
        Lines lines(grid_.local_ranks);
        for_each_statement(staged_, number, [&](const tuccl_statement &statement) {
            if (staged_.ranks[statement.target_rank].node == grid_.node)
                add_steps(statement, &lines, &item);
        });
        item.steps = static_cast<uint32_t>(steps_.size()) - item.first_step;
        return item;
    }

    StagedItem round(uint32_t number) const {
        StagedItem item = {};
        item.is_round = true;
        for_each_statement(staged_, number, [&](const tuccl_statement &statement) {
            const bool is_sent = statement.source_rank == grid_.rank();
            if (is_sent || statement.target_rank == grid_.rank())
                item.messages.push_back(
                    {is_sent, is_sent ? statement.target_rank : uint32_t{statement.source_rank},
                     statement.source_buffer, statement.target_buffer, statement.source,
                     statement.target, statement.chunks});
        });
        return item;
    }

  private:
    void add_steps(const tuccl_statement &statement, Lines *lines, StagedItem *item) {
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
                steps_.push_back(step);
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
            steps_.push_back(step);
        } else if (statement.target_rank == grid_.rank()) {
            step.type = adds ? TUCCL_STEP_RRC : TUCCL_STEP_R;
            step.source_buffer = statement.operand_buffer;
            step.source = statement.operand;
            steps_.push_back(step);
        }
    }

    const tuccl_staged &staged_;
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

ChunkCut cut_chunks(const tuccl_staged_header &header, const tuccl_call &call) {
    ChunkCut cut = {};
    cut.part_bytes = call.count * type_bytes(call.type);
    cut.part_chunks = header.chunks;
    cut.chunk_bytes = round_up(divided_up(cut.part_bytes, header.chunks), kGrain);
    return cut;
}

ChunkCut largest_cut(const tuccl_staged_header &header, uint64_t largest) {
    tuccl_call call = {};
    call.type = TUCCL_UINT8;
    call.count = largest / (is_divided(header.operation) ? header.ranks : 1);
    return cut_chunks(header, call);
}

ChunkSlices slice_chunks(const tuccl_staged_header &header, const ChunkCut &cut,
                         uint64_t buffer_bytes) {
    const uint64_t bytes = cut.part_bytes * (is_divided(header.operation) ? header.ranks : 1);
    uint64_t wanted = 1;
    if (buffer_bytes > 0 && bytes > 0)
        wanted = std::min(divided_up(bytes, buffer_bytes), kMostChunkSlices);
    ChunkSlices slices = {1, cut.chunk_bytes};
    if (wanted > 1) { // Of whole pieces of LL128, which are whole lines of LL, too.
        slices.bytes = round_up(divided_up(cut.chunk_bytes, wanted), kLl128DataBytes);
        slices.slices = divided_up(cut.chunk_bytes, slices.bytes);
    }
    return slices;
}

uint64_t staged_scratch_bytes(const tuccl_staged_header &header, const ChunkCut &cut) {
    return header.most_scratch_chunks * cut.chunk_bytes;
}

bool is_for(const tuccl_staged &staged, const Grid &grid) {
    if (staged.header->nodes != grid.nodes || staged.header->ranks != grid.ranks())
        return false;
    std::vector<uint32_t> sizes(grid.nodes);
    for (uint32_t rank = 0; rank < grid.ranks(); rank++)
        sizes[staged.ranks[rank].node]++;
    for (uint32_t node = 0; node < grid.nodes; node++)
        if (sizes[node] != grid.size_of(node))
            return false;
    return true;
}

uint32_t most_arrivals(const tuccl_staged &staged) {
    uint32_t most = 0;
    for (uint32_t number = 0; number < tuccl_staged_items(staged.header); number += 2) {
        std::vector<uint32_t> arrived(staged.header->ranks);
        for_each_statement(staged, number, [&](const tuccl_statement &statement) {
            if (statement.source_rank != statement.target_rank)
                most = std::max(most, arrived[statement.target_rank] += statement.chunks);
        });
    }
    return most;
}

StagedPlan plan_staged(const tuccl_staged &staged, const Grid &grid,
                       std::vector<tuccl_stage_step> *steps) {
    StagedPlan plan = {{}, most_arrivals(staged)};
    Planner planner(staged, grid, steps);
    for (uint32_t number = 0; number < tuccl_staged_items(staged.header); number++)
        plan.items.push_back(is_round(number) ? planner.round(number) : planner.stage(number));
    return plan;
}

RankPairs pairs_of(const tuccl_staged &staged) {
    RankPairs pairs;
    for (uint32_t number = 1; number < tuccl_staged_items(staged.header); number += 2)
        for_each_statement(staged, number, [&](const tuccl_statement &statement) {
            pairs.emplace_back(statement.source_rank, statement.target_rank);
        });
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    return pairs;
}

uint64_t stage_lines_bytes(uint32_t protocol, uint32_t arrivals, uint64_t chunk_bytes) {
    return arrivals * (protocol == TUCCL_LL
                           ? 2 * chunk_bytes
                           : divided_up(chunk_bytes, kLl128DataBytes) * kLl128PieceBytes);
}

uint64_t stage_slice_bytes(const tuccl_staging &staging, uint32_t protocol, uint32_t arrivals,
                           uint64_t chunk_bytes) {
    uint64_t most = kMostSliceBytes;
    if (arrivals > 0 && protocol == TUCCL_LL)
        most = staging.program_ll_bytes / arrivals / (2 * kGrain) * kGrain;
    else if (arrivals > 0)
        most = staging.program_ll128_bytes / arrivals / kLl128PieceBytes * kLl128DataBytes;
    return std::min(most, chunk_bytes);
}

} // namespace tuccl
