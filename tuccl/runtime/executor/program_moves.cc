#include "program_moves.h"

#include "executor.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace tuccl {

namespace {

// Beyond that a program has more steps than a launch has room for.
constexpr size_t kMostMovesBefore = 256;

uint32_t messages_of(const tuccl_program &program, const tuccl_program_threadblock &block) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < block.steps; i++)
        count += tuccl_step_sends(program.steps[block.first_step + i].type) ? 1 : 0;
    return count;
}

MovePlace chunk_at(uint8_t buffer, uint32_t chunk) {
    MovePlace place = {};
    place.buffer = buffer;
    place.chunk = chunk;
    return place;
}

// Performs all steps in rounds, and records each rank's moves.
class Rounds {
  public:
    explicit Rounds(const tuccl_program &program)
        : program_(program), at_(program.header->threadblock_count),
          sent_(program.header->threadblock_count), received_(program.header->threadblock_count),
          messages_(program.header->threadblock_count), ranks_(program.header->ranks) {
        for (size_t i = 0; i < messages_.size(); i++)
            messages_[i] = messages_of(program, program.threadblocks[i]);
    }

    // False when messages of a tile do not fit their connection, or a rank does too much.
    bool run() {
        size_t left = program_.header->step_count;
        for (round_ = 0; left > 0; round_++) {
            const size_t before = left;
            for (uint32_t rank = 0; rank < ranks_.size(); rank++) {
                left -= run_rank(rank);
                if (too_many_)
                    return false;
            }
            if (left == before)
                return false;
        }
        for (uint32_t rank = 0; rank < ranks_.size(); rank++)
            if (!add_links(rank))
                return false;
        return true;
    }

    std::vector<RankMoves> &ranks() {
        return ranks_;
    }

  private:
    const tuccl_program_threadblock &block(uint32_t rank, uint32_t number) const {
        return program_.threadblocks[program_.ranks[rank].first_threadblock + number];
    }

    bool add_links(uint32_t rank) {
        for (uint32_t i = 0; i < program_.ranks[rank].threadblocks; i++) {
            const tuccl_program_threadblock &sender = block(rank, i);
            const uint32_t count = messages_[program_.ranks[rank].first_threadblock + i];
            if (sender.send_peer == TUCCL_NO_PEER || count == 0)
                continue;
            if (count > TUCCL_PROGRAM_SLOTS)
                return false;
            const auto connection = static_cast<uint8_t>(sender.send_connection);
            const auto per_tile = static_cast<uint8_t>(count);
            ranks_[rank].outgoing.push_back(
                {static_cast<uint8_t>(sender.send_peer), connection, per_tile});
            ranks_[sender.send_peer].incoming.push_back(
                {static_cast<uint8_t>(rank), connection, per_tile});
        }
        return true;
    }

    size_t run_rank(uint32_t rank) {
        size_t done = 0;
        for (bool advanced = true; advanced && !too_many_;) {
            advanced = false;
            for (uint32_t i = 0; i < program_.ranks[rank].threadblocks && !too_many_; i++)
                while (advance(rank, i)) {
                    advanced = true;
                    done++;
                }
        }
        return done;
    }

    bool advance(uint32_t rank, uint32_t number) {
        const uint32_t first = program_.ranks[rank].first_threadblock;
        const tuccl_program_threadblock &own = program_.threadblocks[first + number];
        uint32_t &at = at_[first + number];
        if (at == own.steps)
            return false;
        const tuccl_program_step &step = program_.steps[own.first_step + at];
        // Checked first: one step may move 65,535 chunks.
        too_many_ = step.type != TUCCL_STEP_NOP &&
                    ranks_[rank].moves.size() + step.count > kMostMovesBefore;
        if (too_many_)
            return false;
        if (step.awaited_threadblock != TUCCL_NO_DEPENDENCE &&
            at_[first + static_cast<uint32_t>(step.awaited_threadblock)] <= step.awaited_step)
            return false;
        MovePlace in = {};
        MovePlace out = {};
        if (tuccl_step_receives(step.type)) {
            in = message(rank, own.receive_connection, received_[first + number] + 1);
            const auto found = when_.find({rank, own.receive_connection, in.ordinal});
            if (found == when_.end() || found->second >= round_)
                return false;
            received_[first + number]++;
            in.per_tile = per_tile_[{rank, own.receive_connection}];
        }
        if (tuccl_step_sends(step.type)) {
            const auto peer = static_cast<uint32_t>(own.send_peer);
            out = message(peer, own.send_connection, ++sent_[first + number]);
            out.per_tile = static_cast<uint8_t>(messages_[first + number]);
            per_tile_[{peer, own.send_connection}] = out.per_tile;
            when_[{peer, own.send_connection, out.ordinal}] = round_;
        }
        add_moves(rank, step, in, out);
        at++;
        return true;
    }

