#include "cpython/repr_parts.h"

#include "base/bytes.h"
#include "cpython/copy.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DIGIT_BITS = 30, /* PyLong_SHIFT on 64-bit machines (Include/cpython/longintrepr.h, 3.8 to 3.15) */
    DIGIT_BYTES = 4,
    /* 4300 decimal digits, beyond which Python itself refuses (_PY_LONG_DEFAULT_MAX_STR_DIGITS). */
    MAX_DIGITS = 477,
    PART_DIGITS = 9, /* decimal digits in a part of a decimal number */
    PART_BASE = 1000000000,
    MAX_PARTS = MAX_DIGITS * DIGIT_BITS / 29 + 2, /* 29 bits are less than nine decimal digits */
    SHORTEST_MAX_DIGITS = 17,
};

struct integer {
    bool negative;
    uint64_t count;
    uint32_t digits[MAX_DIGITS]; /* lowest first; only when count is not larger */
    uint64_t bits;
};

static enum status read_integer(struct repr *repr, remote_addr object, struct integer *integer) {
    const struct layout *layout = &repr->runtime->layout;
    const struct layout_long *long_ = &layout->long_;
    bool tagged = layout_has(long_->lv_tag);
    layout_offset size_field = tagged ? long_->lv_tag : layout->object.ob_size;
    struct copy head;
    TRY(copy_read(repr->runtime->objects, object, size_field, &head));
    uint64_t size = copy_u64(&head, size_field);
    integer->negative = tagged ? (size & 3) == 2 : (int64_t)size < 0;
    integer->count = tagged ? size >> 3 : integer->negative ? -size : size;
    integer->bits = 0;
    if (integer->count == 0)
        return STATUS_OK;
    if (integer->count > UINT64_C(1) << 40)
        return STATUS_TORN;
    remote_addr digits = object + long_->ob_digit;
    if (integer->count <= MAX_DIGITS)
        TRY(memory_read(repr->runtime->objects, digits, integer->digits, (size_t)integer->count * DIGIT_BYTES));
    uint32_t top = 0;
    TRY(memory_read_u32(repr->runtime->objects, digits + (integer->count - 1) * DIGIT_BYTES, &top));
    for (uint64_t i = 0; i < integer->count && i < MAX_DIGITS && integer->count <= MAX_DIGITS; i++)
        if (integer->digits[i] >> DIGIT_BITS != 0)
            return STATUS_TORN;
    integer->bits = (integer->count - 1) * DIGIT_BITS;
    for (; top != 0; top >>= 1)
        integer->bits++;
    return STATUS_OK;
}

/* Parts of nine decimal digits, lowest first: multiplied by 2**30 and added to, digit by digit from the highest. */
static size_t to_decimal(const struct integer *integer, uint32_t parts[MAX_PARTS]) {
    size_t count = 0;
    for (uint64_t i = integer->count; i-- > 0;) {
        uint64_t carry = integer->digits[i];
        for (size_t j = 0; j < count; j++) {
            carry += (uint64_t)parts[j] << DIGIT_BITS;
            parts[j] = (uint32_t)(carry % PART_BASE);
            carry /= PART_BASE;
        }
        for (; carry != 0 && count < MAX_PARTS; carry /= PART_BASE)
            parts[count++] = (uint32_t)(carry % PART_BASE);
    }
    return count;
}

enum status repr_show_int(struct repr *repr, remote_addr object, const struct type_info *type) {
    (void)type;
    struct integer integer;
    uint32_t parts[MAX_PARTS];
    TRY(read_integer(repr, object, &integer));
    if (integer.count > MAX_DIGITS)
        return repr_put_format(repr, "<int, %llu bits>", (unsigned long long)integer.bits);
    if (integer.negative)
        TRY(repr_put(repr, "-"));
    size_t count = to_decimal(&integer, parts);
    if (count == 0)
        return repr_put(repr, "0");
    TRY(repr_put_format(repr, "%u", parts[count - 1]));
    for (size_t i = count - 1; i-- > 0;)
        TRY(repr_put_format(repr, "%0*u", PART_DIGITS, parts[i]));
    return STATUS_OK;
}

enum status repr_show_bool(struct repr *repr, remote_addr object, const struct type_info *type) {
    (void)type;
    struct integer integer;
    TRY(read_integer(repr, object, &integer));
    if (integer.count > 1)
        return STATUS_TORN;
    return repr_put(repr, integer.bits != 0 ? "True" : "False");
}

/* 0.d1 d2 d3 ... times ten to the power of `point` */
struct decimal {
    char digits[SHORTEST_MAX_DIGITS + 1];
    int count;
    int point;
};

/* Written without a decimal point, which is the locale's. */
static double decimal_value(const struct decimal *decimal, enum repr_precision precision) {
    char text[REPR_NUMBER_BYTES];
    (void)snprintf(text, sizeof text, "%se%d", decimal->digits, decimal->point - decimal->count);
    return precision == REPR_SINGLE ? (double)strtof(text, NULL) : strtod(text, NULL);
}

/* Whether the decimal, read as a half-precision number, is `value`: nearer to it than to its neighbours, or as near and
 * the value is the even one. */
static bool is_half(double decimal, double value) {
    int exponent = 0;
    double fraction = frexp(value, &exponent);
    /* The smallest normal half is 2**-14, with eleven bits. */
    double above = ldexp(1.0, (exponent < -13 ? -13 : exponent) - 11);
    double below = fraction == 0.5 && exponent > -13 ? above / 2 : above;
    bool even = ((int64_t)(value / above) & 1) == 0; /* a whole number of at most eleven bits */
    double distance = decimal > value ? (decimal - value) / above : (value - decimal) / below;
    return distance < 0.5 || (distance == 0.5 && even);
}

