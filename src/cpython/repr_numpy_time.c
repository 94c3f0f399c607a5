/* NumPy's datetime64 and timedelta64. A scalar has its count of units behind the header, and then the unit
 * (numpy/arrayscalars.h, PyArray_DatetimeMetaData in numpy/ndarraytypes.h, the same in 1.7 to 2.x):
 *
 *   value: i64 | base: i32 | num: i32      a unit is `num` times `base`; the least value is NaT, not a time
 *
 * A dtype points to the unit: c_metadata, in which 32 bytes of NpyAuxData stand before base and num. */
#include "cpython/repr_parts.h"

#include "base/bytes.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    SCALAR_BYTES = 16,
    UNIT_BYTES = 8,
    AUXILIARY_BYTES = 32,
    /* PyArray_Descr.c_metadata behind the header: before 2.0, and since then. */
    DESCR_METADATA_OLD = 64,
    DESCR_METADATA_NEW = 96,
    UNIT_TEXT_BYTES = 24,
    DAYS_PER_WEEK = 7,
    SECONDS_PER_DAY = 86400,
};

/* NPY_DATETIMEUNIT; 3 was a unit once. */
enum base { YEARS, MONTHS, WEEKS, DAYS = 4, HOURS, MINUTES, SECONDS, MILLISECONDS, ATTOSECONDS = 13, GENERIC };
static const char *const base_names[] = {"Y", "M", "W", NULL, "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"};

/* Far beyond any date, and far from where sums overflow. */
static const int64_t DAYS_LIMIT = INT64_C(1) << 56;

struct unit {
    int32_t base;
    int32_t num;
};

/* "" for generic units. False for what is no unit. */
static bool format_unit(struct unit unit, char text[UNIT_TEXT_BYTES]) {
    text[0] = '\0';
    if (unit.base == GENERIC)
        return true;
    if (unit.base < 0 || unit.base > GENERIC || base_names[unit.base] == NULL || unit.num < 1)
        return false;
    if (unit.num == 1)
        (void)snprintf(text, UNIT_TEXT_BYTES, "%s", base_names[unit.base]);
    else
        (void)snprintf(text, UNIT_TEXT_BYTES, "%" PRId32 "%s", unit.num, base_names[unit.base]);
    return true;
}

/* Divides, rounding down. */
static int64_t divide(int64_t number, int64_t by, int64_t *rest) {
    int64_t quotient = number / by;
    *rest = number % by;
    if (*rest < 0) {
        *rest += by;
        quotient--;
    }
    return quotient;
}

/* The proleptic Gregorian calendar, in eras of 400 years that begin in March, so that a leap day is a year's last. */
static enum status put_date(struct repr *repr, int64_t days) {
    enum { ERA_DAYS = 146097, TO_MARCH_OF_0 = 719468 };
    int64_t day = 0;
    if (days < -DAYS_LIMIT || days > DAYS_LIMIT)
        return STATUS_NOT_FOUND;
    int64_t era = divide(days + TO_MARCH_OF_0, ERA_DAYS, &day);
    int64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    day -= 365 * year + year / 4 - year / 100;
    int64_t month = (5 * day + 2) / 153;
    day -= (153 * month + 2) / 5;
    year += 400 * era + (month >= 10);
    month += month < 10 ? 3 : -9;
    return repr_put_format(repr, "%04" PRId64 "-%02d-%02d", year, (int)month, (int)day + 1);
}

static enum status put_clock(struct repr *repr, enum base base, int64_t seconds) {
    TRY(repr_put_format(repr, "T%02d", (int)(seconds / 3600)));
    if (base >= MINUTES)
        TRY(repr_put_format(repr, ":%02d", (int)(seconds / 60 % 60)));
    return base >= SECONDS ? repr_put_format(repr, ":%02d", (int)(seconds % 60)) : STATUS_OK;
}