    static MovePlace message(uint32_t rank, uint32_t connection, uint32_t ordinal) {
        MovePlace place = {};
        place.is_message = true;
        place.rank = static_cast<uint8_t>(rank);
        place.connection = static_cast<uint16_t>(connection);
        place.ordinal = static_cast<uint8_t>(ordinal);
        return place;
    }

    void add_moves(uint32_t rank, const tuccl_program_step &step, MovePlace in, MovePlace out) {
        if (step.type == TUCCL_STEP_NOP)
            return;
        const bool adds = step.type >= TUCCL_STEP_RRC && step.type <= TUCCL_STEP_RE;
        const bool completes = (step.flags & TUCCL_STEP_COMPLETES) != 0;
        for (uint32_t i = 0; i < step.count; i++) {
            Move move = {{}, {}, adds, completes, round_};
            if (tuccl_step_reads(step.type))
                move.inputs.push_back(chunk_at(step.source_buffer, step.source + i));
            const MovePlace target = chunk_at(step.destination_buffer, step.destination + i);
            if (step.type == TUCCL_STEP_RE)
                move.inputs.push_back(target);
            in.chunk = out.chunk = i;
            if (tuccl_step_receives(step.type))
                move.inputs.push_back(in);
            if (tuccl_step_sends(step.type))
                move.outputs.push_back(out);
            if (tuccl_step_writes(step.type))
                move.outputs.push_back(target);
            ranks_[rank].moves.push_back(move);
        }
    }

    const tuccl_program &program_;
    std::vector<uint32_t> at_;
    std::vector<uint32_t> sent_;
    std::vector<uint32_t> received_;
    std::vector<uint32_t> messages_;                   // That a threadblock sends.
    std::map<std::array<uint32_t, 3>, uint32_t> when_; // Rank, connection, ordinal.
    std::map<std::pair<uint32_t, uint32_t>, uint8_t> per_tile_;
    std::vector<RankMoves> ranks_;
    uint32_t round_ = 0;
    bool too_many_ = false;
};

// Combines moves into fewer ones with the same effect on memory and messages.
class Joining {
  public:
    Joining(const tuccl_program &program, uint32_t rank, uint64_t comparisons,
            std::vector<Move> *moves)
        : program_(program), rank_(rank), comparisons_left_(comparisons), moves_(*moves) {
    }

    // False if the comparisons were used up.
    bool run() {
        for (size_t i = 0; i < moves_.size() && comparisons_left_ > 0; i++)
            while (absorb(&i)) {
            }
        for (size_t i = 0; i < moves_.size() && comparisons_left_ > 0; i++)
            if (give_to_earlier(i))
                i--;
        drop_unread();
        sort();
        group();
        mark_ends();
        return comparisons_left_ > 0;
    }
    uint64_t comparisons_left() const {
        return comparisons_left_;
    }

