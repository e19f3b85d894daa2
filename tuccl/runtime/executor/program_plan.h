/* How a call of a program is cut: instances, tiles and slots. Host code without CUDA. */
#ifndef TUCCL_EXECUTOR_PROGRAM_PLAN_H
#define TUCCL_EXECUTOR_PROGRAM_PLAN_H

#include "program.h"
#include "program_staging.h"

namespace tuccl {

// Whether an interpreter can run this call of a program, and how; depends on nothing that may
// differ between ranks. Pointers and what is this rank's own stay empty.
bool plan_program(const tuccl_program &program, const tuccl_call &call, ProgramLaunch *launch);

// Fills in what is a rank's own; the records may be copied elsewhere, `moved` bytes away.
void set_rank(const tuccl_program &program, uint32_t rank, ptrdiff_t moved, ProgramLaunch *launch);

} // namespace tuccl

#endif