static bool reads_back(const struct decimal *decimal, double value, enum repr_precision precision) {
    double read = decimal_value(decimal, precision);
    return precision == REPR_HALF ? is_half(read, value) : read == value;
}

/* The nearest decimal of `count` digits. */
static void round_to(double value, int count, struct decimal *decimal) {
    char text[REPR_NUMBER_BYTES];
    (void)snprintf(text, sizeof text, "%.*e", count - 1, value);
    const char *at = text;
    decimal->count = 0;
    for (; *at != '\0' && *at != 'e'; at++)
        if (isdigit((unsigned char)*at) && decimal->count < SHORTEST_MAX_DIGITS)
            decimal->digits[decimal->count++] = *at;
    decimal->digits[decimal->count] = '\0';
    decimal->point = (*at == 'e' ? (int)strtol(at + 1, NULL, 10) : 0) + 1;
}

static void increment(struct decimal *decimal) {
    int at = decimal->count - 1;
    for (; at >= 0 && decimal->digits[at] == '9'; at--)
        decimal->digits[at] = '0';
    if (at >= 0) {
        decimal->digits[at]++;
        return;
    }
    decimal->digits[0] = '1';
    decimal->point++;
}

/* The neighbours of a power of two are nearer below than above, so that the nearest decimal of a length can miss it
 * while the next one above does not. */
static void find_shortest(double value, enum repr_precision precision, struct decimal *decimal) {
    for (int count = 1; count <= SHORTEST_MAX_DIGITS; count++) {
        round_to(value, count, decimal);
        if (reads_back(decimal, value, precision))
            break;
        struct decimal next = *decimal;
        increment(&next);
        if (reads_back(&next, value, precision)) {
            *decimal = next;
            break;
        }
    }
    while (decimal->count > 1 && decimal->digits[decimal->count - 1] == '0')
        decimal->digits[--decimal->count] = '\0';
}

static void format_fixed(const struct decimal *decimal, bool point, char *text, size_t size_bytes) {
    static const char zeros[] = "00000000000000000";
    const char *digits = decimal->digits;
    if (decimal->point <= 0)
        (void)snprintf(text, size_bytes, "0.%.*s%s", -decimal->point, zeros, digits);
    else if (decimal->point >= decimal->count)
        (void)snprintf(text, size_bytes, "%s%.*s%s", digits, decimal->point - decimal->count, zeros, point ? ".0" : "");
    else
        (void)snprintf(text, size_bytes, "%.*s.%s", decimal->point, digits, digits + decimal->point);
}

/* float_repr_style 'short' of Python/pystrtod.c: exponents from -5 down and from 16 up. NumPy has the same limits. */
void repr_format_real(double value, enum repr_precision precision, bool point, char text[REPR_NUMBER_BYTES]) {
    struct decimal decimal;
    size_t used = 0;
    if (isnan(value)) {
        (void)snprintf(text, REPR_NUMBER_BYTES, "nan");
        return;
    }
    if (signbit(value))
        text[used++] = '-';
    char *rest = text + used;
    size_t left_bytes = REPR_NUMBER_BYTES - used;
    if (isinf(value)) {
        (void)snprintf(rest, left_bytes, "inf");
        return;
    }
    if (value == 0) {
        (void)snprintf(rest, left_bytes, "%s", point ? "0.0" : "0");
        return;
    }
    find_shortest(fabs(value), precision, &decimal);
    if (decimal.point > -4 && decimal.point <= 16)
        format_fixed(&decimal, point, rest, left_bytes);
    else
        (void)snprintf(rest, left_bytes, "%c%s%se%+03d", decimal.digits[0], decimal.count > 1 ? "." : "",
                       decimal.digits + 1, decimal.point - 1);
}

enum status repr_show_float(struct repr *repr, remote_addr object, const struct type_info *type) {
    (void)type;
    char text[REPR_NUMBER_BYTES];
    double value = 0;
    TRY(memory_read(repr->runtime->objects, object + repr->runtime->layout.float_.ob_fval, &value, sizeof value));
    repr_format_real(value, REPR_DOUBLE, true, text);
    return repr_put(repr, text);
}

void repr_format_complex(double real, double imaginary, enum repr_precision precision, bool *both,
                         char text[2 * REPR_NUMBER_BYTES]) {
    char part[REPR_NUMBER_BYTES];
    *both = real != 0 || signbit(real);
    text[0] = '\0';
    if (*both)
        repr_format_real(real, precision, false, text);
    repr_format_real(imaginary, precision, false, part);
    size_t used = strlen(text);
    const char *sign = *both && part[0] != '-' ? "+" : "";
    (void)snprintf(text + used, (size_t)2 * REPR_NUMBER_BYTES - used, "%s%sj", sign, part);
}

enum status repr_show_complex(struct repr *repr, remote_addr object, const struct type_info *type) {
    (void)type;
    double parts[2];
    char text[2 * REPR_NUMBER_BYTES];
    bool both = false;
    TRY(memory_read(repr->runtime->objects, object + repr->runtime->layout.complex_.cval, parts, sizeof parts));
    repr_format_complex(parts[0], parts[1], REPR_DOUBLE, &both, text);
    return repr_put_format(repr, both ? "(%s)" : "%s", text);
}
