#include "guard_protocol.h"

#include "executor.h"

#include <algorithm>
#include <iterator>

namespace tuccl {

namespace {

constexpr uint32_t kReportMagic = 0x44475554; // "TUGD"

// A rank that comes early waits in the call for the last one, whose time is the call's. With a root
// ranks leave at different times, so that the slowest counts, waiting included.
bool last_rank_counts(uint32_t operation) {
    return operation == TUCCL_ALL_REDUCE || operation == TUCCL_ALL_GATHER ||
           operation == TUCCL_REDUCE_SCATTER || operation == TUCCL_ALLTOALL;
}

} // namespace

void GuardProtocol::enter(Key *key, Phase phase, uint32_t least, uint32_t of_all) {
    key->phase = phase;
    key->made = 0;
    key->least = least;
    key->until = calls_ + of_all;
}

void GuardProtocol::enter_apart(Key *key, Phase phase) {
    enter(key, phase, pace_.apart << doubled_, pace_.apart_of_all << doubled_);
}

// The job may call a size a few times and never again.
void GuardProtocol::end_idle_trial() {
    for (auto &[named, key] : keys_) {
        if (key.phase == Phase::kRest || calls_ - key.last <= pace_.idle)
            continue;
        slots_ &= ~(1U << key.slot);
        key.tries = 0;
        enter(&key, Phase::kRest, pace_.familiar, 0);
        return;
    }
}

// Entries that are out stay known. Returns false if no other one is at rest.
bool GuardProtocol::forget_one() {
    auto oldest = keys_.end();
    for (auto each = keys_.begin(); each != keys_.end(); ++each)
        if (each->second.phase == Phase::kRest && !each->second.is_out &&
            (oldest == keys_.end() || each->second.last < oldest->second.last))
            oldest = each;
    if (oldest == keys_.end())
        return false;
    keys_.erase(oldest);
    return true;
}

bool GuardProtocol::take_slot(Key *key) {
    if (slots_ == (1ULL << pace_.slots) - 1)
        end_idle_trial();
    for (uint32_t slot = 0; slot < pace_.slots; slot++) {
        if ((slots_ >> slot & 1) != 0)
            continue;
        slots_ |= 1U << slot;
        key->slot = slot;
        return true;
    }
    return false;
}

GuardProtocol::Turn GuardProtocol::next(const GuardKey &named) {
    Turn turn;
    turn.call = ++calls_;
    auto found = keys_.find(named);
    if (has_ended_ || (found == keys_.end() && keys_.size() >= pace_.keys && !forget_one()))
        return turn;
    if (found == keys_.end()) {
        found = keys_.emplace(named, Key{}).first;
        found->second.least = pace_.familiar;
        found->second.next_rest = pace_.first_rest;
    }
    Key *key = turn.key = &found->second;
    key->last = calls_;
    if (key->made >= key->least && calls_ >= key->until)
        switch (key->phase) {
        case Phase::kRest:
            if (take_slot(key))
                enter(key, Phase::kTrial, kWarmUp + 2 * pace_.pairs, 0);
            break;
        case Phase::kTrial:
            enter_apart(key, Phase::kPause);
            break;
        case Phase::kPause:
            turn.reports = true;
            enter_apart(key, Phase::kAsked);
            break;
        case Phase::kAsked:
            turn.takes = true;
            break;
        }
    turn.slot = key->slot;
    key->made++;
    return turn;
}

void GuardProtocol::settle(const Turn &turn, Conclusion conclusion, bool has_waited) {
    Key *key = turn.key;
    if (conclusion == Conclusion::kNone || has_waited)
        doubled_ = std::min(doubled_ + 1, pace_.most_doubled);
    if (conclusion == Conclusion::kNone && ++key->tries < pace_.tries)
        return enter_apart(key, Phase::kPause); // The times may be there then.
    key->tries = 0;
    slots_ &= ~(1U << key->slot);
    if (conclusion == Conclusion::kApart)
        has_ended_ = true;
    else if (conclusion != Conclusion::kNone)
        key->is_out = conclusion == Conclusion::kOut;
    const uint32_t rest = conclusion == Conclusion::kNone
                              ? key->next_rest
                              : std::max(key->next_rest, pace_.concluded_rest);
    enter(key, Phase::kRest, rest, 0);
    key->next_rest = std::min(2 * rest, pace_.most_rest);
}

GuardProtocol::Run GuardProtocol::run_of(const Turn &turn) const {
    if (has_ended_)
        return {false, std::nullopt};
    if (turn.key == nullptr)
        return {true, std::nullopt};
    if (turn.key->phase != Phase::kTrial)
        return {!turn.key->is_out, std::nullopt};
    const uint32_t call = turn.key->made - 1;
    if (call < kWarmUp)
        return {call == 0, std::nullopt};
    return {CheckPairs::is_entry(call - kWarmUp), call - kWarmUp};
}

bool GuardProtocol::is_out(const GuardKey &key) const {
    const auto found = keys_.find(key);
    return has_ended_ || (found != keys_.end() && found->second.is_out);
}

GuardReport report_of(const GuardKey &key, uint64_t call) {
    GuardReport report = {};
    report.magic = kReportMagic;
    report.operation = key.operation;
    report.bytes = key.bytes;
    report.call = call;
    return report;
}

Concluded conclude(const GuardReport &mine, const std::vector<GuardReport> &all, bool is_out) {
    const bool counts_last = last_rank_counts(mine.operation);
    Times times_us(std::begin(mine.times_us), std::end(mine.times_us));
    for (const GuardReport &each : all) {
        if (each.magic != kReportMagic || each.operation != mine.operation ||
            each.bytes != mine.bytes || each.call != mine.call)
            return {Conclusion::kApart, 0.0F, 0.0F, false};
        for (size_t i = 0; i < times_us.size(); i++)
            times_us[i] = counts_last ? std::min(times_us[i], each.times_us[i])
                                      : std::max(times_us[i], each.times_us[i]);
    }
    Concluded concluded;
    concluded.has_waited = std::any_of(
        all.begin(), all.end(), [](const GuardReport &each) { return each.has_waited != 0; });
    if (std::any_of(all.begin(), all.end(),
                    [](const GuardReport &each) { return each.is_ready == 0; }) ||
        std::any_of(times_us.begin(), times_us.end(), [](float time) { return !(time > 0.0F); }))
        return concluded;
    const CheckPairs pairs(times_us);
    const bool loses = is_out ? !pairs.entry_stays() : pairs.entry_loses();
    concluded.conclusion = loses ? Conclusion::kOut : Conclusion::kIn;
    concluded.entry_us = median_of(pairs.entry_us);
    concluded.nccl_us = median_of(pairs.nccl_us);
    return concluded;
}

} // namespace tuccl