  private:
    // Position of a chunk in an in-place call, where input and output share memory.
    uint32_t in_place(const MovePlace &place) const {
        const uint32_t part = rank_ * program_.header->chunks;
        const bool input = place.buffer == TUCCL_BUFFER_INPUT;
        const bool moves =
            program_.header->operation == (input ? TUCCL_ALL_GATHER : TUCCL_REDUCE_SCATTER);
        return place.chunk + (moves ? part : 0);
    }
    static bool same(const MovePlace &first, const MovePlace &second) {
        return !first.is_message && !second.is_message && first.buffer == second.buffer &&
               first.chunk == second.chunk;
    }
    bool overlap(const MovePlace &first, const MovePlace &second) const {
        comparisons_left_ -= comparisons_left_ > 0 ? 1 : 0;
        if (first.is_message || second.is_message)
            return false;
        if (same(first, second))
            return true;
        return first.buffer != TUCCL_BUFFER_SCRATCH && second.buffer != TUCCL_BUFFER_SCRATCH &&
               in_place(first) == in_place(second);
    }
    bool touches(const std::vector<MovePlace> &places, const MovePlace &first) const {
        return std::any_of(places.begin(), places.end(),
                           [&](const MovePlace &place) { return overlap(place, first); });
    }
    bool touch(const std::vector<MovePlace> &places, const std::vector<MovePlace> &others) const {
        return std::any_of(others.begin(), others.end(),
                           [&](const MovePlace &second) { return touches(places, second); });
    }
    static bool holds(const std::vector<MovePlace> &places, const MovePlace &first) {
        return std::any_of(places.begin(), places.end(),
                           [&](const MovePlace &place) { return same(place, first); });
    }
    static bool any_message(const std::vector<MovePlace> &places) {
        return std::any_of(places.begin(), places.end(),
                           [](const MovePlace &place) { return place.is_message; });
    }

    // Returns whether no later move reads a place before it is overwritten.
    bool is_dead_after(size_t at, const MovePlace &place) const {
        if (holds(moves_[at].outputs, place))
            return true;
        for (size_t i = at + 1; i < moves_.size(); i++) {
            if (touches(moves_[i].inputs, place))
                return false;
            if (holds(moves_[i].outputs, place))
                return true;
        }
        return place.buffer == TUCCL_BUFFER_SCRATCH;
    }

    // Merges a move into a later one that alone reads its result.
    bool absorb(size_t *at) {
        Move &later = moves_[*at];
        for (size_t input = 0; input < later.inputs.size(); input++) {
            const MovePlace place = later.inputs[input];
            size_t writer = *at;
            while (!place.is_message && writer > 0 && !touches(moves_[writer - 1].outputs, place))
                writer--;
            if (place.is_message || writer == 0 || !may_absorb(writer - 1, *at, place))
                continue;
            const Move earlier = moves_[writer - 1];
            std::vector<MovePlace> inputs = earlier.inputs;
            for (size_t i = 0; i < later.inputs.size(); i++)
                if (i != input)
                    inputs.push_back(later.inputs[i]);
            later.inputs = inputs;
            later.adds |= earlier.adds;
            later.completes |= earlier.completes;
            moves_.erase(moves_.begin() + static_cast<ptrdiff_t>(writer) - 1);
            --*at;
            return true;
        }
        return false;
    }
    bool may_absorb(size_t earlier_at, size_t later_at, const MovePlace &place) const {
        const Move &earlier = moves_[earlier_at];
        const Move &later = moves_[later_at];
        const auto reads =
            std::count_if(later.inputs.begin(), later.inputs.end(),
                          [&](const MovePlace &input) { return overlap(input, place); });
        if (reads != 1 || earlier.outputs.size() != 1 || !same(earlier.outputs[0], place) ||
            earlier.inputs.size() + later.inputs.size() - 1 > kMostInputs ||
            (earlier.completes && later.adds) || !is_dead_after(later_at, place))
            return false;
        for (size_t i = earlier_at + 1; i < later_at; i++)
            if (touches(moves_[i].inputs, place) || touch(earlier.inputs, moves_[i].outputs))
                return false;
        return true;
    }

