/* The numbers of docs/capture-format.md, for the writer and the reader. */
#ifndef STROBE_CAPTURE_FORMAT_H
#define STROBE_CAPTURE_FORMAT_H

#include <stddef.h>
#include <stdint.h>

/*  0        8        10       12       16
 *  +--------+--------+--------+--------+
 *  | magic  | major  | minor  |   0    |
 *  +--------+--------+--------+--------+ */
#define CAPTURE_FILE_MAGIC "\x93STROBE\n"
enum { CAPTURE_FILE_MAGIC_BYTES = 8, CAPTURE_FILE_HEADER_BYTES = 16, CAPTURE_MAJOR = 1, CAPTURE_MINOR = 0 };

/*  0       4      5       6     8          12         16            20      24         32
 *  +-------+------+-------+-----+----------+----------+-------------+-------+----------+
 *  | magic | type | flags |  0  | sequence | raw size | stored size | epoch | checksum | payload ...
 *  +-------+------+-------+-----+----------+----------+-------------+-------+----------+ */
#define CAPTURE_CHUNK_MAGIC "\xc3HNK"
enum { CAPTURE_CHUNK_MAGIC_BYTES = 4, CAPTURE_CHUNK_HEADER_BYTES = 32, CAPTURE_CHECKSUM_OFFSET = 24 };
enum { CAPTURE_CHUNK_RECORDS = 1 };
enum { CAPTURE_CHUNK_ZSTD = 1 };

/* Of a chunk that lies in one piece: its header up to the checksum, and its payload behind it. */
uint64_t capture_checksum(const uint8_t *chunk, size_t stored_bytes);

enum {
    CAPTURE_CHUNK_MAX_BYTES = 4 << 20,
    CAPTURE_RECORD_MAX_BYTES = 1 << 20,
    CAPTURE_TEXT_MAX_BYTES = 1 << 16,
    CAPTURE_LIST_MAX = 4096, /* texts of a command or of a process's libraries */
};

enum capture_record {
    CAPTURE_RECORD_BASE = 1,
    CAPTURE_RECORD_FACT = 2,
    CAPTURE_RECORD_STRING = 3,
    CAPTURE_RECORD_FRAME = 4,
    CAPTURE_RECORD_STACK = 5,
    CAPTURE_RECORD_PROCESS = 6,
    CAPTURE_RECORD_PROCESS_END = 7,
    CAPTURE_RECORD_COUNTERS = 8,
    CAPTURE_RECORD_THREAD = 9,
    CAPTURE_RECORD_THREAD_CPU = 10,
    CAPTURE_RECORD_THREAD_END = 11,
    CAPTURE_RECORD_EVENT = 12,
    CAPTURE_RECORD_END = 13,
    CAPTURE_RECORD_CHANGE = 14,
    CAPTURE_RECORD_FOOTPRINT = 15,
    CAPTURE_RECORD_SAMPLE = 0x80, /* and all above: the low seven bits say which fields follow */
};

/* The low bits of a sample's first byte. */
enum {
    SAMPLE_HAS_TIME = 0x40,
    SAMPLE_THREAD_MASK = 0x30,
    SAMPLE_THREAD_SAME = 0x00,
    SAMPLE_THREAD_NEXT = 0x10,
    SAMPLE_THREAD_GIVEN = 0x20,
    SAMPLE_STACK_MASK = 0x0c,
    SAMPLE_STACK_SAME = 0x00,
    SAMPLE_STACK_GIVEN = 0x04,
    SAMPLE_HAS_STATE = 0x02,
    SAMPLE_HAS_WEIGHT = 0x01,
};

/* A sample's state byte: run in bits 0-1, gil in 2-3, collecting in 4. */
enum { STATE_RUN_MASK = 3, STATE_GIL_SHIFT = 2, STATE_GIL_MASK = 3, STATE_COLLECTING = 16 };

enum { VARINT_MAX_BYTES = 10 };

/* Seven bits a byte, lowest first; the top bit says that more follow. Returns how many bytes it took (at most
 * VARINT_MAX_BYTES). */
static inline size_t varint_put(uint8_t *to, uint64_t value) {
    size_t size_bytes = 0;
    for (; value >= 0x80; value >>= 7)
        to[size_bytes++] = (uint8_t)(value | 0x80);
    to[size_bytes++] = (uint8_t)value;
    return size_bytes;
}

/* Signed numbers that are small either way: 0, -1, 1, -2 … are 0, 1, 2, 3 … */
static inline uint64_t zigzag_encode(int64_t value) {
    return (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
}

static inline int64_t zigzag_decode(uint64_t value) {
    return (int64_t)(value >> 1 ^ (~(value & 1) + 1));
}

#endif
