// Streams of the communicator's own, beside a call's stream, for what overlaps with the work there.
#ifndef TUCCL_EXECUTOR_SIDE_STREAMS_H
#define TUCCL_EXECUTOR_SIDE_STREAMS_H

#include "executor.h"
#include "nccl_abi.h"

#include <cstdint>

namespace tuccl {

class SideStreams {
  public:
    // Calls may be made while a capture of other calls is open, whose streams belong to it:
    // captured calls have streams of their own. While these belong to another capture, there are
    // none. `device`: with two streams for each of `most`. `count`: of streams that the call uses.
    SideStreams(tuccl_device_comm *device, uint32_t most, uint64_t count, ncclStream stream);

    // Whether there are any; else all of a call follows one another on its stream.
    explicit operator bool() const {
        return count_ > 0;
    }
    // The stream of a piece of the call; pieces take them in turn.
    ncclStream of(uint64_t piece) const;

    // They start behind the job's work, and the job's further work behind theirs. Use one mark, and
    // one for each stream. Return an ncclResult_t.
    int fork(uint32_t mark) const;
    int join(uint32_t first_mark) const;

  private:
    tuccl_device_comm *device_;
    ncclStream stream_;
    uint32_t first_ = 0;
    uint64_t count_ = 0;
};

} // namespace tuccl

#endif
