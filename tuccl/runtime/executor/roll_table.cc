#include "roll_table.h"

#include <algorithm>

namespace tuccl {

bool RollTable::expect(const RollName &id, const Digest &key) {
    if (ids_.size() >= kMostIds) {
        auto oldest = ids_.end();
        for (auto each = ids_.begin(); each != ids_.end(); ++each)
            if ((oldest == ids_.end() || each->second.order < oldest->second.order) &&
                !is_used(each->first))
                oldest = each;
        if (oldest == ids_.end())
            return false;
        ids_.erase(oldest);
    }
    ids_[id] = {key, next_order_++};
    return true;
}

bool RollTable::is_used(const RollName &id) const {
    const auto roll = rolls_.lower_bound({id, RollName{}});
    return roll != rolls_.end() && roll->first.first == id;
}

const Digest *RollTable::key_of(const RollName &id) const {
    const auto found = ids_.find(id);
    return found != ids_.end() ? &found->second.key : nullptr;
}

void RollTable::enter(Connection connection, const RollMessage &message) {
    if (message.rank >= kMostNetworkRanks) {
        send(connection, RollKind::kRefused);
        close(connection);
        return;
    }
    const auto at = rolls_.try_emplace({message.id, message.roll}).first;
    Roll &roll = at->second;
    if (roll.is_concluded || roll.ranks != 0) {
        if (!roll.is_concluded) // NCCL starts a communicator that has started elsewhere.
            conclude(&roll, false);
        send(connection, RollKind::kRefused);
        close(connection);
        return;
    }
    const auto before = roll.entries.find(message.rank);
    if (before != roll.entries.end()) {
        members_.erase(before->second.connection);
        close(before->second.connection);
    }
    roll.entries[message.rank] = {connection, message.mark, message.release, false};
    members_.insert_or_assign(connection, Member{at, message.rank});
    send(connection, RollKind::kEntered);
}

void RollTable::receive(Connection connection, const RollMessage &message, Clock::time_point now) {
    const auto found = members_.find(connection);
    if (found == members_.end())
        return;
    const Member member = found->second;
    if (message.kind == RollKind::kAsk && !member.roll->second.entries[member.rank].has_asked) {
        ask(member, message.ranks, now);
        return;
    }
    // Whatever else ends the connection. A goodbye before the answer takes the entry back.
    leave(connection, message.kind == RollKind::kGoodbye);
    close(connection);
}

void RollTable::lose(Connection connection) {
    leave(connection, false);
}

void RollTable::ask(const Member &member, uint32_t ranks, Clock::time_point now) {
    Roll &roll = member.roll->second;
    Entry &entry = roll.entries[member.rank];
    entry.has_asked = true;
    roll.asked++;
    if (roll.is_concluded) {
        answer(roll, entry.connection);
        return;
    }
    if (roll.ranks == 0) {
        roll.ranks = ranks;
        roll.deadline = now + kPatienceWithQuestions;
    }
    if (roll.ranks != ranks || roll.entries.size() != ranks)
        conclude(&roll, false);
    else if (roll.asked == ranks)
        conclude(&roll, true);
}

// The numbers are for all the same, but for a rank that asks about another number of ranks.
void RollTable::conclude(Roll *roll, bool is_complete) {
    roll->is_concluded = true;
    roll->is_complete = is_complete;
    roll->marks_agree = true;
    const Entry &first = roll->entries.begin()->second;
    for (const auto &[rank, entry] : roll->entries)
        roll->marks_agree &= entry.mark == first.mark && entry.release == first.release;
    // Where all entered, those who did not ask in time are the absent.
    const auto entered = static_cast<uint32_t>(roll->entries.size());
    roll->present = is_complete || entered < roll->ranks ? entered : roll->asked;
    if (!is_complete && roll->present >= roll->ranks)
        roll->present = roll->ranks > 0 ? roll->ranks - 1 : 0;
    for (const auto &[rank, entry] : roll->entries)
        if (entry.has_asked)
            answer(*roll, entry.connection);
}

void RollTable::answer(const Roll &roll, Connection connection) {
    RollMessage message = {};
    message.kind = RollKind::kAnswer;
    message.ranks = roll.is_complete ? roll.ranks : 0;
    message.mark = roll.marks_agree ? 1 : 0;
    message.attempt = roll.present;
    events_.push_back({connection, message});
}

void RollTable::leave(Connection connection, bool is_well) {
    const auto found = members_.find(connection);
    if (found == members_.end())
        return;
    const auto at = found->second.roll;
    Roll &roll = at->second;
    roll.entries.erase(found->second.rank);
    members_.erase(found);
    if (roll.entries.empty()) {
        rolls_.erase(at);
        return;
    }
    if (!roll.is_concluded && roll.ranks != 0)
        conclude(&roll, false);
    if (!roll.is_complete || is_well || roll.is_left)
        return;
    roll.is_left = true;
    for (const auto &[rank, entry] : roll.entries)
        send(entry.connection, RollKind::kLeft);
}

void RollTable::expire(Clock::time_point now) {
    for (auto &[key, roll] : rolls_)
        if (!roll.is_concluded && roll.ranks != 0 && roll.deadline <= now)
            conclude(&roll, false);
}

bool RollTable::is_waiting() const {
    return std::any_of(rolls_.begin(), rolls_.end(), [](const auto &each) {
        return !each.second.is_concluded && each.second.ranks != 0;
    });
}

std::vector<RollEvent> RollTable::take_events() {
    std::vector<RollEvent> events;
    events.swap(events_);
    return events;
}

void RollTable::send(Connection to, RollKind kind) {
    RollMessage message = {};
    message.kind = kind;
    events_.push_back({to, message});
}

void RollTable::close(Connection connection) {
    events_.push_back({connection, std::nullopt});
}

} // namespace tuccl
