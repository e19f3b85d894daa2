/* How a call of a program is cut: instances, tiles and slots. Host code without CUDA. */
#ifndef TUCCL_EXECUTOR_PROGRAM_PLAN_H
#define TUCCL_EXECUTOR_PROGRAM_PLAN_H

#include "program.h"
#include "program_moves.h"
#include "program_staging.h"

namespace tuccl {

// Whether an interpreter can run this call of a program, and how; depends on nothing that may
// differ between ranks. Pointers and what is this rank's own stay empty.
// `moves`: what its moves need, where it has any.
bool plan_program(const tuccl_program &program, const tuccl_call &call, const MovesNeed &moves,
                  ProgramLaunch *launch);

// Whether the threadblocks of all instances may be at work at once, for a program without moves.
bool has_room_for_threadblocks(const tuccl_program &program, const tuccl_call &call);

// What the calls of a program need, so that plan_program cuts them as if there was no end of
// memory; false where none of these calls can be run.
bool add_program_need(const tuccl_program &program, const tuccl_call &call, tuccl_staging *need);

// Bytes of a rank's area.
size_t program_area_bytes(const tuccl_staging &staging);

// Fills in where lines and scratch chunks lie; false where there is no room for this launch.
bool place_launch(const tuccl_staging &staging, uint32_t protocol, ProgramLaunch *launch);

// Fills in what is a rank's own; the records may be copied elsewhere, `moved` bytes away.
void set_rank(const tuccl_program &program, uint32_t rank, ptrdiff_t moved, ProgramLaunch *launch);

} // namespace tuccl

#endif