static enum status put_instant(struct repr *repr, enum base base, int64_t value) {
    int64_t seconds = 0, fraction = 0, per_second = 1;
    int digits = base > SECONDS ? 3 * (int)(base - SECONDS) : 0;
    for (int i = 0; i < digits; i++)
        per_second *= 10;
    value = divide(value, per_second, &fraction);
    int64_t per_day = base == HOURS ? 24 : base == MINUTES ? 24 * 60 : SECONDS_PER_DAY;
    TRY(put_date(repr, divide(value, per_day, &seconds)));
    TRY(put_clock(repr, base, seconds * (SECONDS_PER_DAY / per_day)));
    return digits > 0 ? repr_put_format(repr, ".%0*" PRId64, digits, fraction) : STATUS_OK;
}

static enum status put_time(struct repr *repr, struct unit unit, int64_t value) {
    int64_t month = 0;
    if (__builtin_mul_overflow(value, unit.num, &value) ||
        (unit.base == WEEKS && __builtin_mul_overflow(value, DAYS_PER_WEEK, &value)))
        return STATUS_NOT_FOUND;
    if (unit.base >= HOURS)
        return put_instant(repr, (enum base)unit.base, value);
    if (unit.base >= WEEKS)
        return put_date(repr, value);
    if (unit.base == MONTHS)
        value = divide(value, 12, &month);
    if (value < -DAYS_LIMIT || value > DAYS_LIMIT)
        return STATUS_NOT_FOUND;
    TRY(repr_put_format(repr, "%04" PRId64, value + 1970));
    return unit.base == MONTHS ? repr_put_format(repr, "-%02d", (int)month + 1) : STATUS_OK;
}

static enum status put_datetime(struct repr *repr, struct unit unit, int64_t value) {
    TRY(repr_put(repr, "np.datetime64('"));
    if (value == INT64_MIN)
        TRY(repr_put(repr, "NaT"));
    else
        TRY(unit.base == GENERIC ? STATUS_NOT_FOUND : put_time(repr, unit, value));
    return repr_put(repr, "')");
}

static enum status put_timedelta(struct repr *repr, const char *unit_text, int64_t value) {
    TRY(repr_put(repr, "np.timedelta64("));
    TRY(value == INT64_MIN ? repr_put(repr, "'NaT'") : repr_put_format(repr, "%" PRId64, value));
    if (unit_text[0] != '\0')
        TRY(repr_put_format(repr, ",'%s'", unit_text));
    return repr_put(repr, ")");
}

enum status repr_show_numpy_time(struct repr *repr, remote_addr object, const struct type_info *type) {
    uint8_t bytes[SCALAR_BYTES];
    char unit_text[UNIT_TEXT_BYTES];
    TRY(memory_read(repr->runtime->objects, object + repr->runtime->layout.object.size, bytes, sizeof bytes));
    struct unit unit = {load_i32(bytes + 8), load_i32(bytes + 12)};
    int64_t value = (int64_t)load_u64(bytes);
    if (!format_unit(unit, unit_text))
        return STATUS_NOT_FOUND;
    if (type_name(type)[0] == 't')
        return put_timedelta(repr, unit_text, value);
    struct repr_mark before = repr_mark(repr);
    enum status status = put_datetime(repr, unit, value);
    if (status == STATUS_NOT_FOUND)
        repr_rewind(repr, &before);
    return status;
}

enum status repr_put_numpy_unit(struct repr *repr, remote_addr descr, bool old) {
    remote_addr at = descr + repr->runtime->layout.object.size + (old ? DESCR_METADATA_OLD : DESCR_METADATA_NEW);
    remote_addr metadata = 0;
    uint8_t bytes[UNIT_BYTES];
    char text[UNIT_TEXT_BYTES];
    TRY(memory_read_u64(repr->runtime->objects, at, &metadata));
    TRY(memory_read(repr->runtime->objects, metadata + AUXILIARY_BYTES, bytes, sizeof bytes));
    struct unit unit = {load_i32(bytes), load_i32(bytes + 4)};
    if (!format_unit(unit, text))
        return STATUS_TORN;
    return text[0] != '\0' ? repr_put_format(repr, "[%s]", text) : STATUS_OK;
}
