#include "crc32.h"

enum { SLICES = 8 };

struct crc_tables {
    uint32_t slice[SLICES][256];
};

/* slice[k][b]: contribution of byte b after k further zero bytes. Built for each sum: 2048 steps
 * are cheap beside a bundle, and no initialization needs a lock. */
static void build_tables(struct crc_tables *tables) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ ((crc & 1) ? 0xEDB88320u : 0);
        tables->slice[0][byte] = crc;
    }
    for (int k = 1; k < SLICES; k++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t before = tables->slice[k - 1][byte];
            tables->slice[k][byte] = (before >> 8) ^ tables->slice[0][before & 0xFF];
        }
}

uint32_t tuccl_crc32(uint32_t crc, const void *data, size_t bytes) {
    struct crc_tables tables;
    build_tables(&tables);
    const unsigned char *at = data;
    crc = ~crc;
    for (; bytes >= SLICES; bytes -= SLICES, at += SLICES) {
        uint32_t next = 0;
        for (int k = 0; k < SLICES; k++) {
            uint32_t byte = at[k] ^ (k < 4 ? (crc >> (8 * k)) & 0xFF : 0);
            next ^= tables.slice[SLICES - 1 - k][byte];
        }
        crc = next;
    }
    for (; bytes > 0; bytes--, at++)
        crc = (crc >> 8) ^ tables.slice[0][(crc ^ *at) & 0xFF];
    return ~crc;
}

uint32_t tuccl_crc32_around(const void *data, size_t bytes, size_t field) {
    const unsigned char *at = data;
    size_t behind = field + sizeof(uint32_t);
    return tuccl_crc32(tuccl_crc32(0, at, field), at + behind, bytes - behind);
}
