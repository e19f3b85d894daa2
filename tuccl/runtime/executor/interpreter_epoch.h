// A launch of programs: its range of sequence numbers, how its threads wait, and how it ends.
#ifndef TUCCL_EXECUTOR_INTERPRETER_EPOCH_H
#define TUCCL_EXECUTOR_INTERPRETER_EPOCH_H

#include "interpreter_memory.h"
#include "program_staging.h"

namespace tuccl {

__device__ __forceinline__ ProgramState *state_of(char *area) {
    return reinterpret_cast<ProgramState *>(area);
}

template <typename Machine> class Epoch {
  public:
    __device__ __forceinline__ Epoch(const ProgramLaunch &launch, const Machine &machine)
        : launch_(launch), machine_(machine), state_(state_of(launch.own_area)),
          base_(state_->base), number_(state_->epoch + 1), renewed_even_(state_->renewed[0]),
          renewed_odd_(state_->renewed[1]), received_from_all_(state_->received_from_all != 0) {
    }

    // The last sequence number before the launch.
    __device__ __forceinline__ uint64_t base() const {
        return base_;
    }
    __device__ __forceinline__ uint32_t half() const {
        return static_cast<uint32_t>(number_) % 2;
    }
    __device__ __forceinline__ ProgramState *state() const {
        return state_;
    }
    __device__ __forceinline__ bool *stopped() {
        return &stopped_;
    }

    // Whether peers' halves may be written without wait_for: a rank that received from all ranks in
    // the last launch knows that all of them have ended the launch before.
    __device__ __forceinline__ bool is_clear() const {
        return received_from_all_ || number_ <= 2;
    }
    __device__ __forceinline__ void wait_for(uint32_t peer) {
        await(&state_->finished[peer].value, number_ - 2);
    }

    template <bool kHere = false>
    __device__ __forceinline__ void await(const uint64_t *word, uint64_t value) {
        for (uint32_t polls = 1; !stopped_; polls++) {
            if ((kHere ? look_here(word) : look(word)) >= value)
                return;
            if (polls % kPollsPerLook == 0 && aborted(launch_.abort))
                stopped_ = true;
            pause();
        }
    }

    // The last block ends the launch and notifies the peers, except where all ranks have received
    // from all and no write is left to await: a write to another device takes as long as a whole
    // small launch.
    __device__ __forceinline__ void finish(bool all_receive_from_all, bool all_awaited) {
        const bool is_silent = all_receive_from_all && all_awaited;
        machine_.barrier();
        if (machine_.thread() != 0)
            return;
        if (!is_silent)
            fence();
        if (!is_last(&state_->blocks_done, machine_.blocks()))
            return;
        const uint64_t base = base_ + launch_.advance;
        state_->base = base;
        state_->epoch = number_;
        state_->received_from_all = all_receive_from_all ? 1 : 0;
        state_->is_silent = is_silent ? 1 : 0;
        renew_lines(base);
        if (is_silent)
            return;
        fence();
        for (uint32_t rank = 0; rank < launch_.ranks; rank++)
            if (rank != launch_.rank)
                tell_read(&state_of(launch_.area[rank])->finished[launch_.rank].value, number_);
    }

  private:
    // LL's lines carry 32 bits of a number, so a line not written for 2^32 numbers would look new.
    // Every few hours this half's lines get a number half a round ahead.
    __device__ __forceinline__ void renew_lines(uint64_t base) {
        if (base - (half() == 0 ? renewed_even_ : renewed_odd_) < uint64_t{1} << 30)
            return;
        state_->renewed[half()] = base;
        char *lines = launch_.own_area + kProgramLlFirst + half() * launch_.ll_half_bytes;
        for (size_t i = 0; i < launch_.ll_half_bytes; i += 16)
            store_line(lines + i, 0, static_cast<uint32_t>(base) + 0x80000000U);
    }

    const ProgramLaunch &launch_;
    const Machine machine_;
    ProgramState *const state_;
    const uint64_t base_;
    const uint64_t number_;
    const uint64_t renewed_even_;
    const uint64_t renewed_odd_;
    const bool received_from_all_;
    bool stopped_ = false;
};

} // namespace tuccl

#endif
