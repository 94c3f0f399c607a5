#include "agent/stride.h"

typedef unsigned __int128 wide;

enum {
    FRACTION_BITS = 62, /* of numbers up to 1 */
    LOG_BITS = 57,      /* of logarithms, up to 64 */
    LOG_TERMS = 16,     /* (1/3)^(2n) is below 2^-50 from here on */
    EXP_TERMS = 20,
};
static const uint64_t ONE = UINT64_C(1) << FRACTION_BITS;
static const uint64_t LN2_FRACTION = UINT64_C(0x2c5c85fdf473de6b);  /* ln 2 * 2^62 */
static const uint64_t LOG2_E_IN_LOG = UINT64_C(0x02e2a8eca5705fc3); /* 1 / ln 2 * 2^57 */

/* splitmix64 */
uint64_t stride_random(uint64_t *state) {
    uint64_t value = *state += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

static uint64_t multiply(uint64_t left, uint64_t right) {
    return (uint64_t)((wide)left * right >> FRACTION_BITS);
}

/* -ln(value / 2^64) with LOG_BITS, of a value that is not 0. */
static uint64_t negative_log(uint64_t value) {
    unsigned shift = (unsigned)__builtin_clzll(value);
    uint64_t half = value << shift >> 1; /* z / 2, with z in [1/2, 1) */
    uint64_t top = UINT64_C(1) << 63;
    /* -ln z = 2 artanh((1 - z) / (1 + z)) */
    uint64_t t = (uint64_t)(((wide)(top - half) << FRACTION_BITS) / (top + half));
    uint64_t square = multiply(t, t), power = t, sum = 0;
    for (uint64_t n = 0; n < LOG_TERMS; n++) {
        sum += power / (2 * n + 1);
        power = multiply(power, square);
    }
    return (sum >> (FRACTION_BITS - LOG_BITS - 1)) + shift * (LN2_FRACTION >> (FRACTION_BITS - LOG_BITS));
}

uint64_t stride_draw_gap(uint64_t *random, uint64_t stride_bytes) {
    uint64_t value = stride_random(random);
    return (uint64_t)((wide)negative_log(value == 0 ? 1 : value) * stride_bytes >> LOG_BITS);
}

/* 1 - e^-x of x in [0, 1), exact in relation to itself: x (1 - x/2 (1 - x/3 (…))). */
static uint64_t one_minus_exp(uint64_t x) {
    uint64_t inner = ONE;
    for (uint64_t n = EXP_TERMS; n > 1; n--)
        inner = ONE - multiply(x / n, inner);
    return multiply(x, inner);
}

/* 1 - e^(-size / stride): at most ONE. */
static uint64_t chance(uint64_t size_bytes, uint64_t stride_bytes) {
    wide exponent = (wide)size_bytes * LOG2_E_IN_LOG / stride_bytes;
    uint64_t whole = (uint64_t)(exponent >> LOG_BITS);
    if (exponent >> LOG_BITS >= FRACTION_BITS)
        return ONE;
    uint64_t rest = (uint64_t)exponent & ((UINT64_C(1) << LOG_BITS) - 1);
    uint64_t struck = one_minus_exp(multiply(rest << (FRACTION_BITS - LOG_BITS), LN2_FRACTION));
    return ONE - ((ONE - struck) >> whole);
}

struct stride_weight stride_weigh(uint64_t size_bytes, uint64_t stride_bytes) {
    uint64_t p = chance(size_bytes, stride_bytes);
    return (struct stride_weight){
        .bytes = (uint64_t)((((wide)size_bytes << FRACTION_BITS) + p / 2) / p),
        .count = (uint64_t)((((wide)STRIDE_COUNT_UNIT << FRACTION_BITS) + p / 2) / p),
    };
}

uint64_t stride_chance(uint64_t size_bytes, const struct stride_weight *weight) {
    return (uint64_t)(((wide)size_bytes << 63) / weight->bytes);
}
