/* Division of a program's call into instances, tiles and slots. Host code without CUDA. */
#ifndef TUCCL_EXECUTOR_PROGRAM_PLAN_H
#define TUCCL_EXECUTOR_PROGRAM_PLAN_H

#include "program.h"
#include "program_moves.h"
#include "program_staging.h"

namespace tuccl {

// Returns whether steps or statements of a program serve such a call.
bool fits(const tuccl_program_header &header, const tuccl_call &call);

// Returns whether the interpreter can run this call, and plans it; depends on nothing that differs
// between ranks. Leaves pointers and fields of this rank empty. `moves`: resources of its moves, if
// any.
bool plan_program(const tuccl_program &program, const tuccl_call &call, const MovesNeed &moves,
                  ProgramLaunch *launch);

// Returns whether the threadblocks of all instances can run at once, for a program without moves.
bool has_room_for_threadblocks(const tuccl_program &program, const tuccl_call &call);

// Adds the memory with which plan_program divides a program's calls as if memory were unlimited;
// false where none of these calls can run.
bool add_program_need(const tuccl_program &program, const tuccl_call &call, tuccl_staging *need);

// Returns the bytes of a rank's area.
size_t program_area_bytes(const tuccl_staging &staging);

// Sets the offsets of lines and scratch chunks; false if this launch does not fit.
bool place_launch(const tuccl_staging &staging, uint32_t protocol, ProgramLaunch *launch);

// Sets the fields of a rank; its records may have been copied `moved` bytes away.
void set_rank(const tuccl_program &program, uint32_t rank, ptrdiff_t moved, ProgramLaunch *launch);

} // namespace tuccl

#endif