    // Moves outputs to an earlier move that already holds the value.
    bool give_to_earlier(size_t at) {
        const Move &later = moves_[at];
        if (later.inputs.size() != 1 || later.inputs[0].is_message)
            return false;
        const MovePlace place = later.inputs[0];
        for (size_t i = at; i-- > 0;) {
            Move &earlier = moves_[i];
            const bool writes = touches(earlier.outputs, place);
            const bool has = holds(earlier.outputs, place) ||
                             (!writes && !earlier.adds && same(earlier.inputs[0], place));
            if (has && may_do_earlier(i, at)) {
                earlier.outputs.insert(earlier.outputs.end(), later.outputs.begin(),
                                       later.outputs.end());
                moves_.erase(moves_.begin() + static_cast<ptrdiff_t>(at));
                return true;
            }
            if (writes)
                return false;
        }
        return false;
    }
    bool may_do_earlier(size_t earlier_at, size_t later_at) const {
        const Move &later = moves_[later_at];
        if (moves_[earlier_at].outputs.size() + later.outputs.size() > kMostOutputs ||
            touch(moves_[earlier_at].outputs, later.outputs))
            return false;
        for (size_t i = earlier_at + 1; i < later_at; i++)
            if (touch(moves_[i].inputs, later.outputs) || touch(moves_[i].outputs, later.outputs))
                return false;
        return true;
    }

    void drop_unread() {
        for (size_t i = moves_.size(); i-- > 0;) {
            std::vector<MovePlace> &outputs = moves_[i].outputs;
            for (size_t j = outputs.size(); j-- > 0;) {
                const MovePlace place = outputs[j];
                // A message is always received: its sender relies on it.
                if (place.is_message || place.buffer != TUCCL_BUFFER_SCRATCH ||
                    (outputs.size() == 1 && any_message(moves_[i].inputs)))
                    continue;
                outputs.erase(outputs.begin() + static_cast<ptrdiff_t>(j));
                if (!is_dead_after(i, place))
                    outputs.insert(outputs.begin() + static_cast<ptrdiff_t>(j), place);
            }
            if (outputs.empty())
                moves_.erase(moves_.begin() + static_cast<ptrdiff_t>(i));
        }
    }

    bool conflict(const Move &first, const Move &second) const {
        return touch(first.outputs, second.inputs) || touch(first.outputs, second.outputs) ||
               touch(first.inputs, second.outputs);
    }
    // Sends come first, since peers wait for them; moves that wait for a message come last.
    static uint32_t urgency(const Move &move) {
        return (any_message(move.outputs) ? 0 : 2) + (any_message(move.inputs) ? 1 : 0);
    }
    // Sorts by round and urgency, as far as memory dependences allow.
    void sort() {
        std::vector<Move> sorted;
        while (!moves_.empty()) {
            size_t best = 0;
            for (size_t i = 1; i < moves_.size(); i++) {
                const auto key = [&](size_t at) {
                    return std::pair(moves_[at].round, urgency(moves_[at]));
                };
                bool ready = key(i) < key(best);
                for (size_t j = 0; ready && j < i; j++)
                    ready = !conflict(moves_[j], moves_[i]);
                if (ready)
                    best = i;
            }
            sorted.push_back(moves_[best]);
            moves_.erase(moves_.begin() + static_cast<ptrdiff_t>(best));
        }
        moves_ = sorted;
    }

    // Merges adjacent independent moves, so that they load together.
    void group() {
        for (size_t i = 0; i + 1 < moves_.size();) {
            Move &move = moves_[i];
            const Move &next = moves_[i + 1];
            if (!may_group(move, next)) {
                i++;
                continue;
            }
            for (MovePlace output : next.outputs) {
                output.from = static_cast<uint8_t>(move.inputs.size());
                move.outputs.push_back(output);
            }
            move.inputs.push_back(next.inputs[0]);
            move.round = std::max(move.round, next.round);
            moves_.erase(moves_.begin() + static_cast<ptrdiff_t>(i) + 1);
        }
    }
    bool may_group(const Move &earlier, const Move &later) const {
        const bool sends = any_message(earlier.outputs) || any_message(later.outputs);
        const bool receives = any_message(earlier.inputs);
        return !earlier.adds && !later.adds && later.inputs.size() == 1 &&
               receives == any_message(later.inputs) &&
               !(receives && sends && earlier.round != later.round) &&
               earlier.inputs.size() < kMostInputs &&
               earlier.outputs.size() + later.outputs.size() <= kMostOutputs &&
               !touch(earlier.outputs, later.inputs) && !touch(earlier.outputs, later.outputs);
    }

