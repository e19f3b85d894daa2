#include "guard_protocol.h"

#include "executor.h"

#include <algorithm>
#include <iterator>

namespace tuccl {

namespace {

// A pace of the job's that so many calls have shown is trusted for a multiple of them.
constexpr uint64_t kGoodFor = 2;

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
        slower_us_ += key.reserved_us; // It may have cost that.
        reserved_us_ -= key.reserved_us;
        key.reserved_us = 0.0;
        enter(&key, Phase::kRest, pace_.familiar, 0);
        return;
    }
}

// Sizes that run otherwise than the table says stay known. Returns false if no other one is at
// rest.
bool GuardProtocol::forget_one() {
    auto oldest = keys_.end();
    for (auto each = keys_.begin(); each != keys_.end(); ++each)
        if (each->second.phase == Phase::kRest && each->second.choice == 0 &&
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

// What calls of a trial may take more than the choice's: half of its time if an arm's is not known.
double GuardProtocol::price_of(const Key &key, const GuardTrial &trial) const {
    const float choice_us = key.us[key.choice];
    const auto arms = static_cast<uint32_t>(trial.size());
    const auto calls = static_cast<float>(timed_calls(trial) / arms + 1);
    double price_us = 0.0;
    bool connects = false;
    for (const uint8_t arm : trial)
        if (arm != key.choice) {
            const bool is_known = key.us[arm] > 0.0F;
            connects = connects || (!is_known && (key.arms.connects >> arm & 1) != 0);
            price_us += static_cast<double>(
                calls * (is_known ? std::max(key.us[arm] - choice_us, 0.0F) : choice_us / 2.0F));
        }
    return price_us + (connects ? pace_.connect_us : 0.0);
}

// Since the last report the job is taken to go on at its pace, for as long as that is trusted.
bool GuardProtocol::can_afford(double price_us) const {
    if (elapsed_call_ == 0 || price_us <= 0.0)
        return elapsed_call_ != 0;
    const double calls = static_cast<double>(std::min(calls_, kGoodFor * elapsed_call_)) /
                         static_cast<double>(elapsed_call_);
    return slower_us_ + reserved_us_ + price_us <=
           pace_.share * calls * static_cast<double>(elapsed_us_);
}

bool GuardProtocol::may_race(const Key &key, uint8_t arm) const {
    return arm != key.choice && (key.refused >> arm & 1) == 0;
}

// The choice and the next arms by the order of the prior; after the last one the first again. Arms
// for which the ranks may have to be connected race among themselves: others need not wait for what
// that costs.
void GuardProtocol::choose_field(Key *key) const {
    if (key->next >= key->arms.count)
        key->next = 0;
    key->field = {key->choice};
    bool connects = false;
    for (; key->next < key->arms.count && key->field.size() <= pace_.heat; key->next++) {
        if (!may_race(*key, key->next))
            continue;
        const bool own = (key->arms.connects >> key->next & 1) != 0;
        if (key->field.size() > 1 && own != connects)
            break;
        connects = own;
        key->field.push_back(key->next);
    }
}

// A protocol that learns has a few arms at a time race with the choice, by successive halving: what
// the prior has first is decided before the others cost anything. Then it holds the winner against
// NCCL's own choice now and then.
GuardTrial GuardProtocol::next_race(Key *key) const {
    const auto nccl = static_cast<uint8_t>(key->arms.nccl);
    const bool have_raced = key->races > 0 && key->next >= key->arms.count;
    if (key->field.empty() && have_raced && key->choice != nccl)
        return {key->choice, nccl};
    if (key->field.empty())
        choose_field(key);
    return key->field;
}

// The guard compares arm 0 with NCCL's own choice. One that learns times the choice alone first,
// and if it cannot afford a race and does not know how much of the job has passed: that costs
// nothing.
void GuardProtocol::choose_trial(Key *key) {
    if (!pace_.learns) {
        key->trial = {0, static_cast<uint8_t>(key->arms.nccl)};
        return;
    }
    key->trial = next_race(key);
    const double price_us = price_of(*key, key->trial);
    if (key->us[key->choice] > 0.0F && can_afford(price_us)) {
        key->reserved_us = price_us;
        reserved_us_ += price_us;
    } else {
        key->trial = {key->choice};
    }
}

// Rests on until the share suffices for a race, if the job goes on at its pace; no longer than that
// pace is good for.
bool GuardProtocol::waits_for_share(Key *key) {
    if (!pace_.learns || !(key->us[key->choice] > 0.0F))
        return false;
    const double price_us = price_of(*key, next_race(key));
    const uint64_t good_until = kGoodFor * elapsed_call_;
    if (calls_ >= good_until || can_afford(price_us))
        return false;
    const double needed_us = (slower_us_ + reserved_us_ + price_us) / pace_.share;
    const double needed_calls =
        needed_us / static_cast<double>(elapsed_us_) * static_cast<double>(elapsed_call_);
    const double left =
        std::min(needed_calls, static_cast<double>(good_until)) - static_cast<double>(calls_);
    enter(key, Phase::kRest, 1, std::max(static_cast<uint32_t>(left), 1U));
    return true;
}

uint32_t GuardProtocol::timed_calls(const GuardTrial &trial) const {
    constexpr uint32_t kAlone = 4; // Of the choice.
    const auto arms = static_cast<uint32_t>(trial.size());
    const uint32_t most = 2 * pace_.pairs;
    if (arms == 1)
        return std::min(most, kAlone);
    // Two are to be told apart, more are to be halved.
    return arms * std::max(most / (arms > 2 ? 2 * arms : arms), 1U);
}

GuardProtocol::Turn GuardProtocol::next(const GuardKey &named, const GuardArms &arms) {
    Turn turn;
    turn.call = ++calls_;
    auto found = keys_.find(named);
    if (has_ended_ || (found == keys_.end() && keys_.size() >= pace_.keys && !forget_one()))
        return turn;
    if (found == keys_.end()) {
        found = keys_.emplace(named, Key{}).first;
        found->second.arms = arms;
        found->second.least = pace_.familiar;
        found->second.next_rest = pace_.first_rest;
    }
    Key *key = turn.key = &found->second;
    key->last = calls_;
    key->calls++;
    if (key->made >= key->least && calls_ >= key->until)
        switch (key->phase) {
        case Phase::kRest:
            if (waits_for_share(key) || !take_slot(key))
                break;
            choose_trial(key);
            enter(key, Phase::kTrial,
                  static_cast<uint32_t>(key->trial.size()) + timed_calls(key->trial), 0);
            turn.begins = true;
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

// Twice as long as the last one; no shorter than `least`.
uint32_t GuardProtocol::rest_after(Key *key, uint32_t least) {
    const uint32_t rest = std::max(key->next_rest, least);
    key->next_rest = std::min(2 * rest, pace_.most_rest);
    return rest;
}

void GuardProtocol::settle(const Turn &turn, const Concluded &concluded) {
    Key *key = turn.key;
    const Conclusion conclusion = concluded.conclusion;
    if (conclusion == Conclusion::kNone || concluded.has_waited)
        doubled_ = std::min(doubled_ + 1, pace_.most_doubled);
    if (conclusion == Conclusion::kNone && ++key->tries < pace_.tries)
        return enter_apart(key, Phase::kPause); // The times may be there then.
    key->tries = 0;
    slots_ &= ~(1U << key->slot);
    reserved_us_ -= key->reserved_us;
    slower_us_ += conclusion == Conclusion::kTimed ? static_cast<double>(concluded.slower_us)
                                                   : key->reserved_us;
    key->reserved_us = 0.0;
    if (concluded.elapsed_us > elapsed_us_) {
        elapsed_us_ = concluded.elapsed_us;
        elapsed_call_ = concluded.call;
    }
    if (conclusion == Conclusion::kApart)
        has_ended_ = true;
    if (conclusion != Conclusion::kTimed)
        return enter(key, Phase::kRest, rest_after(key, 0), 0);
    key->refused |= concluded.refused;
    for (size_t i = 0; i < key->trial.size(); i++)
        key->us[key->trial[i]] = concluded.us[i];
    if (pace_.learns)
        return enter(key, Phase::kRest, settle_race(key, concluded), 0);
    settle_pair(key, concluded);
    enter(key, Phase::kRest, rest_after(key, pace_.concluded_rest), 0);
}

// An entry that is out comes back if it is as fast.
void GuardProtocol::settle_pair(Key *key, const Concluded &concluded) {
    const bool loses = key->is_out() ? !concluded.first_stays : concluded.first_loses;
    key->choice = loses ? key->trial[1] : key->trial[0];
}

// Returns the calls of the key's rest.
uint32_t GuardProtocol::settle_race(Key *key, const Concluded &concluded) {
    // The choice was timed alone: its heat is still to be run, unless there is nothing to race
    // with.
    if (key->trial.size() == 1 && key->field.size() != 1)
        return 0;
    if (key->field.empty()) { // The choice was held against NCCL's own.
        settle_pair(key, concluded);
        const bool has_drifted =
            key->choice == key->arms.nccl || key->us[key->choice] > pace_.drift * key->settled_us;
        if (!has_drifted)
            return rest_after(key, pace_.concluded_rest);
        key->races = 0;
        key->next = 0;
        return 0;
    }
    GuardTrial left(key->field.begin() + 1, key->field.end());
    left.erase(std::remove_if(left.begin(), left.end(),
                              [key](uint8_t arm) { return (key->refused >> arm & 1) != 0; }),
               left.end());
    // Ranks sort alike: equal times stay in the order of the prior.
    std::stable_sort(left.begin(), left.end(), [key](uint8_t first, uint8_t second) {
        return key->us[first] < key->us[second];
    });
    if (key->field.size() > 2 && !left.empty()) {
        left.resize(std::max<size_t>(left.size() / 2, 1));
        key->field.resize(1);
        key->field.insert(key->field.end(), left.begin(), left.end());
        return 0;
    }
    if (!left.empty() && concluded.first_loses)
        key->choice = left.front();
    key->field.clear();
    key->races++;
    key->settled_us = key->us[key->choice];
    for (uint8_t arm = key->next; arm < key->arms.count; arm++)
        if (may_race(*key, arm))
            return 0;
    key->next = static_cast<uint8_t>(key->arms.count);
    return rest_after(key, pace_.concluded_rest);
}

GuardProtocol::Run GuardProtocol::run_of(const Turn &turn) const {
    if (has_ended_)
        return {};
    if (turn.key == nullptr)
        return {0, std::nullopt};
    const Key &key = *turn.key;
    if (key.phase != Phase::kTrial)
        return {key.choice, std::nullopt};
    // Calls that are not timed come first, one of each arm: it may connect ranks.
    const auto arms = static_cast<uint32_t>(key.trial.size());
    const uint32_t call = key.made - 1;
    if (call < arms)
        return {key.trial[call], std::nullopt, true};
    return {key.trial[place_in_trial(call - arms, arms)], call - arms};
}

std::optional<uint32_t> GuardProtocol::choice_of(const GuardKey &key) const {
    if (has_ended_)
        return std::nullopt;
    const auto found = keys_.find(key);
    return found != keys_.end() ? found->second.choice : 0U;
}

GuardReport report_of(const GuardKey &key, const GuardTrial &trial, uint64_t call) {
    GuardReport report = {};
    report.magic = kReportMagic;
    report.operation = key.operation;
    report.bytes = key.bytes;
    report.call = call;
    for (const uint8_t arm : trial)
        report.trial = report.trial << 4 | (uint64_t{arm} + 1);
    return report;
}

Concluded conclude(const GuardReport &mine, const std::vector<GuardReport> &all, uint32_t arms,
                   uint32_t calls) {
    const bool counts_last = last_rank_counts(mine.operation);
    Times times_us(mine.times_us, mine.times_us + calls);
    Concluded concluded;
    concluded.elapsed_us = mine.elapsed_us;
    concluded.call = mine.call;
    bool is_ready = true;
    float first_us = 0.0F;
    for (const GuardReport &each : all) {
        if (each.magic != kReportMagic || each.operation != mine.operation ||
            each.bytes != mine.bytes || each.call != mine.call || each.trial != mine.trial) {
            concluded = {};
            concluded.conclusion = Conclusion::kApart;
            return concluded;
        }
        for (size_t i = 0; i < times_us.size(); i++)
            times_us[i] = counts_last ? std::min(times_us[i], each.times_us[i])
                                      : std::max(times_us[i], each.times_us[i]);
        concluded.elapsed_us = std::min(concluded.elapsed_us, each.elapsed_us);
        concluded.refused |= each.refused;
        concluded.has_waited = concluded.has_waited || each.has_waited != 0;
        first_us = std::max(first_us, each.first_us);
        is_ready = is_ready && each.is_ready != 0;
    }
    if (!is_ready ||
        std::any_of(times_us.begin(), times_us.end(), [](float time) { return !(time > 0.0F); }))
        return concluded;
    concluded.conclusion = Conclusion::kTimed;
    std::array<Times, kMostArms> of_arm;
    for (uint32_t i = 0; i < calls; i++)
        of_arm[place_in_trial(i, arms)].push_back(times_us[i]);
    for (uint32_t arm = 0; arm < arms; arm++)
        concluded.us[arm] = median_of(of_arm[arm]);
    for (uint32_t arm = 1; arm < arms; arm++)
        for (const float time_us : of_arm[arm])
            concluded.slower_us += std::max(time_us - concluded.us[0], 0.0F);
    concluded.slower_us *= 1.0F + static_cast<float>(arms) / static_cast<float>(calls);
    concluded.slower_us += first_us;
    if (arms == 2) {
        const CheckPairs pairs(times_us);
        concluded.first_loses = pairs.entry_loses();
        concluded.first_stays = pairs.entry_stays();
    }
    return concluded;
}

} // namespace tuccl
