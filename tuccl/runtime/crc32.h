/* CRC-32 with zlib's polynomial, so that Python's zlib.crc32 gives the same sums. */
#ifndef TUCCL_CRC32_H
#define TUCCL_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Returns the CRC of `bytes` at `data`, continued from `crc` (0 to begin). */
uint32_t tuccl_crc32(uint32_t crc, const void *data, size_t bytes);

/* Returns the CRC of sealed data: of all but its field of four bytes at `field`, which holds it. */
uint32_t tuccl_crc32_around(const void *data, size_t bytes, size_t field);

#endif