    void mark_ends() {
        std::map<std::array<uint32_t, 3>, MovePlace *> last;
        for (Move &move : moves_)
            for (MovePlace &place : move.outputs)
                if (place.is_message)
                    last[{place.rank, place.connection, place.ordinal}] = &place;
        for (const auto &[key, place] : last)
            place->ends = true;
    }

    const tuccl_program &program_;
    const uint32_t rank_;
    mutable uint64_t comparisons_left_;
    std::vector<Move> &moves_;
};

// Returns whether all ranks' moves complete; sets `all_receive_from_all`.
bool rehearse(const std::vector<RankMoves> &ranks, bool *all_receive_from_all) {
    using Key = std::array<uint32_t, 4>;
    const auto key = [](const MovePlace &place) {
        return Key{place.rank, place.connection, place.ordinal, place.chunk};
    };
    std::map<Key, uint32_t> sent; // Ranks that each message's sender had received from.
    std::vector<size_t> at(ranks.size());
    std::vector<uint32_t> received_from(ranks.size());
    bool advanced = true;
    while (advanced) {
        advanced = false;
        for (uint32_t rank = 0; rank < ranks.size(); rank++) {
            received_from[rank] |= 1U << rank;
            for (; at[rank] < ranks[rank].moves.size(); at[rank]++, advanced = true) {
                const Move &move = ranks[rank].moves[at[rank]];
                uint32_t senders = received_from[rank];
                bool has_arrived = true;
                for (const MovePlace &place : move.inputs)
                    if (place.is_message) {
                        const auto found = sent.find(key(place));
                        has_arrived &= found != sent.end();
                        senders |= has_arrived ? found->second : 0;
                    }
                if (!has_arrived)
                    break;
                received_from[rank] = senders;
                for (const MovePlace &place : move.outputs)
                    if (place.is_message)
                        sent[key(place)] = senders;
            }
        }
    }
    *all_receive_from_all = true;
    for (uint32_t rank = 0; rank < ranks.size(); rank++) {
        if (at[rank] != ranks[rank].moves.size())
            return false;
        *all_receive_from_all &= received_from[rank] == UINT32_MAX >> (32 - ranks.size());
    }
    return true;
}

} // namespace

MovesNeed need_of(const Moves &moves) {
    MovesNeed need = {};
    for (const RankMoves &rank : moves.ranks) {
        uint32_t operands = 0;
        for (const Move &move : rank.moves) {
            for (const auto *places : {&move.inputs, &move.outputs})
                for (const MovePlace &place : *places)
                    if (!place.is_message && place.buffer == TUCCL_BUFFER_SCRATCH)
                        need.scratch_chunks = std::max(need.scratch_chunks, place.chunk + 1);
            operands += static_cast<uint32_t>(move.inputs.size() + move.outputs.size());
        }
        need.operands = std::max(need.operands, operands);
        need.moves = std::max(need.moves, static_cast<uint32_t>(rank.moves.size()));
        need.links = std::max(need.links,
                              static_cast<uint32_t>(rank.outgoing.size() + rank.incoming.size()));
        for (const Link &link : rank.outgoing)
            need.messages = std::max<uint32_t>(need.messages, link.per_tile);
    }
    return need;
}

Moves moves_of(const tuccl_program &program, uint64_t *comparisons) {
    Rounds rounds(program);
    if (*comparisons == 0 || !rounds.run())
        return {};
    Moves moves = {std::move(rounds.ranks()), false};
    for (uint32_t rank = 0; rank < moves.ranks.size(); rank++) {
        Joining joining(program, rank, *comparisons, &moves.ranks[rank].moves);
        const bool is_done = joining.run();
        *comparisons = joining.comparisons_left();
        if (!is_done)
            return {};
    }
    return rehearse(moves.ranks, &moves.all_receive_from_all) ? moves : Moves{};
}

} // namespace tuccl
