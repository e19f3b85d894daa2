// What a process puts before its table: whoever measures would need a new communicator for every
// configuration otherwise.
#ifndef TUCCL_EXECUTOR_CHOOSE_H
#define TUCCL_EXECUTOR_CHOOSE_H

#include <cstddef>
#include <cstdint>

struct tuccl_entry_record;

namespace tuccl {

// What was chosen last; NULL where the communicator's own table holds.
const tuccl_entry_record *chosen_entry();

// Whether this process has ever chosen: further communicators are served where there are programs
// for them, with memory for whatever may be chosen.
bool process_chooses();

// Counts a call that went to the device.
void count_call();

} // namespace tuccl

extern "C" {

// Takes an entry as a bundle has it (struct tuccl_entry_record, so many bytes) for all
// communicators that this process is served for, the same on every rank; all calls that it does not
// hold for are NCCL's. Its operation is that of its schedule, which is one of each communicator's
// own bundle. NULL: their own tables again. Not beside a call in another thread. Communicators that
// started before the first call are NCCL's for as long as something is chosen. Returns NULL, or
// what is wrong with the entry.
const char *tuccl_executor_choose(const void *entry, size_t bytes);

// Calls of this process that the executor ran so far: whether it took one, or NCCL did.
uint64_t tuccl_executor_calls();
}

#endif
