/* Programs rearranged into moves, as the executor does it with every program of a bundle. */
#ifndef TUCCL_TEST_REARRANGE_H
#define TUCCL_TEST_REARRANGE_H

#include "program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many moves a sound program has; 0 where it is left as it is. */
size_t rearrange(const struct tuccl_program *program);

#ifdef __cplusplus
}
#endif

#endif
