/* The arithmetic of sampling by bytes. Every byte is struck with the same small chance, once in `stride_bytes` on
 * average, and a block is sampled when any of its bytes is: with p = 1 - e^(-size / stride). Such a block stands for
 * size / p bytes and 1 / p blocks, so that sums over samples are right on average, for every size of block.
 *
 * In integers: what the program has set its floating-point unit to, and its flags, are none of our business.
 * Async-signal-safe. */
#ifndef STROBE_AGENT_STRIDE_H
#define STROBE_AGENT_STRIDE_H

#include <stdint.h>

enum { STRIDE_COUNT_UNIT = 1024 };
#define STRIDE_MAX_BYTES (UINT64_C(1) << 40)

/* The next number of a sequence; any state is a good one, 0, too. */
uint64_t stride_random(uint64_t *state);

/* How many bytes go by before one is struck: exponentially distributed. Stride from 1 to STRIDE_MAX_BYTES. */
uint64_t stride_draw_gap(uint64_t *random, uint64_t stride_bytes);

struct stride_weight {
    uint64_t bytes;
    uint64_t count; /* in 1/STRIDE_COUNT_UNIT */
};

/* What a sampled block of that size (at least 1, less than 2^56) stands for. */
struct stride_weight stride_weigh(uint64_t size_bytes, uint64_t stride_bytes);

/* With which chance such a block is sampled, times 2^63. */
uint64_t stride_chance(uint64_t size_bytes, const struct stride_weight *weight);

#endif
