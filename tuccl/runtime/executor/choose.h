// Choices of a process that precede its table: without them measuring would take a new communicator
// for every configuration.
#ifndef TUCCL_EXECUTOR_CHOOSE_H
#define TUCCL_EXECUTOR_CHOOSE_H

#include <cstddef>
#include <cstdint>

struct tuccl_entry_record;

namespace tuccl {

// Returns the last choice; NULL where the communicator's own table applies.
const tuccl_entry_record *chosen_entry();

// Makes a bundle's entry (struct tuccl_entry_record of `bytes` bytes) the choice; NULL: none.
// Returns NULL, or the entry's fault: then there is none.
const char *choose(const void *entry, size_t bytes);

// Returns whether this process has ever made a choice: further communicators are served if there
// are programs for them, with memory for any choice.
bool process_chooses();

// Counts a call that was launched on the device.
void count_call();

} // namespace tuccl

extern "C" {

// Sets the choice of all served communicators of this process, the same on every rank: a bundle's
// entry (struct tuccl_entry_record of `bytes` bytes). NCCL runs all other calls. The entry's
// operation is that of its schedule, which each communicator's bundle must contain. NULL restores
// their own tables. Not thread-safe beside a call. NCCL runs communicators that started before the
// first choice while a choice is set. Returns NULL, or the entry's fault.
//
// For a schedule across hosts all ranks of each communicator must call it, and no call may be
// running: what the schedule needs along the rail is made and connected here, if it was not before.
// Where that fails the fault is returned on all ranks, and the communicator runs no such schedule
// any more. But where NCCL makes a lane on some ranks and refuses it on others, those wait inside
// ncclCommSplit until the communicator is aborted.
const char *tuccl_executor_choose(const void *entry, size_t bytes);

// Returns the number of calls that the executor has run in this process.
uint64_t tuccl_executor_calls();
}

#endif
