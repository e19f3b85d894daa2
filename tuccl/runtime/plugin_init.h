/* Start of a communicator: from the environment and the bundle to a selection. */
#ifndef TUCCL_PLUGIN_INIT_H
#define TUCCL_PLUGIN_INIT_H

#include "selection.h"
#include "tuner_abi.h"

#include <stdint.h>

/* Sets `*context` to the communicator's selection, or to NULL where NCCL decides.
 * Fails only where starting would let ranks decide differently: see docs/reference/runtime.md.
 * `abi` is the version of the tuner ABI through which NCCL called. */
int tuccl_plugin_init(struct tuccl_selection **context, int abi, size_t ranks, size_t nodes,
                      size_t ranks_per_node, tuccl_nccl_logger logger);

/* Tells the executor, if there is one, what NCCL is answered: as tuccl_answered_function. */
void tuccl_note_answer(uint32_t operation);

#endif
