// Rules that a process puts before its table: whoever measures would need a new communicator for
// every configuration otherwise.
#ifndef TUCCL_EXECUTOR_CHOOSE_H
#define TUCCL_EXECUTOR_CHOOSE_H

#include "decision.h"

namespace tuccl {

// What was chosen last; NULL where the communicator's own table holds.
const Decision *chosen_decision();

// Whether this process has ever chosen: further communicators get memory for whatever may be
// chosen.
bool process_chooses();

// Counts a call that went to the device.
void count_call();

} // namespace tuccl

extern "C" {

// Takes lines as in rules_file.h for all communicators that this process is served for; the same on
// every rank. NULL: their own tables again. Not beside a call in another thread. Communicators that
// started before the first call have memory for their own tables' rules only, and leave to NCCL
// what needs more. Returns NULL, or what is wrong with the text, which is good until the next call.
const char *tuccl_executor_choose(const char *rules);

// Calls of this process that the executor ran so far: whether it took one, or NCCL did.
uint64_t tuccl_executor_calls();
}

#endif
