// Stages on host threads: the executor's own interpreter, a thread for each rank, in memory that
// processes share.
#ifndef TUCCL_TEST_STAND_IN_STAGES_H
#define TUCCL_TEST_STAND_IN_STAGES_H

#include "interpreter_stages.h"
#include "stand_in_shared.h"
#include "statement_plan.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace stand_in {

// A block of one thread; blocks run one after the other.
class OneThread {
  public:
    OneThread(uint32_t block, uint32_t blocks) : block_(block), blocks_(blocks) {
    }
    static uint32_t thread() {
        return 0;
    }
    static uint32_t threads() {
        return 1;
    }
    uint32_t block() const {
        return block_;
    }
    uint32_t blocks() const {
        return blocks_;
    }
    void barrier() const {
    }

  private:
    uint32_t block_;
    uint32_t blocks_;
};

// The area of a rank: its state, and lines of both protocols, of which LL's serve for LL128's.
class StageArea {
  public:
    StageArea() { // Shared memory is zero, and what nobody touches takes no room.
    }
    static constexpr size_t kHalfBytes = size_t{1} << 18;

    char *first() {
        return bytes_.data();
    }
    static tuccl_staging staging() {
        tuccl_staging staging = {};
        staging.half_bytes[TUCCL_LL] = kHalfBytes;
        return staging;
    }

  private:
    alignas(64) std::array<char, tuccl::kProgramLlFirst + 2 * kHalfBytes> bytes_;
};

struct StageAreas {
    StageAreas() {
    }
    std::array<StageArea, TUCCL_MAX_RANKS> of_rank;
};

inline void run_stage(const std::vector<tuccl_stage_step> &steps, StageAreas *areas, uint32_t rank,
                      uint32_t ranks, tuccl_stage_call call, const uint32_t *abort) {
    uint32_t arrivals = 0;
    for (uint32_t i = 0; i < call.steps; i++) {
        const tuccl_stage_step &step = steps.at(call.first_step + i);
        if (step.type != TUCCL_STEP_CPY && step.type != TUCCL_STEP_RE)
            arrivals = std::max(arrivals, step.line + step.chunks);
    }
    if (arrivals * 2 * call.bytes > StageArea::kHalfBytes) {
        std::fprintf(stderr, "messages of a stage are too large for the memory of a test\n");
        std::abort();
    }
    call.protocol = TUCCL_LL;
    tuccl::StageLaunch launch = tuccl::stage_launch(StageArea::staging(), call, steps.data());
    launch.plan.rank = rank;
    launch.plan.ranks = ranks;
    launch.plan.abort = abort;
    for (uint32_t peer = 0; peer < ranks; peer++)
        launch.plan.area[peer] = areas->of_rank.at(peer).first();
    launch.plan.own_area = launch.plan.area[rank];
    for (uint32_t block = 0; block < call.nchannels; block++)
        tuccl::StageRunner<tuccl::LlWire, tuccl::AnyPair, OneThread>(
            launch, OneThread(block, call.nchannels))
            .run();
}

} // namespace stand_in

#endif
